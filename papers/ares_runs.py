"""The traces and runs of the reproduction of Ares, and the averages and gains that its parts share."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clustergym.scenario.scenario import Scenario

from .reproduction import Figures, Found, Parameters, RunSpec, check_published

WHOLE, START = "whole", "start"
"""Settings: the whole trace, or its first `START_JOBS` jobs."""
START_JOBS = 160
COSTS = "costs=ares-profiled-free"
"""Its relaunch costs. Whether its simulator counts a job's profile (section 4) is not stated."""
JOBS_PER_HOUR_A_GPU = 640 / 2048
"""Ares's decision times are for up to 640 jobs an hour on 2,048 GPUs."""
TIMED_S = 2 * 3600.0


class TraceType(NamedTuple):
    """A type of traces: the folder of the paper Sia's traces, and settings that generate similar ones."""

    sia: str
    generator: str
    jobs: int
    span_s: float
    most_s: float
    start_hour: int
    workloads: Sequence[int]


TRACE_TYPES = {
    "philly": TraceType("philly", "philly-like", 160, 28800.0, 86400.0, 8, (1, 2, 3, 4)),
    "helios": TraceType("saturn", "helios-like", 160, 28800.0, 172800.0, 8, (1, 2, 3, 4)),
    "newtrace": TraceType("newtrace", "newtrace-like", 960, 172800.0, 86400.0, 0, (1,)),
}
"""Ares has 160 jobs in 8 h, in newTrace 960 in 48 h. Saturn is a cluster of Helios.

As many generated traces run beside Sia's workloads; each run on newTrace takes minutes.
"""
TESTBED, TESTBED_SEEDS = "testbed", (1, 2, 3)
"""The generated traces on 16 GPUs (section 5.2) have a name and seeds of their own."""


def trace_names(trace_type: str, quick: bool) -> list[str]:
    """Return the names of a type's traces: the paper Sia's and generated ones; only the first if `quick`."""
    if trace_type == TESTBED:
        names = [f"philly {TESTBED} {seed}" for seed in TESTBED_SEEDS]
    else:
        numbers = TRACE_TYPES[trace_type].workloads
        names = [f"{trace_type} {source} {at}" for source in ("sia", "generated") for at in numbers]
    return names[:1] if quick else names


def check_data(folder: Path, names: list[str]) -> None:
    """Raise an `InputError` unless the published files that the traces need are there."""
    wanted = [_workload(folder, name) for name in names if " sia " in name]
    check_published([*wanted, folder / "sia" / "profiles"])


def _workload(folder: Path, name: str) -> Path:
    trace_type, _, number = name.split()
    return folder / "sia" / "workloads" / TRACE_TYPES[trace_type].sia / f"workload-{number}.csv"


def build_run_scenario(data: Path, spec: RunSpec) -> Scenario:
    """Build the scenario of a run from its trace and setting."""
    scenario = _of_trace(data, spec.trace)
    if spec.setting == START and len(scenario.trace) > START_JOBS:
        scenario = replace(scenario, trace=scenario.trace.take(range(START_JOBS)))
    return scenario


@cache
def _of_trace(data: Path, name: str) -> Scenario:
    from clustergym.scenario.by_name import load_scenario

    trace_type, source, number = name.split()
    folder = data.absolute() / "sia"
    profiles = folder / "profiles"
    if source == "sia":
        path = _workload(data.absolute(), name)
        trace = ["trace=file", f"trace.path='{path}'", f"trace.sia_profiles='{profiles}'"]
    elif source == TESTBED:
        jobs = list_generated_overrides(TRACE_TYPES["philly"], 40, 14400.0, int(number))
        trace = ["cluster=ares-16", *jobs, "++trace.requests=arena"]
    else:
        of = TRACE_TYPES[trace_type]
        trace = list_generated_overrides(of, of.jobs, of.span_s, int(number))
    return load_scenario("ares", [COSTS, *trace, "oracle=sia", f"oracle.path='{profiles}'"])


def list_generated_overrides(trace_type: TraceType, jobs: int, span_s: float, seed: int) -> list[str]:
    """Return the configuration overrides that generate a trace of a type with a seed."""
    parameters = (
        f"rule=ares any_type=true jobs={jobs} span_s={span_s} load=1.0 max_gpus=16 min_duration_s=60.0 "
        f"max_duration_s={trace_type.most_s} start_hour={trace_type.start_hour} seed={seed}"
    )
    return [f"trace={trace_type.generator}", *(f"++trace.{parameter}" for parameter in parameters.split())]


