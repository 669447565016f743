"""Queues of jobs with rigid requests, compiled: `clustergym.policies.shared.queues`."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.sim.compiled import columns as c
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compiled_part
from clustergym.sim.compiled.seen import Seen, total

NOTHING, TYPES, CLUSTER = range(3)
"""What later jobs may not use while a job waits."""


@compiled_part
def fill(
    episode: Episode,
    seen: Seen,
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
        for kind in range(len(room)):
            if preference[at, kind] < likes and room[kind] >= gpus and not closed[kind]:
                best, likes = kind, preference[at, kind]
        if best != c.NONE:
            room[best] -= gpus
            row = seen.row[at]
            episode.job[row, c.TARGET_TYPE], episode.job[row, c.TARGET_LEVEL] = best, seen.requested[at]
        elif blocks != NOTHING:
            for kind in range(len(room)):
                closed[kind] |= preference[at, kind] < np.inf
            if blocks == CLUSTER or total(closed) == len(closed):
                return
        if total(room) == 0:
            return
