"""Builds the scenario of each run of Arena and Crius: a place, a setting, and changes of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.common import random_streams
from clustergym.common.arrays import Bools, Floats
from clustergym.oracle.base import linear
from clustergym.scenario.costs import Costs, Search
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.scenario import Scenario

from .claims import PUBLISHED
from .reproduction import RunSpec, check_published

MEASUREMENTS, MEMORY = "arena_profile.csv", "arena_dp_memory.csv"
TRACES = {
    "philly": "simulate_trace_philly.csv",
    "venus": "simulate_trace_venus.csv",
    "testbed": "runtime_trace.csv",
    "revision": "runtime_trace_revision.csv",
}
ROUND_S = 300.0
_PHILLY, _VENUS, _TESTBED, _REVISION = (
    f"trace=file trace.path='{{data}}/{name}'" for name in TRACES.values()
)
_MEASURED = f"oracle=table oracle.path='{{data}}/{MEASUREMENTS}' oracle.missing=estimate"
_SIMULATED = f"cluster=arena-sim scenario.rounds={ROUND_S:.0f}"
_PAI_DAY = "trace=pai-like trace.jobs=400 trace.span_s=86400 trace.load=0.5 trace.requests=arena"
_PORT = "nic_gbps:200,nic_per_gpu:false"
_H100 = f"cluster.nodes=[{{gpu_type:H100,count:16,gpus_per_node:8,{_PORT}}}] scenario.other_types=any"
PLACES = {
    "philly": f"large {_PHILLY} {_MEASURED} {_SIMULATED}",
    "venus": f"large {_VENUS} {_MEASURED} {_SIMULATED}",
    "testbed-a": f"testbed {_TESTBED} {_MEASURED}",
    "testbed-b": f"testbed cluster=arena-b {_REVISION} oracle=grid",
    "h100": f"testbed cluster=arena-b {_REVISION} oracle=grid {_H100}",
    "venus-day": f"large {_VENUS} {_MEASURED} {_SIMULATED}",
    "pai-day": f"large {_PAI_DAY} {_MEASURED} {_SIMULATED}",
}
"""The clusters and traces on which Arena is compared: a file of conf/scenario, and overrides."""
OTHER_PLACES = [name for name in PLACES if name not in ("philly", "venus")]
"""Places that each have a section of their own, with a passage of their name."""
TESTBEDS = ("testbed-a", "testbed-b")
"""The places of the quick form."""
PROFILING_RATIO = 18.1
"""How much more GPU time profiling whole plans takes than Arena's own (its section 5.5)."""
BUDGET_FACTOR = 5.0
"""The artifact's simulator multiplies the time that each job has until its deadline by this."""
RESTRICTED = (InformationClass.DATA_PARALLEL, InformationClass.BOOTSTRAP)
"""Information classes of policies that profile data-parallel plans only; the memory rule restricts them."""
MARGIN, USABLE = 1.2, 0.8
"""The artifact's test of whether pure data parallelism fits: memory x 1.2 <= 0.8 x the GPU's."""


def check_data(folder: Path) -> None:
    """Raise an `InputError` unless the paper's published files are in a folder."""
    check_published(folder / "arena" / name for name in (MEASUREMENTS, MEMORY, *TRACES.values()))


def make_run(trace: str, rounds: int | None, setting: str, policy: str, **parameters: Any) -> RunSpec:
    """Describe a run of a policy that lasts a number of rounds, or to completion if that is None."""
    horizon_s = None if rounds is None else rounds * ROUND_S
    return RunSpec(trace, horizon_s, setting, policy, tuple(parameters.items()))


def variant(setting: str, change: str, value: float | None = None) -> str:
    """Return the name of a setting with one change applied, and with the change's value if it has one."""
    return f"{setting}; {change}" if value is None else f"{setting}; {change} {value:g}"


def is_measured(place: str) -> bool:
    """Return whether the paper's artifact contains measured iteration times on the cluster `place`."""
    return _MEASURED in PLACES[place]


def build_run_scenario(data: Path, spec: RunSpec) -> Scenario:
    """Build the scenario of a run from its trace and setting, with the changes named in the setting."""
    setting, *changes = spec.setting.split("; ")
    scenario = _of_place(data, spec.trace)
    if spec.horizon_s is not None:
        scenario = replace(scenario, horizon_s=spec.horizon_s)
    if setting == PUBLISHED:
        information = spec.make_policy().information_class
        scenario = _as_published(scenario, data, information, is_measured(spec.trace))
    for change in changes:
        name, _, value = change.partition(" ")
        scenario = CHANGES[name](scenario, float(value or 1.0))
    return scenario


@cache
def _of_place(data: Path, name: str) -> Scenario:
    from clustergym.scenario.by_name import load_scenario

    folder, (scenario, *overrides) = data.absolute() / "arena", PLACES[name].split()
    return load_scenario(scenario, [override.replace("{data}", str(folder)) for override in overrides])


