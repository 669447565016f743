"""Common base of the vector forms of the placement environments."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import InputError
from clustergym.envs.placing import PlacingEnv
from clustergym.envs.vector.base import EpisodesVectorEnv, Masks, check_discrete


class PlacingVectorEnv(EpisodesVectorEnv):
    """Base of the vector environments in which each step places one thing in each environment.

    Parameters
    ----------
    single : PlacingEnv
        An environment of the same parameters, which is never reset.
    num_envs : int
    autoreset_mode, render_mode
        As of `EpisodesVectorEnv`.
    """

    def __init__(
        self,
        single: PlacingEnv[Any, Any],
        num_envs: int,
        autoreset_mode: AutoresetMode | str,
        render_mode: str | None,
    ) -> None:
        super().__init__(single, num_envs, autoreset_mode, render_mode)
        self._rows = np.arange(self.num_envs)
        shape = self.num_envs, len(single.reward_weights)
        self._costs, self._terms = np.zeros(shape), np.zeros(shape)
        self._rewards = np.zeros(self.num_envs)
        self._steps = np.zeros(self.num_envs, dtype=np.int64)
        self._most_steps = np.zeros(self.num_envs, dtype=np.int64)
        self._terminated = np.zeros(self.num_envs, dtype=np.bool_)
        self._truncated = np.zeros(self.num_envs, dtype=np.bool_)

    @abstractmethod
    def _place(self, taken: Ints, playing: Bools) -> None:
        """Apply the legal actions of the environments whose episodes go on."""

    @abstractmethod
    def _find_over(self) -> Bools:
        """Return in which environments nothing is left to place, shape (num_envs,)."""

    @abstractmethod
    def _compute_cost(self, name: str) -> Floats:
        """Return a cost that the reward weighs, in each environment, shape (num_envs,)."""

    @abstractmethod
    def _columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return what infos say of the states, new arrays whose first axis is that of the environments."""

    @abstractmethod
    def _observe(self) -> npt.NDArray[np.float32]:
        """Return the flat observations, a new array of shape (num_envs, numbers)."""

    def sample_actions(self) -> Ints:
        """Return a random legal action for each environment, in the form that `step` takes."""
        from clustergym.envs.vector.step import draw_legal

        self._seed(range(self.num_envs), [None] * self.num_envs)
        actions = np.zeros(self.num_envs, dtype=np.int64)
        draw_legal(self.action_masks(), self._draws, actions, 0, self.num_envs)
        return actions

    def _begin_rows(self, rows: Sequence[int], most_steps: int | Ints) -> None:
        """Set what each episode's steps and rewards are counted from; those of `rows` have begun."""
        self._most_steps[rows], self._steps[rows] = most_steps, 0
        self._costs[rows], self._terms[rows] = 0.0, 0.0

    def _check_actions(self, actions: npt.ArrayLike) -> Ints:
        return check_discrete(actions, self.num_envs, int(self.single.action_space.n))

    def _find_legal(self, taken: Ints) -> Bools:
        legal: Bools = self.action_masks()[self._rows, taken] > 0
        return legal

    def _describe_illegal(self, row: int, taken: Ints) -> InputError:
        message = f"{taken[row]} is illegal now in environment {row}"
        return InputError(message, field="action", remedy="choose where action_masks() is 1")

    def _take(self, taken: Ints, over: Bools) -> tuple[npt.NDArray[np.float32], Masks]:
        playing, parameters = ~over, self.single.parameters
        self._place(taken, playing & ~self._illegal)
        self._rewards = np.zeros(self.num_envs)
        for at, (name, weight) in enumerate(self.single.reward_weights.items()):
            cost = self._compute_cost(name)
            self._terms[:, at] = np.where(playing, self._costs[:, at] - cost, 0.0)
            self._costs[:, at] = cost
            self._rewards += weight * self._terms[:, at]
        if parameters.on_illegal == "penalty":
            self._rewards[self._illegal] -= parameters.illegal_penalty
        self._steps += playing
        self._terminated = playing & self._find_over()
        self._truncated = playing & ~self._terminated & (self._steps >= self._most_steps)
        return self._get_observations()

    def _get_outcomes(self) -> tuple[Floats, Bools, Bools]:
        return self._rewards, self._terminated, self._truncated

    def _get_observations(self) -> tuple[npt.NDArray[np.float32], Masks]:
        return self._observe(), self.action_masks()

    def _infos(self, chosen: Bools, ended: Bools, masks: Masks) -> dict[str, Any]:
        columns = {"action_mask": masks, **self._columns(), "illegal": self._illegal.copy()}
        terms = dict(zip(self.single.reward_weights, self._terms.T.copy(), strict=True))
        for values in [*columns.values(), *terms.values()]:
            values[~chosen] = 0
        shown = chosen.copy()
        rewards = {key: value for name in terms for key, value in ((name, terms[name]), (f"_{name}", shown))}
        infos = {
            key: value for name in columns for key, value in ((name, columns[name]), (f"_{name}", shown))
        }
        return infos | {"rewards": rewards, "_rewards": shown}

    def _final(self, ended: Bools) -> dict[str, Any]:
        final: dict[str, Any] = {}
        observations, masks = self._get_observations()
        columns = {"action_mask": masks, **self._columns(), "illegal": self._illegal}
        for row in np.flatnonzero(ended).tolist():
            info = {name: _get_row(values, row) for name, values in columns.items()}
            info["rewards"] = dict(zip(self.single.reward_weights, self._terms[row].tolist(), strict=True))
            seen = self.single.as_observation(observations[row].copy())
            final = self._add_info(final, {"final_obs": seen, "final_info": info}, row)
        return final


def _get_row(values: npt.NDArray[Any], row: int) -> Any:
    """Return a row of a column: a number as Python's, an array as it is."""
    return values[row].item() if values.ndim == 1 else values[row].copy()
