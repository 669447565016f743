"""Optimus, compiled: `clustergym.policies.optimus`."""

from __future__ import annotations

import numpy as np

from clustergym.agents.compiled_policies import target as targets
from clustergym.agents.compiled_policies.memory import Memory
from clustergym.agents.compiled_policies.target import TargetArrays
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.sim import columns as c
from clustergym.sim.compiled.cluster_arrays import ClusterArrays
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_part
from clustergym.sim.compiled.seen import ViewArrays, ascending, see, total
from clustergym.sim.compiled.times import times_or_guess

# Columns of `Memory.of_job`: the allotment a job was last given, counted from 1, and since when.
SINCE_TYPE, SINCE_LEVEL, SINCE_S = range(3)


@compile_part
def _in_turn(episode: Episode, seen: ViewArrays, memory: Memory, turn_restarts: float) -> Bools:
    """Return which running jobs were launched too recently to be changed."""
    now_s, bound = episode.clock[c.NOW] / c.TICKS_PER_S, np.zeros(len(seen.row), np.bool_)
    for at in range(len(seen.row)):
        row, longest_s = seen.row[at], 0.0
        if seen.gpu_type[at] == c.NONE or memory.of_job[row, SINCE_TYPE] == 0.0:
            continue
        own = episode.job[row, c.CLASS]
        for gpu_type in range(seen.cost_s.shape[1]):
            for level in range(seen.cost_s.shape[2]):
                if episode.feasible[own, gpu_type, level]:
                    longest_s = max(longest_s, seen.cost_s[at, gpu_type, level])
        bound[at] = now_s - memory.of_job[row, SINCE_S] < turn_restarts * longest_s
    return bound


@compile_part
def _estimate_left_s(seen: ViewArrays, time_s: Floats, bound: Bools, hysteresis: float) -> Floats:
    """Return the estimated seconds until each job ends, restart included, shape (n, T, K)."""
    n, types, levels = time_s.shape
    left_s = np.empty((n, types, levels))
    for at in range(n):
        runs = seen.gpu_type[at] != c.NONE
        for gpu_type in range(types):
            for level in range(levels):
                work_s = seen.remaining[at] * time_s[at, gpu_type, level]
                if seen.gpu_type[at] == gpu_type and seen.held[at] == level:
                    left_s[at, gpu_type, level] = 0.0 if bound[at] else work_s + seen.rest_s[at]
                elif bound[at]:
                    left_s[at, gpu_type, level] = np.inf
                else:
                    left = work_s + seen.cost_s[at, gpu_type, level]
                    left_s[at, gpu_type, level] = left / (1.0 - hysteresis) if runs else left
    return left_s


@compile_part
def _least_levels(left_s: Floats) -> Ints:
    """Return the index of each job's least count of finite time; one beyond the last: there is none."""
    n, types, levels = left_s.shape
    lowest = np.full(n, levels)
    for at in range(n):
        for gpu_type in range(types):
            for level in range(lowest[at]):
                if left_s[at, gpu_type, level] < np.inf:
                    lowest[at] = level
                    break
    return lowest


@compile_part
def _fastest(
    cluster: ClusterArrays, target: TargetArrays, left_s: Floats, first: int, last: int
) -> tuple[int, int]:
    """Return the allotment with room that ends a job first, of the counts of index first..last; NONE."""
    least_s, best, best_level = np.inf, c.NONE, c.NONE
    for gpu_type in range(left_s.shape[0]):
        for level in range(first, last):
            if cluster.counts[level] > target.free[gpu_type]:
                break
            if left_s[gpu_type, level] < least_s:
                least_s, best, best_level = left_s[gpu_type, level], gpu_type, level
    return best, best_level


