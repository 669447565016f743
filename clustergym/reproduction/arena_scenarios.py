"""Arena's simulated cluster, its published traces, and the two settings they are run under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from clustergym.policy import InformationClass
from clustergym.reproduction import arena_elsewhere as elsewhere
from clustergym.reproduction.study import Cell, check_published, make_preset
from clustergym.scenario import Scenario

TRACES = {"philly": "simulate_trace_philly.csv", "venus": "simulate_trace_venus.csv"}
TESTBED_TRACES = ("runtime_trace.csv", "runtime_trace_revision.csv")
PROFILE, MEMORY = "arena_profile.csv", "arena_dp_memory.csv"
ROUND_S = 300.0

FAIR, PUBLISHED = "fair", "as published"
PRUNED_OFF, FULL_PROFILING = "full search", "full profiling"
PROFILING_RATIO = 18.1
"""How much more GPU time profiling whole plans takes than Arena's own (its section 5.4)."""

RESTRICTED = (InformationClass.DATA_PARALLEL, InformationClass.BOOTSTRAP)
"""What policies know that run data-parallel profiles only, in the published setting."""


@dataclass(frozen=True)
class MemoryRule:
    """The artifact's test of whether pure data parallelism fits: memory x 1.2 <= 0.8 x the GPU's."""

    margin: float = 1.2
    usable: float = 0.8


def check_data(folder: Path) -> None:
    """Raise an `InputError` unless the published files are there."""
    names = (PROFILE, MEMORY, *TRACES.values(), *TESTBED_TRACES)
    check_published(folder / "arena" / name for name in names)


def scenario_of(data: Path, cell: Cell) -> Scenario:
    """Return the scenario of a cell."""
    if cell.trace in elsewhere.PLACES:
        return elsewhere.scenario_of(data, cell.trace)
    scenario = replace(_base(data, cell.trace), horizon_s=cell.horizon_s)
    if cell.setting == PUBLISHED:
        return _as_published(scenario, data, make_preset(cell).information_class)
    costs = scenario.costs
    if cell.setting == PRUNED_OFF:
        costs = replace(costs, search="full")
    if cell.setting == FULL_PROFILING:
        longer = {
            name: replace(price, seconds=price.seconds * PROFILING_RATIO)
            for name, price in costs.profile.items()
        }
        costs = replace(costs, profile=longer)
    return replace(scenario, costs=costs)


@cache
def _base(data: Path, trace: str) -> Scenario:
    from clustergym.api import load_scenario

    folder = data.absolute() / "arena"
    overrides = [
        "cluster=arena-sim",
        "trace=file",
        f"trace.path='{folder / TRACES[trace]}'",
        "oracle=table",
        f"oracle.path='{folder / PROFILE}'",
        "oracle.missing=estimate",
        f"scenario.rounds={ROUND_S:.0f}",
    ]
    return load_scenario("large", overrides)


def _as_published(scenario: Scenario, data: Path, information: InformationClass) -> Scenario:
    """Return a scenario without checkpoints; for a baseline with full searches and within the memory rule."""
    pruned = information == InformationClass.PROFILED
    costs = replace(scenario.costs, search="pruned" if pruned else "full")
    scenario = replace(scenario, costs=costs, checkpoint_s=np.zeros_like(scenario.checkpoint_s))
    if information not in RESTRICTED:
        return scenario
    fits = data_parallel_fits(scenario, read_memory(data / "arena" / MEMORY))[..., None]
    tables = scenario.tables
    kept = replace(
        tables,
        execution=np.where(fits, tables.execution, np.inf),
        profiled=np.where(fits, tables.profiled, np.inf),
        data_parallel=np.where(fits, tables.data_parallel, np.inf),
    )
    return replace(scenario, tables=kept)


Memory = Mapping[tuple[str, str, int], Mapping[int, float]]
"""(family, size, global batch) -> data-parallel degree -> GB a GPU."""


@cache
def read_memory(path: Path) -> Memory:
    """Read what pure data parallelism takes; a row without a value is as good as none."""
    from clustergym.oracle.catalog import ARENA_FAMILIES
    from clustergym.workload.fields import integers, numbers
    from clustergym.workload.files import read_csv

    columns = ("model_family", "params", "batch_size", "dp_degree", "memory_gb")
    rows = read_csv(path, columns)
    batch, degree = integers(rows, "batch_size", low=1), integers(rows, "dp_degree", low=1)
    memory_gb = numbers(rows, "memory_gb", default=float("nan"))
    found: dict[tuple[str, str, int], dict[int, float]] = {}
    for at in np.flatnonzero(np.isfinite(memory_gb)).tolist():
        family = rows.columns["model_family"][at]
        model = (ARENA_FAMILIES.get(family, family), rows.columns["params"][at], int(batch[at]))
        found.setdefault(model, {})[int(degree[at])] = float(memory_gb[at])
    return found


def data_parallel_fits(
    scenario: Scenario, memory: Memory, rule: MemoryRule | None = None
) -> npt.NDArray[np.bool_]:
    """Return where the memory rule holds, shape (C, T, K).

    A count above the greatest recorded degree takes no more than that one; what has no value fits not.
    """
    rule = rule or MemoryRule()
    tables, groups = scenario.tables, scenario.cluster.groups
    usable_gb = {group.gpu_type.name: rule.usable * group.gpu_type.memory_gb for group in groups}
    fits = np.zeros(tables.execution.shape[:3], dtype=np.bool_)
    for c, model in enumerate(tables.classes):
        by_degree = memory.get((model.family, model.size, model.global_batch), {})
        greatest = max(by_degree, default=0)
        for k, count in enumerate(tables.counts.tolist()):
            needed_gb = rule.margin * by_degree.get(min(count, greatest), np.inf)
            fits[c, :, k] = [needed_gb <= usable_gb[name] for name in tables.gpu_types]
    return fits
