"""LAS, compiled: `clustergym.policies.las`."""

from __future__ import annotations

import numpy as np

from clustergym.agents.compiled_policies.queues import NOTHING, fill
from clustergym.sim import columns as c
from clustergym.sim.compiled import jobs
from clustergym.sim.compiled.cluster_arrays import ClusterArrays
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_part
from clustergym.sim.compiled.seen import ascending, preempt_all, see, stays


@compile_part
def decide(episode: Episode, cluster: ClusterArrays) -> None:
    """Fill the cluster in ascending order of attained service; of equal jobs, running ones go first."""
    seen, types, now = see(episode, cluster), len(cluster.capacity), episode.clock[c.NOW]
    n = len(seen.row)
    service, preference = np.empty(n), np.full((n, types), np.inf)
    order, count = np.empty(n, np.int64), 0
    for running in (True, False):
        for at in range(n):
            if (seen.gpu_type[at] != c.NONE) == running:
                order[count] = at
                count += 1
    for at in range(n):
        least = np.inf
        for gpu_type in range(types):
            if stays(seen, at, gpu_type):
                preference[at, gpu_type] = gpu_type
                least = min(least, seen.cost_s[at, gpu_type, seen.requested[at]])
        starts = seen.gpu_type[at] == c.NONE and least < np.inf
        wasted = least * seen.gpus[at] if starts else 0.0
        service[at] = jobs.compute_attained(episode, seen.row[at], now) + wasted
    preempt_all(episode, seen)
    fill(episode, seen, ascending(service, order), preference, seen.available, NOTHING)
