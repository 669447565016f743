"""Pruned search: compiles only stages that the profiler favours; and the cost of searches.

`arena` are the three rules of Arena (EuroSys '26, section 3.6): the stages of the best grid alone; no
partition of more bias than the most biased one on the Pareto frontier; and a stage of the same operators as
one of a plan on the frontier keeps that one's GPUs and split. `half_space` is Crius's rule (section 5.2): the
grid's partition, and half of each stage's splits, those from data parallelism to as many copies as GPUs an
operator is split over, or from there to tensor parallelism, as its plan has it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.oracle.base import check_choice
from clustergym.oracle.grid.layer_costs import GraphAllocations, Machine, operator_costs
from clustergym.oracle.grid.pipelines import Layouts, price
from clustergym.oracle.grid.planner import NormalisedPartitions, Planner, frontiers
from clustergym.oracle.grid.profiler import Estimates
from clustergym.oracle.grid.search import BestPlans
from clustergym.oracle.grid.stages import MOST_TENSOR, every_split, intervals, run_index, splits

RULES = ("arena", "half_space")

COMPILE_S, RUNS = 3.0, 5
"""Seconds to compile a stage, and micro-batches it is then run for; the same for profiling an operator.
Assumed: for a plan of eight operators they come near the 30 s of profiling in Crius (section 8.2)."""


class Cost(NamedTuple):
    """The wall-clock time, GPU time and trials that profiling or a plan search costs.

    Attributes
    ----------
    seconds : float
        Wall-clock time.
    gpu_seconds : float
        GPUs held times the seconds they are held.
    trials : int
        Stages or plans that are compiled and run.
    """

    seconds: float
    gpu_seconds: float
    trials: int


def select_splits(rows: GraphAllocations, machine: Machine, estimates: Estimates, rules: str) -> Bools:
    """Return a mask of the ways to split operators over GPUs that pruning rules allow, by model.

    Shape (R, splits, runs): splits as `splits` lists them, and runs of operators as `intervals` does.
    """
    check_choice(rules, RULES, "rules")
    best = estimates.best
    gpus, _ = splits(int(rows.layout.gpus[0]))
    allowed = np.zeros((len(rows), len(gpus), len(intervals(rows.operators)[0])), dtype=bool)
    times = np.stack([grid.iteration_s for grid in estimates.grids], axis=1)
    # The rank of each grid by estimated time, 0 for the least.
    order = np.argsort(np.argsort(times, axis=1, kind="stable"), axis=1)
    view = machine.as_profiled()
    for column, stages in enumerate(estimates.stages):
        here = np.flatnonzero((order[:, column] == 0) & np.isfinite(times[:, column]))
        if not len(here):
            continue
        if rules == "half_space":
            allowed[here] = _half_space(rows.take(here), best, here, stages)
            continue
        planner = Planner(rows.take(here), view.take(here), best.micro_batches[here], estimates.literal)
        allowed[here] |= _three_rules(planner, planner.candidates(stages))
    return allowed


def _three_rules(planner: Planner, candidates: NormalisedPartitions) -> Bools:
    """Keep stages of partitions no more biased than the frontier's; a stage on it keeps only its split."""
    kept = frontiers(candidates, planner.gpus)
    fits = np.isfinite(candidates.communication_s)
    # Section 3.6, rule 2: no partition of more bias than the most biased one on the frontier.
    most = np.where(kept, candidates.bias, -np.inf).max(axis=1, keepdims=True)
    free = _stages(planner, candidates, fits & (candidates.bias <= most), MOST_TENSOR)
    # Rule 3: a stage with the operators of one on the frontier keeps the GPUs and the split of that one.
    fixed = _stages(planner, candidates, kept, 1)
    return np.where(fixed.any(axis=1, keepdims=True), fixed, free)


def _stages(planner: Planner, candidates: NormalisedPartitions, chosen: Bools, slack: int) -> Bools:
    """Return the stages of chosen partitions, with splits of up to `slack` times more or fewer ranks."""
    gpus, tensor = splits(planner.gpus)
    operators = planner.rows.operators
    allowed = np.zeros((len(planner.rows), len(gpus), len(intervals(operators)[0])), dtype=bool)
    repeats = candidates.bias.shape[1] // len(candidates.first)
    run = np.repeat(run_index(operators, candidates.first, candidates.last), repeats, axis=0)
    row, partition = np.nonzero(chosen)
    for stage in range(run.shape[1]):
        size = candidates.gpus[row, partition, stage][:, None]
        ranks = candidates.tensor[row, partition, stage][:, None]
        kept = (gpus == size) & (tensor <= slack * ranks) & (slack * tensor >= ranks)
        index, variant = np.nonzero(kept)
        allowed[row[index], variant, run[partition[index], stage]] = True
    return allowed


