"""Random fit by node, as in Arnold's benchmark: each node goes to a random minipod."""

from __future__ import annotations

import numpy as np

from clustergym.common import random_streams
from clustergym.envs.placement.instances import Assignment, Instance

from .greedy import node_by_node, random_by_room


def solve(instance: Instance, rng: np.random.Generator | None = None) -> Assignment:
    """Place an instance by draws from `rng`, by default a placer's stream of seed 0.

    A minipod's probability is proportional to its free nodes, which balances the load.
    """
    draws = random_streams.PLACER.generator(0) if rng is None else rng
    return node_by_node(instance, lambda free: random_by_room(free, draws))
