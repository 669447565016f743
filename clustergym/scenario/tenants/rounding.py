"""For how long past use may go on without changing what a division by it rounds to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints

MARGIN = 1e-7
"""GPUs by which an offer stays away from where it would round otherwise: far above floating-point errors."""
ALWAYS = 1e9
"""GPUs that no offer comes near: a bound that always holds."""


class Offers:
    """Records how many GPUs a division offers to each queue, and how each number was rounded.

    In each turn the queues that want more are offered parts of what is left, in proportion to
    e + k (e - u) if that is above 0: e is a queue's even part by weight, u its past use, k the weight of
    history. Whatever else a division does depends on past use by the rounding of these offers alone.

    Parameters
    ----------
    queue : sequence of int
        Index of each queue in the tree.
    """

    def __init__(self, queue: Sequence[int]) -> None:
        self.certain = True
        """Whether the bounds say all: False if an offer is where rounding turns, or GPUs are not whole."""
        self._queue = queue
        self._turns: list[_Turn] = []
        self._last: dict[int, tuple[_Turn, int]] = {}

    def turn(
        self,
        wanting: Sequence[int],
        even: Sequence[float],
        left: float,
        offered: Sequence[float],
        missing: Sequence[float],
        epsilon: float,
    ) -> None:
        """Record for `bounds` one round of offers: of `left` GPUs, what queues in `wanting` get and lack.

        One has all that it lacks if the offer is no more than `epsilon` below that, or else whole GPUs.
        """
        offer, lacks = np.array(offered), np.array(missing)
        some, floor = offer > 0, np.floor(offer + epsilon)
        sated, short = offer > lacks + epsilon, offer < lacks - epsilon
        if np.count_nonzero(some) > 1:
            self.certain &= bool((sated | short).all())
            least = np.where(sated, lacks + epsilon, np.where(floor > 0, floor - epsilon, -ALWAYS))
            most = np.where(short, np.minimum(floor + 1.0, lacks) - epsilon, ALWAYS)
        else:  # what one alone is offered does not change
            least, most = np.full(len(offer), -ALWAYS), np.full(len(offer), ALWAYS)
        turn = _Turn([self._queue[at] for at in wanting], even, left, some, floor, least, most)
        self._turns.append(turn)
        self._last |= {at: (turn, row) for row, at in enumerate(wanting)}

    def deal(
        self, left: float, missing: Sequence[tuple[int, float]], rank: Sequence[int], lost: Sequence[float]
    ) -> None:
        """Record for `bounds` who gets GPUs left over by rounding: by priority `rank`, then who lost more.

        Parameters
        ----------
        left : float
        missing : sequence of (int, float)
            Place and GPUs that it lacks of each queue that wants more, in order.
        rank, lost : sequence of int, float
            Priority of each place, and what rounding has taken of it.
        """
        if left % 1.0 or any(gpus % 1.0 for _, gpus in missing):
            self.certain = False
            return
        while left >= len(missing) > 0:
            left -= len(missing)
            missing = [(at, gpus - 1.0) for at, gpus in missing if gpus > 1.0]
        if not missing:
            return
        beside = rank[missing[int(left)][0]]
        have = [at for at, _ in missing[: int(left)] if rank[at] == beside]
        lack = [at for at, _ in missing[int(left) :] if rank[at] == beside]
        if not have:
            return
        between = (min(lost[at] for at in have) + max(lost[at] for at in lack)) / 2
        for at in self._last.keys() & have:
            turn, row = self._last[at]
            turn.least[row] = max(turn.least[row], turn.floor[row] + between)
        for at in self._last.keys() & lack:
            turn, row = self._last[at]
            turn.most[row] = min(turn.most[row], turn.floor[row] + between)

    def bounds(self, history_weight: float) -> Bounds:
        """Return bounds on queues' past GPU time within which all recorded offers round to the same GPUs."""
        if not self.certain or not self._turns:
            return Bounds.none(self.certain)
        queue, even, left, some, _, least, most = zip(*self._turns, strict=True)
        sizes, margin = [len(one) for one in queue], MARGIN * (1.0 + history_weight)
        return Bounds(
            True,
            np.concatenate(queue),
            np.repeat(np.arange(len(sizes)), sizes),
            (1.0 + history_weight) * np.concatenate(even),
            np.repeat(history_weight, sum(sizes)),
            np.repeat(left, sizes),
            np.concatenate(some),
            np.concatenate(least) + margin,
            np.concatenate(most) - margin,
        )