def _as_published(
    scenario: Scenario, data: Path, information: InformationClass, memory_rule: bool
) -> Scenario:
    """Return a scenario without checkpoints and profiling, in which baselines search in full."""
    search: Search = "pruned" if information == InformationClass.PROFILED else "full"
    costs = replace(scenario.costs, profile={}, search=search)
    scenario = replace(scenario, costs=costs, checkpoint_s=np.zeros_like(scenario.checkpoint_s))
    if information not in RESTRICTED or not memory_rule:
        return scenario
    tables, memory = scenario.tables, read_memory(data / "arena" / MEMORY)
    fits, names = data_parallel_fits(scenario, memory)[..., None], ("execution", "profiled", "data_parallel")
    kept: dict[str, Any] = {name: np.where(fits, getattr(tables, name), np.inf) for name in names}
    return replace(scenario, tables=replace(tables, **kept))


@dataclass(frozen=True)
class PreciseBootstrap(Scenario):
    """A scenario in which policies that usually know iteration times at one GPU count know them at several.

    These are policies of the information class `bootstrap`. `precise` is the number of these counts,
    which are the smallest; times are scaled linearly to larger ones.
    """

    precise: int = 1

    def known_times(self, information: InformationClass) -> Floats:
        """Return the iteration times that a policy may know, by model class, GPU type and count (C, T, K)."""
        if information != InformationClass.BOOTSTRAP:
            return super().known_times(information)
        times = super().known_times(InformationClass.CLAIRVOYANT)
        return linear(times, self.feasible, self.tables.counts, self.precise)


def _precise(scenario: Scenario, counts: float) -> Scenario:
    given = {field.name: getattr(scenario, field.name) for field in fields(scenario) if field.init}
    return PreciseBootstrap(**given, precise=int(counts))


def _full_profiling(scenario: Scenario, _: float) -> Scenario:
    prices = scenario.costs.profile or Costs().profile
    longer = {name: replace(price, seconds=price.seconds * PROFILING_RATIO) for name, price in prices.items()}
    return _costs(scenario, profile=longer)


def _trace(scenario: Scenario, **columns: Any) -> Scenario:
    return replace(scenario, trace=replace(scenario.trace, **columns))


def _costs(scenario: Scenario, **rules: Any) -> Scenario:
    return replace(scenario, costs=replace(scenario.costs, **rules))


CHANGES: Mapping[str, Callable[[Scenario, float], Scenario]] = {
    "full-search": lambda s, _: _costs(s, search="full"),
    "full-profiling": _full_profiling,
    # The time until a deadline, the iterations, or the submissions a second, times a factor.
    "deadlines-x": lambda s, factor: _trace(
        s, deadline_s=s.trace.submit_s + factor * (s.trace.deadline_s - s.trace.submit_s)
    ),
    "lifespan-x": lambda s, factor: _trace(
        s, iterations=np.maximum((s.trace.iterations * factor).astype(np.int64), 1)
    ),
    "density-x": lambda s, factor: _trace(
        s, submit_s=s.trace.submit_s / factor, deadline_s=s.trace.deadline_s / factor
    ),
    # Submissions late by up to a round, drawn with this seed.
    "jitter": lambda s, seed: _trace(
        s,
        submit_s=np.sort(
            s.trace.submit_s
            + random_streams.SUBMISSION_JITTER.generator(int(seed)).uniform(0.0, ROUND_S, len(s.trace))
        ),
    ),
    # So many precise counts in a bootstrap.
    "precise": _precise,
}
"""What a setting may be changed by, given one number."""


Memory = Mapping[tuple[str, str, int], Mapping[int, float]]
"""(family, size, global batch) -> data-parallel degree -> GB a GPU."""


@cache
def read_memory(path: Path) -> Memory:
    """Read the memory (GB) that pure data parallelism needs, by model and GPU count; skip empty rows."""
    from clustergym.common.columns import integers, numbers
    from clustergym.common.text_files import read_csv
    from clustergym.oracle.models.catalog import ARENA_FAMILIES

    rows = read_csv(
        path, ("model_family", "params", "batch_size", "dp_degree", "memory_gb"), optional=("recorded",)
    )
    batch, degree = integers(rows, "batch_size", low=1), integers(rows, "dp_degree", low=1)
    memory_gb = numbers(rows, "memory_gb", default=float("nan"))
    found: dict[tuple[str, str, int], dict[int, float]] = {}
    for at in np.flatnonzero(np.isfinite(memory_gb)).tolist():
        family = rows.columns["model_family"][at]
        model = (ARENA_FAMILIES.get(family, family), rows.columns["params"][at], int(batch[at]))
        found.setdefault(model, {})[int(degree[at])] = float(memory_gb[at])
    return found


def data_parallel_fits(scenario: Scenario, memory: Memory) -> Bools:
    """Return whether data parallelism fits in memory by model class, GPU type and count, shape (C, T, K).

    A count above the greatest recorded degree takes as much as that degree; without a record it does not fit.
    """
    tables, groups = scenario.tables, scenario.cluster.groups
    usable_gb = {group.gpu_type.name: USABLE * group.gpu_type.memory_gb for group in groups}
    fits = np.zeros(tables.execution.shape[:3], dtype=np.bool_)
    for c, model in enumerate(tables.classes):
        by_degree = memory.get((model.family, model.size, model.global_batch), {})
        greatest = max(by_degree, default=0)
        for k, count in enumerate(tables.counts.tolist()):
            needed_gb = MARGIN * by_degree.get(min(count, greatest), np.inf)
            fits[c, :, k] = [needed_gb <= usable_gb[name] for name in tables.gpu_types]
    return fits
