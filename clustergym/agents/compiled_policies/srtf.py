"""SRTF, compiled: `clustergym.policies.srtf`."""

from __future__ import annotations

import numpy as np

from clustergym.agents.compiled_policies import target as targets
from clustergym.agents.compiled_policies.queues import NOTHING, fill
from clustergym.sim import columns as c
from clustergym.sim.compiled.cluster_arrays import ClusterArrays
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_part
from clustergym.sim.compiled.seen import ascending, preempt_all, see, stays
from clustergym.sim.compiled.times import compute_known_times, least, remaining_at_request_s, request_times


@compile_part
def decide(episode: Episode, cluster: ClusterArrays) -> None:
    """Fill the cluster in ascending order of remaining time, jobs at their requests."""
    seen, types = see(episode, cluster), len(cluster.capacity)
    left_s = remaining_at_request_s(seen, request_times(episode, cluster, seen)[0])
    least_s = np.full(len(seen.row), np.inf)
    for at in range(len(seen.row)):
        for gpu_type in range(types):
            if not stays(seen, at, gpu_type):
                left_s[at, gpu_type] = np.inf
            least_s[at] = min(least_s[at], left_s[at, gpu_type])
    order = ascending(least_s, np.arange(len(seen.row)))
    preempt_all(episode, seen)
    fill(episode, seen, order, left_s, seen.available, NOTHING)


@compile_part
def decide_elastic(episode: Episode, cluster: ClusterArrays, hysteresis: float) -> None:
    """Give jobs up to their requests, least remaining time first, then share out the GPUs left over."""
    seen, n = see(episode, cluster), episode.clock[c.IN_VIEW]
    left_s = remaining_at_request_s(seen, request_times(episode, cluster, seen)[0])
    least_s, weight = np.empty(n), np.empty(n)
    allowed = np.zeros((n, len(cluster.capacity), len(cluster.counts)), np.bool_)
    for at in range(n):
        least_s[at], weight[at] = least(left_s[at]), 1.0 / seen.remaining[at]
        for level in range(len(cluster.counts)):
            within = cluster.counts[level] <= seen.gpus[at]
            for gpu_type in range(len(cluster.capacity)):
                allowed[at, gpu_type, level] = within
    order = ascending(least_s, np.arange(n))
    target = targets.begin(episode, seen, compute_known_times(episode, cluster, seen), hysteresis)
    targets.place(cluster, seen, target, order, allowed)
    targets.keep_running(cluster, seen, target, order)
    targets.grow(cluster, seen, target, weight)
    targets.decide(episode, seen, target)
