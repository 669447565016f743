"""GPU packing: the job's nodes fill as few minipods as possible, whatever group they belong to."""

from __future__ import annotations

import numpy as np

from clustergym.envs.placement.instances import Assignment, Instance

from .greedy import tightest


def solve(instance: Instance, rng: np.random.Generator | None = None) -> Assignment:
    """Place an instance; `rng` is not used.

    The roomiest minipods are filled until the rest of the job fits in one: the tightest minipod
    that holds the rest takes it. Groups follow each other through the minipods in that order.
    """
    if instance.shortfall:
        return Assignment.infeasible(instance)
    free, left = instance.free_nodes.copy(), instance.job.nodes
    order: list[int] = []
    while left:
        last = tightest(free, left)
        minipod = int(free.argmax()) if last is None else last
        taken = min(left, int(free[minipod]))
        order += [minipod] * taken
        left -= taken
        free[minipod] = 0
    groups = np.array(order, dtype=np.int64).reshape(instance.groups, instance.group_nodes)
    counts = np.zeros((instance.groups, instance.minipods), dtype=np.int64)
    np.add.at(counts, (np.arange(instance.groups)[:, None], groups), 1)
    return Assignment(counts)
