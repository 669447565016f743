"""The search for the best parallel plan: over micro-batches, stages, GPUs per stage and splits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.oracle.grid.layer_costs import GraphAllocations, Machine
from clustergym.oracle.grid.partition import best_pipelines
from clustergym.oracle.grid.pipelines import Layouts, Pipelines, price, transfer_s
from clustergym.oracle.grid.stages import pure_data_parallel, stage_table
from clustergym.oracle.roofline.memory_fit import MICRO_BATCHES, MOST_MICRO_BATCHES

CHUNK = 48
"""Rows that are searched at once: as many as fit in a core's cache."""


@dataclass(frozen=True)
class BestPlans:
    """The best plan of every row.

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


def divided(rows: GraphAllocations, micro_batches: Floats | float) -> Floats:
    """Return how many micro-batches a batch divides into, at most as many as given, shape (R,)."""
    samples = np.ceil(rows.batch / micro_batches)
    return np.asarray(np.ceil(rows.batch / samples))


def micro_batch_counts(rows: GraphAllocations, machine: Machine) -> Iterator[tuple[Ints, Floats]]:
    """Yield rows and the micro-batches to try for them.

    16, and 32, which need less memory, as Arena's evaluation ran; where GPUs would outnumber the samples of a
    micro-batch, fewer, so that each GPU has a sample. For data-parallel models all powers of two down to one
    sample a micro-batch are tried.
    """
    everywhere = np.arange(len(rows))
    planned = machine.planned.ravel()
    for count in (MICRO_BATCHES, MOST_MICRO_BATCHES):
        yield everywhere[planned], divided(rows, float(count))
    fewer = np.maximum(np.floor(rows.batch / rows.layout.gpus), 1.0)
    some = planned & (fewer < MICRO_BATCHES)
    yield everywhere[some], divided(rows, fewer)
    count = 1
    while (~planned).any() and count <= rows.batch[~planned].max():
        yield everywhere[~planned & (rows.batch >= count)], divided(rows, float(count))
        count *= 2


def full_search(
    rows: GraphAllocations,
    machine: Machine,
    allowed: Bools | None = None,
    micro_batches: Floats | None = None,
) -> BestPlans:
    """Return the fastest plan of every row, of all stages, sizes and splits.

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
        best = _improved(best, rows, machine, some[chunk], counts[chunk], allowed)
    return best


def every_variant(rows: GraphAllocations, machine: Machine) -> tuple[Ints, Floats]:
    """Return pairs of a row and a number of micro-batches to try, as two arrays of shape (V,)."""
    found = [(some, counts[some]) for some, counts in micro_batch_counts(rows, machine)]
    some, counts = (np.concatenate(part) for part in zip(*found, strict=True))
    pairs = np.unique(np.stack([some, counts]), axis=1)
    return pairs[0].astype(np.int64), pairs[1]


def fastest(rows: int, some: Ints, seconds: Floats) -> Ints:
    """Return the positions in `some` of the fastest variant of every row that occurs and fits."""
    order = np.lexsort((seconds, some))
    first = order[np.searchsorted(some[order], np.unique(some))]
    return np.asarray(first[np.isfinite(seconds[first])])


def nothing(rows: GraphAllocations) -> BestPlans:
    """Return a result in which no row has a plan."""
    none = np.zeros((len(rows), rows.operators), dtype=np.int64)
    plans = Pipelines(np.zeros(len(rows), dtype=np.int64), none, none, none, none + 1, none)
    return BestPlans(plans, np.ones(len(rows)), np.full(len(rows), np.inf))


def improved(best: BestPlans, some: Ints, plans: Pipelines, counts: Floats, seconds: Floats) -> BestPlans:
    """Return the better of the known plan and further plans, for each row.

    Parameters
    ----------
    some : ndarray of int, shape (V,)
        The row of each further plan; a row may occur several times.
    plans : Pipelines
        V of them, padded like the known ones.
    counts, seconds : ndarray of float, shape (V,)
    """
    pick = fastest(len(best.iteration_s), some, seconds)
    pick = pick[seconds[pick] < best.iteration_s[some[pick]]]
    micro_batches, iteration_s = best.micro_batches.copy(), best.iteration_s.copy()
    micro_batches[some[pick]], iteration_s[some[pick]] = counts[pick], seconds[pick]
    return BestPlans(best.plans.replaced(some[pick], plans.take(pick)), micro_batches, iteration_s)


def _improved(
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
    plans = best_pipelines(part, table, transfer, counts).padded(rows.operators)
    seconds = price(part, on, Layouts(part, plans), counts).iteration_s
    return improved(best, some, plans, counts, seconds)


def data_parallel_search(rows: GraphAllocations, machine: Machine) -> BestPlans:
    """Return pure data parallelism on all GPUs, with the best number of micro-batches that fits."""
    best = nothing(rows)
    some, counts = every_variant(rows, machine)
    stage_s, _ = pure_data_parallel(rows.take(some), machine.take(some), counts)
    none = best.plans.take(some)
    gpus, last = none.gpus.copy(), none.last.copy()
    gpus[:, 0], last[:, 0] = rows.layout.gpus[some], rows.operators - 1
    single = np.ones(len(some), dtype=np.int64)
    whole = Pipelines(single, none.first, last, gpus, none.tensor, none.cut)
    return improved(best, some, whole, counts, stage_s * counts)
