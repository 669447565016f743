"""Elastic allotments for jobs in an order, compiled: `clustergym.policies.shared.marginal.Target`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.sim import columns as c
from clustergym.sim.compiled.cluster_arrays import ClusterArrays
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_part
from clustergym.sim.compiled.seen import ViewArrays, total


class TargetArrays(NamedTuple):
    """The allotments that a policy will decide, built up from an empty cluster.

    Attributes
    ----------
    gpu_type, level : ndarray of int, shape (n,)
        NONE: none.
    free : ndarray of int, shape (T,)
    time_s : ndarray of float, shape (n, T, K)
        Seconds per iteration, inf where infeasible or unknown.
    hysteresis : float
        A change made for a running job's own sake must save this many times its restart.
    """

    gpu_type: Ints
    level: Ints
    free: Ints
    time_s: Floats
    hysteresis: float


@compile_part
def begin(episode: Episode, seen: ViewArrays, time_s: Floats, hysteresis: float) -> TargetArrays:
    """Return a target without allotments; times of infeasible allotments become inf."""
    n = len(seen.row)
    for at in range(n):
        own = episode.job[seen.row[at], c.CLASS]
        for gpu_type in range(time_s.shape[1]):
            for level in range(time_s.shape[2]):
                if not episode.feasible[own, gpu_type, level]:
                    time_s[at, gpu_type, level] = np.inf
    nothing = np.full(n, c.NONE)
    return TargetArrays(nothing, nothing.copy(), seen.available.copy(), time_s, hysteresis)


@compile_part
def give(cluster: ClusterArrays, target: TargetArrays, at: int, gpu_type: int, level: int) -> None:
    """Give the job at a position an allotment in place of the one it has."""
    if target.gpu_type[at] != c.NONE:
        target.free[target.gpu_type[at]] += cluster.counts[target.level[at]]
    target.gpu_type[at], target.level[at] = gpu_type, level
    target.free[gpu_type] -= cluster.counts[level]


@compile_part
def _repays(seen: ViewArrays, target: TargetArrays, at: int, gpu_type: int, level: int) -> bool:
    """Whether changing a running job's allotment to (type, level) is worth its restart."""
    faster_s = target.time_s[at, seen.gpu_type[at], seen.held[at]] - target.time_s[at, gpu_type, level]
    standing_s = seen.cost_s[at, gpu_type, level] - seen.rest_s[at]
    return seen.remaining[at] * faster_s > target.hysteresis * standing_s


@compile_part
def place(
    cluster: ClusterArrays, seen: ViewArrays, target: TargetArrays, order: Ints, allowed: Bools
) -> None:
    """Give each job without an allotment, in order, the fastest allowed allotment that has room.

    A running job keeps what it holds, where that is allowed and has room, unless moving repays its restart.
    """
    counts, free = cluster.counts, target.free
    for at in order:
        if target.gpu_type[at] != c.NONE:
            continue
        least_s, gpu_type, level = np.inf, c.NONE, c.NONE
        for t in range(len(free)):
            for k in range(len(counts)):
                if counts[k] > free[t]:
                    break
                if allowed[at, t, k] and target.time_s[at, t, k] < least_s:
                    least_s, gpu_type, level = target.time_s[at, t, k], t, k
        if gpu_type == c.NONE:
            continue
        held, held_level = seen.gpu_type[at], seen.held[at]
        if (
            held != c.NONE
            and allowed[at, held, held_level]
            and counts[held_level] <= free[held]
            and target.time_s[at, held, held_level] < np.inf
            and not _repays(seen, target, at, gpu_type, level)
        ):
            gpu_type, level = held, held_level
        give(cluster, target, at, gpu_type, level)
        if total(free) == 0:
            return


@compile_part
def keep_running(cluster: ClusterArrays, seen: ViewArrays, target: TargetArrays, order: Ints) -> None:
    """Let jobs, in order, keep their GPUs where these are still free and a change would not pay."""
    for at in order:
        held, held_level = seen.gpu_type[at], seen.held[at]
        gpu_type, level = target.gpu_type[at], target.level[at]
        if held == c.NONE or (held == gpu_type and held_level == level):
            continue
        own = cluster.counts[level] if gpu_type == held else 0
        if target.free[held] + own < cluster.counts[held_level]:
            continue
        if gpu_type == c.NONE or not _repays(seen, target, at, gpu_type, level):
            give(cluster, target, at, held, held_level)


@compile_part
def _offer(
    cluster: ClusterArrays, seen: ViewArrays, target: TargetArrays, at: int, weight: float
) -> tuple[int, float]:
    """Return a job's next larger and faster count and its gain; NONE without room or if it does not pay."""
    gpu_type, level, counts = target.gpu_type[at], target.level[at], cluster.counts
    times, after = target.time_s[at, gpu_type], level + 1
    while after < len(counts) and not times[after] < times[level]:
        after += 1
    if after == len(counts):
        return c.NONE, 0.0
    extra = counts[after] - counts[level]
    as_held = gpu_type == seen.gpu_type[at] and level == seen.held[at]
    if extra > target.free[gpu_type] or (as_held and not _repays(seen, target, at, gpu_type, after)):
        return c.NONE, 0.0
    return after, weight * (1.0 / times[after] - 1.0 / times[level]) / extra


@compile_part
def grow(cluster: ClusterArrays, seen: ViewArrays, target: TargetArrays, weight: Floats) -> None:
    """Give the GPUs left over to placed jobs, the greatest gain of weighted throughput per GPU first.

    A job that would stay as it is grows only where that repays its restart.
    """
    n = len(seen.row)
    offered, gain = np.full(n, c.NONE), np.zeros(n)
    if total(target.free) == 0:
        return
    for at in range(n):
        if target.gpu_type[at] != c.NONE:
            offered[at], gain[at] = _offer(cluster, seen, target, at, weight[at])
    while total(target.free) > 0:
        best = c.NONE
        for at in range(n):
            if offered[at] != c.NONE and (best == c.NONE or gain[at] > gain[best]):
                best = at
        if best == c.NONE:
            return
        gpu_type, level = target.gpu_type[best], offered[best]
        offered[best] = c.NONE
        if cluster.counts[level] - cluster.counts[target.level[best]] <= target.free[gpu_type]:
            give(cluster, target, best, gpu_type, level)
            offered[best], gain[best] = _offer(cluster, seen, target, best, weight[best])


@compile_part
def decide(episode: Episode, seen: ViewArrays, target: TargetArrays) -> None:
    """Decide what the target says."""
    for at in range(len(seen.row)):
        row = seen.row[at]
        episode.job[row, c.TARGET_TYPE], episode.job[row, c.TARGET_LEVEL] = (
            target.gpu_type[at],
            target.level[at],
        )
