"""Fluid fair sharing, compiled: the same arithmetic in the same order as `results.metrics.fairness`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.sim.compiled.numba_cache import compile_entry, compile_part

SLACK = 1e-12
"""As `clustergym.results.metrics.fairness.SLACK`."""


class Sharing(NamedTuple):
    """The state of jobs that share GPUs equally at all times; jobs with the same limit on GPUs form a queue.

    Attributes
    ----------
    caps, clock : ndarray of float, shape (D,)
        In the order in which jobs first ask for them; GPU-seconds that each of their jobs has had.
    ascending : ndarray of int, shape (D,)
        Rows of `caps`, least cap first.
    end : ndarray of float, shape (D, n)
        Reading of the clock at which each queued job ends. A queue is a heap: no job ends before that at half
        its place, so that the first one ends first.
    job : ndarray of int, shape (D, n)
    waiting : ndarray of int, shape (D,)
        Jobs of each queue.
    """

    caps: Floats
    clock: Floats
    ascending: Ints
    end: Floats
    job: Ints
    waiting: Ints


def simulate_fluid(submit_s: Floats, work_gpu_s: Floats, cap_gpus: Floats | Ints, gpus: float) -> Floats:
    """Return when each job would finish if all shared the GPUs equally at all times, in seconds.

    Parameters
    ----------
    submit_s, work_gpu_s, cap_gpus : ndarray, shape (n,)
        Seconds, ascending; GPU-seconds; most GPUs of each job.
    gpus : float

    Returns
    -------
    ndarray of float, shape (n,)
    """
    distinct, first, row = np.unique(np.minimum(cap_gpus, gpus), return_index=True, return_inverse=True)
    order, place = np.argsort(first), np.empty(len(first), dtype=np.int64)
    place[order] = np.arange(len(first))
    shape = len(distinct), len(submit_s)
    queues = np.zeros(shape), np.zeros(shape, np.int64)
    none = np.zeros(len(distinct), np.int64)
    sharing = Sharing(distinct[order], np.zeros(len(distinct)), place, *queues, none)
    finish_s = np.empty(len(submit_s))
    _serve(sharing, submit_s, work_gpu_s, place[row], gpus, finish_s)
    return finish_s


@compile_entry
def _serve(
    sharing: Sharing, submit_s: Floats, work_gpu_s: Floats, row: Ints, gpus: float, finish_s: Floats
) -> None:
    """Write when each job finishes to `finish_s`; `row` is the row of each job's cap."""
    now = 0.0
    for job in range(len(submit_s) + 1):
        until = submit_s[job] if job < len(submit_s) else np.inf
        now = until if job == 0 else now
        while True:
            level = _level(sharing, gpus)
            step_s, at = _next_finish(sharing, level)
            if at < 0 or now + step_s > until:
                break
            now += step_s
            # All jobs of a cap progress at one rate, so that one clock per cap stands for them: a job ends
            # when the clock reads what it read at the job's arrival plus its work.
            _pass(sharing, step_s, level)
            # Rounding may leave the clock short of the reading at which this job ends; it must not wait for
            # another step.
            sharing.clock[at] = max(sharing.clock[at], sharing.end[at, 0])
            _end(sharing, now, finish_s)
        if job < len(submit_s):
            _pass(sharing, until - now, level)
            now = until
            _arrive(sharing, row[job], work_gpu_s[job], job)


@compile_part
def _level(sharing: Sharing, gpus: float) -> float:
    """Return the GPUs that each job without its full cap gets; inf if every job has its cap."""
    left, jobs = gpus, sharing.waiting.sum()
    for row in sharing.ascending:
        # Least caps first: jobs whose cap lies below the equal share take their cap, and the others divide
        # the rest.
        if sharing.caps[row] * jobs >= left:
            return left / jobs if jobs else np.inf
        left -= sharing.caps[row] * sharing.waiting[row]
        jobs -= sharing.waiting[row]
    return np.inf


@compile_part
def _next_finish(sharing: Sharing, level: float) -> tuple[float, int]:
    """Return the seconds until a job ends, and the row of its cap; -1 if there is no job."""
    least_s, least = np.inf, -1
    for row in range(len(sharing.caps)):
        if sharing.waiting[row]:
            left = max(sharing.end[row, 0] - sharing.clock[row], 0.0)
            step_s = left / min(sharing.caps[row], level)
            if step_s < least_s:
                least_s, least = step_s, row
    return least_s, least


@compile_part
def _pass(sharing: Sharing, step_s: float, level: float) -> None:
    for row in range(len(sharing.caps)):
        if sharing.waiting[row]:
            sharing.clock[row] += step_s * min(sharing.caps[row], level)


@compile_part
def _end(sharing: Sharing, now: float, finish_s: Floats) -> None:
    for row in range(len(sharing.caps)):
        reached = sharing.clock[row] * (1 + SLACK)
        while sharing.waiting[row] and sharing.end[row, 0] <= reached:
            finish_s[sharing.job[row, 0]] = now
            _leave(sharing, row)


@compile_part
def _arrive(sharing: Sharing, row: int, work_gpu_s: float, job: int) -> None:
    """Queue a job by the virtual time at which it ends."""
    end, place = sharing.clock[row] + work_gpu_s, sharing.waiting[row]
    while place and sharing.end[row, (place - 1) // 2] > end:
        _move(sharing, row, (place - 1) // 2, place)
        place = (place - 1) // 2
    sharing.end[row, place], sharing.job[row, place] = end, job
    sharing.waiting[row] += 1


@compile_part
def _leave(sharing: Sharing, row: int) -> None:
    """Take the first job out of a queue; the last one fills the gap, below all that end before it."""
    sharing.waiting[row] -= 1
    last, end = sharing.waiting[row], sharing.end[row]
    place, below = 0, 1
    while below < last:
        if below + 1 < last and end[below + 1] < end[below]:
            below += 1
        if end[below] >= end[last]:
            break
        _move(sharing, row, below, place)
        place, below = below, 2 * below + 1
    _move(sharing, row, last, place)


@compile_part
def _move(sharing: Sharing, row: int, at: int, to: int) -> None:
    sharing.end[row, to], sharing.job[row, to] = sharing.end[row, at], sharing.job[row, at]
