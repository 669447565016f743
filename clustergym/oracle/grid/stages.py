"""Tables of pipeline stages: the best split that fits, for every run of operators and number of GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.oracle.grid.layer_costs import (
    KEEPING_PASSES,
    RECOMPUTING_PASSES,
    GraphAllocations,
    Machine,
    OperatorCosts,
    Split,
    operator_costs,
)

MOST_TENSOR = 16
"""GPUs that an operator is split over, at most."""


@lru_cache(maxsize=64)
def intervals(operators: int) -> tuple[Ints, Ints]:
    """List all runs of consecutive operators as two arrays: the first and the last operator of each."""
    first, last = np.triu_indices(operators)
    return first.astype(np.int64), last.astype(np.int64)


def run_index(operators: int, first: Ints, last: Ints) -> Ints:
    """Return the positions of runs of operators in the list that `intervals` returns."""
    # Runs that begin at 0 come first, then those at 1, one fewer for each beginning: a triangular index.
    return np.asarray(first * operators - first * (first - 1) // 2 + last - first)


@lru_cache(maxsize=64)
def splits(most: int) -> tuple[Ints, Ints]:
    """List (GPUs, tensor-parallel ranks) of a stage in powers of two, up to `most` GPUs, as two arrays."""
    sizes = [1 << n for n in range(most.bit_length())]
    pairs = [(m, t) for m in sizes for t in sizes if t <= min(m, MOST_TENSOR)]
    gpus, tensor = np.array(pairs, dtype=np.int64).T
    return gpus, tensor


@dataclass(frozen=True)
class StageTable:
    """The best way to split each run of operators over each number of GPUs, with its time and memory.

    Attributes
    ----------
    sizes : ndarray of int, shape (M,)
        GPUs of a stage, powers of two.
    seconds : ndarray of float
        Of a micro-batch, with its share of what is done once an iteration; inf where no split fits.
    tensor : ndarray of int
        GPUs that an operator of the stage is split over.
    cut : ndarray of int
        First operator that is split; those before it are data-parallel.
    memory_bytes : ndarray of float
        Memory on a GPU with that split; where none fits, with the split that needs least.
    """

    sizes: Ints
    seconds: Floats
    tensor: Ints
    cut: Ints
    memory_bytes: Floats


def stage_table(
    rows: GraphAllocations,
    machine: Machine,
    micro_batches: Floats,
    most: int,
    objective: str = "seconds",
    allowed: Bools | None = None,
) -> StageTable:
    """Choose the best way, by `objective`, to split each run of operators over each number of GPUs.

    Parameters
    ----------
    micro_batches : ndarray of float, shape (R,)
    most : int
        GPUs of the largest stage, a power of two.
    objective : str
        `seconds` of the whole stage, or `communication` alone.
    allowed : ndarray of bool, shape (R, V, I), optional
        Splits (see `splits`) of runs (see `intervals`) to choose from; all by default.
    """
    gpus, tensor = splits(most)
    seconds, cut, memory = every_split(rows, machine, micro_batches, objective, gpus, tensor)
    if allowed is not None:
        seconds = np.where(allowed, seconds, np.inf)
    sizes = np.unique(gpus)
    shape = (len(rows), seconds.shape[2], len(sizes))
    best, ranks = np.full(shape, np.inf), np.ones(shape, dtype=np.int64)
    cuts, used = np.zeros(shape, dtype=np.int64), np.full(shape, np.inf)
    for index, size in enumerate(sizes):
        chosen = np.flatnonzero(gpus == size)
        fast, lean = np.argmin(seconds[:, chosen], axis=1), np.argmin(memory[:, chosen], axis=1)
        # Where no split fits, the leanest stands for the run, to tell by how much it exceeds memory.
        pick = np.where(np.isfinite(seconds[:, chosen]).any(axis=1), fast, lean)[:, None]
        best[:, :, index] = np.take_along_axis(seconds[:, chosen], pick, 1)[:, 0]
        ranks[:, :, index] = tensor[chosen][pick[:, 0]]
        cuts[:, :, index] = np.take_along_axis(cut[:, chosen], pick, 1)[:, 0]
        used[:, :, index] = np.take_along_axis(memory[:, chosen], pick, 1)[:, 0]
    return StageTable(sizes, best, ranks, cuts, used)


def every_split(
    rows: GraphAllocations,
    machine: Machine,
    micro_batches: Floats,
    objective: str,
    gpus: Ints,
    tensor: Ints,
    mixed: bool = True,
) -> tuple[Floats, Ints, Floats]:
    """Return, by run of operators and split: seconds (inf: no fit), first tensor-parallel operator, bytes.

    If `mixed`, the first blocks of a wide ResNet's stage may be data-parallel while its other blocks are
    split: early blocks are large in activations and small in weights.
    """
    sums = _Sums(rows, machine, micro_batches, objective, gpus, tensor)
    first, _ = intervals(rows.operators)
    seconds, memory = sums.stages(np.arange(len(first)), None, np.arange(len(gpus)))
    cut = np.broadcast_to(first, seconds.shape).copy()
    # Without a split there is nothing to mix.
    several = np.flatnonzero(tensor > 1)
    if not mixed or not machine.convolutional.any() or not len(several):
        return seconds, cut, memory
    inside, runs, positions, starts = _mixes(rows.operators)
    where = np.ix_(np.arange(len(rows)), several, inside)
    mixed_s, mixed_bytes = sums.stages(runs, positions, several)
    least = np.minimum.reduceat(mixed_s, starts, axis=2)
    counts = np.diff(starts, append=len(runs))
    fastest = mixed_s == np.repeat(least, counts, axis=2)
    position = np.minimum.reduceat(np.where(fastest, positions, rows.operators), starts, axis=2)
    used = np.take_along_axis(mixed_bytes, starts + position - first[inside] - 1, axis=2)
    better = (least < seconds[where]) & machine.convolutional
    seconds[where] = np.where(better, least, seconds[where])
    memory[where] = np.where(better, used, memory[where])
    cut[where] = np.where(better, position, cut[where])
    return seconds, cut, memory


@lru_cache(maxsize=64)
def _mixes(operators: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the runs that can be cut, the run and position of every cut, and where each run's cuts start."""
    first, last = intervals(operators)
    ways = last - first
    inside = np.flatnonzero(ways)
    starts = np.cumsum(ways[inside]) - ways[inside]
    runs = np.repeat(inside, ways[inside])
    positions = first[runs] + 1 + np.arange(len(runs)) - np.repeat(starts, ways[inside])
    return inside, runs, positions, starts


