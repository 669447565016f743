"""The planner: chooses a grid's proxy plan by computation bias and communication load.

Follows Arena (EuroSys '26, section 3.3). The roofline gives each operator's load (Eq. 2). An operator
deserves a fractional number of GPUs in proportion to its load, and a stage the sum over its operators. The
bias of a partition is the distance between its stages' powers of two of GPUs and what they deserve (Eq. 3).
Of the splits that fit in memory, a stage has the one that communicates least.

We depart from the text in two points, which the strategy `least_bias` takes as the text has them: nearly
equal biases count as equal (`BIAS_STEP`; the text: exactly equal ones), and the communication load includes
the transfers between stages (the text leaves them out, as small and overlapped). Ours where the text says
nothing: `NORMALISATIONS` and `WIDEST`; powers of two of stages are Crius's (section 6.1). Where a frontier
has more plans than a threshold, the text drops, of the two plans most alike in their partition, the one that
communicates more; it gives neither the threshold nor the measure of likeness. Here all plans stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.oracle.grid.layer_costs import GraphAllocations, Machine
from clustergym.oracle.grid.pipelines import Pipelines, crossings, slower_ends, transfer_s
from clustergym.oracle.grid.stages import StageTable, run_index, stage_table

NORMALISATIONS = 4
"""How many ways to round a partition's GPUs to powers of two are kept, least biased first: where the first
does not fit in memory, another may."""

WIDEST = 8
"""Greatest ratio of the GPUs of the largest stage to those of the smallest."""

BIAS_STEP, EXACT = 1 / 16, 1e-6
"""Biases that differ by less than this share of the grid's GPUs are equal: ours, and the text's."""


@lru_cache(maxsize=256)
def compositions(gpus: int, stages: int) -> Ints:
    """List the ways to divide GPUs among stages in powers of two, none too uneven, shape (C, stages).

    No stage has more than `WIDEST` times the GPUs of another: operators are clustered evenly.
    """
    found: list[tuple[int, ...]] = []

    def extend(prefix: tuple[int, ...], left: int) -> None:
        missing = stages - len(prefix)
        if missing == 0:
            if left == 0:
                found.append(prefix)
            return
        size = 1
        while size <= left - missing + 1:
            # Prune early: the rest must still be a sum of so many powers of two.
            if size * missing >= left or _reachable(left - size, missing - 1):
                extend((*prefix, size), left - size)
            size *= 2

    extend((), gpus)
    every = np.array(found, dtype=np.int64).reshape(-1, stages)
    return np.asarray(every[every.max(axis=1) <= WIDEST * every.min(axis=1)])


@lru_cache(maxsize=65536)
def _reachable(total: int, count: int) -> bool:
    """Return whether `count` powers of two can sum up to `total`."""
    # Splitting a power of two in halves adds one summand, from as few as there are bits to as many as ones.
    return total.bit_count() <= count <= total


@lru_cache(maxsize=64)
def partitions(operators: int, stages: int) -> tuple[Ints, Ints]:
    """List all divisions of a chain of operators into stages: first and last operators, shape (P, stages)."""
    cuts = [(0, *cut, operators) for cut in combinations(range(1, operators), stages - 1)]
    bounds = np.array(cuts, dtype=np.int64).reshape(-1, stages + 1)
    return bounds[:, :-1], bounds[:, 1:] - 1


def stage_counts(operators: int, gpus: int) -> list[int]:
    """Return the numbers of pipeline stages to try for a number of GPUs, which are powers of two."""
    return [1 << n for n in range(min(operators, gpus).bit_length())]


def roofline_load(rows: GraphAllocations, machine: Machine) -> Floats:
    """Return each operator's seconds per sample on one GPU by the roofline model, by model and operator."""
    columns = rows.columns
    flops = columns["flops"] + columns["attention_flops"] + columns["gate_flops"]
    moved = columns["traffic_bytes"] + columns["gate_traffic_bytes"]
    # Eq. 2: the roofline takes the longer of computing and moving memory, at the data sheet's rates.
    return np.asarray(np.maximum(flops / machine.peak_flops, moved / machine.memory_bytes_per_s)[:, 0])


