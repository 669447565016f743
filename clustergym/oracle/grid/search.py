"""The search for the best parallel plan: over micro-batches, stages, GPUs per stage and splits.

The best pipeline of given stages: dynamic programming over operators and GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.oracle.grid.layer_costs import GraphAllocations, Machine
from clustergym.oracle.grid.pipelines import Layouts, Pipelines, price, transfer_s, within_node
from clustergym.oracle.grid.stages import StageTable, pure_data_parallel, run_index, stage_table
from clustergym.oracle.roofline.work import MICRO_BATCHES, MOST_MICRO_BATCHES

CHUNK = 48
"""Rows that are searched at once: as many as fit in a core's cache."""


@dataclass(frozen=True)
class BestPlans:
    """The best plan found for each model on its allocation, with micro-batches and iteration time.

    Attributes
    ----------
    plans : Pipelines
    micro_batches : ndarray of float, shape (R,)
    iteration_s : ndarray of float, shape (R,)
        inf where nothing fits.
    """

    plans: Pipelines
    micro_batches: Floats
    iteration_s: Floats


def divide_batches(rows: GraphAllocations, micro_batches: Floats | float) -> Floats:
    """Return each model's number of micro-batches of whole samples, at most the given number."""
    samples = np.ceil(rows.batch / micro_batches)
    return np.asarray(np.ceil(rows.batch / samples))


def micro_batch_counts(rows: GraphAllocations, machine: Machine) -> Iterator[tuple[Ints, Floats]]:
    """Yield numbers of micro-batches to try, each with the row numbers of the models to try it for.

    16, and 32, which need less memory, as Arena's evaluation ran; where GPUs would outnumber the samples of a
    micro-batch, fewer, so that each GPU has a sample. For data-parallel models all powers of two down to one
    sample a micro-batch are tried.
    """
    everywhere = np.arange(len(rows))
    planned = machine.planned.ravel()
    for count in (MICRO_BATCHES, MOST_MICRO_BATCHES):
        yield everywhere[planned], divide_batches(rows, float(count))
    # Pure data parallelism over all GPUs needs a sample for each GPU in every micro-batch.
    fewer = np.maximum(np.floor(rows.batch / rows.layout.gpus), 1.0)
    some = planned & (fewer < MICRO_BATCHES)
    yield everywhere[some], divide_batches(rows, fewer)
    count = 1
    while (~planned).any() and count <= rows.batch[~planned].max():
        yield everywhere[~planned & (rows.batch >= count)], divide_batches(rows, float(count))
        count *= 2


def full_search(
    rows: GraphAllocations,
    machine: Machine,
    allowed: Bools | None = None,
    micro_batches: Floats | None = None,
) -> BestPlans:
    """Search each model's fastest plan over all divisions into stages, GPU counts and splits.

    Parameters
    ----------
    allowed : ndarray of bool, shape (R, V, I), optional
        Splits to search, see `stages.stage_table`.
    micro_batches : ndarray of float, shape (R,), optional
        By default the best of `micro_batch_counts`.
    """
    best = nothing(rows)
    if micro_batches is None:
        some, counts = every_variant(rows, machine)
    else:
        some, counts = np.arange(len(rows)), micro_batches
    for start in range(0, len(some), CHUNK):
        chunk = slice(start, start + CHUNK)
        best = _improve_by_search(best, rows, machine, some[chunk], counts[chunk], allowed)
    return best


def every_variant(rows: GraphAllocations, machine: Machine) -> tuple[Ints, Floats]:
    """List all pairs of a model's row and a number of micro-batches to try, as two arrays."""
    found = [(some, counts[some]) for some, counts in micro_batch_counts(rows, machine)]
    some, counts = (np.concatenate(part) for part in zip(*found, strict=True))
    pairs = np.unique(np.stack([some, counts]), axis=1)
    return pairs[0].astype(np.int64), pairs[1]


