"""The free GPUs of one type over time, of which jobs reserve a share until they end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.arrays import Floats, Ints


class Plans(NamedTuple):
    """A job's finish time and present count under each cap on its GPUs, arrays of shape (K,).

    Attributes
    ----------
    finish_s : ndarray of float
        Seconds from now until it ends; inf: never.
    level_now : ndarray of int
        Index of the count it would hold now; -1: none.
    """

    finish_s: Floats
    level_now: Ints


class Reservations:
    """The number of free GPUs from now on, constant within segments of time.

    Parameters
    ----------
    free : int
        GPUs that are free from now on.
    counts : ndarray of int, shape (K,)
        GPU counts a job may hold, ascending.
    """

    def __init__(self, free: int, counts: Ints) -> None:
        self.counts = counts
        self.start_s = np.zeros(1)
        self.free = np.array([free], dtype=np.int64)

    def plans(self, rate: Floats, iterations: float, standstill_s: Floats) -> Plans:
        """Return the plan of a job under each cap: at any time it takes as many GPUs as are free, up to it.

        Parameters
        ----------
        rate : ndarray of float, shape (K,)
            Iterations per second at each count; 0 where it cannot run.
        iterations : float
            Iterations that the job has left.
        standstill_s : ndarray of float, shape (K,)
            Seconds in which it holds its GPUs before it works, by the count of the cap.
        """
        usable = self._levels(rate)
        speed = np.where(usable >= 0, rate[usable], 0.0)
        capped = usable[:, -1]
        need = iterations + np.where(capped >= 0, (rate * standstill_s)[capped], 0.0)
        done = np.cumsum(speed[:, :-1] * np.diff(self.start_s), axis=1)
        before = np.concatenate([np.zeros((len(rate), 1)), done], axis=1)
        last = (before < need[:, None]).sum(axis=1) - 1
        rows = np.arange(len(rate))
        at_end = speed[rows, last]
        rest = (need - before[rows, last]) / np.where(at_end > 0, at_end, 1.0)
        finish_s = np.where(at_end > 0, self.start_s[last] + rest, np.inf)
        return Plans(finish_s, usable[:, 0])

    def _levels(self, rate: Floats) -> Ints:
        """Return the count index held under each cap in each segment, shape (K, segments); -1: none."""
        # The fastest count up to each count: a job would gain nothing from more GPUs than that.
        best = np.where(rate > 0, np.arange(len(rate)), -1)
        peak = np.maximum.accumulate(rate)
        best = np.maximum.accumulate(np.where(rate == peak, best, -1))
        room = np.searchsorted(self.counts, self.free, side="right") - 1
        level = np.minimum(np.arange(len(rate))[:, None], room[None, :])
        levels: Ints = np.where(level >= 0, best[level], -1)
        return levels

    def take(self, cap: int, rate: Floats, finish_s: float) -> None:
        """Reserve the GPUs that a job takes until it ends, under the cap of index `cap`."""
        last = int(np.searchsorted(self.start_s, finish_s))
        if np.isfinite(finish_s) and (last == len(self.start_s) or self.start_s[last] != finish_s):
            self.start_s = np.insert(self.start_s, last, finish_s)
            self.free = np.insert(self.free, last, self.free[last - 1])
        level = self._levels(rate)[cap, :last]
        self.free[:last] -= np.where(level >= 0, self.counts[level], 0)
