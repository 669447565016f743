"""Loops that the greedy placement algorithms share: place one group, or one node, after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.envs.placement.instances import Assignment, Instance

Choice = Callable[[Ints, int], int | None]
"""(Free nodes of each minipod, nodes wanted) -> minipod that takes them whole; None: none does."""


def whole_groups_first(instance: Instance, choose: Choice) -> Assignment:
    """Place each group in the minipod that `choose` returns; split groups that fit in none.

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


def node_by_node(instance: Instance, choose: Callable[[Ints], int]) -> Assignment:
    """Place the nodes of one group after the other, each in the minipod that `choose` returns.

    Groups stay together only as far as their nodes happen to follow each other. An instance that does not fit
    gets an infeasible assignment.
    """
    if instance.shortfall:
        return Assignment.infeasible(instance)
    free = instance.free_nodes.copy()
    counts = np.zeros((instance.groups, instance.minipods), dtype=np.int64)
    for group in np.repeat(np.arange(instance.groups), instance.group_nodes):
        chosen = choose(free)
        counts[group, chosen] += 1
        free[chosen] -= 1
    return Assignment(counts)


def random_by_room(free: Ints, draws: np.random.Generator) -> int:
    """Draw a minipod with probability proportional to its free nodes."""
    ends = np.cumsum(free)
    return int(np.searchsorted(ends, draws.integers(ends[-1]), side="right"))


def tightest(free: Ints, wanted: int) -> int | None:
    """Return the minipod with the fewest free nodes that suffice (ties: lowest index)."""
    fitting = np.flatnonzero(free >= wanted)
    return int(fitting[free[fitting].argmin()]) if len(fitting) else None