@compile_part
def _place_first(cluster: ClusterArrays, target: TargetArrays, left_s: Floats) -> None:
    """Give each job its smallest allotment, in order of remaining time, while GPUs are free."""
    n, types, levels = left_s.shape
    lowest, shown_s = _least_levels(left_s), np.full(n, np.inf)
    for at in range(n):
        for gpu_type in range(types if lowest[at] < levels else 0):
            shown_s[at] = min(shown_s[at], left_s[at, gpu_type, lowest[at]])
    for at in ascending(shown_s, np.arange(n)):
        low = lowest[at]
        gpu_type, level = _fastest(cluster, target, left_s[at], low, min(low + 1, levels))
        if gpu_type == c.NONE:
            gpu_type, level = _fastest(cluster, target, left_s[at], low, levels)
        if gpu_type != c.NONE:
            targets.give(cluster, target, at, gpu_type, level)
        if total(target.free) == 0:
            return


@compile_part
def _best_step(
    cluster: ClusterArrays, target: TargetArrays, left_s: Floats, at: int
) -> tuple[float, int, int]:
    """Return the greatest gain per added GPU of a job, and the allotment with room that has it; NONE: none.

    An allotment of another type than the job has adds all its GPUs.
    """
    own, own_level, best, best_kind, best_level = (
        target.gpu_type[at],
        target.level[at],
        -np.inf,
        c.NONE,
        c.NONE,
    )
    now = left_s[at, own, own_level] if own != c.NONE else np.inf
    for gpu_type in range(left_s.shape[1]):
        for level in range(left_s.shape[2]):
            added = cluster.counts[level] - (cluster.counts[own_level] if own == gpu_type else 0)
            if added > target.free[gpu_type]:
                break
            if left_s[at, gpu_type, level] == np.inf:
                continue
            gain = now - left_s[at, gpu_type, level]
            worth = gain / max(float(added), 1e-3)
            if gain > 1e-9 and worth > best:
                best, best_kind, best_level = worth, gpu_type, level
    return best, best_kind, best_level


@compile_part
def _improve(cluster: ClusterArrays, target: TargetArrays, left_s: Floats) -> None:
    """Give jobs better allotments while GPUs are free, one at a time, by greatest gain per added GPU."""
    n, counts = len(left_s), cluster.counts
    worth, kinds, levels = np.full(n, -np.inf), np.full(n, c.NONE), np.full(n, c.NONE)
    stale: Bools = np.ones(n, np.bool_)
    while n > 0:
        best = 0
        for at in range(n):
            gpu_type = kinds[at]
            if not stale[at] and gpu_type != c.NONE:
                own = counts[target.level[at]] if target.gpu_type[at] == gpu_type else 0
                # While GPUs only become fewer, the best step stays the best as long as it has room.
                stale[at] = counts[levels[at]] - own > target.free[gpu_type]
            if stale[at]:
                worth[at], kinds[at], levels[at] = _best_step(cluster, target, left_s, at)
                stale[at] = False
            if worth[at] > worth[best]:
                best = at
        if kinds[best] == c.NONE:
            return
        old = target.gpu_type[best]
        before = target.free[old] if old != c.NONE else 0
        targets.give(cluster, target, best, kinds[best], levels[best])
        stale[best] = True
        if old != c.NONE and target.free[old] > before:
            stale[:] = True


@compile_part
def decide(
    episode: Episode, cluster: ClusterArrays, memory: Memory, hysteresis: float, turn_restarts: float
) -> None:
    """Give every job its least count, then grow jobs by marginal gain."""
    seen, of_job = see(episode, cluster), memory.of_job
    target = targets.begin(episode, seen, times_or_guess(episode, cluster, seen)[0], 1.0)
    bound = _in_turn(episode, seen, memory, turn_restarts)
    left_s = _estimate_left_s(seen, target.time_s, bound, hysteresis)
    _place_first(cluster, target, left_s)
    _improve(cluster, target, left_s)
    targets.decide(episode, seen, target)
    for at in range(len(seen.row)):
        row, gpu_type, level = seen.row[at], target.gpu_type[at] + 1.0, target.level[at] + 1.0
        if of_job[row, SINCE_TYPE] != gpu_type or of_job[row, SINCE_LEVEL] != level:
            of_job[row, SINCE_TYPE], of_job[row, SINCE_LEVEL] = gpu_type, level
            of_job[row, SINCE_S] = episode.clock[c.NOW] / c.TICKS_PER_S
