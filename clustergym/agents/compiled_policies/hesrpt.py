"""heSRPT, compiled: `clustergym.policies.hesrpt`."""

from __future__ import annotations

import math

import numpy as np

from clustergym.agents.compiled_policies import target as targets
from clustergym.agents.compiled_policies.memory import Memory
from clustergym.agents.speedup import EXPONENTS
from clustergym.common.arrays import Floats, Ints
from clustergym.sim import columns as c
from clustergym.sim.compiled.cluster_arrays import ClusterArrays
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_part
from clustergym.sim.compiled.seen import ViewArrays, ascending, see, total
from clustergym.sim.compiled.sums import pairwise_sum
from clustergym.sim.compiled.times import times_or_guess


@compile_part
def _fit(cluster: ClusterArrays, time_s: Floats) -> tuple[float, float]:
    """Return the exponent and the seconds on one GPU of one job, as `fit_speedup`."""
    types, levels = time_s.shape
    x, y, points = np.zeros(levels), np.zeros(levels), 0
    known = np.zeros(levels, np.bool_)
    for level in range(levels):
        fastest = np.inf
        for gpu_type in range(types):
            fastest = min(fastest, time_s[gpu_type, level])
        if fastest < np.inf:
            known[level] = True
            x[level], y[level] = math.log(cluster.counts[level]), -math.log(fastest)
            points += 1
    if points == 0:
        return EXPONENTS[0], np.inf
    x_mean, y_mean = pairwise_sum(x) / points, pairwise_sum(y) / points
    square, product = np.zeros(levels), np.zeros(levels)
    for level in range(levels):
        if known[level]:
            dx = x[level] - x_mean
            square[level], product[level] = dx * dx, dx * (y[level] - y_mean)
    variance = pairwise_sum(square)
    slope = pairwise_sum(product) / variance if variance > 0.0 else 0.0
    exponent = min(max(slope, EXPONENTS[0]), EXPONENTS[1])
    return exponent, math.exp(exponent * x_mean - y_mean)


@compile_part
def _shares(size: Floats, exponent: Floats) -> Floats:
    """Return each job's heSRPT share, summing to 1; ties keep the array's order."""
    n = len(size)
    negative, share = np.empty(n), np.empty(n)
    for at in range(n):
        negative[at] = -size[at]
    order = ascending(negative, np.arange(n))
    for place in range(n):
        power = 1.0 / (1.0 - exponent[order[place]])
        share[order[place]] = ((place + 1.0) / n) ** power - (place / n) ** power
    whole = pairwise_sum(share)
    for at in range(n):
        share[at] /= whole
    return share


@compile_part
def _round_down(share: float, counts: Ints) -> int:
    """Return the largest count within a share; from 0.7 of the least count up that one, else 0."""
    if share < counts[0] * math.sqrt(0.5):
        return 0
    level = 0
    while level + 1 < len(counts) and counts[level + 1] <= share:
        level += 1
    return counts[level]


@compile_part
def _place_least(cluster: ClusterArrays, seen: ViewArrays, target: targets.TargetArrays, order: Ints) -> None:
    """Give jobs that have no GPUs the least count they run on, while there is room."""
    allowed = np.zeros(target.time_s.shape, np.bool_)
    for at in range(len(seen.row)):
        for gpu_type in range(len(cluster.capacity)):
            for level in range(len(cluster.counts)):
                if target.time_s[at, gpu_type, level] < np.inf:
                    allowed[at, gpu_type, level] = True
                    break
    targets.place(cluster, seen, target, order, allowed)


@compile_part
def decide(
    episode: Episode, cluster: ClusterArrays, memory: Memory, leftover: bool, hysteresis: float
) -> None:
    """Give each job its share by the rank of its remaining size."""
    seen = see(episode, cluster)
    n, counts = len(seen.row), cluster.counts
    time_s, guessed = times_or_guess(episode, cluster, seen)
    target = targets.begin(episode, seen, time_s, hysteresis)
    exponent, size, weight = np.empty(n), np.empty(n), np.empty(n)
    for at in range(n):
        own = episode.job[seen.row[at], c.CLASS]
        exponent[at], one_gpu_s = memory.exponent[own], memory.one_gpu_s[own]
        if guessed[at]:
            exponent[at], one_gpu_s = _fit(cluster, time_s[at])
        size[at], weight[at] = seen.remaining[at] * one_gpu_s, 1.0 / seen.remaining[at]
    order, share = ascending(size, np.arange(n)), _shares(size, exponent)
    allowed, gpus = np.zeros(time_s.shape, np.bool_), float(total(seen.available))
    for at in range(n):
        rounded = _round_down(share[at] * gpus, counts)
        for gpu_type in range(len(cluster.capacity)):
            for level in range(len(counts)):
                most = 2.0 * rounded if seen.held[at] == level else rounded
                allowed[at, gpu_type, level] = time_s[at, gpu_type, level] < np.inf and counts[level] <= most
    targets.place(cluster, seen, target, order, allowed)
    if leftover:
        _place_least(cluster, seen, target, order)
    targets.keep_running(cluster, seen, target, order)
    if leftover:
        targets.grow(cluster, seen, target, weight)
    targets.decide(episode, seen, target)
