"""Many episodes of the Capacity environment, stepped by one compiled call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.common.arrays import Bools, Floats
from clustergym.envs.capacity.environment import NAMES, CapacityEnv, CapacityRows, check_targets
from clustergym.envs.vector.base import AddInfo, Masks, ParameterVectorEnv


class CapacityEpisodes:
    """The episodes of a `CapacityVectorEnv` (`clustergym.envs.vector.base.Episodes`)."""

    def __init__(self, single: CapacityEnv, size: int) -> None:
        self.names = list(NAMES)
        self.rows, self._size = CapacityRows(single.parameters, size), size

    def begin(
        self, rows: Sequence[int], options: Mapping[str, Any], rngs: Sequence[np.random.Generator]
    ) -> None:
        """Begin an episode in some rows."""
        self.rows.begin(rows, rngs)

    def check_actions(self, actions: npt.ArrayLike) -> Floats:
        """Return the actions, cut to the space."""
        return check_targets(actions, self._size)

    def find_legal(self, taken: Floats) -> Bools:
        """Return that every action is legal."""
        return np.ones(self._size, dtype=np.bool_)

    def describe_illegal(self, row: int, taken: Floats) -> str:
        """Return an action as text."""
        return str(taken[row])

    def take(self, taken: Floats, over: Bools, illegal: Bools) -> tuple[npt.NDArray[np.float32], Masks]:
        """Apply the actions in the rows that go on; return observations, and no masks."""
        self.rows.take(taken, over)
        return self.get_observations()

    def get_outcomes(self) -> tuple[Floats, Bools, Bools]:
        """Return rewards, terminations and truncations of the last step."""
        return self.rows.rewards.copy(), self.rows.over.copy(), np.zeros(self._size, dtype=np.bool_)

    def get_observations(self) -> tuple[npt.NDArray[np.float32], Masks]:
        """Return observations, a new array, and no masks."""
        return self.rows.observe(), self.get_masks()

    def get_masks(self) -> Masks:
        """Return masks of no numbers: actions are not numbered."""
        return np.zeros((self._size, 0), dtype=np.int8)

    def draw(self, states: npt.NDArray[np.uint64]) -> Floats:
        """Return a random action of each row; this advances the random generators' states."""
        from clustergym.envs.vector.auction_step import draw_numbers

        found = np.empty((self._size, 2))
        draw_numbers(states, found)
        return found

    def get_columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return what infos say of each row, new arrays."""
        return self.rows.get_columns()

    def get_terms(self) -> Floats:
        """Return minus the costs of the last hour, in USD."""
        return -self.rows.world.cost

    def describe_end(self, row: int) -> dict[str, Any]:
        """Return nothing: an info has it all."""
        return {}

    def summarise(self, infos: dict[str, Any], ended: Bools, add_info: AddInfo) -> dict[str, Any]:
        """Return the infos, without what is of numbered actions."""
        numbered = ("action_mask", "illegal")
        return {name: value for name, value in infos.items() if name.lstrip("_") not in numbered}


class CapacityVectorEnv(ParameterVectorEnv):
    """A vector environment of `CapacityEnv`."""

    single_class = CapacityEnv
    episodes_class = CapacityEpisodes
