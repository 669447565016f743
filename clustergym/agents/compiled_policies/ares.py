"""Ares, compiled: `clustergym.policies.ares`."""

from __future__ import annotations

import numpy as np

from clustergym.agents.compiled_policies import target as targets
from clustergym.agents.compiled_policies.memory import Memory
from clustergym.agents.compiled_policies.target import TargetArrays
from clustergym.agents.compiled_policies.virtual_clock import KNOWN, KNOWN_GPU_S, KNOWN_JOBS, finishes
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.sim.compiled import columns as c
from clustergym.sim.compiled import jobs
from clustergym.sim.compiled.cluster_arrays import ClusterArrays
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compiled_part
from clustergym.sim.compiled.seen import Seen, ascending, see, total
from clustergym.sim.compiled.sums import pairwise_sum
from clustergym.sim.compiled.times import times_or_guess


@compiled_part
def _requested_times(episode: Episode, seen: Seen) -> Floats:
    """Return seconds per iteration at each request, as `shared.requests.requested_time_s`, shape (n,)."""
    n, time_s = len(seen.row), np.empty(len(seen.row))
    for at in range(n):
        own, level = episode.job[seen.row[at], c.CLASS], seen.requested[at]
        wanted, at_count, anywhere = np.inf, np.inf, np.inf
        for kind in range(episode.known_s.shape[1]):
            if seen.options[at, kind]:
                wanted = min(wanted, episode.known_s[own, kind, level])
            at_count = min(at_count, episode.known_s[own, kind, level])
            for other in range(episode.known_s.shape[2]):
                anywhere = min(anywhere, episode.known_s[own, kind, other])
        time_s[at] = wanted if wanted < np.inf else at_count if at_count < np.inf else anywhere
    return time_s


@compiled_part
def _size_gpu_s(episode: Episode, cluster: ClusterArrays, seen: Seen, at: int) -> float:
    """Return a job's GPU-seconds at its request at the mean speed of the types; inf: unknown."""
    row, types = seen.row[at], len(cluster.capacity)
    job, speed, weight = episode.job[row], np.empty(types), 0
    for kind in range(types):
        speed[kind] = 1.0 / episode.known_s[job[c.CLASS], kind, seen.requested[at]]
        runs = cluster.capacity[kind] if speed[kind] > 0.0 else 0
        speed[kind] = speed[kind] * runs
        weight += runs
    mean = pairwise_sum(speed) / max(weight, 1)
    iteration_s = 1.0 / mean if mean > 0.0 else _requested_times(episode, seen)[at]
    return episode.figures[row, c.ITERATIONS] * iteration_s * seen.gpus[at]


@compiled_part
def _sizes(episode: Episode, cluster: ClusterArrays, seen: Seen, memory: Memory) -> tuple[Floats, Bools]:
    """Return the sizes of jobs that are new, and which jobs' size is known.

    A job of unknown size has the mean size of the jobs whose size is known; 1 if none is.
    """
    n, figure, of_job = len(seen.row), memory.figure, memory.of_job
    size, known = np.ones(n), np.ones(n, np.bool_)
    for at in range(n):
        if of_job[seen.row[at], KNOWN] == 0.0:
            size[at] = _size_gpu_s(episode, cluster, seen, at)
            known[at] = size[at] < np.inf
            if known[at]:
                of_job[seen.row[at], KNOWN] = 1.0
                figure[KNOWN_JOBS] += 1.0
                figure[KNOWN_GPU_S] += size[at]
    for at in range(n):
        if not known[at]:
            size[at] = figure[KNOWN_GPU_S] / figure[KNOWN_JOBS] if figure[KNOWN_JOBS] > 0.0 else 1.0
    return size, known


@compiled_part
def _efficiency(counts: Ints, time_s: Floats, requested: int) -> Floats:
    """Return throughput per GPU relative to that at the request on the same type, shape (T, K)."""
    types, levels = time_s.shape
    efficiency = np.zeros((types, levels))
    for kind in range(types):
        base = requested
        while base < levels and time_s[kind, base] == np.inf:
            base += 1
        if base == levels:
            continue
        base_gpu_s = time_s[kind, base] * counts[base]
        for level in range(levels):
            if time_s[kind, level] < np.inf:
                efficiency[kind, level] = base_gpu_s / (time_s[kind, level] * counts[level])
    return efficiency


