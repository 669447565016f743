"""The profiler: estimates iteration times of grids from single operators and collectives.

Each operator of a proxy plan is timed alone on one GPU, and each collective alone on the network. The
pipeline's latency is the sum of all stages' times + (micro-batches - 1) x the slowest stage's time, for GPipe
and for 1F1B alike: the two differ in memory, not in the length of the schedule (Arena section 3.4; Crius
section 5.1; Narayanan et al., SC '21). Both papers take the transfers between stages out of the second term,
as overlapped with computation; here they do so with `oracle.overlap`.

Both papers set the micro-batches by the stages (Arena section 5.1: as many; Crius, Fig. 10: four times as
many). The measured times of the artifact are those of 16, so that is what is estimated unless
`oracle.micro_batches` says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import InputError
from clustergym.oracle.base import check_choice
from clustergym.oracle.grid.layer_costs import GraphAllocations, Machine
from clustergym.oracle.grid.pipelines import Layouts, Pipelines, pipeline_s, price
from clustergym.oracle.grid.planner import Planner, proxies, stage_counts
from clustergym.oracle.grid.search import BestPlans, divide_batches, every_variant, improve_plans, nothing
from clustergym.oracle.grid.stages import every_split, run_index, splits

RULES = ("fixed", "stages", "four_stages")
"""Micro-batches of an iteration: the search's (16, or 32 where 16 do not fit), or by the number of stages."""

STRATEGIES = ("frontier", "least_bias", "assembly")
"""Arena's proxy plan with nearly equal biases taken as equal (ours); to the letter of its text; Crius's best
of the 2^stages ways to make every stage data- or tensor-parallel.

Crius's text cuts a model at the smallest activations (section 4.2, Fig. 7), which are all equal in a
transformer; the partition is `frontier`'s here.
"""


def check_rule(rule: str | int, batches: Sequence[int] = ()) -> None:
    """Raise an `InputError` unless `rule` is the name of a rule, or micro-batches that divide each batch."""
    field = "oracle.micro_batches"
    if isinstance(rule, str):
        check_choice(rule, RULES, field)
    elif rule < 1:
        raise InputError(f"{rule} is not positive", field=field, remedy="give at least 1 micro-batch")
    else:
        for batch in batches:
            if batch % rule:
                message = f"a batch of {batch} is not divisible by {rule} micro-batches"
                raise InputError(message, field=field, remedy="give a divisor of the batch, or fixed")


@dataclass(frozen=True)
class Estimates:
    """A profiler's estimated iteration times of the best plan with each number of stages.

    Attributes
    ----------
    stages : tuple of int
        Of the grids.
    grids : tuple of BestPlans
        One per number of stages: the proxy plans with their estimated times.
    literal : bool
        Whether they were planned to the letter of Arena's text.
    """

    stages: tuple[int, ...]
    grids: tuple[BestPlans, ...]
    literal: bool = False

    @property
    def best(self) -> BestPlans:
        """The plan with the least estimated time for each model, over all numbers of stages."""
        best = self.grids[0]
        for other in self.grids[1:]:
            better = np.flatnonzero(other.iteration_s < best.iteration_s)
            counts, seconds = best.micro_batches.copy(), best.iteration_s.copy()
            counts[better], seconds[better] = other.micro_batches[better], other.iteration_s[better]
            best = BestPlans(best.plans.replace_rows(better, other.plans.take(better)), counts, seconds)
        return best


def estimate(
    rows: GraphAllocations, machine: Machine, strategy: str = "frontier", rule: str | int = "fixed"
) -> Estimates:
    """Estimate each row's least iteration time by number of stages, as the Arena paper's profiler does."""
    check_choice(strategy, STRATEGIES, "oracle.strategy")
    check_rule(rule)
    stages = tuple(stage_counts(rows.operators, int(rows.layout.gpus[0])))
    view, literal = machine.as_profiled(), strategy == "least_bias"
    planner: Planner | None = None
    grids = []
    for count in stages:
        # By `fixed`, every number of stages has the same micro-batches, so one planner serves them all.
        if planner is None or rule != "fixed":
            some, counts = _variants(rows, machine, rule, count)
            planner = Planner(rows.take(some), view.take(some), counts, literal)
        grids.append(_improve_plans(nothing(rows), planner, some, count, strategy))
    return Estimates(stages, tuple(grids), literal)


def _variants(rows: GraphAllocations, machine: Machine, rule: str | int, stages: int) -> tuple[Ints, Floats]:
    """Return models' row numbers and the numbers of micro-batches to plan them for, shape (V,)."""
    if rule == "fixed":
        return every_variant(rows, machine)
    if isinstance(rule, int):
        return np.arange(len(rows)), divide_batches(rows, float(rule))
    return np.arange(len(rows)), divide_batches(rows, float(stages if rule == "stages" else 4 * stages))


def _improve_plans(best: BestPlans, planner: Planner, some: Ints, stages: int, strategy: str) -> BestPlans:
    candidates = planner.candidates(stages)
    choice, fits = proxies(candidates, planner.gpus)
    plans = candidates.pipelines(choice)
    if strategy == "assembly":
        # Crius, Fig. 9: the times of stages are measured apart, so all 2^stages mixes cost nothing more.
        plans, fits = _assemble_plans(planner, plans)
    rows, machine = planner.rows, planner.machine
    seconds = price(rows, machine, Layouts(rows, plans), planner.micro_batches).iteration_s
    seconds = np.where(fits, seconds, np.inf)
    return improve_plans(best, some, plans.pad_stages(rows.operators), planner.micro_batches, seconds)


def _assemble_plans(planner: Planner, plans: Pipelines) -> tuple[Pipelines, Bools]:
    """Return the partition with the best of all 2^stages mixes of data- and tensor-parallel stages."""
    rows, stages = planner.rows, plans.first.shape[1]
    gpus, tensor = splits(planner.gpus)
    seconds, _, _ = every_split(
        rows, planner.machine, planner.micro_batches, "seconds", gpus, tensor, mixed=False
    )
    run = run_index(rows.operators, plans.first, plans.last)
    row = np.arange(len(rows))[:, None]
    pair = []
    for ranks in (np.ones_like(plans.gpus), np.minimum(plans.gpus, int(tensor.max()))):
        variant = np.argmax((gpus == plans.gpus[..., None]) & (tensor == ranks[..., None]), axis=2)
        pair.append((ranks, seconds[row, variant, run]))
    # Bit s of a mask: stage s is tensor-parallel.
    masks = (np.arange(1 << stages)[:, None] >> np.arange(stages)) & 1
    moved = planner.transfers(plans.first[:, None], plans.last[:, None], plans.gpus[:, None])
    times = np.where(masks[None] == 1, pair[1][1][:, None], pair[0][1][:, None]) + moved
    hidden = moved if planner.machine.overlaps else 0.0
    with np.errstate(invalid="ignore"):
        total = pipeline_s(times, planner.micro_batches[:, None], hidden)
    total = np.where(np.isfinite(times).all(axis=2), total, np.inf)
    mask = masks[np.argmin(total, axis=1)]
    ranks = np.where(mask == 1, pair[1][0], pair[0][0])
    fits = np.asarray(np.isfinite(total).any(axis=1))
    return Pipelines(plans.count, plans.first, plans.last, plans.gpus, ranks, plans.first), fits