class _Turn(NamedTuple):
    """The offers to queues in one round of rounding, kept as `Bounds`."""

    queue: list[int]
    even: Sequence[float]
    left: float
    some: Bools
    floor: Floats
    least: Floats
    most: Floats


class Bounds(NamedTuple):
    """Conditions on queues' and cluster's past GPU time under which a division gives the same GPUs.

    Attributes
    ----------
    certain : bool
        False: past use may not change at all.
    queue, turn : ndarray of int, shape (n,)
        Whose each offer is, and in which turn: those of a turn divide the same GPUs.
    even, used, left : ndarray of float, shape (n,)
        It is offered a part of `left` in proportion to `even` x the cluster's GPU time - `used` x its own.
    some : ndarray of bool, shape (n,)
        Whether the queue is offered any.
    least, most : ndarray of float, shape (n,)
    """

    certain: bool
    queue: Ints
    turn: Ints
    even: Floats
    used: Floats
    left: Floats
    some: Bools
    least: Floats
    most: Floats

    @staticmethod
    @cache
    def none(certain: bool = True) -> Bounds:
        """Return bounds on queues' past GPU time that always hold if `certain`, otherwise never."""
        empty, whole = np.zeros(0), np.zeros(0, dtype=np.int64)
        return Bounds(certain, whole, whole, empty, empty, empty, empty.astype(np.bool_), empty, empty)

    @staticmethod
    def together(several: Sequence[Bounds]) -> Bounds:
        """Join the bounds of several divisions into one, which holds only while all of them hold."""
        begins, columns = 0, list[tuple[Floats | Ints | Bools, ...]]()
        for one in several:
            columns.append((one.queue, one.turn + begins, *one[3:]))
            begins += int(one.turn[-1]) + 1 if len(one.turn) else 0
        certain = all(one.certain for one in several)
        return Bounds(certain, *(np.concatenate(column) for column in zip(*columns, strict=True)))

    def hold(self, gpu_s: Floats) -> bool:
        """Return whether the division would be the same for a past use (GPU time of queues and cluster)."""
        if not self.certain or not len(self.queue):
            return self.certain
        return bool(gpu_s[-1] > 0 and self._room(gpu_s).min() >= 0)

    def reach(self, gpu_s: Floats, growth: Floats) -> float:
        """Return how long past use may grow linearly until the division changes; 0 if it has changed already.

        Parameters
        ----------
        gpu_s, growth : ndarray of float, shape (queues + 1,)
            GPU time of each queue and of the cluster; what is added to it per unit of length.
        """
        if not self.certain or gpu_s[-1] <= 0:
            return np.inf if self.certain and not len(self.queue) else 0.0
        # All is linear in the GPU time, with the cluster's as the common denominator.
        room, change = self._room(gpu_s), self._room(growth)
        if room.min(initial=0.0) < 0:
            return 0.0
        falls = change < 0
        return float((room[falls] / -change[falls]).min(initial=np.inf))

    def _room(self, gpu_s: Floats) -> Floats:
        """Return how far offers are from their bounds, and from turning to or from none, times the whole."""
        drawn = self.even * gpu_s[-1] - self.used * gpu_s[self.queue]
        whole = np.bincount(self.turn, drawn * self.some)[self.turn]
        offered = self.left * drawn
        beside = np.where(self.some, drawn, -drawn)
        found: Floats = np.concatenate([offered - self.least * whole, self.most * whole - offered, beside])
        return found
