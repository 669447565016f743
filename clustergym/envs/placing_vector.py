"""Common base of the vector forms of the placement environments, and of their episodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.envs.placing import PlacingEnv
from clustergym.envs.vector.base import AddInfo, Masks, check_discrete


class PlacingEpisodes(ABC):
    """Base of episodes in which each step places one thing, with the methods of `CompiledEpisodes`.

    Parameters
    ----------
    single : PlacingEnv
        An environment of the same parameters.
    size : int
        Episodes.
    """

    def __init__(self, single: PlacingEnv[Any, Any], size: int) -> None:
        self.single, self.every_row = single, np.arange(size)
        self.names = list(single.reward_weights)
        self._costs, self._terms = np.zeros((2, size, len(self.names)))
        self._rewards = np.zeros(size)
        self._steps, self._most_steps = np.zeros((2, size), dtype=np.int64)
        self._terminated, self._truncated = np.zeros((2, size), dtype=np.bool_)

    @abstractmethod
    def begin_states(
        self, rows: Sequence[int], options: Mapping[str, Any], rngs: Sequence[np.random.Generator]
    ) -> int | Ints:
        """Begin episodes; return the steps after which each of them is truncated."""

    @abstractmethod
    def place(self, taken: Ints, playing: Bools, cut_off: Bools) -> None:
        """Apply the actions, which are legal, in the rows that are said to play.

        Of rows that are `cut_off` after that, if they are not over, what is left may have a cost.
        """

    @abstractmethod
    def find_over(self) -> Bools:
        """Return in which rows nothing is left to place."""

    @abstractmethod
    def get_masks(self) -> Masks:
        """Return a mask of legal actions of each row, a new array."""

    @abstractmethod
    def observe(self) -> npt.NDArray[np.float32]:
        """Return the flat observations, a new array of shape (rows, numbers)."""

    @abstractmethod
    def compute_cost(self, name: str) -> Floats:
        """Return a cost that the reward weighs, of each row."""

    @abstractmethod
    def get_columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return what infos say of each row, new arrays."""

    def begin(
        self, rows: Sequence[int], options: Mapping[str, Any], rngs: Sequence[np.random.Generator]
    ) -> None:
        """Begin an episode in some rows."""
        self._most_steps[rows] = self.begin_states(rows, options, rngs)
        self._steps[rows], self._costs[rows], self._terms[rows] = 0, 0.0, 0.0

    def check_actions(self, actions: npt.ArrayLike) -> Ints:
        """Return the actions, one for each row, as an array."""
        return check_discrete(actions, len(self.every_row), int(self.single.action_space.n))

    def find_legal(self, taken: Ints) -> Bools:
        """Return in which rows the action is legal."""
        legal: Bools = self.get_masks()[self.every_row, taken] > 0
        return legal

    def describe_illegal(self, row: int, taken: Ints) -> str:
        """Return the number of an action."""
        return str(taken[row])

    def take(self, taken: Ints, over: Bools, illegal: Bools) -> tuple[npt.NDArray[np.float32], Masks]:
        """Apply the actions, and compute the rewards; return observations and masks."""
        playing, parameters = ~over, self.single.parameters
        self._steps += playing
        cut_off = playing & (self._steps >= self._most_steps)
        self.place(taken, playing & ~illegal, cut_off)
        self._rewards = np.zeros(len(over))
        for at, (name, weight) in enumerate(self.single.reward_weights.items()):
            cost = self.compute_cost(name)
            self._terms[:, at] = np.where(playing, self._costs[:, at] - cost, 0.0)
            self._costs[:, at] = cost
            self._rewards += weight * self._terms[:, at]
        if parameters.on_illegal == "penalty":
            self._rewards[illegal] -= parameters.illegal_penalty
        self._terminated = playing & self.find_over()
        self._truncated = cut_off & ~self._terminated
        return self.get_observations()

    def get_outcomes(self) -> tuple[Floats, Bools, Bools]:
        """Return rewards, terminations and truncations of the last step."""
        return self._rewards, self._terminated, self._truncated

    def get_observations(self) -> tuple[npt.NDArray[np.float32], Masks]:
        """Return observations and masks, new arrays."""
        return self.observe(), self.get_masks()

    def draw(self, states: npt.NDArray[np.uint64]) -> Ints:
        """Return a random legal action of each row; this advances the random generators' states."""
        from clustergym.envs.vector.step import draw_legal

        actions = np.zeros(len(states), dtype=np.int64)
        draw_legal(self.get_masks(), states, actions, 0, len(states))
        return actions

    def get_terms(self) -> Floats:
        """Return the terms of the last step's rewards."""
        return self._terms

    def describe_end(self, row: int) -> dict[str, Any]:
        """Return nothing: an info has it all."""
        return {}

    def summarise(self, infos: dict[str, Any], ended: Bools, add_info: AddInfo) -> dict[str, Any]:
        """Return the infos as they are."""
        return infos