@cache
def build_timed_scenario(gpus: int) -> Scenario:
    """Build a scenario of two hours of Philly-like jobs at full load on a cluster of that many GPUs."""
    from clustergym.scenario.by_name import load_scenario

    jobs = round(JOBS_PER_HOUR_A_GPU * gpus * TIMED_S / 3600)
    nodes = f"cluster.nodes=[{{gpu_type:RTX2080Ti,count:{gpus // 4},gpus_per_node:4}}]"
    trace = list_generated_overrides(TRACE_TYPES["philly"], jobs, TIMED_S, 1)
    return load_scenario("ares", [COSTS, nodes, *trace, f"horizon_s={TIMED_S}"])


POLICIES = ("ares", "gavel", "themis", "allox", "tiresias", "lucid", "optimus", "pollux")
ALPHAS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 1.0)
QUICK_ALPHAS = (0.5, 0.65, 0.75, 0.8, 0.85, 1.0)
FIXED: Mapping[str, Parameters] = {"pollux": (("batch", "requested"),)}
"""Parameters of policies that would choose the batch: all jobs train at the requested one (section 3.1)."""
FEWER = {("newtrace", "pollux"): 1}
"""Number of traces that a policy runs on, where a run takes minutes (Pollux's genetic search)."""
METRICS = ("jct_mean", "jct_p99", "unfair_fraction", "ftf_worst", "preemptions_mean", "restarts_mean")


class Gain(NamedTuple):
    """The share by which Ares's metric is below another policy's; negative where it is above."""

    other: str
    share: float


class AresRuns(NamedTuple):
    """The runs that reproduce Ares's paper: their data, traces and policies."""

    data: Path
    quick: bool
    policies: Sequence[str]

    @property
    def length(self) -> str:
        """Name of the runs' setting: whole traces, or only the traces' starts if `quick` is set."""
        return START if self.quick else WHOLE

    def specs(self, trace_type: str, policy: str, alpha: float | None = None) -> list[RunSpec]:
        """Describe a policy's runs on all traces of a type; with `alpha` set, on every second trace only."""
        parameters: Parameters = () if alpha is None else (("alpha", alpha),)
        names = trace_names(trace_type, self.quick)[: FEWER.get((trace_type, policy))]
        parameters += FIXED.get(policy, ())
        step = 1 if alpha is None else 2
        return [RunSpec(name, None, self.length, policy, parameters) for name in names[::step]]

    @property
    def alphas(self) -> Sequence[float]:
        """Tested values of Ares's parameter alpha."""
        return QUICK_ALPHAS if self.quick else ALPHAS

    def label(self, trace_type: str, policy: str) -> str:
        """Return a policy's name, and on how many traces it was run where these are not all."""
        run, there = len(self.specs(trace_type, policy)), len(trace_names(trace_type, self.quick))
        return policy + (f" (first {run} of {there})" if run < there else "")

    def averages(self, found: Found, trace_type: str, policy: str) -> Figures:
        """Return the mean of each metric over the runs of a policy on traces of a type."""
        return _averages(found, self.specs(trace_type, policy))

    def beside(self, found: Found, trace_type: str, policy: str) -> Figures:
        """Return the mean of each metric of Ares over those traces on which a policy was run."""
        names = {spec.trace for spec in self.specs(trace_type, policy)}
        return _averages(found, [spec for spec in self.specs(trace_type, "ares") if spec.trace in names])

    def gains(self, found: Found, trace_type: str, metric: str) -> list[Gain]:
        """Return by what share Ares's metric is below each other policy's, in ascending order."""
        compared = []
        for policy in (name for name in self.policies if name != "ares"):
            ours = self.beside(found, trace_type, policy)[metric]
            theirs = self.averages(found, trace_type, policy)[metric]
            compared.append(Gain(policy, 1 - ours / theirs if theirs else 0.0))
        return sorted(compared, key=lambda gain: gain.share)


def _averages(found: Found, specs: Sequence[RunSpec]) -> Figures:
    return {name: float(np.mean([found[spec][name] for spec in specs])) for name in METRICS}
