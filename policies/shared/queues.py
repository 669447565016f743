"""Queues of jobs with rigid requests: serve them in order, and divide jobs by service received."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.scenario.policy import View

from .requests import ALL, request_options

Blocks = Literal["nothing", "types", "cluster"]
"""What later jobs may not use while a job waits: see `fill`."""


BLOCK = 64
"""Jobs of a queue that `fill` looks at together first; each further block is twice as long."""

TOGETHER = 16
"""Fewer jobs are served faster one after another."""


def fill(
    view: View,
    order: Ints,
    preference: Floats | Callable[[Ints], Floats],
    free: Ints,
    blocks: Blocks = "nothing",
) -> list[tuple[int, int, int]]:
    """Give jobs, in order, requested GPUs of the type of least `preference`; return (job, type, GPUs).

    Parameters
    ----------
    view : View
    order : ndarray of int
        Positions in the View, the first to be served first.
    preference : ndarray of float, shape (n, T), or a function
        A job takes the type with room of the least value; inf: not on this type. The function returns the
        rows of given positions, and is called only for the jobs that are looked at.
    free : ndarray of int, shape (T,)
        GPUs to hand out; on a cluster whose GPUs can be divided the View says what is free.
    blocks : str
        What later jobs may not use while a job does not fit: `nothing`, the `types` that job could run on, or
        the whole `cluster`.

    Returns
    -------
    list of (job, type index, GPUs)
    """
    if view.parts is not None:
        from .part_queues import fill_parts

        return fill_parts(view, order, blocks=blocks != "nothing")
    server = _Server(free.tolist(), blocks)
    start, length = 0, BLOCK
    while start < len(order) and not server.done:
        rows = order[start : start + length]
        likes = preference(rows) if callable(preference) else preference[rows]
        server.serve(view.job[rows], view.requested_gpus[rows], likes)
        start, length = start + length, 2 * length
    return server.chosen


class _Server:
    """Hands out GPUs to one block of a queue after another.

    Parameters
    ----------
    room : list of int
        GPUs of each type to hand out.
    blocks : str
        As in `fill`.

    Attributes
    ----------
    chosen : list of (job, type index, GPUs)
    done : bool
        Whether no further job can get anything.
    """

    def __init__(self, room: list[int], blocks: Blocks) -> None:
        self._room, self._blocks = room, blocks
        self.chosen: list[tuple[int, int, int]] = []
        self.done = not any(room)

    def serve(self, job: Ints, gpus: Ints, likes: Floats) -> None:
        """Give several jobs their GPUs in order; `likes` is their preference of GPU types, shape (m, T)."""
        length = BLOCK
        while len(job) and not self.done:
            options, room = likes < np.inf, np.array(self._room)
            # GPUs only become fewer: what has no room now has none for any job of the block.
            likes_now = np.where(options & (room >= gpus[:, None]), likes, np.inf)
            concerned = likes_now < np.inf if self._blocks == "nothing" else options & (room > 0)
            some = slice(None) if self._blocks == "cluster" else np.flatnonzero(concerned.any(axis=1))
            likes, likes_now, options = likes[some], likes_now[some], options[some]
            job, gpus = job[some], gpus[some]
            gpu_type = likes_now.argmin(axis=1)
            first = self._serve_together(job, gpus, gpu_type, likes_now) if len(job) >= TOGETHER else 0
            last = first + length
            next_jobs = zip(*(array[first:last].tolist() for array in (job, gpus, gpu_type)), strict=True)
            first += self._serve_each(next_jobs, likes_now[first:last], options[first:last])
            likes, job, gpus = likes[first:], job[first:], gpus[first:]
            length *= 2

    def _serve_together(self, job: Ints, gpus: Ints, gpu_type: Ints, likes: Floats) -> int:
        """Serve the first jobs, as long as each gets the type it likes most; return how many those are."""
        rows = np.arange(len(job))
        taken = np.zeros(likes.shape, dtype=np.int64)
        taken[rows, gpu_type] = gpus
        used = taken.cumsum(axis=0)
        lacks = (used > self._room).any(axis=1) | (likes[rows, gpu_type] == np.inf)
        first = int(lacks.argmax()) if lacks.any() else len(job)
        if first:
            self._room = (self._room - used[first - 1]).tolist()
            served = (array[:first].tolist() for array in (job, gpu_type, gpus))
            self.chosen += zip(*served, strict=True)
            self.done = not any(self._room)
        return first

    def _serve_each(self, jobs: Iterable[tuple[int, int, int]], likes: Floats, options: Bools) -> int:
        """Serve jobs (job, GPUs, the type it likes most); return how many.

        If one closes types, and many are behind it, these are left, as most of them may wait for these types.
        """
        room, chosen = self._room, self.chosen
        for at, (row, gpus, gpu_type) in enumerate(jobs):
            if room[gpu_type] < gpus or likes[at, gpu_type] == np.inf:
                fits = [(like, other) for other, like in enumerate(likes[at].tolist()) if room[other] >= gpus]
                like, gpu_type = min(fits, default=(math.inf, -1))
                if like == math.inf:
                    if self._blocks == "nothing":
                        continue
                    self._close(options[at])
                    if self.done or len(likes) - at > TOGETHER:
                        return at + 1
                    continue
            room[gpu_type] -= gpus
            chosen.append((row, gpu_type, gpus))
            if not (room[gpu_type] or any(room)):
                self.done = True
                break
        return len(likes)

    def _close(self, options: Bools) -> None:
        """Keep later jobs from what a job waits for."""
        if self._blocks == "cluster":
            self.done = True
        else:
            for gpu_type in np.flatnonzero(options).tolist():
                self._room[gpu_type] = 0
            self.done = not any(self._room)


def staying_options(view: View, at: Ints | slice = ALL) -> Bools:
    """Return on which GPU types each job may run with its requested GPUs if running jobs keep theirs, (n, T).

    A running job that holds another count than its request returns to the request on the same type. With
    positions in the View, of the jobs there alone.
    """
    options = request_options(view, at)
    here = view.gpu_type[at, None] == np.arange(options.shape[1])
    stays: Bools = np.where((view.gpus[at] > 0)[:, None], here, options)
    return stays


def first_type(options: Bools) -> Floats:
    """Return each job's ranking of GPU types in the cluster's order, shape (n, T); inf: not allowed."""
    preference: Floats = np.where(options, np.arange(options.shape[1], dtype=np.float64), np.inf)
    return preference


def find_queue_index(service: Floats, thresholds: Sequence[float]) -> Ints:
    """Return each job's queue index: how many thresholds its service (GPU-seconds received) has reached."""
    queue: Ints = np.searchsorted(np.asarray(thresholds, dtype=np.float64), service, side="right")
    return queue
