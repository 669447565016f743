"""The auction in compiled episodes: at a decision point, and at all of them up to the end."""

from __future__ import annotations

import numpy as np

from clustergym.agents import auction, beliefs
from clustergym.agents.auction import Bids
from clustergym.agents.beliefs import JobsView, RunStats
from clustergym.common.arrays import Floats, Ints
from clustergym.sim import columns as c
from clustergym.sim.compiled import batch, clock, jobs, times
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_entry, compile_in_place, compile_part
from clustergym.sim.compiled.scenario_arrays import ClusterArrays


@compile_part
def bids_of_rows(episode: Episode, cluster: ClusterArrays, rows: Ints) -> Bids:
    """Return the auction's inputs for the jobs in `rows` of an episode of the compiled (Numba) engine."""
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


@compile_in_place
def _fill_bids(episode: Episode, cluster: ClusterArrays, rows: Ints, bids: Bids) -> None:
    now, now_s = episode.clock[c.NOW], episode.clock[c.NOW] / c.TICKS_PER_S
    _, types, levels = bids.time_s.shape
    for at in range(len(rows)):
        row = rows[at]
        job, figures = episode.job[row], episode.figures[row]
        held = job[c.LEVEL] != c.NONE
        bids.remaining[at] = jobs.compute_remaining(episode, row, now)
        model_class = job[c.CLASS]
        for gpu_type in range(types):
            for level in range(levels):
                bids.cost_s[at, gpu_type, level] = jobs.restart_s(episode, row, gpu_type, level)
                shown = jobs.is_profiled(episode, row, gpu_type)
                bids.time_s[at, gpu_type, level] = (
                    episode.known_s[model_class, gpu_type, level] if shown else np.inf
                )
        bids.held_type[at], bids.held_level[at] = job[c.TYPE], job[c.LEVEL]
        if held:
            bids.cost_s[at, job[c.TYPE], job[c.LEVEL]] = 0.0
        bids.standstill_s[at] = max(job[c.READY] - now, 0) / c.TICKS_PER_S if held else 0.0
        bids.age_s[at] = now_s - figures[c.SUBMIT_S]
        bids.attained_gpu_s[at] = jobs.compute_attained(episode, row, now)
        bids.slack_s[at] = figures[c.DEADLINE_S] - now_s


@compile_in_place
def set_targets(episode: Episode, rows: Ints, gpu_type: Ints, level: Ints) -> None:
    """Set the GPU type and the index of the GPU count (`level`) that each job in `rows` is to hold."""
    for at in range(len(rows)):
        episode.job[rows[at], c.TARGET_TYPE] = gpu_type[at]
        episode.job[rows[at], c.TARGET_LEVEL] = level[at]


@compile_in_place
def add_held(episode: Episode, counts: Ints, rows: Ints, available: Ints) -> None:
    """Add the GPUs that the jobs in `rows` hold to `available`, by type."""
    for row in rows:
        job = episode.job[row]
        if job[c.LEVEL] != c.NONE:
            available[job[c.TYPE]] += counts[job[c.LEVEL]]


@compile_part
def count_available(episode: Episode, cluster: ClusterArrays, rows: Ints) -> Ints:
    """Return by type how many GPUs a decision on jobs can use: those that are free, and those they hold."""
    available = episode.free.copy()
    add_held(episode, cluster.counts, rows, available)
    return available


@compile_part
def decide(episode: Episode, cluster: ClusterArrays, weights: Floats) -> None:
    """Let an auction with these weights decide which GPUs each job is to hold; write it into `episode`."""
    rows = episode.in_view[: episode.clock[c.IN_VIEW]]
    bids = bids_of_rows(episode, cluster, rows)
    times.guess_unknown_times(episode, cluster.counts, rows, bids.time_s)
    available = count_available(episode, cluster, rows)
    gpu_type, level = auction.decide(weights, available, cluster.counts, bids)
    set_targets(episode, rows, gpu_type, level)


@compile_in_place
def _fill_shown(episode: Episode, shown: JobsView) -> None:
    for at in range(len(shown.rows)):
        job = episode.job[shown.rows[at]]
        shown.iterations[at] = episode.figures[shown.rows[at], c.ITERATIONS]
        shown.requested[at] = job[c.REQUESTED_GPUS]
        for gpu_type in range(shown.feasible.shape[1]):
            for level in range(shown.feasible.shape[2]):
                known = jobs.is_profiled(episode, shown.rows[at], gpu_type)
                shown.feasible[at, gpu_type, level] = (
                    known and episode.feasible[job[c.CLASS], gpu_type, level]
                )


@compile_part
def _decide_believing(
    episode: Episode, cluster: ClusterArrays, weights: Floats, believed: Floats, observed: RunStats
) -> None:
    """Let an auction with estimated iteration times decide which GPUs each job is to hold."""
    rows = episode.in_view[: episode.clock[c.IN_VIEW]]
    n, bids = len(rows), bids_of_rows(episode, cluster, rows)
    now_s = episode.clock[c.NOW] / c.TICKS_PER_S
    feasible = np.empty((n, *episode.feasible.shape[1:]), np.bool_)
    shown = JobsView(rows, now_s, np.empty(n), np.empty(n, np.int64), feasible)
    _fill_shown(episode, shown)
    available = count_available(episode, cluster, rows)
    gpu_type, level = beliefs.decide(weights, believed, observed, available, cluster.counts, shown, bids)
    set_targets(episode, rows, gpu_type, level)


@compile_part
def _decide_biased(episode: Episode, cluster: ClusterArrays, weights: Floats, bias: Floats) -> None:
    """Let an auction with a bias on each job's scores decide which GPUs each job is to hold."""
    rows = episode.in_view[: episode.clock[c.IN_VIEW]]
    bids, available = bids_of_rows(episode, cluster, rows), count_available(episode, cluster, rows)
    gpu_type, level = auction.decide_biased(weights, bias[rows], available, cluster.counts, bids)
    set_targets(episode, rows, gpu_type, level)


@compile_entry
def run(
    weights: Floats,
    bias: Floats,
    believed: Floats,
    observed: RunStats,
    episodes: Episode,
    cluster: ClusterArrays,
) -> int:
    """Simulate the first of `episodes`, all decisions by auction; return OVER, or STALLED: jobs can't run.

    Parameters
    ----------
    weights : ndarray of float
    bias : ndarray of float, shape (jobs of the trace, T, 2)
        As of `auction.decide_biased`, for the jobs in view; of length 0: there is none.
    believed : ndarray of float
        Parameters by which an auction estimates times (`beliefs`); of length 0: it uses the known times.
    observed : RunStats
        What it has seen.
    episodes : Episode
    cluster : ClusterArrays
    """
    episode = batch.select_episode(episodes, 0)
    while True:
        came_to = clock.advance(episode, cluster)
        if came_to != c.DECISION:
            return came_to
        if len(believed) > 0:
            _decide_believing(episode, cluster, weights, believed, observed)
        elif len(bias) > 0:
            _decide_biased(episode, cluster, weights, bias)
        else:
            decide(episode, cluster, weights)
        if clock.enact(episode, cluster) != c.DECISION:
            return c.STALLED
