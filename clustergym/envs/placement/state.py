"""A partly placed job: how many nodes of each communication group are in each minipod."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter

import numpy as np

from clustergym.envs.placement.instances import Assignment, Instance
from clustergym.envs.placement.spread import Spread, weighted


class PlacementState:
    """The placement so far; groups are placed in order, node by node.

    Parameters
    ----------
    instance : Instance

    Attributes
    ----------
    shortfall : int
        Nodes that the instance lacks.
    free : list of int, length M
        Free nodes left in each minipod.
    counts : list of list of int, groups x M
        Nodes of each group in each minipod so far.
    group : int
        The group to place next; the number of groups where all are placed.
    left : int
        Nodes of it that are still to be placed.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance, self.shortfall = instance, instance.shortfall
        self.free: list[int] = instance.free_nodes.tolist()
        self.counts = [[0] * instance.minipods for _ in range(instance.groups)]
        self.of_job = [0] * instance.minipods
        self.group, self.left = 0, instance.group_nodes
        self._most, self._of_group, self._touched = 0, 0, 0

    @property
    def placed(self) -> bool:
        """True when the whole job is placed."""
        return self.group == self.instance.groups

    @property
    def of_group(self) -> list[int]:
        """Nodes of the present group in each minipod; all 0 when the job is placed."""
        return [0] * self.instance.minipods if self.placed else self.counts[self.group]

    def place(self, minipod: int, nodes: int) -> None:
        """Put nodes of the present group into a minipod that has as many free nodes."""
        if not 0 < nodes <= min(self.free[minipod], self.left):
            raise ValueError(
                f"{nodes} nodes in minipod {minipod} of {self.free[minipod]} free, {self.left} left"
            )
        self._touched += self.of_job[minipod] == 0
        self._of_group += self.counts[self.group][minipod] == 0
        self._most = max(self._most, self._of_group)
        self.free[minipod] -= nodes
        self.counts[self.group][minipod] += nodes
        self.of_job[minipod] += nodes
        self.left -= nodes
        if not self.left:
            self.group, self.left, self._of_group = self.group + 1, self.instance.group_nodes, 0

    @property
    def spread(self) -> Spread:
        """The DP and PP spread so far, as `clustergym.envs.placement.spread.spread` counts them."""
        if self.instance.unit == "pp":
            return Spread(self._touched, self._most)
        return Spread(self._most, self._touched)

    @property
    def score(self) -> float:
        """The weighted spread so far; 0 at the start."""
        return weighted(self.spread, self.instance.alpha)

    def assignment(self) -> Assignment:
        """Return the answer to the instance: the placement, or infeasible until the whole job is placed."""
        if not self.placed:
            return Assignment.infeasible(self.instance)
        return Assignment(np.array(self.counts, dtype=np.int64))


COSTS: Mapping[str, Callable[[PlacementState], float]] = {
    "spread": attrgetter("score"),
    "dp_spread": attrgetter("spread.dp"),
    "pp_spread": attrgetter("spread.pp"),
}
"""The costs that a reward can weigh; each is 0 at the start of an episode and never falls."""
