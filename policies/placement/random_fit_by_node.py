"""Random fit, node by node, as in Arnold's benchmark: each goes to a random minipod."""

from __future__ import annotations

import numpy as np

from clustergym.placement.instances import Assignment, Instance

from .greedy import node_by_node, random_by_room


def solve(instance: Instance, rng: np.random.Generator | None = None) -> Assignment:
    """Place an instance; without `rng` the draw is that of seed 0.

    A minipod is drawn with the probability of its free nodes, which balances the load.
    """
    draws = np.random.default_rng(0) if rng is None else rng
    return node_by_node(instance, lambda free: random_by_room(free, draws))
