"""What a policy sees of an episode at a decision point, compiled: as `clustergym.scenario.policy.View`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.sim import columns as c
from clustergym.sim.compiled import jobs
from clustergym.sim.compiled.cluster_arrays import ClusterArrays
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_part


class ViewArrays(NamedTuple):
    """The n jobs that a View shows, in its order.

    Attributes
    ----------
    row, kind : ndarray of int, shape (n,)
        Row of the trace; type held, NONE: none.
    held, requested : ndarray of int, shape (n,)
        Index of the count held, NONE: none; of the requested count.
    gpus : ndarray of int, shape (n,)
        GPUs requested.
    remaining : ndarray of float, shape (n,)
        Iterations.
    rest_s : ndarray of float, shape (n,)
        Seconds until a launched job starts to work; 0 for other jobs.
    cost_s : ndarray of float, shape (n, T, K)
        Seconds of standstill that a move to an allotment costs; 0 for the one held.
    options : ndarray of bool, shape (n, T)
        Whether the request may run on a type.
    available : ndarray of int, shape (T,)
    """

    row: Ints
    gpu_type: Ints
    held: Ints
    requested: Ints
    gpus: Ints
    remaining: Floats
    rest_s: Floats
    cost_s: Floats
    options: Bools
    available: Ints


@compile_part
def see(episode: Episode, cluster: ClusterArrays) -> ViewArrays:
    """Return what a policy sees now."""
    clock, job = episode.clock, episode.job
    n, now = clock[c.IN_VIEW], clock[c.NOW]
    seen = ViewArrays(
        episode.in_view[:n],
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n),
        np.zeros(n),
        np.empty((n, len(cluster.capacity), len(cluster.counts))),
        np.empty((n, len(cluster.capacity)), np.bool_),
        episode.free.copy(),
    )
    for at in range(n):
        row = seen.row[at]
        seen.gpu_type[at], seen.held[at] = job[row, c.TYPE], job[row, c.LEVEL]
        seen.gpus[at] = job[row, c.REQUESTED_GPUS]
        seen.requested[at] = find_level(cluster.counts, seen.gpus[at])
        seen.remaining[at] = jobs.compute_remaining(episode, row, now)
        own, asked = job[row, c.CLASS], job[row, c.REQUESTED_TYPE]
        for kind in range(seen.cost_s.shape[1]):
            fits = episode.feasible[own, kind, seen.requested[at]]
            seen.options[at, kind] = fits and (asked < 0 or asked == kind)
            for level in range(seen.cost_s.shape[2]):
                seen.cost_s[at, kind, level] = jobs.restart_s(episode, row, kind, level)
        if seen.gpu_type[at] != c.NONE:
            seen.cost_s[at, seen.gpu_type[at], seen.held[at]] = 0.0
            seen.rest_s[at] = max(job[row, c.READY] - now, 0) / c.TICKS_PER_S
            seen.available[seen.gpu_type[at]] += cluster.counts[seen.held[at]]
    return seen


@compile_part
def find_level(counts: Ints, gpus: int) -> int:
    """Return the index of the least count that is not below `gpus`."""
    level = 0
    while level < len(counts) and counts[level] < gpus:
        level += 1
    return level


@compile_part
def total(gpus: Ints) -> int:
    """Return the sum of an array of GPU counts."""
    found = 0
    for count in gpus:
        found += count
    return found


@compile_part
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


@compile_part
def stays(seen: ViewArrays, at: int, kind: int) -> bool:
    """Whether a job's request may run on a type, if running jobs keep theirs."""
    return seen.gpu_type[at] == kind if seen.gpu_type[at] != c.NONE else seen.options[at, kind]


@compile_part
def standstill_s(seen: ViewArrays, at: int, kind: int, level: int) -> float:
    """Return the seconds until a job works again, if it holds an allotment from now on."""
    if seen.gpu_type[at] == kind and seen.held[at] == level:
        return seen.rest_s[at]
    return seen.cost_s[at, kind, level]


@compile_part
def keep_all(episode: Episode, seen: ViewArrays) -> None:
    """Decide that every job keeps what it holds."""
    for at in range(len(seen.row)):
        row = seen.row[at]
        episode.job[row, c.TARGET_TYPE], episode.job[row, c.TARGET_LEVEL] = seen.gpu_type[at], seen.held[at]


@compile_part
def preempt_all(episode: Episode, seen: ViewArrays) -> None:
    """Decide that no job holds GPUs."""
    for row in seen.row:
        episode.job[row, c.TARGET_TYPE] = episode.job[row, c.TARGET_LEVEL] = c.NONE
