"""Best fit by node, as in Arnold's benchmark: each node goes to the minipod with fewest free nodes."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.envs.placement.instances import Assignment, Instance

from .greedy import node_by_node


def solve(instance: Instance, rng: np.random.Generator | None = None) -> Assignment:
    """Place an instance; `rng` is not used. Ties: the lowest index."""

    def choose(free: Ints) -> int:
        with_room = np.flatnonzero(free)
        return int(with_room[free[with_room].argmin()])

    return node_by_node(instance, choose)