@compiled_part
def _allow_doublings(counts: Ints, efficiency: Floats, requested: int, alpha: float, allowed: Bools) -> None:
    """Allow the request and the doublings of it that are efficient enough, and those before them too."""
    for kind in range(len(efficiency)):
        first = c.NONE
        for level in range(requested, len(counts)):
            if efficiency[kind, level] <= 0.0:
                continue
            if first == c.NONE:
                first = level
            times = counts[level] // counts[first]
            if counts[level] % counts[first] != 0 or times & (times - 1) != 0:
                continue
            if efficiency[kind, level] < alpha * (1 - 1e-12):
                break
            allowed[kind, level] = True


@compiled_part
def _allow_modest(
    counts: Ints, time_s: Floats, efficiency: Floats, requested: int, alpha: float, cap: float,
    allowed: Bools,
) -> None:  # fmt: skip
    """Allow what is at most the request, or efficient enough, up to the cap or the least that runs."""
    for kind in range(len(efficiency)):
        lowest = 0
        while lowest < len(counts) and time_s[kind, lowest] == np.inf:
            lowest += 1
        most = max(cap, counts[lowest] if lowest < len(counts) else 0)
        for level in range(len(counts)):
            modest = counts[level] <= requested or efficiency[kind, level] >= alpha
            allowed[kind, level] = modest and counts[level] <= most


@compiled_part
def _serve_pool(
    episode: Episode, cluster: ClusterArrays, seen: Seen, target: TargetArrays, known: Bools, allowed: Bools,
    pool: float,
) -> None:  # fmt: skip
    """Serve jobs of unknown size first on the GPUs of the pool, by least attained service."""
    types, now, some = len(cluster.capacity), episode.clock[c.NOW], False
    outside, unknown, count = np.empty(types, np.int64), np.empty(len(known), np.int64), 0
    for kind in range(types):
        size = int(pool * cluster.capacity[kind])
        outside[kind] = max(target.free[kind] - size, 0)
        some |= size > 0
    attained = np.empty(len(known))
    for at in range(len(known)):
        if not known[at]:
            attained[at] = jobs.attained_at(episode, cluster, seen.row[at], now)
            unknown[count] = at
            count += 1
    if count == 0 or not some:
        return
    for kind in range(types):
        target.free[kind] -= outside[kind]
    targets.place(cluster, seen, target, ascending(attained, unknown[:count]), allowed)
    for kind in range(types):
        target.free[kind] += outside[kind]


@compiled_part
def _order(episode: Episode, cluster: ClusterArrays, seen: Seen, memory: Memory) -> tuple[Ints, Bools]:
    """Return the jobs in ascending order of virtual finish, and which jobs' size is known."""
    size, known = _sizes(episode, cluster, seen, memory)
    finish = finishes(episode, seen, memory, float(total(cluster.capacity)), size)
    return ascending(finish, np.arange(len(seen.row))), known


@compiled_part
def decide(
    episode: Episode, cluster: ClusterArrays, memory: Memory, alpha: float, pool: float, hysteresis: float
) -> None:
    """Serve jobs in ascending order of virtual finish."""
    seen = see(episode, cluster)
    order, known = _order(episode, cluster, seen, memory)
    time_s = times_or_guess(episode, cluster, seen)[0]
    target = targets.begin(episode, seen, time_s, hysteresis)
    allowed = np.zeros(time_s.shape, np.bool_)
    for at in range(len(seen.row)):
        efficiency = _efficiency(cluster.counts, time_s[at], seen.requested[at])
        _allow_doublings(cluster.counts, efficiency, seen.requested[at], alpha, allowed[at])
    _serve_pool(episode, cluster, seen, target, known, allowed, pool)
    targets.place(cluster, seen, target, order, allowed)
    targets.decide(episode, seen, target)


@compiled_part
def decide_conserving(
    episode: Episode, cluster: ClusterArrays, memory: Memory, alpha: float, hysteresis: float
) -> None:
    """Serve jobs in this order by the work-conserving variant."""
    seen = see(episode, cluster)
    n, order = len(seen.row), _order(episode, cluster, seen, memory)[0]
    time_s = times_or_guess(episode, cluster, seen)[0]
    target = targets.begin(episode, seen, time_s, hysteresis)
    cap = max(2.0 * total(seen.available) / n, 1.0)
    allowed, weight = np.zeros(time_s.shape, np.bool_), _requested_times(episode, seen)
    for at in range(n):
        efficiency = _efficiency(cluster.counts, time_s[at], seen.requested[at])
        _allow_modest(cluster.counts, time_s[at], efficiency, seen.gpus[at], alpha, cap, allowed[at])
    targets.place(cluster, seen, target, order, allowed)
    targets.keep_running(cluster, seen, target, order)
    targets.grow(cluster, seen, target, weight)
    targets.decide(episode, seen, target)
