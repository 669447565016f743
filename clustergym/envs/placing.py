"""Common base of the placement environments, in which each step places one thing where it fits."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.error import ResetNeeded

from clustergym.common.errors import InputError
from clustergym.envs.rendering import check_mode
from clustergym.envs.rewards import Reward

Observation = dict[str, npt.NDArray[np.float32]] | npt.NDArray[np.float32]
Step = tuple[Observation, float, bool, bool, dict[str, Any]]


def join_boxes(boxes: Mapping[str, spaces.Box], form: str) -> spaces.Space[Any]:
    """Return the space of observations with these parts: a dict of them, or one box if `flat`."""
    if form != "flat":
        return spaces.Dict({**boxes})
    low, high = (np.concatenate([getattr(box, end) for box in boxes.values()]) for end in ("low", "high"))
    return spaces.Box(low, high, dtype=np.float32)


def slice_parts(sizes: Mapping[str, int]) -> dict[str, slice]:
    """Return where each part of a flat observation is, given their sizes in order."""
    ends = np.cumsum(list(sizes.values())).tolist()
    return dict(zip(sizes, map(slice, [0, *ends], ends), strict=False))


State = TypeVar("State")
P = TypeVar("P", bound=Any)
"""Parameters, with what an illegal action costs and the form of an observation."""


class PlacingEnv(gymnasium.Env[Observation, np.int64], Generic[State, P]):
    """Base of the environments in which each step places one thing, by one of a set of numbered actions."""

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 8}  # noqa: RUF012
    parameters: P
    action_space: spaces.Discrete
    _reward: Reward[State]
    parts: dict[str, slice]

    def __init__(self, render_mode: str | None) -> None:
        self.render_mode = check_mode(render_mode, self.metadata["render_modes"])
        self._state: State | None = None
        self._over, self._steps, self.max_steps = True, 0, 0

    @property
    def state(self) -> State:
        """The state of the present episode; an error if none has begun."""
        if self._state is None:
            raise ResetNeeded("there is no episode yet: call reset() first")
        return self._state

    @property
    def reward_weights(self) -> dict[str, float]:
        """The weight of each term of the reward, by name."""
        return self._reward.weights

    def as_observation(self, flat: npt.NDArray[np.float32]) -> Observation:
        """Return flat observations, one or a batch, in the form of the observation space."""
        if self.parameters.observation == "flat":
            return flat
        return {name: flat[..., part] for name, part in self.parts.items()}

    @abstractmethod
    def action_masks(self) -> npt.NDArray[np.int8]:
        """Return a mask that is 1 for each legal action, else 0."""

    @abstractmethod
    def _begin(self, options: Mapping[str, Any]) -> tuple[State, int]:
        """Return the first state of an episode, and the steps after which it is truncated."""

    @abstractmethod
    def _observe(self) -> Observation: ...

    @abstractmethod
    def _facts(self) -> dict[str, Any]:
        """Return what infos say of the state."""

    @abstractmethod
    def _draw(self, in_text: bool) -> Any: ...

    def _cut_off(self) -> None:
        """Charge what is left where the episode is truncated, if it costs."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode, and return its first observation and info.

        The options are those under Starting State.
        """
        super().reset(seed=seed)
        self._state, self.max_steps = self._begin(options or {})
        self._over, self._steps = False, 0
        self._reward.reset()
        return self._observe(), self.make_info()

    def render(self) -> Any:
        """Return the state as text or a picture (height, width, 3); None without a render mode."""
        return None if self.render_mode is None else self._draw(self.render_mode == "ansi")

    def make_info(self, terms: dict[str, float] | None = None, illegal: bool = False) -> dict[str, Any]:
        """Return the info of a step: what is legal, facts of the state, and the terms of the reward."""
        rewards = dict.fromkeys(self.reward_weights, 0.0) if terms is None else terms
        return {
            "action_mask": self.action_masks(),
            **self._facts(),
            "illegal": illegal,
            "rewards": rewards,
        }

    def check_action(self, action: Any) -> int:
        """Check that an episode goes on and that an action is in the action space; return it as an int."""
        _ = self.state
        if self._over:
            raise ResetNeeded("the episode is over: call reset() first")
        if not self.action_space.contains(action):
            remedy = f"give a whole number from 0 to {self.action_space.n - 1}"
            raise InputError(f"{action!r} is not an action", field="action", remedy=remedy)
        return int(action)

    def refuse_action(self, message: str, most: int | None = None) -> None:
        """Raise an InputError that lists up to `most` legal actions, if `on_illegal` is `raise`."""
        if self.parameters.on_illegal == "raise":
            legal = np.flatnonzero(self.action_masks())
            shown = ", ".join(map(str, legal[:most])) + (", …" if legal[:most].size < legal.size else "")
            raise InputError(message, field="action", remedy=f"legal: {shown}")

    def end_step(self, legal: bool, terminated: bool) -> Step:
        """Finish a step whose action is carried out; return observation, reward, end flags and info."""
        self._steps += 1
        truncated = not terminated and self._steps >= self.max_steps
        if truncated:
            self._cut_off()
        terms = self._reward.terms(self.state)
        reward = self._reward.total(terms)
        if not legal and self.parameters.on_illegal == "penalty":
            reward -= self.parameters.illegal_penalty
        self._over = terminated or truncated
        return self._observe(), reward, terminated, truncated, self.make_info(terms, not legal)
