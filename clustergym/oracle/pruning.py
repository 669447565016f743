"""Pruned search: the stages that are worth compiling, given what the profiler says; and what searching costs.

Arena (EuroSys '26, section 3.6) prunes by three rules, read here as: search only the stages of the best
grids; of those, only partitions whose bias is near the least; and of their splits only those next to the one
that communicates least. Crius keeps the grid's partition and searches half of each stage's splits: those
with more data than tensor parallelism, or the other way round, as its proxy plan has it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from clustergym.oracle.costs import Allocations, Machine
from clustergym.oracle.planner import Candidates, Planner, reduced_bias
from clustergym.oracle.plans import Cost
from clustergym.oracle.profiler import Estimates, check
from clustergym.oracle.search import Found, full_search
from clustergym.oracle.stages import every_split, intervals, run_index, splits

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

RULES = ("arena", "half_space")

GRIDS = 2
"""Grids of the least estimated times that are searched."""

NEAR_STEPS = 2
"""Partitions are near the least bias up to this many steps of `planner.BIAS_STEP`."""

COMPILE_S, RUNS = 3.0, 5
"""Seconds to compile a stage, and micro-batches it is run for; operators are profiled likewise."""


def pruned_search(
    rows: Allocations, machine: Machine, estimates: Estimates, rules: str = "arena"
) -> tuple[Found, Bools]:
    """Return the best plan among the stages that the rules keep, and the splits kept, shape (R, V, I).

    Parameters
    ----------
    estimates : Estimates
        Of the same rows, from `profiler.estimate`.
    rules : str
        `arena` or `half_space` (Crius).
    """
    check(rules, RULES, "rules")
    best = estimates.best
    allowed = kept_splits(rows, machine, estimates, rules)
    return full_search(rows, machine, allowed, best.micro_batches), allowed


def kept_splits(rows: Allocations, machine: Machine, estimates: Estimates, rules: str) -> Bools:
    """Return the splits (see `stages.splits`) of runs of operators that the rules keep, shape (R, V, I)."""
    best = estimates.best
    gpus, _ = splits(int(rows.layout.gpus[0]))
    allowed = np.zeros((len(rows), len(gpus), len(intervals(rows.operators)[0])), dtype=bool)
    times = np.stack([grid.iteration_s for grid in estimates.grids], axis=1)
    order = np.argsort(np.argsort(times, axis=1, kind="stable"), axis=1)
    view = machine.as_profiled()
    for column, stages in enumerate(estimates.stages):
        rank = 1 if rules == "half_space" else GRIDS
        here = np.flatnonzero((order[:, column] < rank) & np.isfinite(times[:, column]))
        if not len(here):
            continue
        if rules == "half_space":
            allowed[here] = _half_space(rows.take(here), best, here, stages)
            continue
        planner = Planner(rows.take(here), view.take(here), best.micro_batches[here])
        allowed[here] |= _near(planner, planner.candidates(stages))
    return allowed


def _near(planner: Planner, candidates: Candidates) -> Bools:
    """Keep the stages of the partitions of little bias, with splits next to those of least communication."""
    gpus, tensor = splits(planner.gpus)
    operators = planner.rows.operators
    allowed = np.zeros((len(planner.rows), len(gpus), len(intervals(operators)[0])), dtype=bool)
    repeats = candidates.bias.shape[1] // len(candidates.first)
    run = np.repeat(run_index(operators, candidates.first, candidates.last), repeats, axis=0)
    near = reduced_bias(candidates, planner.gpus) <= NEAR_STEPS
    row, partition = np.nonzero(near)
    for stage in range(run.shape[1]):
        size = candidates.gpus[row, partition, stage][:, None]
        ranks = candidates.tensor[row, partition, stage][:, None]
        kept = (gpus == size) & (tensor <= 2 * ranks) & (2 * tensor >= ranks)
        index, variant = np.nonzero(kept)
        allowed[row[index], variant, run[partition[index], stage]] = True
    return allowed


def _half_space(rows: Allocations, best: Found, here: Ints, stages: int) -> Bools:
    gpus, tensor = splits(int(rows.layout.gpus[0]))
    allowed = np.zeros((len(rows), len(gpus), len(intervals(rows.operators)[0])), dtype=bool)
    plans = best.plans.take(here)
    for stage in range(stages):
        run = run_index(rows.operators, plans.first[:, stage], plans.last[:, stage])
        size, ranks = plans.gpus[:, stage, None], plans.tensor[:, stage, None]
        more_data = ranks**2 <= size
        half = np.where(more_data, tensor**2 <= gpus, tensor**2 >= gpus) | (tensor == ranks)
        index, variant = np.nonzero((gpus == size) & half)
        allowed[index, variant, run[index]] = True
    return allowed


def search_cost(
    rows: Allocations, machine: Machine, micro_batches: Floats, allowed: Bools | None = None
) -> list[Cost]:
    """Return what compiling and running every stage of a search costs, per row.

    Stages are tried side by side on the allocation's GPUs, so the wall-clock time is the GPU
    time over the GPUs. A stage that does not fit in memory costs its compilation.
    """
    gpus, tensor = splits(int(rows.layout.gpus[0]))
    seconds, _, memory = every_split(rows, machine, micro_batches, "seconds", gpus, tensor)
    tried = np.isfinite(memory) if allowed is None else np.isfinite(memory) & allowed
    run_s = COMPILE_S + RUNS * np.where(np.isfinite(seconds), seconds, 0.0)
    total = np.where(tried, gpus[:, None] * run_s, 0.0).sum(axis=(1, 2))
    trials = tried.sum(axis=(1, 2))
    return [
        Cost(float(spent / count), float(spent), int(tries))
        for spent, count, tries in zip(total, rows.layout.gpus, trials, strict=True)
    ]


def profiling_cost(rows: Allocations, machine: Machine, estimates: Estimates) -> list[Cost]:
    """Return what profiling the proxy plans of all grids costs, on one GPU at a time, per row.

    Every operator of every proxy plan is compiled and run with its share of the GPU's work, and the
    collectives come from tables that are measured once per cluster.
    """
    from clustergym.oracle.pipelines import Layouts, price

    total, trials = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
    view = machine.as_profiled()
    for found in estimates.grids:
        compute = price(rows, view, Layouts(rows, found.plans), found.micro_batches).compute_s.sum(axis=1)
        planned = found.plans.count > 0
        total += np.where(planned, rows.operators * COMPILE_S + RUNS * compute, 0.0)
        trials += np.where(planned, rows.operators, 0)
    return [Cost(float(spent), float(spent), int(tries)) for spent, tries in zip(total, trials, strict=True)]
