"""FCFS, compiled: `clustergym.policies.fcfs`, with queues in order or `aggressive` backfill."""

from __future__ import annotations

import numpy as np

from clustergym.agents.compiled_policies.queues import fill
from clustergym.sim.compiled import columns as c
from clustergym.sim.compiled.cluster_arrays import ClusterArrays
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compiled_part
from clustergym.sim.compiled.seen import keep_all, see


@compiled_part
def decide(episode: Episode, cluster: ClusterArrays, blocks: int) -> None:
    """Start jobs from the head of each queue; `blocks` says what jobs that wait close to later ones."""
    seen, types = see(episode, cluster), len(cluster.capacity)
    keep_all(episode, seen)
    waiting, waits = np.empty(len(seen.row), np.int64), 0
    preference = np.full((len(seen.row), types), np.inf)
    for at in range(len(seen.row)):
        if seen.kind[at] == c.NONE:
            waiting[waits] = at
            waits += 1
            for kind in range(types):
                if seen.options[at, kind]:
                    preference[at, kind] = kind
    fill(episode, seen, waiting[:waits], preference, episode.free, blocks)
