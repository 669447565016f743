"""Round robin: communication groups go to the minipods in turn, skipping those without room."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.envs.placement.instances import Assignment, Instance

from .greedy import whole_groups_first


def solve(instance: Instance, rng: np.random.Generator | None = None) -> Assignment:
    """Place an instance; `rng` is not used."""
    turn = 0

    def choose(free: Ints, wanted: int) -> int | None:
        nonlocal turn
        fitting = np.flatnonzero(free >= wanted)
        if not len(fitting):
            return None
        chosen = int(fitting[((fitting - turn) % instance.minipods).argmin()])
        turn = chosen + 1
        return chosen

    return whole_groups_first(instance, choose)
