"""Queues of jobs with rigid requests, compiled: `clustergym.policies.shared.queues`.

FCFS, compiled: `clustergym.policies.fcfs`, with queues in order or `aggressive` backfill.
"""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.sim import columns as c
from clustergym.sim.compiled.cluster_arrays import ClusterArrays
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_part
from clustergym.sim.compiled.seen import ViewArrays, keep_all, see, total

NOTHING, TYPES, CLUSTER = range(3)
"""What later jobs may not use while a job waits."""


@compile_part
def fill(
    episode: Episode,
    seen: ViewArrays,
    order: Ints,
    preference: Floats,
    free: Ints,
    blocks: int,
) -> None:
    """Give jobs their requested GPUs, in order, while GPUs are free; decide nothing about the others.

    Parameters
    ----------
    order : ndarray of int
        Positions in `seen`.
    preference : ndarray of float, shape (n, T)
        A job takes the type with room of the least value; inf: not on this type.
    free : ndarray of int, shape (T,)
        GPUs to hand out.
    blocks : int
        NOTHING, TYPES or CLUSTER.
    """
    room, closed = free.copy(), np.zeros(len(free), np.int64)
    for at in order:
        gpus = seen.gpus[at]
        best, likes = c.NONE, np.inf
        for gpu_type in range(len(room)):
            if preference[at, gpu_type] < likes and room[gpu_type] >= gpus and not closed[gpu_type]:
                best, likes = gpu_type, preference[at, gpu_type]
        if best != c.NONE:
            room[best] -= gpus
            row = seen.row[at]
            episode.job[row, c.TARGET_TYPE], episode.job[row, c.TARGET_LEVEL] = best, seen.requested[at]
        elif blocks != NOTHING:
            for gpu_type in range(len(room)):
                closed[gpu_type] |= preference[at, gpu_type] < np.inf
            if blocks == CLUSTER or total(closed) == len(closed):
                return
        if total(room) == 0:
            return


@compile_part
def decide(episode: Episode, cluster: ClusterArrays, blocks: int) -> None:
    """Start jobs from the head of each queue; `blocks` says what jobs that wait close to later ones."""
    seen, types = see(episode, cluster), len(cluster.capacity)
    keep_all(episode, seen)
    waiting, waits = np.empty(len(seen.row), np.int64), 0
    preference = np.full((len(seen.row), types), np.inf)
    for at in range(len(seen.row)):
        if seen.gpu_type[at] == c.NONE:
            waiting[waits] = at
            waits += 1
            for gpu_type in range(types):
                if seen.options[at, gpu_type]:
                    preference[at, gpu_type] = gpu_type
    fill(episode, seen, waiting[:waits], preference, episode.free, blocks)