def fastest(rows: int, some: Ints, seconds: Floats) -> Ints:
    """Return the position of each model's fastest finite entry; `some` has the model's row of each entry."""
    # Sorted by row and then by time: the first of each row is its fastest.
    order = np.lexsort((seconds, some))
    first = order[np.searchsorted(some[order], np.unique(some))]
    return np.asarray(first[np.isfinite(seconds[first])])


def nothing(rows: GraphAllocations) -> BestPlans:
    """Return a search result in which no model has a plan."""
    none = np.zeros((len(rows), rows.operators), dtype=np.int64)
    plans = Pipelines(np.zeros(len(rows), dtype=np.int64), none, none, none, none + 1, none)
    return BestPlans(plans, np.ones(len(rows)), np.full(len(rows), np.inf))


def improve_plans(
    best: BestPlans, some: Ints, plans: Pipelines, counts: Floats, seconds: Floats
) -> BestPlans:
    """Return each model's fastest plan among the best known and new ones; `some` has the new plans' rows.

    Parameters
    ----------
    some : ndarray of int, shape (V,)
        The row of each further plan; a row may occur several times.
    plans : Pipelines
        V of them, padded like the known ones.
    counts, seconds : ndarray of float, shape (V,)
    """
    pick = fastest(len(best.iteration_s), some, seconds)
    # Only what is faster replaces a plan, so the order of searches decides ties.
    pick = pick[seconds[pick] < best.iteration_s[some[pick]]]
    micro_batches, iteration_s = best.micro_batches.copy(), best.iteration_s.copy()
    micro_batches[some[pick]], iteration_s[some[pick]] = counts[pick], seconds[pick]
    return BestPlans(best.plans.replace_rows(some[pick], plans.take(pick)), micro_batches, iteration_s)


def _improve_by_search(
    best: BestPlans,
    rows: GraphAllocations,
    machine: Machine,
    some: Ints,
    counts: Floats,
    allowed: Bools | None,
) -> BestPlans:
    """Return the better of the known plan and a search with these micro-batches, for each row."""
    part, on = rows.take(some), machine.take(some)
    most = 1 << int(part.layout.gpus.max()).bit_length() - 1
    table = stage_table(part, on, counts, most, allowed=None if allowed is None else allowed[some])
    transfer = transfer_s(part, on, np.ceil(part.batch / counts), most)
    plans = best_pipelines(part, table, transfer, counts).pad_stages(rows.operators)
    seconds = price(part, on, Layouts(part, plans), counts).iteration_s
    return improve_plans(best, some, plans, counts, seconds)


def data_parallel_search(rows: GraphAllocations, machine: Machine) -> BestPlans:
    """Return each model's plan of pure data parallelism, with the best number of micro-batches."""
    best = nothing(rows)
    some, counts = every_variant(rows, machine)
    stage_s, _ = pure_data_parallel(rows.take(some), machine.take(some), counts)
    none = best.plans.take(some)
    gpus, last = none.gpus.copy(), none.last.copy()
    gpus[:, 0], last[:, 0] = rows.layout.gpus[some], rows.operators - 1
    single = np.ones(len(some), dtype=np.int64)
    whole = Pipelines(single, none.first, last, gpus, none.tensor, none.cut)
    return improve_plans(best, some, whole, counts, stage_s * counts)


LADDER = np.array([1.0, 1.01, 1.03, 1.06, 1.1, 1.2, 1.4, np.inf])
"""Limits tried on the time of the slowest stage, as multiples of the least that is possible."""