class _Sums:
    """Prefix sums over operators of every split's costs; a stage's cost is a difference of two."""

    def __init__(
        self,
        rows: GraphAllocations,
        machine: Machine,
        micro_batches: Floats,
        objective: str,
        gpus: Ints,
        tensor: Ints,
    ) -> None:
        self.rows, self.machine = rows, machine
        self.micro_batches = micro_batches.reshape(-1, 1, 1)
        self.samples = np.ceil(rows.batch / micro_batches).reshape(-1, 1, 1)
        self.gpus, self.tensor = gpus[None, :, None].astype(np.float64), tensor[None, :, None].astype(float)
        # The variant of as many GPUs that splits nothing is the first of its count; a mixed stage begins with
        # it.
        self.plain = np.searchsorted(gpus, gpus)
        costs = operator_costs(rows, machine, self.samples, Split(self.gpus, self.tensor))
        self.recomputing, self.keeping = (
            _prefix(operator_seconds(costs, self.micro_batches, again, objective)) for again in (True, False)
        )
        self.state = _prefix(costs.state_bytes + costs.head_bytes)
        self.kept = _prefix(costs.kept_bytes)
        self.activation = _prefix(costs.activation_bytes - costs.head_bytes)
        wide = [np.maximum.accumulate(costs.workspace_bytes[:, :, i:], axis=2) for i in range(rows.operators)]
        self.workspace = np.concatenate(wide, axis=2)
        self.possible = self._possible()

    def stages(self, chosen: Ints, cut: Ints | None, variants: Ints) -> tuple[Floats, Floats]:
        """Return the seconds (inf: does not fit) and memory of stages, split from `cut` on or whole."""
        first, last = (part[chosen] for part in intervals(self.rows.operators))
        bounds = (first, last, cut, variants)
        # 1F1B: a stage holds as many micro-batches as there are stages from it on. The table does not know
        # the pipeline, so all its stages are taken to have as many operators as this one.
        flight = np.ceil((self.rows.operators - first) / (last + 1 - first))
        flight = np.minimum(flight, self.micro_batches)
        seconds = self._run(self.recomputing, *bounds)
        held = flight * self._run(self.kept, *bounds) + self.workspace[:, variants][:, :, chosen]
        whole = last - first + 1 == self.rows.operators
        # A single stage keeps its activations unless the model always recomputes: measured, wide ResNets of
        # one stage do three passes, pipelined ones four.
        if whole.any() and not self.machine.recomputes.all():
            entire = (first[whole], last[whole], None if cut is None else cut[whole], variants)
            again = self.machine.recomputes
            seconds[:, :, whole] = np.where(again, seconds[:, :, whole], self._run(self.keeping, *entire))
            held[:, :, whole] = np.where(again, held[:, :, whole], self._run(self.activation, *entire))
        memory = self._run(self.state, *bounds) + held
        possible = self.possible[:, variants]
        if not self.machine.planned.all():
            alone = whole & (self.tensor[:, variants] == 1)
            possible = possible & (self.machine.planned | alone)
        memory = np.where(possible, memory, np.inf)
        return np.where(memory <= self.machine.memory_bytes, seconds, np.inf), memory

    def _run(self, prefix: Floats, first: Ints, last: Ints, cut: Ints | None, variants: Ints) -> Floats:
        split = prefix[:, variants]
        if cut is None:
            return np.asarray(split[:, :, last + 1] - split[:, :, first])
        plain = prefix[:, self.plain[variants]]
        return np.asarray(plain[:, :, cut] - plain[:, :, first] + split[:, :, last + 1] - split[:, :, cut])

    def _possible(self) -> Bools:
        # Every data-parallel rank needs a sample; a mixture of experts, whose ranks all see data, needs two a
        # GPU.
        data = np.where(self.machine.experts, 2 * self.gpus, self.gpus / self.tensor)
        fits = (data <= self.samples) & (self.tensor <= self.machine.tensor_limit)
        return np.asarray(fits & (self.gpus <= self.rows.layout.gpus.reshape(-1, 1, 1)))


