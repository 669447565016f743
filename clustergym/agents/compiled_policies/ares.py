"""Ares, compiled: `clustergym.policies.ares`.

The virtual clock of fluid fair sharing, compiled: `clustergym.policies.ares.FairQueue`.
"""

from __future__ import annotations

import numpy as np

from clustergym.agents.compiled_policies import target as targets
from clustergym.agents.compiled_policies.memory import Memory
from clustergym.agents.compiled_policies.target import TargetArrays
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.sim import columns as c
from clustergym.sim.compiled import jobs
from clustergym.sim.compiled.cluster_arrays import ClusterArrays
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.fluid import SLACK
from clustergym.sim.compiled.numba_cache import compile_part
from clustergym.sim.compiled.seen import ViewArrays, ascending, see, total
from clustergym.sim.compiled.sums import pairwise_sum
from clustergym.sim.compiled.times import times_or_guess


@compile_part
def _find_requested_times(episode: Episode, seen: ViewArrays) -> Floats:
    """Return seconds per iteration at each request, as `shared.requests.get_requested_time_s`, shape (n,)."""
    n, time_s = len(seen.row), np.empty(len(seen.row))
    for at in range(n):
        own, level = episode.job[seen.row[at], c.CLASS], seen.requested[at]
        wanted, at_count, anywhere = np.inf, np.inf, np.inf
        for gpu_type in range(episode.known_s.shape[1]):
            if seen.options[at, gpu_type]:
                wanted = min(wanted, episode.known_s[own, gpu_type, level])
            at_count = min(at_count, episode.known_s[own, gpu_type, level])
            for other in range(episode.known_s.shape[2]):
                anywhere = min(anywhere, episode.known_s[own, gpu_type, other])
        time_s[at] = wanted if wanted < np.inf else at_count if at_count < np.inf else anywhere
    return time_s


@compile_part
def _size_gpu_s(episode: Episode, cluster: ClusterArrays, seen: ViewArrays, at: int) -> float:
    """Return a job's GPU-seconds at its request at the mean speed of the types; inf: unknown."""
    row, types = seen.row[at], len(cluster.capacity)
    job, speed, weight = episode.job[row], np.empty(types), 0
    for gpu_type in range(types):
        speed[gpu_type] = 1.0 / episode.known_s[job[c.CLASS], gpu_type, seen.requested[at]]
        runs = cluster.capacity[gpu_type] if speed[gpu_type] > 0.0 else 0
        speed[gpu_type] = speed[gpu_type] * runs
        weight += runs
    mean = pairwise_sum(speed) / max(weight, 1)
    iteration_s = 1.0 / mean if mean > 0.0 else _find_requested_times(episode, seen)[at]
    return episode.figures[row, c.ITERATIONS] * iteration_s * seen.gpus[at]


@compile_part
def _sizes(
    episode: Episode, cluster: ClusterArrays, seen: ViewArrays, memory: Memory
) -> tuple[Floats, Bools]:
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


@compile_part
def _efficiency(counts: Ints, time_s: Floats, requested: int) -> Floats:
    """Return throughput per GPU relative to that at the request on the same type, shape (T, K)."""
    types, levels = time_s.shape
    efficiency = np.zeros((types, levels))
    for gpu_type in range(types):
        base = requested
        while base < levels and time_s[gpu_type, base] == np.inf:
            base += 1
        if base == levels:
            continue
        base_gpu_s = time_s[gpu_type, base] * counts[base]
        for level in range(levels):
            if time_s[gpu_type, level] < np.inf:
                efficiency[gpu_type, level] = base_gpu_s / (time_s[gpu_type, level] * counts[level])
    return efficiency


@compile_part
def _allow_doublings(counts: Ints, efficiency: Floats, requested: int, alpha: float, allowed: Bools) -> None:
    """Allow the request and the doublings of it that are efficient enough, and those before them too."""
    for gpu_type in range(len(efficiency)):
        first = c.NONE
        for level in range(requested, len(counts)):
            if efficiency[gpu_type, level] <= 0.0:
                continue
            if first == c.NONE:
                first = level
            times = counts[level] // counts[first]
            if counts[level] % counts[first] != 0 or times & (times - 1) != 0:
                continue
            if efficiency[gpu_type, level] < alpha * (1 - 1e-12):
                break
            allowed[gpu_type, level] = True


@compile_part
def _allow_modest(
    counts: Ints, time_s: Floats, efficiency: Floats, requested: int, alpha: float, cap: float,
    allowed: Bools,
) -> None:  # fmt: skip
    """Mark the GPU counts that a job may have: up to its request, or beyond it where efficient enough."""
    for gpu_type in range(len(efficiency)):
        lowest = 0
        while lowest < len(counts) and time_s[gpu_type, lowest] == np.inf:
            lowest += 1
        most = max(cap, counts[lowest] if lowest < len(counts) else 0)
        for level in range(len(counts)):
            modest = counts[level] <= requested or efficiency[gpu_type, level] >= alpha
            allowed[gpu_type, level] = modest and counts[level] <= most


