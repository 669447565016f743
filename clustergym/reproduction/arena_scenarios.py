"""Builds the scenario of each run of Arena and Crius: a place, a setting, and changes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.arrays import Bools, Floats
from clustergym.interface.policy import InformationClass
from clustergym.oracle.bootstrap import linear
from clustergym.reproduction.arena_places import MEASUREMENTS, PLACES, ROUND_S, TRACES
from clustergym.reproduction.claims import PUBLISHED
from clustergym.reproduction.study import RunSpec, check_published
from clustergym.scenarios.costs import Costs, Search
from clustergym.scenarios.scenario import Scenario

MEMORY = "arena_dp_memory.csv"
PROFILING_RATIO = 18.1
"""How much more GPU time profiling whole plans takes than Arena's own (its section 5.5)."""
DEADLINE_BUDGETS = 5.0
"""The artifact's simulator multiplies the time that each job has until its deadline by this."""
PRIORITY_SEED = 0
"""The seed of the priorities that jobs draw; no trace has any."""
RESTRICTED = (InformationClass.DATA_PARALLEL, InformationClass.BOOTSTRAP)
"""What policies know that profile data-parallel plans alone; the memory rule restricts these."""


MARGIN, USABLE = 1.2, 0.8
"""The artifact's test of whether pure data parallelism fits: memory x 1.2 <= 0.8 x the GPU's."""


def check_data(folder: Path) -> None:
    """Raise an `InputError` unless the published files are there."""
    check_published(folder / "arena" / name for name in (MEASUREMENTS, MEMORY, *TRACES))


def run_of(trace: str, rounds: int | None, setting: str, policy: str, **parameters: Any) -> RunSpec:
    """Return a run that lasts a number of rounds."""
    horizon_s = None if rounds is None else rounds * ROUND_S
    return RunSpec(trace, horizon_s, setting, policy, tuple(parameters.items()))


RunOf = Callable[[str, str], RunSpec]
"""Returns the run of a policy in a setting."""


def runs_at(trace: str, rounds: int | None = None) -> RunOf:
    """Return what names the run of a policy in a setting, on a trace."""
    return lambda setting, policy: run_of(trace, rounds, setting, policy)


def variant(setting: str, change: str, value: float | None = None) -> str:
    """Return the name of a setting with one of `CHANGES`."""
    return f"{setting}; {change}" if value is None else f"{setting}; {change} {value:g}"


def scenario_of(data: Path, spec: RunSpec) -> Scenario:
    """Return the scenario of a run: a setting by name, with the changes that `variant` added."""
    setting, *changes = spec.setting.split("; ")
    scenario = _of_place(data, spec.trace)
    if spec.horizon_s is not None:
        scenario = replace(scenario, horizon_s=spec.horizon_s)
    if setting == PUBLISHED:
        information = spec.make_policy().information_class
        scenario = _as_published(scenario, data, information, PLACES[spec.trace].measured)
    for change in changes:
        name, _, value = change.partition(" ")
        scenario = CHANGES[name](scenario, float(value or 1.0))
    return scenario


@cache
def _of_place(data: Path, name: str) -> Scenario:
    from clustergym.scenarios.by_name import load_scenario

    folder, place = data.absolute() / "arena", PLACES[name]
    return load_scenario(place.scenario, [one.replace("{data}", str(folder)) for one in place.overrides])


def _as_published(
    scenario: Scenario, data: Path, information: InformationClass, memory_rule: bool
) -> Scenario:
    """Return a scenario without checkpoints and profiling; for a baseline with full searches and the rule."""
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
    """A scenario in which bootstrapped policies know the `precise` least counts (Arena, section 2.3)."""

    precise: int = 1

    def known_times(self, information: InformationClass) -> Floats:
        """Return what a class knows; a bootstrapped one more than the least count."""
        if information != InformationClass.BOOTSTRAP:
            return super().known_times(information)
        times = super().known_times(InformationClass.CLAIRVOYANT)
        return linear(times, self.feasible, self.tables.counts, self.precise)


