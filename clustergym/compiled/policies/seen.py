"""What a policy sees of an episode at a decision point, compiled: as `clustergym.interface.policy.View`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.arrays import Floats, Ints
from clustergym.compiled import columns as c
from clustergym.compiled import jobs
from clustergym.compiled.cluster_arrays import ClusterArrays
from clustergym.compiled.episode import Episode
from clustergym.compiled.numba_cache import compiled_part


class Seen(NamedTuple):
    """The n jobs that a View shows, in its order.

    Attributes
    ----------
    row : ndarray of int, shape (n,)
    requested : ndarray of int, shape (n,)
        Index of the requested count.
    remaining : ndarray of float, shape (n,)
        Iterations.
    available : ndarray of int, shape (T,)
    """

    row: Ints
    requested: Ints
    remaining: Floats
    available: Ints


@compiled_part
def see(episode: Episode, cluster: ClusterArrays) -> Seen:
    """Return what a policy sees now."""
    clock, job = episode.clock, episode.job
    row, available = episode.in_view[: clock[c.IN_VIEW]], episode.free.copy()
    requested, remaining = np.empty(len(row), np.int64), np.empty(len(row))
    for at in range(len(row)):
        own = job[row[at]]
        requested[at] = level_of(cluster.counts, own[c.REQUESTED_GPUS])
        remaining[at] = jobs.remaining_at(episode, row[at], clock[c.NOW])
        if own[c.LEVEL] != c.NONE:
            available[own[c.TYPE]] += cluster.counts[own[c.LEVEL]]
    return Seen(row, requested, remaining, available)


@compiled_part
def level_of(counts: Ints, gpus: int) -> int:
    """Return the index of the least count that is not below `gpus`."""
    level = 0
    while level < len(counts) and counts[level] < gpus:
        level += 1
    return level


@compiled_part
def ascending(key: Floats, order: Ints) -> Ints:
    """Return positions in ascending order of their keys; equal ones stay in the order given."""
    n, width, merged = len(order), 1, np.empty(len(order), np.int64)
    order = order.copy()
    while width < n:
        for low in range(0, n, 2 * width):
            middle, high = min(low + width, n), min(low + 2 * width, n)
            left, right = low, middle
            for at in range(low, high):
                if left < middle and (right >= high or not key[order[right]] < key[order[left]]):
                    merged[at] = order[left]
                    left += 1
                else:
                    merged[at] = order[right]
                    right += 1
        order, merged = merged, order
        width *= 2
    return order


@compiled_part
def requests(episode: Episode, row: int, kind: int, level: int) -> bool:
    """Whether a job's request, of count index `level`, may run on a type."""
    job = episode.job[row]
    return episode.feasible[job[c.CLASS], kind, level] and (
        job[c.REQUESTED_TYPE] < 0 or job[c.REQUESTED_TYPE] == kind
    )


@compiled_part
def stays(episode: Episode, row: int, kind: int, level: int) -> bool:
    """Whether a job's request may run on a type, if running jobs keep theirs."""
    job = episode.job[row]
    if job[c.LEVEL] != c.NONE:
        return job[c.TYPE] == kind
    return requests(episode, row, kind, level)


@compiled_part
def restart_s(episode: Episode, row: int, kind: int, level: int) -> float:
    """Return the seconds of standstill that a move to an allotment costs; 0 for the one held."""
    job = episode.job[row]
    if job[c.TYPE] == kind and job[c.LEVEL] == level:
        return 0.0
    return jobs.overhead_s(episode, row, kind, level)


@compiled_part
def rest_of_restart_s(episode: Episode, row: int) -> float:
    """Return the seconds until a launched job starts to work; 0 for other jobs."""
    job = episode.job[row]
    if job[c.PHASE] != c.RUNNING:
        return 0.0
    return max(job[c.READY] - episode.clock[c.NOW], 0) / c.TICKS_PER_S


@compiled_part
def standstill_s(episode: Episode, row: int, kind: int, level: int) -> float:
    """Return the seconds until a job works again, if it holds an allotment from now on."""
    job = episode.job[row]
    if job[c.TYPE] == kind and job[c.LEVEL] == level:
        return rest_of_restart_s(episode, row)
    return jobs.overhead_s(episode, row, kind, level)


@compiled_part
def keep_all(episode: Episode, seen: Seen) -> None:
    """Decide that every job keeps what it holds."""
    for row in seen.row:
        job = episode.job[row]
        job[c.TARGET_TYPE], job[c.TARGET_LEVEL] = job[c.TYPE], job[c.LEVEL]


@compiled_part
def preempt_all(episode: Episode, seen: Seen) -> None:
    """Decide that no job holds GPUs."""
    for row in seen.row:
        episode.job[row, c.TARGET_TYPE] = episode.job[row, c.TARGET_LEVEL] = c.NONE
