"""Environments that draw all episodes from a single split of the traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from clustergym.common import random_streams
from clustergym.common.errors import InputError
from clustergym.envs.episodes import SPLITS, trace_seed
from clustergym.envs.registration import make_env, register_envs
from clustergym.envs.scheduling import SchedulingEnv
from clustergym.scenario.environments import ENVIRONMENTS
from clustergym.training.agents import Agent

LARGEST_REWARD = 1e12


class SplitEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment wrapper whose episodes play the first traces of a split, with scaled rewards.

    Parameters
    ----------
    env : gymnasium.Env
    split : {"train", "dev", "test"}
    traces : int
        Draw among trace 0 to `traces` - 1 of the split. `options={"index": i}` of `reset` chooses one.
    reward_scale : float
        What rewards are multiplied by.

    Raises
    ------
    InputError
        From `step`, if the reward is not a number, or too large for a network of single precision.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], split: str, traces: int, reward_scale: float = 1.0
    ) -> None:
        super().__init__(env)
        self.split, self.traces, self.reward_scale = split, traces, reward_scale
        self._rng = random_streams.TRAINING_EPISODES.generator(0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode on a trace of the split, chosen at random or by the option `index`."""
        if seed is not None:
            self._rng = random_streams.TRAINING_EPISODES.generator(seed)
        # Drawn even where `index` is given: episodes after it are the same.
        index = int(self._rng.integers(self.traces))
        drawn = trace_seed(self.split, int((options or {}).get("index", index)))
        core = self.env.unwrapped
        own = isinstance(core, SchedulingEnv) and not has_fixed_trace(vars(core.parameters))
        # The seed for environments that draw all from it, `trace_seed` for those that draw traces.
        return self.env.reset(seed=drawn, options={"trace_seed": drawn} if own else None)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Apply an action; return the step's result with the reward scaled."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        scaled = float(reward) * self.reward_scale
        check_reward(scaled)
        return observation, scaled, terminated, truncated, info

    def action_masks(self) -> npt.NDArray[np.int8]:
        """Return a mask that is 1 for each legal action, else 0."""
        masks: npt.NDArray[np.int8] = self.env.get_wrapper_attr("action_masks")()
        return masks


class EnvironmentAgent(Agent):
    """Base of agents that are trained in a Gymnasium environment, on the first traces of a split.

    Attributes
    ----------
    env : mapping
        `{id: …, parameter: value, …}`, as `clustergym.envs.registration.make_env` takes it.
    traces : int
    """

    env: Mapping[str, Any]
    traces: int

    def leak(self) -> tuple[str, str] | None:
        """Return a field's name and an error if training would use test traces or a fixed one, else None."""
        if has_fixed_trace(self.env):
            return "env.trace", "every episode would be the one trace that the agent is measured on"
        if self.env.get("split") == "test":
            return "env.split", "the agent would be trained on the traces that it is measured on"
        return super().leak()

    def record(self) -> dict[str, Any]:
        """Return which environment and traces the agent was trained on, for its checkpoint."""
        bounds = {"trace_seed": f"3 i + {SPLITS.index(self.split)}", "i_below": self.traces}
        return {"env": dict(self.env), self.split: bounds}


def check_reward(scaled: float) -> None:
    """Raise an InputError if a reward is NaN, or too large for single precision."""
    if not abs(scaled) < LARGEST_REWARD:
        remedy = f"give weights, and agent.reward_scale, that keep it below {LARGEST_REWARD:g}"
        raise InputError(f"the reward is {scaled}", field="env.reward", remedy=remedy)


def has_fixed_trace(parameters: Mapping[str, Any]) -> bool:
    """Return whether an environment's parameters give all its episodes the same jobs."""
    return any(parameters.get(name) is not None for name in ("scenario", "trace"))


def make_compiled_envs(mapping: Mapping[str, Any], number: int, **options: Any) -> Any:
    """Make a vector environment with flat observations; None if the compiled engine cannot run it.

    Parameters
    ----------
    mapping : mapping
        `{id: …, parameter: value, …}`, as `make_env` takes it.
    number : int
        Environments.
    **options
        Of `clustergym.envs.vector.environment.SchedulingVectorEnv`.
    """
    from clustergym.envs.vector.environment import SchedulingVectorEnv

    given = {**mapping, "observation": "flat"}
    name = given.pop("id")
    if not any(row.id == name and row.schedules for row in ENVIRONMENTS):
        return None
    register_envs()
    made: Any = gymnasium.make_vec(name, num_envs=number, summaries=False, **options, **given)
    if isinstance(made, SchedulingVectorEnv):
        return made
    made.close()
    return None


def make_split_env(
    mapping: Mapping[str, Any], split: str, traces: int, reward_scale: float = 1.0
) -> SplitEnv:
    """Make an environment with flat observations, whose episodes play the first traces of a split."""
    return SplitEnv(make_env({**mapping, "observation": "flat"}), split, traces, reward_scale)