def operator_seconds(
    costs: OperatorCosts, micro_batches: Floats, recomputes: bool, objective: str = "seconds"
) -> Floats:
    """Return operators' seconds for a micro-batch, or only of their communication, as `objective` says."""
    # Recomputing repeats the collectives of the forward pass, half of those of forward and backward.
    exchange = 1.5 if recomputes else 1.0
    seconds = costs.synchronise_s / micro_batches + exchange * costs.exchange_s
    if objective == "communication":
        return np.asarray(seconds)
    passes = RECOMPUTING_PASSES if recomputes else KEEPING_PASSES
    return np.asarray(seconds + passes * costs.pass_s + costs.weights_s)


def _prefix(values: Floats) -> Floats:
    zero = np.zeros((*values.shape[:2], 1))
    return np.concatenate([zero, np.cumsum(values, axis=2)], axis=2)


def pure_data_parallel(
    rows: GraphAllocations, machine: Machine, micro_batches: Floats
) -> tuple[Floats, Floats]:
    """Return seconds (inf: does not fit) and bytes per GPU of each model as one data-parallel stage."""
    whole = np.array([rows.operators - 1])
    seconds, memory = np.full(len(rows), np.inf), np.full(len(rows), np.inf)
    for count in np.unique(rows.layout.gpus).astype(np.int64):
        here = np.flatnonzero(rows.layout.gpus == count)
        some, on = rows.take(here), machine.take(here)
        sums = _Sums(some, on, micro_batches[here], "seconds", np.array([count]), np.array([1]))
        found = sums.stages(whole, None, np.zeros(1, dtype=np.int64))
        seconds[here], memory[here] = found[0][:, 0, 0], found[1][:, 0, 0]
    return seconds, memory
