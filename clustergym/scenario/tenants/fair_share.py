"""Division of GPUs among queues by quota, then priority, then weight with history (KAI-Scheduler).

Source: NVIDIA KAI-Scheduler, docs/fairness and docs/time-based-fairshare.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.scenario.tenants.rounding import Offers

UNLIMITED = math.inf
EPSILON = 1e-9
"""GPUs below which a difference is rounding of floating point."""


def shares_of_wanted(
    total: float,
    wanted: list[float],
    quota: list[float],
    weight: list[float],
    priority: list[int],
    usage: list[float],
    history_weight: float,
    offers: Offers | None = None,
) -> list[float]:
    """Divide a parent's GPUs of one type fairly among its queues; return the GPUs of each.

    Each has its quota, as far as it wants it; quotas may together exceed the parent's GPUs. The rest goes,
    priority by priority, to those that want more: by weight, less where a queue has had more than its weight
    of late. Shares are whole unless a quota or request is not: what rounding leaves is dealt out one by one,
    by priority, then by what rounding took, then in the order given, which is that of age.

    Parameters
    ----------
    total : float
        GPUs of the parent.
    wanted, quota : list of float
        GPUs that each queue would get if no other wanted any; GPUs it deserves before anybody has a surplus,
        infinite: all of the parent's.
    weight, priority : list of float, list of int
        Its part of the surplus, against queues of equal priority (0: none); queues of a higher priority have
        all they want of the surplus first.
    usage : list of float
        Part of the parent's GPU time that each has had of late, from 0 to 1 (`History.usage`).
    history_weight : float
        KAI's k: how much past use counts; 0: not at all.
    offers : Offers, optional
        To which the rounding is told.
    """
    # Compiled episodes compile this and what it calls: lists and loops, and no calls by keyword.
    shares = [min(total if quota[at] == UNLIMITED else quota[at], wanted[at]) for at in range(len(wanted))]
    left = total - sum(shares)
    if left <= EPSILON:
        return shares
    # The common case in one step: all have all they want, and nothing is rounded.
    fractions = [one for one in wanted + shares if one % 1.0]
    if sum(wanted) <= total and 0.0 not in weight and not fractions:
        return wanted[:]
    lost = [0.0 for _ in shares]
    for rank in sorted(set(priority), reverse=True):
        among = [at for at, own in enumerate(priority) if own == rank and weight[at] > 0]
        counted = max(history_weight, 0.0)
        left, blocked = divide_by_weight(left, wanted, weight, usage, among, shares, lost, counted, offers)
        # What is left over is rounding's: queues of lower priority get nothing before those above are sated.
        if blocked:
            break
    if left > EPSILON:
        ranked = [(-priority[at], -lost[at], at) for at in range(len(shares)) if weight[at] > 0]
        order = [at for _, _, at in sorted(ranked)]
        if offers is not None:
            missing = [(at, wanted[at] - shares[at]) for at in order if wanted[at] - shares[at] > EPSILON]
            offers.deal(left, missing, priority, lost)
        distribute_rest(left, wanted, order, shares)
    return shares


def distribute_rest(left: float, wanted: Sequence[float], order: Sequence[int], shares: list[float]) -> None:
    """Give what rounding has left one by one, in order."""
    while left > EPSILON:
        wanting = [at for at in order if wanted[at] - shares[at] > EPSILON]
        if not wanting:
            return
        for at in wanting:
            given = min(1.0, left, wanted[at] - shares[at])
            shares[at] += given
            left -= given
            if left <= EPSILON:
                return


def divide_by_weight(
    left: float,
    wanted: Sequence[float],
    weight: Sequence[float],
    usage: Sequence[float],
    rank: Sequence[int],
    shares: list[float],
    lost: list[float],
    history_weight: float,
    offers: Offers | None,
) -> tuple[float, bool]:
    """Divide `left` among queues of one priority by weight; return the rest, and whether any wants more."""
    while True:
        wanting = [at for at in rank if wanted[at] - shares[at] > EPSILON]
        weights = sum([weight[at] for at in wanting])
        # By how much each draws on what is left: its weight, less what it has had above that.
        even = [weight[at] / weights for at in wanting]
        parts = [
            max(0.0, own + history_weight * (own - usage[wanting[place]])) for place, own in enumerate(even)
        ]
        some = sum(parts)
        if left <= EPSILON or some <= 0:
            if offers is not None and left > EPSILON and wanting:
                offers.certain = False
            return left, False
        missing = [wanted[at] - shares[at] for at in wanting]
        offered = [left * part / some for part in parts]
        if offers is not None:
            offers.turn(wanting, even, left, offered, missing, EPSILON)
        # Another turn only if somebody left some of his offer: otherwise it would round to the same.
        sated = False
        for place, at in enumerate(wanting):
            offer, lacks = offered[place], missing[place]
            # A share that is whole but for rounding counts as whole.
            given = lacks if offer >= lacks - EPSILON else math.floor(offer + EPSILON)
            lost[at] = 0.0 if given == lacks else max(offer - given, 0.0)
            sated |= offer > lacks + EPSILON
            shares[at] += given
            left -= given
        if not sated:
            return left, len([at for at in wanting if wanted[at] - shares[at] > EPSILON]) > 0


OF_DIVISION = (distribute_rest, divide_by_weight, shares_of_wanted)


class _Span(NamedTuple):
    """The GPUs that each queue and their parent held in a stretch of time, shape (queues + 1,)."""

    start_s: float
    end_s: float
    gpus: Floats


class History:
    """The GPU time that each queue used in a sliding window, in which older use may count less.

    Source: NVIDIA KAI-Scheduler, docs/time-based-fairshare.

    Parameters
    ----------
    queues : int
    window_s : float
        Use that is older is forgotten.
    half_life_s : float or None
        Seconds after which use counts half; None: all of the window counts alike.
    """

    def __init__(self, queues: int, window_s: float, half_life_s: float | None = None) -> None:
        self.window_s, self.half_life_s = window_s, half_life_s
        self._spans: deque[_Span] = deque()
        self._now_s = 0.0
        self._time = np.zeros(queues + 1)
        """Weighted GPU-seconds of each queue and of the parent, as of `_now_s`."""

    def add(self, start_s: float, end_s: float, gpus: Sequence[float] | Floats, capacity: float) -> None:
        """Record the GPUs that each queue held, and that the parent had, from `start_s` to `end_s`."""
        if end_s > start_s:
            self._advance(end_s)
            held = np.empty(len(self._time))
            held[:-1], held[-1] = gpus, capacity
            span = _Span(start_s, end_s, held)
            self._spans.append(span)
            self._time += self._weight(span.start_s, span.end_s) * span.gpus

    @property
    def gpu_s(self) -> Floats:
        """GPU time that each queue used and, last, their parent had, in a common unit; (queues + 1,)."""
        return self._time

    def growth(self, gpus: Floats, capacity: float) -> tuple[Floats, Floats]:
        """Return GPU time so far and its growth per second, of each queue and last of the parent.

        Parameters
        ----------
        gpus, capacity : ndarray of float, float
            What each queue holds from now on, and what the parent has.

        Returns
        -------
        two ndarrays of float, shape (queues + 1,)
            But for a common factor.
        """
        added = np.append(gpus, capacity)
        if self._forgets:
            lost = 1.0 if self.half_life_s is None else 0.5 ** (self.window_s / self.half_life_s)
            added -= lost * self._spans[0].gpus
        return self._time, added

    def until_s(self, length: float) -> float:
        """Return when (s) GPU time has grown by `length` x `growth`, or that rate changes, if sooner."""
        if self.half_life_s is not None:
            length = self.half_life_s * math.log2(1.0 + length)
        if not self._spans:
            return self._now_s
        turns_s = self._spans[0].end_s if self._forgets else self._spans[0].start_s
        return min(self._now_s + length, turns_s + self.window_s)

    @property
    def _forgets(self) -> bool:
        """Whether the oldest use noted leaves the window now."""
        return bool(self._spans) and self._spans[0].start_s <= self._now_s - self.window_s

    def usage(self, now_s: float) -> Floats:
        """Return each queue's past GPU time as a share of the parent's, from 0 to 1."""
        self._advance(now_s)
        used: Floats = self._time[:-1] / self._time[-1] if self._spans else np.zeros(len(self._time) - 1)
        return used.clip(0.0, 1.0)

    def _advance(self, now_s: float) -> None:
        if self.half_life_s is not None:
            self._time *= 0.5 ** ((now_s - self._now_s) / self.half_life_s)
        self._now_s = now_s
        oldest = now_s - self.window_s
        while self._spans and self._spans[0].start_s < oldest:
            span = self._spans.popleft()
            until = min(span.end_s, oldest)
            self._time -= self._weight(span.start_s, until) * span.gpus
            if until < span.end_s:
                self._spans.appendleft(span._replace(start_s=until))
                break
        if not self._spans:
            self._time[:] = 0.0  # without what rounding has left

    def _weight(self, start_s: float, end_s: float) -> float:
        """Return the integral of 0.5^(age / half-life) over a span, but for a constant factor."""
        if self.half_life_s is None:
            return end_s - start_s
        early, late = ((self._now_s - at) / self.half_life_s for at in (start_s, end_s))
        return float(0.5**late - 0.5**early)
