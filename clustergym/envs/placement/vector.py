"""Many episodes of the Placement environment as rows of common arrays, stepped by NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.envs.placement.drawing import episode_instance
from clustergym.envs.placement.environment import PlacementEnv
from clustergym.envs.placing_vector import PlacingEpisodes
from clustergym.envs.vector.base import Masks, ParameterVectorEnv
from clustergym.scenario.placement_problem import Assignment, Instance, Spread, weigh_spread


class PlacementEpisodes(PlacingEpisodes):
    """The episodes of a `PlacementVectorEnv`, rows of common arrays."""

    single: PlacementEnv

    def __init__(self, single: PlacementEnv, size: int) -> None:
        super().__init__(single, size)
        self._groups, self._group_nodes = single.problem.job.groups(single.parameters.unit)
        self._instances: list[Instance | None] = [None] * size
        self._alpha = np.zeros(size)
        # `_counts` has a group more than the job: the group in hand after the last one, always of no nodes.
        self._counts = np.zeros((size, self._groups + 1, single.minipods), dtype=np.int64)
        self._free, self._of_job = np.zeros((2, size, single.minipods), dtype=np.int64)
        self._group, self._left, self._shortfall = np.zeros((3, size), dtype=np.int64)
        # The minipods that the group in hand touches, the most of any group so far, and those of the job.
        self._of_group, self._most, self._touched = np.zeros((3, size), dtype=np.int64)

    def get_assignment(self, row: int) -> Assignment:
        """Return the placement of a row's job, or an infeasible one while nodes are not placed."""
        instance = self._get_instance(row)
        if self._group[row] < self._groups:
            return Assignment.infeasible(instance)
        return Assignment(self._counts[row, : self._groups].copy())

    def _get_instance(self, row: int) -> Instance:
        instance = self._instances[row]
        assert instance is not None, "no episode has begun"
        return instance

    def get_masks(self) -> Masks:
        """Return a mask, 1 for each minipod with a free node, shape (rows, number of minipods).

        Where nothing is left to place, or the job does not fit, every action is legal.
        """
        legal = (self._free > 0) | self.find_over()[:, None]
        return legal.view(np.int8)

    def begin_states(
        self, rows: Sequence[int], options: Mapping[str, Any], rngs: Sequence[np.random.Generator]
    ) -> int:
        """Begin episodes, with nothing placed; return the steps after which they are truncated."""
        single = self.single
        # All are drawn before a row changes: an option that is refused leaves the episodes as they were.
        drawn = [episode_instance(single.parameters, single.problem, options, rngs[row]) for row in rows]
        for row, instance in zip(rows, drawn, strict=True):
            self._instances[row], self._alpha[row] = instance, instance.alpha
            self._free[row], self._shortfall[row] = instance.free_nodes, instance.shortfall
        for values in (self._counts, self._of_job, self._group, self._of_group, self._most, self._touched):
            values[rows] = 0
        self._left[rows] = self._group_nodes
        return single.parameters.max_steps or 2 * single.problem.job.nodes

    def place(self, taken: Ints, playing: Bools, cut_off: Bools) -> None:
        """Put a node of the group in hand into each row's minipod."""
        rows = self.every_row[playing & (self._shortfall == 0)]
        minipod, group = taken[rows], self._group[rows]
        self._touched[rows] += self._of_job[rows, minipod] == 0
        self._of_group[rows] += self._counts[rows, group, minipod] == 0
        self._most[rows] = np.maximum(self._most[rows], self._of_group[rows])
        self._free[rows, minipod] -= 1
        self._counts[rows, group, minipod] += 1
        self._of_job[rows, minipod] += 1
        self._left[rows] -= 1
        done = rows[self._left[rows] == 0]
        self._group[done] += 1
        self._left[done], self._of_group[done] = self._group_nodes, 0

    def find_over(self) -> Bools:
        """Return in which rows the job is placed, or does not fit."""
        over: Bools = (self._group == self._groups) | (self._shortfall > 0)
        return over

    def _spread(self) -> Any:
        """Return the spread (dp, pp) so far, each an array of shape (rows,), unlike that of one state."""
        by_unit: Any = {"pp": (self._touched, self._most), "dp": (self._most, self._touched)}
        return Spread(*by_unit[self.single.parameters.unit])

    def compute_cost(self, name: str) -> Floats:
        """Return a cost of what is placed so far."""
        spread = self._spread()
        costs = {"spread": weigh_spread(spread, self._alpha), "dp_spread": spread.dp, "pp_spread": spread.pp}
        return np.asarray(costs[name], dtype=np.float64)

    def get_columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return group in hand, spread, score, whether the job is placed, and the nodes that lack."""
        spread = self._spread()
        return {
            "group": self._group.copy(),
            "dp_spread": spread.dp.copy(),
            "pp_spread": spread.pp.copy(),
            "score": np.asarray(weigh_spread(spread, self._alpha)),
            "placed": self._group == self._groups,
            "shortfall_nodes": self._shortfall.copy(),
        }

    def observe(self) -> npt.NDArray[np.float32]:
        """Return the flat observations."""
        unplaced, spread = self._groups - self._group, self._spread()
        left = np.where(unplaced > 0, self._left, 0)
        parts = [
            self._alpha[:, None],
            self._free,
            self._counts[self.every_row, self._group],
            self._of_job,
            np.stack([left, unplaced, spread.dp, spread.pp], axis=1),
        ]
        return np.concatenate(parts, axis=1, dtype=np.float32) / self.single.scale


class PlacementVectorEnv(ParameterVectorEnv):
    """A vector environment of `PlacementEnv`."""

    single_class, episodes_class = PlacementEnv, PlacementEpisodes

    def get_assignment(self, row: int) -> Assignment:
        """Return the placement of an environment's job, or an infeasible one while nodes are not placed.

        In the mode `SameStep` that of an episode that is over is gone: its environment has begun the next.
        """
        found: Assignment = self.episodes.get_assignment(row)
        return found
