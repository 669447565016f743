"""Compares estimates, proxy plans and pruned searches with the plans of the full search."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.cluster.cluster_files import load_cluster
from clustergym.cluster.spec import ClusterSpec
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.oracle.grid.grid_oracle import GridOracle, allocations, batches, build_graph, cells
from clustergym.oracle.grid.layer_costs import GraphAllocations, Machine
from clustergym.oracle.grid.pipelines import Layouts, price
from clustergym.oracle.grid.profiler import estimate
from clustergym.oracle.grid.search import data_parallel_search, full_search
from clustergym.oracle.models.catalog import ARENA_FAMILIES, Catalog
from clustergym.oracle.models.model_spec import ModelClass

from .pruned_search import (
    RULES,
    Cost,
    measuring_cost,
    profiling_cost,
    search_cost,
    select_splits,
)

Figures = dict[str, Any]

CLUSTERS = ("arena-a", "arena-b", "arena-sim")
PAPER_COUNTS = (1, 2, 4, 8, 16)
PAPER_ERRORS = {"1": 0.044, "2": 0.051, "4": 0.031, "8": 0.046, "16": 0.083}
"""Error of Arena's estimates against executed plans, by GPUs (EuroSys '26)."""


def arena_classes(catalog: Catalog) -> list[ModelClass]:
    """Return the model classes of the Arena paper: three families, each size with three batches."""
    pairs = [(family, size) for family in ARENA_FAMILIES.values() for size in catalog.sizes(family)]
    return [
        ModelClass(family, size, batch)
        for family, size in pairs
        for batch in catalog.get(ModelClass(family, size, 1)).batches
    ]


@dataclass(frozen=True)
class PlanningOutcomes:
    """Iteration times and search costs of the plans found on R allocations; arrays of shape (R,).

    Attributes
    ----------
    gpus, job : ndarray of int
        GPUs of the allocation; number of its class and GPU type, among those of one cluster.
    best_s : ndarray of float
        Seconds an iteration of the best plan, executed.
    estimated_s, proxy_s : ndarray of float
        Of the proxy plan with the least estimate: estimated, and executed; inf where no grid has one.
    half_space_s : ndarray of float
        Of the best plan that the search pruned by Crius's rule finds, executed; inf where it finds none.
    search_gpu_s, three_rules_gpu_s, half_space_gpu_s : ndarray of float
        GPU-seconds that the searches take.
    profiling_gpu_s, plan_profiling_gpu_s, plan_measuring_gpu_s : ndarray of float
        GPU-seconds to profile the proxy plans of all grids; to profile only the best of them; to run that
        plan instead.
    """

    gpus: Ints
    job: Ints
    best_s: Floats
    estimated_s: Floats
    proxy_s: Floats
    half_space_s: Floats
    search_gpu_s: Floats
    three_rules_gpu_s: Floats
    half_space_gpu_s: Floats
    profiling_gpu_s: Floats
    plan_profiling_gpu_s: Floats
    plan_measuring_gpu_s: Floats

    def where(self, rows: Bools) -> "PlanningOutcomes":
        """Return the outcomes of the rows that a mask selects."""
        return PlanningOutcomes(*(getattr(self, entry.name)[rows] for entry in fields(self)))


def plan_clusters(oracle: GridOracle, counts: Sequence[int]) -> dict[str, PlanningOutcomes]:
    """Search plans for the Arena paper's models; return iteration times and search costs by cluster."""
    classes = arena_classes(oracle.catalog)
    return {name: outcomes(oracle, classes, load_cluster(name), counts) for name in CLUSTERS}


def outcomes(
    oracle: GridOracle, classes: Sequence[ModelClass], cluster: ClusterSpec, counts: Sequence[int]
) -> PlanningOutcomes:
    """Search plans for each class, with its GPUs on as few nodes as possible; return times and costs."""
    places = [
        cell
        for cell, stands_for in cells(len(classes), cluster, counts).items()
        if any(
            counts[k] <= cluster.capacity[cell.gpu_type]
            and tier == cluster.compact_locality(cell.gpu_type, counts[k])
            for k, tier in stands_for
        )
    ]
    graphs = [build_graph(oracle.catalog.get(model)) for model in classes]
    parts = []
    for some in batches(places, graphs):
        rows = allocations(some, graphs, classes, cluster)
        job = np.array([cell.model * len(cluster.groups) + cell.gpu_type for cell in some])
        parts.append(_outcomes(rows, oracle.machine(rows), oracle, job))
    return join_outcomes(parts)


