"""The learned auction, compiled: `clustergym.policies.learned`."""

from __future__ import annotations

import numpy as np

from clustergym.arrays import Floats
from clustergym.compiled import auction
from clustergym.compiled import columns as c
from clustergym.compiled.auction_episode import bids_of_rows, set_targets
from clustergym.compiled.cluster_arrays import ClusterArrays
from clustergym.compiled.episode import Episode
from clustergym.compiled.numba_cache import compiled_part
from clustergym.compiled.seen import see
from clustergym.compiled.times import times_or_guess


@compiled_part
def decide(episode: Episode, cluster: ClusterArrays, weights: Floats) -> None:
    """Hold the auction by weights, with guesses for jobs of unknown speed."""
    seen = see(episode, cluster)
    bids = bids_of_rows(episode, cluster, seen.row)
    time_s, _ = times_or_guess(episode, cluster, seen)
    _, types, levels = time_s.shape
    for at in range(len(seen.row)):
        feasible = episode.feasible[episode.job[seen.row[at], c.CLASS]]
        for kind in range(types):
            for level in range(levels):
                fits = feasible[kind, level]
                bids.time_s[at, kind, level] = time_s[at, kind, level] if fits else np.inf
    kind_of, level_of = auction.decide(weights, seen.available, cluster.counts, bids)
    set_targets(episode, seen.row, kind_of, level_of)
