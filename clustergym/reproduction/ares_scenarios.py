"""The traces of Ares's simulations: Sia's published workloads and generated ones, on 64 GPUs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from clustergym.reproduction.study import Cell, check_published
from clustergym.scenario import Scenario

WHOLE, START = "whole", "start"
"""Settings of a trace: all of it, or its first `START_JOBS` jobs."""
START_JOBS = 160

DECISIONS = "decisions"
"""Setting of the runs that time decisions: a cluster of as many GPUs as the trace's name says."""

JOBS_PER_HOUR_A_GPU = 640 / 2048
"""Ares's decision times are for up to 640 jobs an hour on 2,048 GPUs."""
TIMED_S = 2 * 3600.0


class Kind(NamedTuple):
    """A kind of trace: Sia's folder of it, and what a generated one has."""

    sia: str
    generator: str
    jobs: int
    span_s: float
    most_s: float
    start_hour: int


KINDS = {
    "philly": Kind("philly", "philly-like", 160, 28800.0, 86400.0, 8),
    "helios": Kind("saturn", "helios-like", 160, 28800.0, 172800.0, 8),
    "newtrace": Kind("newtrace", "newtrace-like", 960, 172800.0, 86400.0, 0),
}
"""As Ares: 160 jobs in 8 h, newTrace 960 in 48 h. Saturn is a cluster of Helios."""

WORKLOADS = (1, 2, 3, 4)


def trace_names(kind: str, quick: bool) -> list[str]:
    """Return the traces of a kind: Sia's workloads, then as many generated; `quick`: the first alone."""
    if quick:
        return [f"{kind} sia 1"]
    return [f"{kind} {source} {number}" for source in ("sia", "generated") for number in WORKLOADS]


def check_data(folder: Path, names: list[str]) -> None:
    """Raise an `InputError` unless the published files that the traces need are there."""
    wanted = [_workload(folder, name) for name in names if " sia " in name] + [folder / "sia" / "profiles"]
    check_published(wanted)


def _workload(folder: Path, name: str) -> Path:
    kind, _, number = name.split()
    return folder / "sia" / "workloads" / KINDS[kind].sia / f"workload-{number}.csv"


def scenario_of(data: Path, cell: Cell) -> Scenario:
    """Return the scenario of a cell."""
    if cell.setting == DECISIONS:
        return timed_scenario(int(cell.trace))
    scenario = _of_trace(data, cell.trace)
    if cell.setting == START and len(scenario.trace) > START_JOBS:
        return replace(scenario, trace=scenario.trace.take(range(START_JOBS)))
    return scenario


@cache
def _of_trace(data: Path, name: str) -> Scenario:
    from clustergym.api import load_scenario

    kind, source, number = name.split()
    profiles = data.absolute() / "sia" / "profiles"
    if source == "sia":
        path = _workload(data.absolute(), name)
        trace = ["trace=file", f"trace.path='{path}'", f"trace.sia_profiles='{profiles}'"]
    else:
        trace = generated(KINDS[kind], KINDS[kind].jobs, KINDS[kind].span_s, int(number))
    return load_scenario("ares", [*trace, "oracle=sia", f"oracle.path='{profiles}'"])


def generated(kind: Kind, jobs: int, span_s: float, seed: int) -> list[str]:
    """Return the overrides of a generated trace: as the committed ones, of another seed."""
    parameters = {
        "rule": "ares",
        "any_type": "true",
        "jobs": jobs,
        "span_s": span_s,
        "load": 1.0,
        "max_gpus": 16,
        "min_duration_s": 60.0,
        "max_duration_s": kind.most_s,
        "start_hour": kind.start_hour,
        "seed": seed,
    }
    return [f"trace={kind.generator}", *(f"++trace.{name}={value}" for name, value in parameters.items())]


@cache
def timed_scenario(gpus: int) -> Scenario:
    """Return Philly-like jobs for two hours on a cluster of that many GPUs, at full load."""
    from clustergym.api import load_scenario

    jobs = round(JOBS_PER_HOUR_A_GPU * gpus * TIMED_S / 3600)
    nodes = f"cluster.nodes=[{{gpu_type:RTX2080Ti,count:{gpus // 4},gpus_per_node:4}}]"
    trace = generated(KINDS["philly"], jobs, TIMED_S, 1)
    return load_scenario("ares", [nodes, *trace, f"horizon_s={TIMED_S}"])
