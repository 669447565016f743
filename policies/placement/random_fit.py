"""Random fit: each communication group goes to a random minipod with room, which balances the load.

Arnold's benchmark places node by node instead: `random_fit_by_node`.
"""

from __future__ import annotations

import numpy as np

from clustergym.common import random_streams
from clustergym.common.arrays import Ints
from clustergym.envs.placement.instances import Assignment, Instance

from .greedy import random_by_room, whole_groups_first


def solve(instance: Instance, rng: np.random.Generator | None = None) -> Assignment:
    """Place an instance by draws from `rng`, by default a placer's stream of seed 0.

    A minipod's probability is proportional to its free nodes, among those that hold the group whole.
    """
    draws = random_streams.PLACER.generator(0) if rng is None else rng

    def choose(free: Ints, wanted: int) -> int | None:
        fitting = np.flatnonzero(free >= wanted)
        if not len(fitting):
            return None
        return int(fitting[random_by_room(free[fitting], draws)])

    return whole_groups_first(instance, choose)
