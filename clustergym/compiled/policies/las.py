"""LAS, compiled: `clustergym.policies.las`."""

from __future__ import annotations

import numpy as np

from clustergym.compiled import columns as c
from clustergym.compiled import jobs
from clustergym.compiled.cluster_arrays import ClusterArrays
from clustergym.compiled.episode import Episode
from clustergym.compiled.numba_cache import compiled_part
from clustergym.compiled.policies.queues import NOTHING, fill
from clustergym.compiled.policies.seen import ascending, preempt_all, restart_s, see, stays


@compiled_part
def decide(episode: Episode, cluster: ClusterArrays) -> None:
    """Fill the cluster in ascending order of attained service; of equal jobs, running ones go first."""
    seen, types, now = see(episode, cluster), len(cluster.capacity), episode.clock[c.NOW]
    n = len(seen.row)
    service, preference = np.empty(n), np.full((n, types), np.inf)
    order, count = np.empty(n, np.int64), 0
    for running in (True, False):
        for at in range(n):
            if (episode.job[seen.row[at], c.LEVEL] != c.NONE) == running:
                order[count] = at
                count += 1
    for at in range(n):
        row, level, least = seen.row[at], seen.requested[at], np.inf
        for kind in range(types):
            if stays(episode, row, kind, level):
                preference[at, kind] = kind
                least = min(least, restart_s(episode, row, kind, level))
        held = episode.job[row, c.LEVEL] != c.NONE
        wasted = 0.0 if held or least == np.inf else least * episode.job[row, c.REQUESTED_GPUS]
        service[at] = jobs.attained_at(episode, cluster, row, now) + wasted
    preempt_all(episode, seen)
    fill(episode, cluster, seen, ascending(service, order), preference, seen.available, NOTHING)
