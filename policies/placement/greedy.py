"""What the greedy placement algorithms share: groups are dealt out one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from clustergym.cluster.spec import Ints
from clustergym.placement.instances import Assignment, Instance

Choice = Callable[[Ints, int], int | None]
"""(Free nodes of each minipod, nodes wanted) -> minipod that takes them whole; None: none does."""


def whole_groups_first(instance: Instance, choose: Choice) -> Assignment:
    """Place each group in the minipod that `choose` names, and split what fits in none whole.

    A group that is split takes the roomiest minipods first. An instance that does not fit gets an
    infeasible assignment.
    """
    if instance.shortfall:
        return Assignment.infeasible(instance)
    free = instance.free_nodes.copy()
    counts = np.zeros((instance.groups, instance.minipods), dtype=np.int64)
    for group in range(instance.groups):
        left = instance.group_nodes
        while left:
            minipod = choose(free, left)
            chosen = int(free.argmax()) if minipod is None else minipod
            taken = min(left, int(free[chosen]))
            counts[group, chosen] += taken
            free[chosen] -= taken
            left -= taken
    return Assignment(counts)


def tightest(free: Ints, wanted: int) -> int | None:
    """Return the minipod with the fewest free nodes that suffice (ties: lowest index)."""
    fitting = np.flatnonzero(free >= wanted)
    return int(fitting[free[fitting].argmin()]) if len(fitting) else None
