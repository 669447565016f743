"""A policy's decisions in a compiled episode: they are checked, carried out, and the clock moves on.

Same rules as `clustergym.sim.decision_checks`, which says what is wrong with a decision, and same order of
what happens as `Simulation.apply`.
"""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.sim import columns as c
from clustergym.sim.compiled import clock as clocks
from clustergym.sim.compiled import jobs
from clustergym.sim.compiled.buddy import sort_many
from clustergym.sim.compiled.cluster_arrays import ClusterArrays
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_entry, compile_in_place, compile_part

ILLEGAL = 3
"""What `decide` comes to besides DECISION, OVER and STALLED: nothing has been done."""


@compile_in_place
def _name(episode: Episode, row: int) -> bool:
    """Record that the decision names a job; return False if it may not, or names it twice."""
    if row < 0 or row >= episode.clock[c.JOBS]:
        return False
    job, number = episode.job[row], episode.clock[c.DECISIONS]
    if (job[c.PHASE] != c.QUEUED and job[c.PHASE] != c.RUNNING) or job[c.NAMED_BY] == number:
        return False
    job[c.NAMED_BY] = number
    return True


@compile_part
def _legal(episode: Episode, cluster: ClusterArrays, decided: Ints, drops: Ints) -> bool:
    """Write a decision into the jobs' targets; return whether it breaks no rule."""
    clock, available = episode.clock, cluster.capacity.copy()
    # Also for a decision that turns out illegal: its number is then never used again, so that what it has
    # named (NAMED_BY) needs no undoing.
    clock[c.DECISIONS] += 1
    # Profiles keep their GPUs; all others may be given away, those included that jobs hold now.
    for nth in range(clock[c.RUNNING_PROFILES]):
        available[episode.profile[nth, c.NTH_RUNNING] % len(available)] -= clock[c.PROFILE_GPUS]
    for row in drops:
        if not _name(episode, row):
            return False
    for at in range(len(decided)):
        row, gpu_type, gpus, batch = decided[at]
        if not _name(episode, row) or gpu_type < 0 or gpu_type >= len(available):
            return False
        level = jobs.find_level(cluster.counts, gpus)
        if level == len(cluster.counts) or cluster.counts[level] != gpus:
            return False
        if batch != 0 and batch != episode.job[row, c.REQUESTED_BATCH]:
            return False
        if not episode.feasible[episode.job[row, c.CLASS], gpu_type, level] or not jobs.is_profiled(
            episode, row, gpu_type
        ):
            return False
        available[gpu_type] -= gpus
        episode.job[row, c.TARGET_TYPE], episode.job[row, c.TARGET_LEVEL] = gpu_type, level
    return bool(available.min() >= 0)


@compile_part
def _take_away(episode: Episode, cluster: ClusterArrays, drops: Ints) -> None:
    """Drop jobs, then preempt those that run and are not named."""
    leaving, count = np.empty(episode.clock[c.RUNNING_JOBS], np.int64), 0
    for row in episode.running[: len(leaving)]:
        if episode.job[row, c.NAMED_BY] != episode.clock[c.DECISIONS]:
            leaving[count] = row
            count += 1
    # `running` is a heap; the engine preempts in order of rows.
    sort_many(leaving[:count])
    for row in drops:
        jobs.drop(episode, cluster, row)
    for row in leaving[:count]:
        jobs.preempt(episode, cluster, row)


@compile_part
def _launch(episode: Episode, cluster: ClusterArrays, decided: Ints) -> None:
    """Launch the jobs whose allotment the decision changes: the largest first, then by row."""
    launches, count, total = np.empty(len(decided), np.int64), 0, episode.clock[c.JOBS]
    for row in decided[:, 0]:
        job = episode.job[row]
        if job[c.TARGET_TYPE] != job[c.TYPE] or job[c.TARGET_LEVEL] != job[c.LEVEL]:
            # One number for (higher level first, then row): sorting it sorts both, and the row is its
            # remainder.
            launches[count] = row - job[c.TARGET_LEVEL] * total
            count += 1
    sort_many(launches[:count])
    for at in range(count):
        launches[at] %= total
    clocks.launch(episode, cluster, launches[:count], np.zeros(count, np.bool_))


@compile_entry
def decide(episode: Episode, cluster: ClusterArrays, decided: Ints, count: int, drops: Ints) -> int:
    """Check and carry out a decision (`count` allotments, and `drops`); simulate to the next decision point.

    Parameters
    ----------
    episode : Episode
    cluster : ClusterArrays
    decided : ndarray of int, shape (…, 4)
        Row, type, GPUs and batch (0: the requested one) of each of the first `count` allotments.
    count : int
        -1: there is no decision, as the episode begins.
    drops : ndarray of int
        Rows of jobs to drop, ascending.

    Returns
    -------
    int
        DECISION, OVER, STALLED or ILLEGAL.
    """
    if count >= 0:
        if not _legal(episode, cluster, decided[:count], drops):
            return ILLEGAL
        _take_away(episode, cluster, drops)
        _launch(episode, cluster, decided[:count])
        if clocks.end_decision(episode, cluster) == c.STALLED:
            return c.STALLED
    return clocks.advance(episode, cluster)