def best_pipelines(
    rows: GraphAllocations, table: StageTable, transfer: Floats, micro_batches: Floats
) -> Pipelines:
    """Find each model's pipeline with least sum of stage times + (micro-batches - 1) x slowest stage.

    As Alpa (Zheng et al., OSDI '22, section 5.2): for each limit on the slowest stage, dynamic programming
    finds the least sum of stages. Alpa tries every stage time that occurs as a limit, here `LADDER` is tried.

    Parameters
    ----------
    table : StageTable
    transfer : ndarray of float, shape (R, K + 1, 2, M)
        See `pipelines.transfer_s`.
    micro_batches : ndarray of float, shape (R,)
    """
    steps = _Steps(rows, table, transfer)
    slowest = steps.least_slowest()
    # A little above, so that rounding does not put the slowest stage beyond its own limit.
    limits = np.where(np.isfinite(slowest), slowest, 1.0)[:, None] * LADDER * (1 + 1e-12)
    return steps.backtrack(*steps.least_sum(limits), micro_batches)


class _Steps:
    """The dynamic programme: values by (first operator, GPUs left), from the last operator backwards.

    Arrays have the shape (R, limits, J, M, D + 1): the stage's last operator, its size, and GPUs left before
    it. Stages are laid over the nodes one after another. One that needs no more than a node must lie in
    one, and one that needs several begins on a node of its own, as Alpa's submeshes do (Zheng et al.,
    OSDI '22, section 5.2): so a boundary amid a node is between two stages that lie wholly in it. A stage
    is taken to send and receive at its own rate, as the size of the other is not known here;
    `pipelines.price` charges what the slower of the two takes.
    """

    def __init__(self, rows: GraphAllocations, table: StageTable, transfer: Floats) -> None:
        self.table, self.transfer = table, transfer
        self.operators, self.rows = rows.operators, len(rows)
        self.gpus = rows.layout.gpus.astype(np.int64)
        self.most = int(self.gpus.max())
        self.sizes = table.sizes[table.sizes <= self.most]
        several, per_node = rows.layout.nodes[:, None, None] > 1, rows.layout.per_node[:, None, None]
        start, gpus = self.gpus[:, None, None] - np.arange(self.most + 1), self.sizes[:, None]
        # A stage begins on a node of its own where the GPUs before it fill whole nodes.
        self.receives = several & (start % per_node == 0)
        self.sends = several & ((start + gpus) % per_node == 0)
        # Alpa's submeshes: inside a node, or whole nodes from a node's beginning.
        laid = within_node(start, gpus, per_node) | ((gpus > per_node) & (start % per_node == 0))
        self.misplaced = several & ~laid

    def stage_s(self, operator: int) -> Floats:
        """Return the seconds of all pipeline stages that begin at an operator."""
        last = np.arange(operator, self.operators)
        count = len(self.sizes)
        seconds = self.table.seconds[:, run_index(self.operators, np.array(operator), last), :count]
        before = self.transfer[:, operator, :, :count, None]
        received = np.where(self.receives, before[:, 1], before[:, 0])
        after = self.transfer[:, operator + 1 :, :, :count, None]
        sent = np.where(self.sends[:, None], after[:, :, 1], after[:, :, 0])
        sent += seconds[..., None]
        sent += received[:, None]
        np.copyto(sent, np.inf, where=self.misplaced[:, None])
        return np.asarray(sent[:, None])

    def least_slowest(self) -> Floats:
        """Return the least possible time of a pipeline's slowest stage for each model, shape (R,)."""
        shifted = self._shift_values(1)
        value = np.empty(0)
        for operator in range(self.operators - 1, -1, -1):
            times = np.maximum(self.stage_s(operator), shifted[:, :, operator + 1 :])
            value = times.min(axis=(2, 3))
            self._shift(shifted, operator, value)
        return np.asarray(value[np.arange(self.rows), 0, self.gpus])

    def least_sum(self, limits: Floats) -> tuple[Bools, list[Ints]]:
        """Return whether a pipeline keeps within each limit, and the best stage from each operator on."""
        shifted, choices = self._shift_values(limits.shape[1]), []
        value = np.empty(0)
        for operator in range(self.operators - 1, -1, -1):
            stage = self.stage_s(operator)
            times = stage + shifted[:, :, operator + 1 :]
            # A stage slower than the limit is in no pipeline of that limit; the sum of the rest is then
            # minimised.
            np.copyto(times, np.inf, where=stage > limits[:, :, None, None, None])
            times = times.reshape(*times.shape[:2], -1, self.most + 1)
            choices.append(times.argmin(axis=2))
            value = times.min(axis=2)
            self._shift(shifted, operator, value)
        return np.isfinite(value[np.arange(self.rows), :, self.gpus]), choices[::-1]

    def _shift_values(self, limits: int) -> Floats:
        """Return the value after a stage, by its next operator, its size and the GPUs left before it."""
        shape = (self.rows, limits, self.operators + 1, len(self.sizes), self.most + 1)
        shifted = np.full(shape, np.inf)
        shifted[:, :, -1, np.arange(len(self.sizes)), self.sizes] = 0.0
        return shifted

    def _shift(self, shifted: Floats, operator: int, value: Floats) -> None:
        for index, size in enumerate(self.sizes.tolist()):
            shifted[:, :, operator, index, size:] = value[:, :, : self.most + 1 - size]

    def backtrack(self, fits: Bools, choices: list[Ints], micro_batches: Floats) -> Pipelines:
        """Return each model's best pipeline over all limits on the slowest stage."""
        limits = fits.shape[1]
        row, limit = (part.ravel() for part in np.indices(fits.shape))
        trail = self._trail(row, limit, fits.ravel(), choices)
        total = sum(stage.seconds for stage in trail)
        slowest = np.max([stage.seconds for stage in trail], axis=0)
        # Every limit has given its pipeline of least sum; the latency of the pipeline decides between them.
        cost = np.where(fits.ravel(), total + (micro_batches[row] - 1) * slowest, np.inf)
        pick = np.argmin(cost.reshape(fits.shape), axis=1) + limits * np.arange(self.rows)
        first, last, gpus, tensor, cut = (
            np.stack([getattr(stage, name)[pick] for stage in trail], axis=1)
            for name in ("first", "last", "gpus", "tensor", "cut")
        )
        return Pipelines((gpus > 0).sum(axis=1), first, last, gpus, tensor, cut)

    def _trail(self, row: Ints, limit: Ints, fits: Bools, choices: list[Ints]) -> list[_Link]:
        operator, left = np.where(fits, 0, self.operators), self.gpus[row]
        trail: list[_Link] = []
        count = len(self.sizes)
        code = np.zeros(len(row), dtype=np.int64)
        while True:
            going = operator < self.operators
            for start in np.unique(operator[going]).tolist():
                here = np.flatnonzero(operator == start)
                code[here] = choices[start][row[here], limit[here], left[here]]
            start = np.where(going, operator, 0)
            last = np.where(going, start + code // count, 0)
            index = np.where(going, code % count, 0)
            run = run_index(self.operators, start, last)
            gpus = np.where(going, self.sizes[index], 0)
            receives = self.receives[row, 0, left].astype(np.int64)
            # A stage sends across nodes where the next one receives across nodes.
            sends = self.receives[row, 0, left - gpus].astype(np.int64)
            seconds = self.table.seconds[row, run, index] + self.transfer[row, start, receives, index]
            seconds = seconds + self.transfer[row, last + 1, sends, index]
            trail.append(
                _Link(
                    first=start,
                    last=last,
                    gpus=gpus,
                    tensor=np.where(going, self.table.tensor[row, run, index], 1),
                    cut=np.where(going, self.table.cut[row, run, index], 0),
                    seconds=np.where(going, seconds, 0.0),
                )
            )
            operator, left = np.where(going, last + 1, operator), left - gpus
            if not (operator < self.operators).any():
                return trail


class _Link(NamedTuple):
    """One stage of every plan, shape (R x limits,); 0 GPUs if a plan has no such stage."""

    first: Ints
    last: Ints
    gpus: Ints
    tensor: Ints
    cut: Ints
    seconds: Floats