def fractional_gpus(rows: GraphAllocations, machine: Machine) -> Floats:
    """Return GPUs (fractional) in proportion to the load of each operator, by model and operator."""
    load = roofline_load(rows, machine)
    # Section 3.3: GPUs in proportion to loads, all of the grid's GPUs together.
    return np.asarray(load / load.sum(axis=1, keepdims=True) * rows.layout.gpus[:, None])


@dataclass(frozen=True)
class NormalisedPartitions:
    """Divisions of models into stages with whole GPUs, and how far these are from GPUs proportional to load.

    Attributes
    ----------
    first, last : ndarray of int, shape (P, S)
    gpus, tensor, cut : ndarray of int
        Of each stage, with the split of least communication that fits.
    bias : ndarray of float, shape (R, P)
        Euclidean distance of GPUs from the fractional ones.
    communication_s : ndarray of float, shape (R, P)
        Communication load in an iteration: collectives of all stages, and unless the planner is literal the
        transfers between them; inf where a stage does not fit.
    memory_bytes : ndarray of float
    bias_step : float
        Share of the grid's GPUs by which biases must differ not to count as equal.
    """

    first: Ints
    last: Ints
    gpus: Ints
    tensor: Ints
    cut: Ints
    bias: Floats
    communication_s: Floats
    memory_bytes: Floats
    bias_step: float = BIAS_STEP

    def pipelines(self, choice: Ints) -> Pipelines:
        """Return each model's chosen division into stages as a plan; it must fit in memory."""
        row = np.arange(len(choice))
        stages = self.first.shape[1]
        partition = choice // (self.bias.shape[1] // len(self.first))
        return Pipelines(
            count=np.full(len(choice), stages, dtype=np.int64),
            first=self.first[partition],
            last=self.last[partition],
            gpus=self.gpus[row, choice],
            tensor=self.tensor[row, choice],
            cut=self.cut[row, choice],
        )


class Planner:
    """Divides models' operators into stages with GPUs in proportion to the load, as the Arena paper does.

    Parameters
    ----------
    rows : GraphAllocations
    machine : Machine
        As profiled.
    micro_batches : ndarray of float, shape (R,)
    literal : bool
        Judge plans by the letter of Arena's text: biases exactly, and communication without transfers.
    """

    def __init__(
        self, rows: GraphAllocations, machine: Machine, micro_batches: Floats, literal: bool = False
    ) -> None:
        self.rows, self.machine, self.micro_batches = rows, machine, micro_batches
        self.literal = literal
        self.gpus = int(rows.layout.gpus[0])
        self.table: StageTable = stage_table(rows, machine, micro_batches, self.gpus, "communication")
        samples = np.ceil(rows.batch / micro_batches)
        self.transfer = transfer_s(rows, machine, samples, self.gpus)
        share = fractional_gpus(rows, machine)
        self.deserved = np.concatenate([np.zeros((len(rows), 1)), np.cumsum(share, axis=1)], axis=1)

    def candidates(self, stages: int) -> NormalisedPartitions:
        """List divisions of the operators into `stages` stages, each with the best-balanced GPU counts."""
        first, last = partitions(self.rows.operators, stages)
        # What a stage deserves is the sum over its operators, taken as a difference of prefix sums.
        ideal = self.deserved[:, last + 1] - self.deserved[:, first]
        sizes, bias = _normalise_partitions(ideal, compositions(self.gpus, stages))
        kept = sizes.shape[2]
        shape = (len(self.rows), len(first) * kept)
        starts, ends = np.repeat(first, kept, axis=0), np.repeat(last, kept, axis=0)
        gpus = sizes.reshape(*shape, stages)
        index = np.log2(gpus).astype(np.int64)
        row = np.arange(len(self.rows))[:, None, None]
        run = run_index(self.rows.operators, starts, ends)
        where = (row, run[None], index)
        seconds = self.table.seconds[where]
        if not self.literal:
            # Eq. 4 leaves transfers between stages out as small and overlapped; ours counts them (see above).
            seconds = seconds + self.transfers(starts, ends, gpus)
        return NormalisedPartitions(
            first=first,
            last=last,
            gpus=gpus,
            tensor=self.table.tensor[where],
            cut=self.table.cut[where],
            bias=bias.reshape(shape),
            # Eq. 4: the communication of one micro-batch, times their number.
            communication_s=seconds.sum(axis=2) * self.micro_batches[:, None],
            memory_bytes=self.table.memory_bytes[where],
            bias_step=EXACT if self.literal else BIAS_STEP,
        )

    def transfers(self, first: Ints, last: Ints, gpus: Ints) -> Floats:
        """Return the seconds in which each stage receives and sends a micro-batch, both added up.

        Parameters
        ----------
        first, last : ndarray of int, shape (P, S) or (R, P, S)
        gpus : ndarray of int, shape (R, P, S)
        """
        receiving, sending = slower_ends(np.log2(gpus).astype(np.int64))
        receives, sends = crossings(self.rows, gpus)
        row = np.arange(len(self.rows))[:, None, None]
        received = self.transfer[row, first, receives, receiving]
        return np.asarray(received + self.transfer[row, last + 1, sends, sending])


