"""Placement algorithms that place one group, or one node, after the other: best fit, random fit and such.

Those `by_node` place node by node, as Arnold's benchmark does; the others keep groups whole where they can.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.scenario.placement_problem import Assignment, Instance

Choice = Callable[[Ints, Ints], int]
"""(Free nodes of each minipod, minipods that take all nodes that are wanted) -> one of these."""


def best_fit(instance: Instance, rng: np.random.Generator | None = None) -> Assignment:
    """Place each communication group in the minipod (node group) with the fewest free nodes that suffice."""
    return whole_groups_first(instance, tightest)


def best_fit_by_node(instance: Instance, rng: np.random.Generator | None = None) -> Assignment:
    """Place each node of a job in the minipod (group of nodes) with the fewest free nodes."""

    def choose(free: Ints) -> int:
        with_room = np.flatnonzero(free)
        return int(with_room[free[with_room].argmin()])

    return node_by_node(instance, choose)


def random_fit(instance: Instance, rng: np.random.Generator) -> Assignment:
    """Place each communication group in a random minipod (group of nodes), sampled by `rng`.

    A minipod's probability is proportional to its free nodes, among those that hold the group whole, which
    balances the load.
    """
    return whole_groups_first(
        instance, lambda free, fitting: int(fitting[random_by_room(free[fitting], rng)])
    )


def random_fit_by_node(instance: Instance, rng: np.random.Generator) -> Assignment:
    """Place each node of a job in a random minipod (group of nodes), sampled by `rng`."""
    return node_by_node(instance, lambda free: random_by_room(free, rng))


def gpu_packing(instance: Instance, rng: np.random.Generator | None = None) -> Assignment:
    """Place a job in as few minipods (groups of nodes) as possible, whatever its communication groups.

    The roomiest minipods are filled until the rest of the job fits in one: the tightest minipod
    that holds the rest takes it. Groups follow each other through the minipods in that order.
    """
    free, left = instance.free_nodes.copy(), instance.job.nodes
    order: list[int] = []
    while left:
        fitting = np.flatnonzero(free >= left)
        # Roomiest first uses the fewest minipods; the last one is the tightest, which keeps roomy ones whole.
        minipod = tightest(free, fitting) if len(fitting) else int(free.argmax())
        taken = min(left, int(free[minipod]))
        order += [minipod] * taken
        left -= taken
        free[minipod] = 0
    groups = np.array(order, dtype=np.int64).reshape(instance.groups, instance.group_nodes)
    counts = np.zeros((instance.groups, instance.minipods), dtype=np.int64)
    np.add.at(counts, (np.arange(instance.groups)[:, None], groups), 1)
    return Assignment(counts)


def round_robin(instance: Instance, rng: np.random.Generator | None = None) -> Assignment:
    """Place communication groups in the minipods (groups of nodes) in turn, if these have room."""
    turn = 0

    def choose(free: Ints, fitting: Ints) -> int:
        nonlocal turn
        chosen = int(fitting[((fitting - turn) % instance.minipods).argmin()])
        turn = chosen + 1
        return chosen

    return whole_groups_first(instance, choose)


def whole_groups_first(instance: Instance, choose: Choice) -> Assignment:
    """Place each group in the minipod that `choose` returns; split the groups that fit in none.

    A group that is split takes the roomiest minipods first.
    """
    free = instance.free_nodes.copy()
    counts = np.zeros((instance.groups, instance.minipods), dtype=np.int64)
    for group in range(instance.groups):
        left = instance.group_nodes
        while left:
            fitting = np.flatnonzero(free >= left)
            chosen = choose(free, fitting) if len(fitting) else int(free.argmax())
            taken = min(left, int(free[chosen]))
            counts[group, chosen] += taken
            free[chosen] -= taken
            left -= taken
    return Assignment(counts)


def node_by_node(instance: Instance, choose: Callable[[Ints], int]) -> Assignment:
    """Place the groups' nodes one by one, each in the minipod that `choose` picks by the free nodes of each.

    Groups stay together only as far as their nodes happen to follow each other.
    """
    free = instance.free_nodes.copy()
    counts = np.zeros((instance.groups, instance.minipods), dtype=np.int64)
    for group in np.repeat(np.arange(instance.groups), instance.group_nodes):
        chosen = choose(free)
        counts[group, chosen] += 1
        free[chosen] -= 1
    return Assignment(counts)


def random_by_room(free: Ints, draws: np.random.Generator) -> int:
    """Sample a minipod (group of nodes), in proportion to its free nodes; return its index."""
    ends = np.cumsum(free)
    return int(np.searchsorted(ends, draws.integers(ends[-1]), side="right"))


def tightest(free: Ints, fitting: Ints) -> int:
    """Return the minipod (group of nodes) with the fewest free nodes among those that suffice."""
    return int(fitting[free[fitting].argmin()])
