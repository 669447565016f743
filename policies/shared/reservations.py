"""Reservations on a timeline of free GPUs: until a job ends, or for backfilling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.scenario.policy import View

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


SOONEST_S = 1e-3
"""A running job's GPUs are not free now, however little it has left."""


class FreeTimeline:
    """The free GPUs of one type over time, given estimates of when running jobs end.

    Parameters
    ----------
    now_s : float
    free : int
        GPUs free now.
    ends_s : ndarray of float, shape (m,)
        When each running job is expected to end, not before now.
    gpus : ndarray of int, shape (m,)
        What it gives back.
    """

    def __init__(self, now_s: float, free: int, ends_s: Floats, gpus: Ints) -> None:
        times, at = np.unique(np.concatenate([[now_s], ends_s]), return_inverse=True)
        given = np.bincount(at, weights=np.concatenate([[free], gpus]), minlength=len(times))
        self.time_s: Floats = times
        self.free: Ints = np.cumsum(given.astype(np.int64))

    def earliest(self, gpus: int, duration_s: float) -> float:
        """Return the earliest time at which `gpus` GPUs are free for `duration_s` seconds; inf if never."""
        enough = self.free >= gpus
        short = np.where(enough, np.inf, self.time_s)
        # From the end backwards: for each moment, the next one at which too few GPUs are free.
        next_short = np.minimum.accumulate(short[::-1])[::-1]
        # A gap may end exactly when the job does: a reservation is for [start, end).
        starts = np.flatnonzero(enough & (next_short >= self.time_s + duration_s))
        return float(self.time_s[starts[0]]) if len(starts) else np.inf

    def reserve(self, start_s: float, gpus: int, duration_s: float) -> None:
        """Reserve GPUs from `start_s` on for `duration_s` seconds."""
        end_s = start_s + duration_s
        for time_s in (start_s, end_s):
            if np.isfinite(time_s) and time_s not in self.time_s:
                after = int(np.searchsorted(self.time_s, time_s))
                self.time_s = np.insert(self.time_s, after, time_s)
                self.free = np.insert(self.free, after, self.free[after - 1])
        self.free[(self.time_s >= start_s) & (self.time_s < end_s)] -= gpus


def timelines(view: View, left_s: Floats) -> list[FreeTimeline]:
    """Return for each GPU type how its number of free GPUs changes over time as running jobs end.

    Parameters
    ----------
    view : View
    left_s : ndarray of float, shape (n,)
        Seconds until each running job is expected to end.
    """
    out = []
    for gpu_type in range(len(view.setting.gpu_types)):
        on = np.flatnonzero(view.gpu_type == gpu_type)
        ends_s = view.now_s + np.maximum(left_s[on], SOONEST_S)
        out.append(FreeTimeline(view.now_s, int(view.free[gpu_type]), ends_s, view.gpus[on]))
    return out


class _Start(NamedTuple):
    """A possible start of a job; the start that compares least ends the job first."""

    end_s: float
    gpu_type: int
    begin_s: float


def _possible_starts(lines: list[FreeTimeline], gpus: int, left_s: Floats) -> list[_Start]:
    """Return the earliest possible start on each type that can run the request."""
    lasting = [(gpu_type, float(s)) for gpu_type, s in enumerate(left_s) if np.isfinite(s)]
    begins = [(gpu_type, s, lines[gpu_type].earliest(gpus, s)) for gpu_type, s in lasting]
    return [_Start(begin_s + s, gpu_type, begin_s) for gpu_type, s, begin_s in begins if np.isfinite(begin_s)]


def starts_between_reservations(
    view: View,
    order: Ints,
    running_s: Floats,
    left_s: Floats,
    *,
    heads_only: bool,
    one_queue: bool = False,
    allowed: Callable[[int, int], bool] = lambda at, gpu_type: True,
) -> Iterator[tuple[int, int]]:
    """Yield the waiting jobs that backfill starts now, as (position in the View, GPU type index).

    Parameters
    ----------
    view : View
    order : ndarray of int
        Positions of waiting jobs in the View, the first to be served first.
    running_s : ndarray of float, shape (n,)
        Seconds until each running job is expected to end.
    left_s : ndarray of float, shape (n, T)
        Seconds that each waiting job is expected to take on each type; inf: it cannot run there.
    heads_only : bool
        Whether only the first job that waits for a type holds a reservation there (EASY), or every waiting
        job does (conservative).
    one_queue : bool
        Whether the first job that waits for any type is the head of all.
    allowed : callable
        Whether a job may start on a type now; one that may not holds no reservation either.
    """
    lines = timelines(view, running_s)
    headed = [False] * len(lines)
    for at in order.tolist():
        gpus = int(view.requested_gpus[at])
        options = _possible_starts(lines, gpus, left_s[at])
        if heads_only:
            # EASY: behind the head of a type a job may start now or not at all; it gets no reservation of its
            # own.
            options = [o for o in options if o.begin_s <= view.now_s or not headed[o.gpu_type]]
        options = [o for o in options if allowed(at, o.gpu_type)]
        if not options:
            continue
        # The type on which it ends first, not the one on which it could begin first.
        end_s, gpu_type, begin_s = min(options)
        if begin_s <= view.now_s:
            yield at, gpu_type
        else:
            headed = [was or t == gpu_type or one_queue for t, was in enumerate(headed)]
        # Starts are reserved like waits, so that jobs further back see neither's GPUs as free.
        lines[gpu_type].reserve(begin_s, gpus, end_s - begin_s)