def _precise(scenario: Scenario, counts: float) -> Scenario:
    given = {one.name: getattr(scenario, one.name) for one in fields(scenario) if one.init}
    return PreciseBootstrap(**given, precise=int(counts))


def _full_profiling(scenario: Scenario, _: float) -> Scenario:
    prices = scenario.costs.profile or Costs().profile
    longer = {name: replace(one, seconds=one.seconds * PROFILING_RATIO) for name, one in prices.items()}
    return _costs(scenario, profile=longer)


def _deadlines(scenario: Scenario, factor: float) -> Scenario:
    submit_s, deadline_s = scenario.trace.submit_s, scenario.trace.deadline_s
    return _trace(scenario, deadline_s=submit_s + factor * (deadline_s - submit_s))


def _lifespan(scenario: Scenario, factor: float) -> Scenario:
    return _trace(scenario, iterations=np.maximum((scenario.trace.iterations * factor).astype(np.int64), 1))


def _density(scenario: Scenario, factor: float) -> Scenario:
    trace = scenario.trace
    return _trace(scenario, submit_s=trace.submit_s / factor, deadline_s=trace.deadline_s / factor)


def _priorities(scenario: Scenario, queues: float) -> Scenario:
    random = np.random.default_rng(PRIORITY_SEED)
    return _trace(scenario, priority=random.integers(0, int(queues), len(scenario.trace)))


def _jitter(scenario: Scenario, seed: float) -> Scenario:
    late_s = np.random.default_rng(int(seed)).uniform(0.0, ROUND_S, len(scenario.trace))
    return _trace(scenario, submit_s=np.sort(scenario.trace.submit_s + late_s))


def _trace(scenario: Scenario, **columns: Any) -> Scenario:
    return replace(scenario, trace=replace(scenario.trace, **columns))


def _costs(scenario: Scenario, **rules: Any) -> Scenario:
    return replace(scenario, costs=replace(scenario.costs, **rules))


CHANGES: Mapping[str, Callable[[Scenario, float], Scenario]] = {
    "full-search": lambda scenario, _: _costs(scenario, search="full"),
    "full-profiling": _full_profiling,
    "profiling": lambda scenario, _: _costs(scenario, profile=Costs().profile),
    "deadlines-x": _deadlines,
    "lifespan-x": _lifespan,
    "density-x": _density,
    "queues": _priorities,
    "jitter": _jitter,
    "precise": _precise,
}
"""What a setting may be changed by, given one number: full search, profiling of whole plans, or at our
price; deadline budgets, iterations or submissions a second times a factor; random priorities of so many
values; submissions late by up to a round (seed); so many precise counts in a bootstrap."""


Memory = Mapping[tuple[str, str, int], Mapping[int, float]]
"""(family, size, global batch) -> data-parallel degree -> GB a GPU."""


@cache
def read_memory(path: Path) -> Memory:
    """Read the memory that pure data parallelism takes; leave out a row without a value."""
    from clustergym.inputs.columns import integers, numbers
    from clustergym.inputs.text_files import read_csv
    from clustergym.models.catalog import ARENA_FAMILIES

    rows = read_csv(path, ("model_family", "params", "batch_size", "dp_degree", "memory_gb"))
    batch, degree = integers(rows, "batch_size", low=1), integers(rows, "dp_degree", low=1)
    memory_gb = numbers(rows, "memory_gb", default=float("nan"))
    found: dict[tuple[str, str, int], dict[int, float]] = {}
    for at in np.flatnonzero(np.isfinite(memory_gb)).tolist():
        family = rows.columns["model_family"][at]
        model = (ARENA_FAMILIES.get(family, family), rows.columns["params"][at], int(batch[at]))
        found.setdefault(model, {})[int(degree[at])] = float(memory_gb[at])
    return found


def data_parallel_fits(scenario: Scenario, memory: Memory) -> Bools:
    """Return where the memory rule holds, shape (C, T, K).

    A count above the greatest recorded degree takes as much as that one; what has no value does not fit.
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
