"""Elastic allotments for jobs in an order: place jobs, keep what runs, grow on GPUs left over."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.scenario.policy import View

from .finish_times import request_times
from .requests import Allotments, find_held_level, find_requested_level


def times_or_guess(view: View) -> Floats:
    """Return seconds per iteration by job, GPU type and count, guessed if not known, shape (n, T, K).

    A job of which no time is known at its requested count or above has the guess of
    `request_times` at its request.
    """
    time_s = view.iteration_time_s()
    enough = view.setting.counts >= view.requested_gpus[:, None, None]
    unknown = ~(np.isfinite(time_s) & enough).any(axis=(1, 2))
    if not unknown.any():
        return time_s
    guess = request_times(view)
    rows = np.flatnonzero(guess.guessed & unknown)
    if len(rows):
        time_s = time_s.copy()
        time_s[rows, :, find_requested_level(view)[rows]] = guess.time_s[rows]
    return time_s


def per_gpu_efficiency(counts: Ints, requested_gpus: Ints, time_s: Floats) -> Floats:
    """Return throughput per GPU relative to that on the requested GPUs of the same type, (n, T, K).

    Where the request cannot run on a type, the next larger count that can is the reference. 0 where
    infeasible; counts below the reference are compared with it too.
    """
    usable = np.isfinite(time_s) & (counts >= requested_gpus[:, None, None])
    # The first usable count: argmax returns the first True along the counts.
    base = np.argmax(usable, axis=2)[..., None]
    gpu_s = time_s * counts
    known = usable.any(axis=2, keepdims=True) & np.isfinite(time_s)
    at_base = np.take_along_axis(gpu_s, base, 2)
    efficiency: Floats = np.divide(at_base, gpu_s, out=np.zeros(gpu_s.shape), where=known)
    return efficiency


BLOCK = 256
"""Jobs that `Target.place` looks at together."""


class Target(Allotments):
    """The GPUs that each job will hold, which a policy decides starting from an empty cluster.

    Parameters
    ----------
    view : View
    time_s : ndarray of float, shape (n, T, K)
        Seconds per iteration, inf where infeasible or unknown.
    guard : bool
        Whether a change made for a running job's own sake must repay its restart.
    guarded : ndarray of bool, shape (n,), optional
        Running jobs that keep their GPUs (`GuardedPolicy.find_guarded`).
    """

    def __init__(self, view: View, time_s: Floats, guard: bool = True, guarded: Bools | None = None) -> None:
        super().__init__(view, empty=True)
        self.guard = guard
        self.time_s = np.where(view.feasible, time_s, np.inf)
        self.held_level = find_held_level(view)
        self.guarded = np.zeros(len(view), dtype=np.bool_) if guarded is None else guarded
        for at in np.flatnonzero(self.guarded).tolist():
            self.give(at, int(view.gpu_type[at]), int(self.held_level[at]))

    def repays(self, at: int, gpu_type: int, level: int) -> bool:
        """Return whether a move of job `at` to `counts[level]` GPUs of a type saves more than it costs."""
        held_type, now_level = int(self.view.gpu_type[at]), int(self.held_level[at])
        faster_s = float(self.time_s[at, held_type, now_level]) - float(self.time_s[at, gpu_type, level])
        standing_s = float(self.cost_s[at, gpu_type, level]) - float(self.view.standstill_s[at])
        return bool(float(self.view.remaining_iterations[at]) * faster_s > self.guard * standing_s)

    def place(self, order: Ints, allowed: Bools | Callable[[Ints], Bools]) -> None:
        """Give jobs without GPUs in this plan, in order, the fastest allowed type and count that is free.

        A running job keeps what it holds, where that is allowed and has room, unless moving
        repays its restart.

        Parameters
        ----------
        order : ndarray of int
            Positions in the View.
        allowed : ndarray of bool, shape (n, T, K), or a function
            The function returns the rows of given positions, and is called only while GPUs are free.
        """
        given: list[tuple[int, int, int]] = []
        waiting, free = order[self.gpu_type[order] < 0], self.free.copy()
        for start in range(0, len(waiting), BLOCK):
            if not free.any():
                break
            rows = waiting[start : start + BLOCK]
            may = allowed(rows) if callable(allowed) else allowed[rows]
            given += self._placed(rows, np.where(may, self.time_s[rows], np.inf), free)
        if given:
            at, gpu_type, level = np.array(given, dtype=np.int64).T
            self.gpu_type[at], self.level[at], self.free = gpu_type, level, free

    def _placed(self, rows: Ints, time_s: Floats, free: Ints) -> list[tuple[int, int, int]]:
        """Place jobs on the free GPUs, which are changed; return (position, type, level) of each."""
        counts, has_room = self.counts.tolist(), self.counts <= free[:, None]
        fitting = np.where(has_room, time_s, np.inf)
        some = np.flatnonzero(np.isfinite(fitting).any(axis=(1, 2)))
        rows, time_s, fitting = rows[some], time_s[some], fitting[some]
        # Free GPUs only become fewer: what is fastest of all that had room, and still has, is fastest now.
        gpu_types, levels, stays = self._choices(rows, fitting)
        now = zip(self.view.gpu_type[rows].tolist(), self.held_level[rows].tolist(), strict=True)
        left, given = free.tolist(), list[tuple[int, int, int]]()
        for i, (at, gpu_type, level, staying, held) in enumerate(
            zip(rows.tolist(), gpu_types.tolist(), levels.tolist(), stays.tolist(), now, strict=True)
        ):
            # The precomputed choice has no room any more: choose again among what is left.
            if counts[level] > left[gpu_type]:
                times = np.where(self.counts <= np.array(left)[:, None], time_s[i], np.inf)
                gpu_type, level = divmod(int(np.argmin(times)), len(counts))
                if not times[gpu_type, level] < np.inf:
                    continue
                # The allotment in question has changed, so whether the move repays its restart has to be
                # asked again.
                staying = held[0] >= 0 and times[held] < np.inf and not self.repays(at, gpu_type, level)
            if staying and counts[held[1]] <= left[held[0]]:
                gpu_type, level = held
            left[gpu_type] -= counts[level]
            given.append((at, gpu_type, level))
            if not any(left):
                break
        free[:] = left
        return given

    def _choices(self, rows: Ints, time_s: Floats) -> tuple[Ints, Ints, Bools]:
        """Return the type and level of each job's fastest allotment, and whether keeping its GPUs is better.

        Parameters
        ----------
        rows : ndarray of int, shape (m,)
            Positions in the View.
        time_s : ndarray of float, shape (m, T, K)
            Seconds per iteration; inf where not allowed or without room.
        """
        flat = time_s.reshape(len(rows), math.prod(time_s.shape[1:]))
        gpu_type, level = np.divmod(np.argmin(flat, axis=1), len(self.counts))
        held_type, now_level = self.view.gpu_type[rows], self.held_level[rows]
        stays = held_type >= 0
        stays[stays] = time_s[stays, held_type[stays], now_level[stays]] < np.inf
        stays[stays] = ~self._repay(rows[stays], gpu_type[stays], level[stays])
        return gpu_type, level, stays

    def _repay(self, at: Ints, gpu_type: Ints, level: Ints) -> Bools:
        """Return `repays` of each of several running jobs."""
        now = at, self.view.gpu_type[at], self.held_level[at]
        faster_s = self.time_s[now] - self.time_s[at, gpu_type, level]
        standing_s = self.cost_s[at, gpu_type, level] - self.view.standstill_s[at]
        repay: Bools = self.view.remaining_iterations[at] * faster_s > self.guard * standing_s
        return repay

    def keep_running(self, order: Ints) -> None:
        """Let jobs, in order, keep their GPUs if these are still free and no change is worth it."""
        for at in order.tolist():
            held = int(self.view.gpu_type[at]), int(self.held_level[at])
            if held[0] < 0 or held == (self.gpu_type[at], self.level[at]):
                continue
            own = int(self.counts[self.level[at]]) if self.gpu_type[at] == held[0] else 0
            if self.free[held[0]] + own < self.counts[held[1]]:
                continue
            if self.gpu_type[at] < 0 or not self.repays(at, int(self.gpu_type[at]), int(self.level[at])):
                self.give(at, *held)

    def grow(self, weight: Floats) -> None:
        """Give the remaining GPUs to jobs that have some, to the greatest weighted gain per GPU first.

        A job that would stay as it is grows only where that repays its restart.

        Parameters
        ----------
        weight : ndarray of float, shape (n,)
            What an iteration per second of each job is worth.
        """
        heap: list[tuple[float, int, int]] = []
        for at in np.flatnonzero((self.gpu_type >= 0) & ~self.guarded).tolist():
            self._offer(heap, at, weight)
        while heap and self.free.any():
            _, at, level = heapq.heappop(heap)
            extra = int(self.counts[level] - self.counts[self.level[at]])
            if extra <= self.free[self.gpu_type[at]]:
                self.give(at, int(self.gpu_type[at]), level)
                self._offer(heap, at, weight)

    def _offer(self, heap: list[tuple[float, int, int]], at: int, weight: Floats) -> None:
        """Push a job's next larger count that is faster onto the heap, if it has room and repays."""
        gpu_type, level = int(self.gpu_type[at]), int(self.level[at])
        times = self.time_s[at, gpu_type]
        # A next count that is no faster is skipped: two steps together may still gain.
        larger = np.flatnonzero(times[level + 1 :] < times[level])
        if not len(larger):
            return
        # One offer a job is on the heap at a time; taking it pushes the next.
        after = level + 1 + int(larger[0])
        extra = int(self.counts[after] - self.counts[level])
        as_held = (gpu_type, level) == (int(self.view.gpu_type[at]), int(self.held_level[at]))
        if extra > self.free[gpu_type] or (as_held and not self.repays(at, gpu_type, after)):
            return
        gain = float(weight[at]) * (1.0 / float(times[after]) - 1.0 / float(times[level])) / extra
        heapq.heappush(heap, (-gain, at, after))