def _normalise_partitions(ideal: Floats, every: Ints) -> tuple[Ints, Floats]:
    """Return the nearest compositions of fractional GPUs, shape (R, P, N, S), and their distances (R, P, N).

    Parameters
    ----------
    ideal : ndarray of float, shape (R, P, S)
    every : ndarray of int, shape (C, S)
    """
    # Eq. 3, expanded as |a|^2 + |b|^2 - 2ab: all distances by one product, in an order of its own.
    product = np.einsum("rps,cs->rpc", ideal, every.astype(np.float64))
    squares = (ideal**2).sum(axis=2)[..., None] + (every**2).sum(axis=1) - 2 * product
    kept = min(NORMALISATIONS, len(every))
    # Rounding makes equal distances equal on every machine; a stable sort then keeps their order.
    distance = np.round(np.sqrt(np.maximum(squares, 0.0)), 6)
    nearest = np.argsort(distance, axis=2, kind="stable")[..., :kept]
    return every[nearest], np.take_along_axis(distance, nearest, axis=2)


def reduce_bias(candidates: NormalisedPartitions, gpus: int) -> Floats:
    """Return, in steps of `bias_step`, by how much each division's bias exceeds the least; inf: unusable.

    A step is the share `bias_step` of all GPUs.
    """
    fits = np.isfinite(candidates.communication_s)
    bias = np.where(fits, candidates.bias, np.inf)
    least = bias.min(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        steps = np.floor((bias - least) / (candidates.bias_step * gpus) + 1e-9)
    return np.where(fits, steps, np.inf)


def frontiers(candidates: NormalisedPartitions, gpus: int) -> Bools:
    """Return whether each division into stages is Pareto-optimal in imbalance and communication.

    Of partitions with equal bias only the one of least communication load counts. It is on the frontier if no
    partition of less bias communicates as little.
    """
    steps, load = reduce_bias(candidates, gpus), candidates.communication_s
    # In ascending bias, of equal bias the least load first: a partition is dominated exactly if one before it
    # in this order communicates as little.
    order = np.lexsort((candidates.bias, load, steps), axis=1)
    ordered = np.take_along_axis(load, order, axis=1)
    before = np.minimum.accumulate(ordered, axis=1)[:, :-1]
    before = np.concatenate([np.full((len(ordered), 1), np.inf), before], axis=1)
    found = np.zeros(load.shape, dtype=bool)
    # Less by more than rounding; infinite loads are never less than what came before.
    np.put_along_axis(found, order, ordered < before * (1 - 1e-9), axis=1)
    return found


def frontier(candidates: NormalisedPartitions, gpus: int, row: int) -> Ints:
    """Return the indices of one model's Pareto-optimal divisions into stages, by ascending imbalance."""
    kept = np.flatnonzero(frontiers(candidates, gpus)[row])
    return kept[np.argsort(-candidates.communication_s[row, kept], kind="stable")]


def proxies(candidates: NormalisedPartitions, gpus: int) -> tuple[Ints, Bools]:
    """Return the index of each model's proxy plan (least imbalance and communication); whether it has one."""
    steps = reduce_bias(candidates, gpus)
    # Section 3.3, proxy plan: first the least computation bias, then of these the least communication.
    lowest = steps == steps.min(axis=1, keepdims=True)
    load = np.where(lowest, candidates.communication_s, np.inf)
    choice = np.argmin(load, axis=1)
    return choice, np.asarray(np.isfinite(load).any(axis=1))
