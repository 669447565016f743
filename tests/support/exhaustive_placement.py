"""The optimum by trying everything, for small instances; the yardstick of the tests."""

from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.scenario.placement_problem import Assignment, Instance, Solution, score, spread


def solve(instance: Instance, rng: np.random.Generator | None = None) -> Assignment:
    """Return the best of all assignments on whole nodes; ties: the least sum of spreads, then the first.

    Groups are equal, so that an assignment is a multiset of ways to split one.
    """
    if instance.shortfall:
        return Assignment.infeasible(instance)
    splits = np.array(list(_splits(instance.group_nodes, instance.minipods)), dtype=np.int64)
    every = (Assignment(counts) for counts in _multisets(splits, instance.free_nodes, instance.groups, 0))
    best = min(every, key=lambda made: (round(score(made, instance), 9), sum(_spread(made, instance))))
    return Assignment(best.counts, solution=Solution(True, score(best, instance), 0.0, 0, 0.0))


def _spread(assignment: Assignment, instance: Instance) -> tuple[int, int]:
    return spread(assignment, instance.job, instance.unit)


def _splits(nodes: int, minipods: int) -> Iterator[list[int]]:
    """Yield every way to share nodes out over minipods."""
    slots = nodes + minipods - 1
    for bars in combinations(range(slots), minipods - 1):
        edges = (-1, *bars, slots)
        yield [after - before - 1 for before, after in pairwise(edges)]


def _multisets(splits: Ints, free: Ints, groups: int, first: int) -> Iterator[Ints]:
    """Yield the counts of every choice of splits, by ascending position, that fits the free nodes."""
    if groups == 0:
        yield np.empty((0, splits.shape[1]), dtype=np.int64)
        return
    for position in range(first, len(splits)):
        if (splits[position] <= free).all():
            for rest in _multisets(splits, free - splits[position], groups - 1, position):
                yield np.vstack([splits[position : position + 1], rest])
