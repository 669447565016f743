"""The auction in compiled episodes: at a decision point, and at all of them up to the end."""

from __future__ import annotations

import numpy as np

from clustergym.arrays import Floats, Ints
from clustergym.compiled import auction, batch, clock, jobs
from clustergym.compiled import columns as c
from clustergym.compiled.auction import Bids
from clustergym.compiled.cluster_arrays import ClusterArrays
from clustergym.compiled.episode import Episode
from clustergym.compiled.numba_cache import compiled, compiled_in_place, compiled_part


@compiled_part
def bids_of_rows(episode: Episode, cluster: ClusterArrays, rows: Ints) -> Bids:
    """Return the bids of jobs in view, as `auction.bids_of` has them of a View."""
    n = len(rows)
    shape = (n, *episode.known_s.shape[1:])
    bids = Bids(
        np.empty(n),
        np.empty(shape),
        np.empty(shape),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
    )
    _fill_bids(episode, cluster, rows, bids)
    return bids


@compiled_in_place
def _fill_bids(episode: Episode, cluster: ClusterArrays, rows: Ints, bids: Bids) -> None:
    now, now_s = episode.clock[c.NOW], episode.clock[c.NOW] / c.TICKS_PER_S
    _, types, levels = bids.time_s.shape
    for at in range(len(rows)):
        row = rows[at]
        job, figures = episode.job[row], episode.figures[row]
        held = job[c.LEVEL] != c.NONE
        bids.remaining[at] = jobs.remaining_at(episode, row, now)
        kind_of_job = job[c.CLASS]
        pays = job[c.LAUNCHED] or episode.clock[c.FIRST_LAUNCH_COSTS]
        checkpoint_s = episode.checkpoint_s[kind_of_job] if pays else 0.0
        for kind in range(types):
            for level in range(levels):
                search_s = 0.0 if episode.searched[row, kind, level] else episode.search_s[level]
                bids.cost_s[at, kind, level] = search_s + checkpoint_s
                bids.time_s[at, kind, level] = episode.known_s[kind_of_job, kind, level]
        bids.held_type[at], bids.held_level[at] = job[c.TYPE], job[c.LEVEL]
        if held:
            bids.cost_s[at, job[c.TYPE], job[c.LEVEL]] = 0.0
        bids.standstill_s[at] = max(job[c.READY] - now, 0) / c.TICKS_PER_S if held else 0.0
        bids.age_s[at] = now_s - figures[c.SUBMIT_S]
        bids.attained_gpu_s[at] = jobs.attained_at(episode, cluster, row, now)
        bids.slack_s[at] = figures[c.DEADLINE_S] - now_s


@compiled_in_place
def set_targets(episode: Episode, rows: Ints, kind: Ints, level: Ints) -> None:
    """Set the allotments that jobs are to have from now on."""
    for at in range(len(rows)):
        episode.job[rows[at], c.TARGET_TYPE] = kind[at]
        episode.job[rows[at], c.TARGET_LEVEL] = level[at]


@compiled_part
def decide(episode: Episode, cluster: ClusterArrays, weights: Floats) -> None:
    """Let the auction with these weights set the target of every job in view."""
    rows = episode.in_view[: episode.clock[c.IN_VIEW]]
    bids = bids_of_rows(episode, cluster, rows)
    kind, level = auction.decide(weights, cluster.capacity, cluster.counts, bids)
    set_targets(episode, rows, kind, level)


@compiled
def run(weights: Floats, episodes: Episode, cluster: ClusterArrays) -> int:
    """Run the auction in the first episode of a batch; return OVER or STALLED."""
    episode = batch.row_of(episodes, 0)
    while True:
        came_to = clock.advance(episode, cluster)
        if came_to != c.DECISION:
            return came_to
        decide(episode, cluster, weights)
        if clock.enact(episode, cluster) != c.DECISION:
            return c.STALLED
