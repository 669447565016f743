"""The auction with a bias for each job: its start and its doublings on each type score higher or lower."""

from __future__ import annotations

import numpy as np

from clustergym.arrays import Floats, Ints
from clustergym.compiled import auction, auction_episode, batch, clock
from clustergym.compiled import columns as c
from clustergym.compiled.auction import Bids, Facts
from clustergym.compiled.cluster_arrays import ClusterArrays
from clustergym.compiled.episode import Episode
from clustergym.compiled.numba_cache import compiled, compiled_part


@compiled_part
def _held(
    weights: Floats, bias: Floats, available: Ints, counts: Ints, bids: Bids, rows: Ints
) -> tuple[Ints, Ints]:
    facts = auction.facts_of(available.sum(), counts, bids)
    biased = Facts(facts.job, facts.point, facts.type_speed, facts.advantage, bias[rows])
    return auction.hold(np.empty((0, 0, 0)), weights, biased, available, counts, bids)


@compiled
def decide(
    weights: Floats, bias: Floats, available: Ints, counts: Ints, bids: Bids, rows: Ints
) -> tuple[Ints, Ints]:
    """Return the outcome of an auction of all GPUs, as `auction.decide`.

    Parameters
    ----------
    weights, available, counts, bids
        As of `auction.decide`.
    bias : ndarray of float, shape (jobs of the trace, T, 2)
        Added to the scores of a job's start, and of its doublings, on each type.
    rows : ndarray of int, shape (n,)
        Rows in the trace of the jobs that bid.
    """
    return _held(weights, bias, available, counts, bids, rows)


@compiled
def run(weights: Floats, bias: Floats, episodes: Episode, cluster: ClusterArrays) -> int:
    """Run the auction in the first episode of a batch; return OVER or STALLED."""
    episode = batch.row_of(episodes, 0)
    while True:
        came_to = clock.advance(episode, cluster)
        if came_to != c.DECISION:
            return came_to
        rows = episode.in_view[: episode.clock[c.IN_VIEW]]
        bids = auction_episode.bids_of_rows(episode, cluster, rows)
        kind, level = _held(weights, bias, cluster.capacity, cluster.counts, bids, rows)
        auction_episode.set_targets(episode, rows, kind, level)
        if clock.enact(episode, cluster) != c.DECISION:
            return c.STALLED