def join_outcomes(parts: Sequence[PlanningOutcomes]) -> PlanningOutcomes:
    """Concatenate several planning outcomes into one."""
    columns = [entry.name for entry in fields(PlanningOutcomes)]
    return PlanningOutcomes(*(np.concatenate([getattr(part, name) for part in parts]) for name in columns))


def _outcomes(rows: GraphAllocations, machine: Machine, oracle: GridOracle, job: Ints) -> PlanningOutcomes:
    found = full_search(rows, machine)
    # The optimum is the faster of the full search and pure data parallelism, as jobs run in the oracle.
    parallel_s = data_parallel_search(rows, machine).iteration_s
    best_s = np.minimum(found.iteration_s, parallel_s)
    estimates = estimate(rows, machine, oracle.strategy)
    proxy = estimates.best
    kept = {rules: select_splits(rows, machine, estimates, rules) for rules in RULES}
    pruned_gpu_s = {
        # Pruned searches compile stages only at the micro-batches of the proxy plan from which they start.
        rules: _gpu_s(search_cost(rows, machine, proxy.micro_batches, splits))
        for rules, splits in kept.items()
    }
    return PlanningOutcomes(
        gpus=rows.layout.gpus.astype(np.int64),
        job=job,
        best_s=best_s,
        estimated_s=proxy.iteration_s,
        proxy_s=price(rows, machine, Layouts(rows, proxy.plans), proxy.micro_batches).iteration_s,
        half_space_s=full_search(rows, machine, kept["half_space"], proxy.micro_batches).iteration_s,
        search_gpu_s=_gpu_s(search_cost(rows, machine, found.micro_batches)),
        three_rules_gpu_s=pruned_gpu_s["arena"],
        half_space_gpu_s=pruned_gpu_s["half_space"],
        profiling_gpu_s=_gpu_s(profiling_cost(rows, machine, estimates.grids)),
        plan_profiling_gpu_s=_gpu_s(profiling_cost(rows, machine, [proxy])),
        plan_measuring_gpu_s=_gpu_s(measuring_cost(rows, machine, proxy)),
    ).where(np.isfinite(best_s))


def _gpu_s(costs: Iterable[Cost]) -> Floats:
    return np.array([cost.gpu_seconds for cost in costs])


def summary(rows: PlanningOutcomes) -> Figures:
    """Return by name: errors of estimated times, shares of the optimum that searches reach, and their costs.

    A row without a plan is a share of 0 of the optimum; errors are over the rows with an estimate.
    """
    planned = np.isfinite(rows.estimated_s)
    some = rows.where(planned)
    return {
        "allocations": len(rows.gpus),
        "estimate_error_mean": _mean(np.abs(some.estimated_s / some.proxy_s - 1)),
        "proxy_share_of_optimum_mean": _mean(rows.best_s / rows.proxy_s),
        "half_space_share_of_optimum_mean": _mean(rows.best_s / rows.half_space_s),
        **_pruning("three_rules", rows, rows.three_rules_gpu_s),
        **_pruning("half_space", rows, rows.half_space_gpu_s),
        "measuring_over_profiling_gpu_time_mean": _mean(
            some.plan_measuring_gpu_s / some.plan_profiling_gpu_s
        ),
        "measuring_over_profiling_gpu_time_least": _least(
            some.plan_measuring_gpu_s / some.plan_profiling_gpu_s
        ),
    }


def _pruning(name: str, rows: PlanningOutcomes, gpu_s: Floats) -> Figures:
    tried = gpu_s > 0
    found = rows.search_gpu_s[tried] / gpu_s[tried]
    return {
        f"{name}_times_cheaper_mean": _mean(found),
        f"{name}_times_cheaper_most": float(found.max()) if len(found) else None,
    }


def _mean(values: npt.NDArray[Any]) -> float | None:
    return float(values.mean()) if len(values) else None


def _least(values: Floats) -> float | None:
    return float(values.min()) if len(values) else None


def by_gpus(rows: PlanningOutcomes) -> dict[str, Figures]:
    """Return the figures of `summary` for each GPU count, ascending."""
    return {str(gpus): summary(rows.where(rows.gpus == gpus)) for gpus in np.unique(rows.gpus).tolist()}