@compile_part
def _serve_pool(
    episode: Episode, cluster: ClusterArrays, seen: ViewArrays, target: TargetArrays, known: Bools,
    allowed: Bools,
    pool: float,
) -> None:  # fmt: skip
    """Serve jobs of unknown size first on the GPUs of the pool, by least attained service."""
    types, now, some = len(cluster.capacity), episode.clock[c.NOW], False
    outside, unknown, count = np.empty(types, np.int64), np.empty(len(known), np.int64), 0
    for gpu_type in range(types):
        size = int(pool * cluster.capacity[gpu_type])
        outside[gpu_type] = max(target.free[gpu_type] - size, 0)
        some |= size > 0
    attained = np.empty(len(known))
    for at in range(len(known)):
        if not known[at]:
            attained[at] = jobs.compute_attained(episode, seen.row[at], now)
            unknown[count] = at
            count += 1
    if count == 0 or not some:
        return
    for gpu_type in range(types):
        target.free[gpu_type] -= outside[gpu_type]
    targets.place(cluster, seen, target, ascending(attained, unknown[:count]), allowed)
    for gpu_type in range(types):
        target.free[gpu_type] += outside[gpu_type]


@compile_part
def _order(episode: Episode, cluster: ClusterArrays, seen: ViewArrays, memory: Memory) -> tuple[Ints, Bools]:
    """Return the jobs in ascending order of virtual finish, and which jobs' size is known."""
    size, known = _sizes(episode, cluster, seen, memory)
    finish = finishes(episode, seen, memory, float(total(cluster.capacity)), size)
    return ascending(finish, np.arange(len(seen.row))), known


@compile_part
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


@compile_part
def decide_conserving(
    episode: Episode, cluster: ClusterArrays, memory: Memory, alpha: float, hysteresis: float
) -> None:
    """Serve jobs in this order by the work-conserving variant."""
    seen = see(episode, cluster)
    n, order = len(seen.row), _order(episode, cluster, seen, memory)[0]
    time_s = times_or_guess(episode, cluster, seen)[0]
    target = targets.begin(episode, seen, time_s, hysteresis)
    cap = max(2.0 * total(seen.available) / n, 1.0)
    allowed, weight = np.zeros(time_s.shape, np.bool_), _find_requested_times(episode, seen)
    for at in range(n):
        efficiency = _efficiency(cluster.counts, time_s[at], seen.requested[at])
        _allow_modest(cluster.counts, time_s[at], efficiency, seen.gpus[at], alpha, cap, allowed[at])
    targets.place(cluster, seen, target, order, allowed)
    targets.keep_running(cluster, seen, target, order)
    targets.grow(cluster, seen, target, weight)
    targets.decide(episode, seen, target)


# Columns of `Memory.figure`.
NOW_S, CLOCK, FIRST, LAST, KNOWN_JOBS, KNOWN_GPU_S = range(6)
"""Simulated and virtual time; rows FIRST to LAST of ACTIVE; number and GPU-seconds of jobs of known size."""
# Columns of `Memory.of_job`.
ARRIVED, FINISH, KNOWN, ACTIVE = range(4)
"""Whether a job has arrived; its virtual finish; whether its size is known. Those of the jobs that fluid
sharing still serves, ascending."""


@compile_part
def _advance(memory: Memory, gpus: float, until_s: float) -> None:
    """Advance the clock to a time; fluid sharing ends jobs on the way."""
    figure, of_job = memory.figure, memory.of_job
    first, last = int(figure[FIRST]), int(figure[LAST])
    while first < last:
        level = gpus / (last - first)
        step_s = max(of_job[first, ACTIVE] - figure[CLOCK], 0.0) / min(gpus, level)
        if figure[NOW_S] + step_s > until_s:
            figure[CLOCK] += (until_s - figure[NOW_S]) * min(gpus, level)
            break
        figure[NOW_S] += step_s
        figure[CLOCK] += step_s * min(gpus, level)
        figure[CLOCK] = max(figure[CLOCK], of_job[first, ACTIVE])
        reached = figure[CLOCK] * (1 + SLACK)
        while first < last and of_job[first, ACTIVE] <= reached:
            first += 1
    figure[FIRST], figure[NOW_S] = first, until_s


@compile_part
def _arrive(memory: Memory, row: int, work_gpu_s: float) -> None:
    """Add a job now."""
    figure, of_job = memory.figure, memory.of_job
    finish, at = figure[CLOCK] + work_gpu_s, int(figure[LAST])
    while at > figure[FIRST] and of_job[at - 1, ACTIVE] > finish:
        of_job[at, ACTIVE] = of_job[at - 1, ACTIVE]
        at -= 1
    of_job[at, ACTIVE] = finish
    figure[LAST] += 1
    of_job[row, ARRIVED], of_job[row, FINISH] = 1.0, finish


@compile_part
def finishes(episode: Episode, seen: ViewArrays, memory: Memory, gpus: float, work_gpu_s: Floats) -> Floats:
    """Return the virtual finish of each job, GPU-seconds, shape (n,).

    `work_gpu_s` is looked at only for jobs that were not seen before.
    """
    finish = np.empty(len(seen.row))
    for at in range(len(seen.row)):
        row = seen.row[at]
        if memory.of_job[row, ARRIVED] == 0.0:
            _advance(memory, gpus, max(episode.figures[row, c.SUBMIT_S], memory.figure[NOW_S]))
            _arrive(memory, row, work_gpu_s[at])
        finish[at] = memory.of_job[row, FINISH]
    return finish