def _half_space(rows: GraphAllocations, best: BestPlans, here: Ints, stages: int) -> Bools:
    gpus, tensor = splits(int(rows.layout.gpus[0]))
    allowed = np.zeros((len(rows), len(gpus), len(intervals(rows.operators)[0])), dtype=bool)
    plans = best.plans.take(here)
    for stage in range(stages):
        run = run_index(rows.operators, plans.first[:, stage], plans.last[:, stage])
        size, ranks = plans.gpus[:, stage, None], plans.tensor[:, stage, None]
        # As many copies as ranks per operator is the middle between data and tensor parallelism: ranks^2 =
        # GPUs.
        more_data = ranks**2 <= size
        half = np.where(more_data, tensor**2 <= gpus, tensor**2 >= gpus) | (tensor == ranks)
        index, variant = np.nonzero((gpus == size) & half)
        allowed[index, variant, run[index]] = True
    return allowed


def search_cost(
    rows: GraphAllocations, machine: Machine, micro_batches: Floats, allowed: Bools | None = None
) -> list[Cost]:
    """Return the cost, for each model, of compiling and running every stage in a plan search.

    Stages are tried side by side on the allocation's GPUs, so the wall-clock time is the GPU
    time over the GPUs. A stage that does not fit in memory costs its compilation.
    """
    gpus, tensor = splits(int(rows.layout.gpus[0]))
    seconds, _, memory = every_split(rows, machine, micro_batches, "seconds", gpus, tensor)
    tried = np.isfinite(memory) if allowed is None else np.isfinite(memory) & allowed
    # What does not fit in memory still had to be compiled to find out.
    run_s = COMPILE_S + RUNS * np.where(np.isfinite(seconds), seconds, 0.0)
    total = np.where(tried, gpus[:, None] * run_s, 0.0).sum(axis=(1, 2))
    trials = tried.sum(axis=(1, 2))
    return [
        Cost(float(spent / count), float(spent), int(tries))
        for spent, count, tries in zip(total, rows.layout.gpus, trials, strict=True)
    ]


def profiling_cost(rows: GraphAllocations, machine: Machine, grids: Sequence[BestPlans]) -> list[Cost]:
    """Return each model's cost to profile, on one GPU, the plans in `grids` (one per number of stages).

    Every operator of every plan is compiled and run with one GPU's share of the work; operators that are
    alike are run once (Arena, sections 3.4 and 5.8). Collectives cost nothing here: their tables are measured
    once per cluster.
    """
    view = machine.as_profiled()
    columns = np.stack([column[:, 0] for column in rows.columns.values()], axis=2)
    operator = np.unique(columns.reshape(-1, columns.shape[2]), axis=0, return_inverse=True)[1]
    row = np.repeat(np.arange(len(rows)), rows.operators)
    runs, seconds = [], []
    for found in grids:
        layouts = Layouts(rows, found.plans)
        samples = np.ceil(rows.batch / found.micro_batches)[:, None]
        costs = operator_costs(rows, view, samples[:, None], layouts.split)
        split = (np.broadcast_to(part[:, 0], columns.shape[:2]) for part in layouts.split)
        many = (np.broadcast_to(part, columns.shape[:2]) for part in (samples, layouts.passes[:, None]))
        here = np.repeat(found.plans.count > 0, rows.operators)
        key = np.stack([row, operator.ravel(), *(part.ravel() for part in (*split, *many))], axis=1)
        runs.append(key[here])
        seconds.append((layouts.passes[:, None] * costs.pass_s[:, 0]).ravel()[here])
    keys, first = np.unique(np.concatenate(runs), axis=0, return_index=True)
    owner = keys[:, 0].astype(np.int64)
    spent = COMPILE_S + RUNS * np.concatenate(seconds)[first]
    total = np.bincount(owner, spent, minlength=len(rows))
    trials = np.bincount(owner, minlength=len(rows))
    return [Cost(float(spent), float(spent), int(tries)) for spent, tries in zip(total, trials, strict=True)]


def measuring_cost(rows: GraphAllocations, machine: Machine, found: BestPlans) -> list[Cost]:
    """Return the cost, for each model, of compiling its plan and running it on all its GPUs.

    Stages are compiled side by side, operator by operator.
    """
    plans = found.plans
    exists = np.arange(plans.first.shape[1]) < plans.count[:, None]
    operators = np.where(exists, plans.last - plans.first + 1, 0).max(axis=1)
    iteration_s = price(rows, machine, Layouts(rows, plans), found.micro_batches).iteration_s
    seconds = COMPILE_S * operators + RUNS * np.where(np.isfinite(iteration_s), iteration_s, 0.0)
    return [
        Cost(float(spent), float(spent * gpus), int(tries))
        for spent, gpus, tries in zip(seconds, rows.layout.gpus, plans.count, strict=True)
    ]
