"""The free GPUs of one type over time; jobs reserve some of them until they end."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from clustergym.common.arrays import Floats, Ints

Array = TypeVar("Array", Floats, Ints)


class Plans(NamedTuple):
    """When a job would end, and how many GPUs it would get now, for each upper limit on its GPUs, (K,).

    Attributes
    ----------
    finish_s : ndarray of float
        Seconds from now until it ends; inf: never.
    level_now : ndarray of int
        Index of the count it would hold now; -1: none.
    """

    finish_s: Floats
    level_now: Ints


class Demand(NamedTuple):
    """How many GPUs a job would use under each cap (upper limit on them), and its speed there.

    Attributes
    ----------
    caps : ndarray of int, shape (C,)
        The caps under which it would take more than under the cap below.
    plan_of : ndarray of int, shape (K,)
        Index into `caps` of the cap that has the same plan as each.
    best : ndarray of int, shape (K + 1,)
        The fastest count up to each count, as its index; -1: none, as the last. A job would gain nothing
        from more GPUs.
    rate : ndarray of float, shape (K + 1,)
        Iterations per second at each count; 0 where it cannot run, and as the last.
    waited : ndarray of float, shape (K + 1,)
        Iterations it could do at each count while it stands still; 0 as the last.
    iterations : float
        What it has to do.
    """

    caps: Ints
    plan_of: Ints
    best: Ints
    rate: Floats
    waited: Floats
    iterations: float


def demands(rate: Floats, iterations: Floats, standstill_s: Floats) -> list[Demand]:
    """Compute how many GPUs each of m jobs would use under each cap (upper limit), and its speed there.

    Parameters
    ----------
    rate : ndarray of float, shape (m, K)
        Iterations per second at each count; 0 where a job cannot run.
    iterations : ndarray of float, shape (m,)
        What jobs have to do.
    standstill_s : ndarray of float, shape (m, K)
        Seconds in which a job holds its GPUs before it works, by the count of the cap.
    """
    fastest = (rate > 0) & (rate == np.maximum.accumulate(rate, axis=1))
    best = np.maximum.accumulate(np.where(fastest, np.arange(rate.shape[1]), -1), axis=1)
    more = np.diff(best, axis=1, prepend=-2) > 0
    end = ((0, 0), (0, 1))
    padded = (np.pad(best, end, constant_values=-1), np.pad(rate, end), np.pad(rate * standstill_s, end))
    columns = zip(more, np.cumsum(more, axis=1) - 1, *padded, iterations.tolist(), strict=True)
    return [Demand(caps.nonzero()[0], *of_job) for caps, *of_job in columns]


class Reservations:
    """The number of free GPUs over time, from now on, as a step function.

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
        self._gpus = np.append(counts, 0)
        self._room = self._find_room(self.free)

    def plans(self, job: Demand) -> Plans:
        """Return when a job would finish under each cap, using all free GPUs up to it, and its count now."""
        usable = job.best[np.minimum(job.caps[:, None], self._room)]
        speed = job.rate[usable]
        # The standstill is charged as work at the count of the last segment, so that the plan needs no
        # segment of its own for it.
        need = job.iterations + job.waited[usable[:, -1]]
        before = np.zeros(usable.shape)
        np.cumsum(speed[:, :-1] * (self.start_s[1:] - self.start_s[:-1]), axis=1, out=before[:, 1:])
        # The last segment in which work is still left at its start; the job ends within it.
        last = np.count_nonzero(before < need[:, None], axis=1) - 1
        rows = np.arange(len(last))
        at_end = speed[rows, last]
        rest = (need - before[rows, last]) / np.where(at_end > 0, at_end, 1.0)
        finish_s = np.where(at_end > 0, self.start_s[last] + rest, np.inf)
        return Plans(finish_s[job.plan_of], usable[job.plan_of, 0])

    def take(self, cap: int, job: Demand, finish_s: float) -> None:
        """Reserve the GPUs that a job uses until it ends at `finish_s`, under the cap with index `cap`."""
        last = int(self.start_s.searchsorted(finish_s))
        if np.isfinite(finish_s) and (last == len(self.start_s) or self.start_s[last] != finish_s):
            self.start_s = _insert_value(self.start_s, last, finish_s)
            self.free = _insert_value(self.free, last, self.free[last - 1])
            self._room = _insert_value(self._room, last, self._room[last - 1])
        level = job.best[np.minimum(cap, self._room[:last])]
        self.free[:last] -= self._gpus[level]
        self._room[:last] = self._find_room(self.free[:last])

    def _find_room(self, free: Ints) -> Ints:
        """Return the index of the largest count within each number of GPUs; -1: none."""
        room: Ints = self.counts.searchsorted(free, side="right") - 1
        return room


def _insert_value(values: Array, at: int, value: float) -> Array:
    """Return a copy with a value inserted; np.insert takes several times as long."""
    longer = np.empty(len(values) + 1, dtype=values.dtype)
    longer[:at], longer[at], longer[at + 1 :] = values[:at], value, values[at:]
    return longer
