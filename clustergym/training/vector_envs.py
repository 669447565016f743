"""Vector environments on the compiled simulation as those of Stable-Baselines3."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.vec_env.base_vec_env import VecEnv

from clustergym.common import random_streams
from clustergym.common.arrays import Bools
from clustergym.common.errors import InputError
from clustergym.envs.episodes import trace_seed
from clustergym.envs.vector.base import EpisodesVectorEnv
from clustergym.envs.vector.environment import SchedulingVectorEnv
from clustergym.training.split_env import check_reward, has_fixed_trace, make_compiled_envs


class SchedulingVecEnv(VecEnv):
    """Stable-Baselines3's `VecEnv` over a vector environment on the compiled engine, with action masks.

    Where an episode ends, the next one begins in the same step. The info of that environment has
    `terminal_observation`, `TimeLimit.truncated`, `stalled`, with summaries `digest`, and `episode` as of
    Stable-Baselines3's `Monitor`: return `r`, length `l`, seconds `t` since the start. Other infos are empty:
    `env_method("action_masks")` gives the masks.

    PyTorch is limited to one thread, unless the environment variable OMP_NUM_THREADS says how many: small
    networks take many times the processor time on several.

    Parameters
    ----------
    envs : SchedulingVectorEnv or RackVectorEnv
        With `autoreset_mode="Disabled"`.
    reward_scale : float
        What rewards, and with them returns, are multiplied by.

    Raises
    ------
    InputError
        If the vector environment begins episodes itself; from `step` also if a reward is too large for a
        network of single precision.
    """

    def __init__(self, envs: EpisodesVectorEnv, reward_scale: float = 1.0) -> None:
        if envs.autoreset_mode is not AutoresetMode.DISABLED:
            message, remedy = "Stable-Baselines3 has its own mode", "give autoreset_mode='Disabled'"
            raise InputError(message, field="autoreset_mode", remedy=remedy)
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(1)
        self.envs, self.reward_scale, self.render_mode = envs, reward_scale, None
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        self._returns, self._lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, dtype=np.int64)
        self._began = time.time()
        self._actions: npt.NDArray[np.int64] = np.zeros(self.num_envs, dtype=np.int64)

    def reset(self) -> Any:
        """Begin an episode in each environment; return the observations."""
        self.reset_infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        observations = self._begin(np.ones(self.num_envs, dtype=np.bool_))
        self._reset_seeds()
        return observations

    def _begin(self, rows: Bools) -> Any:
        """Begin episodes in some environments; return the observations of all."""
        self._returns[rows], self._lengths[rows] = 0.0, 0
        seeds, options = self.choose_episodes(rows)
        observations, _ = self.envs.reset(seed=seeds, options={**options, "reset_mask": rows})
        return observations

    def choose_episodes(self, rows: Bools) -> tuple[list[int | None], dict[str, Any]]:
        """Return the seeds and options with which the environments marked in `rows` begin episodes."""
        return list(self._seeds), {}

    def step_async(self, actions: Any) -> None:
        """Store the actions of the next step."""
        self._actions = np.asarray(actions)

    def step_wait(self) -> tuple[Any, npt.NDArray[np.float32], Bools, list[dict[str, Any]]]:
        """Apply the stored actions; return observations, rewards, end flags and infos."""
        observations, rewards, terminated, truncated, found = self.envs.step(self._actions)
        scaled, over = rewards * self.reward_scale, terminated | truncated
        # The largest stands for all: NaN is the largest of any array that has one.
        check_reward(float(scaled[np.argmax(np.abs(scaled))]))
        self._returns += scaled
        self._lengths += 1
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if over.any():
            for row in np.flatnonzero(over).tolist():
                infos[row] = self._last_info(row, observations, bool(truncated[row]), found)
            # A seed is for one reset, as of Stable-Baselines3's own vectors.
            self._seeds = [None] * self.num_envs
            observations = self._begin(over)
        return observations, scaled.astype(np.float32), over, infos

    def _last_info(
        self, row: int, observations: Any, truncated: bool, infos: Mapping[str, Any]
    ) -> dict[str, Any]:
        parts = observations.items() if isinstance(observations, dict) else ()
        seconds = round(time.time() - self._began, 6)
        return {
            **{name: infos[name][row] for name in ("digest", "stalled") if name in infos},
            "terminal_observation": {name: part[row] for name, part in parts} or observations[row],
            "TimeLimit.truncated": truncated,
            "episode": {"r": round(float(self._returns[row]), 6), "l": int(self._lengths[row]), "t": seconds},
        }

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Return the masks of legal actions of environments; only the method `action_masks` can be called."""
        if method_name != "action_masks":
            raise AttributeError(f"vector environments have no method {method_name!r} of a single one")
        masks = self.envs.action_masks()
        return [masks[row] for row in self._get_indices(indices)]

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute that all environments have in common, once for each."""
        return [getattr(self.envs.single, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Raise an error, since the environments share their parameters."""
        raise AttributeError(f"vector environments keep their parameters: {attr_name!r} cannot be set")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return False for each environment, since none is wrapped."""
        return [False for _ in self._get_indices(indices)]

    def close(self) -> None:
        """Stop the threads that step the environments."""
        self.envs.close()


class SplitVecEnv(SchedulingVecEnv):
    """A `VecEnv` of Stable-Baselines3 whose episodes play the first traces of a split.

    Parameters
    ----------
    envs, reward_scale
        As of `SchedulingVecEnv`.
    split : {"train", "dev", "test"}
    traces : int
        Draw among trace 0 to `traces` - 1 of the split.
    """

    def __init__(self, envs: SchedulingVectorEnv, split: str, traces: int, reward_scale: float = 1.0) -> None:
        super().__init__(envs, reward_scale)
        self.split, self.traces = split, traces
        self._rngs = [random_streams.TRAINING_EPISODES.generator(0) for _ in range(self.num_envs)]

    def choose_episodes(self, rows: Bools) -> tuple[list[int | None], dict[str, Any]]:
        """Return seeds and options that choose the next traces of the environments that `rows` marks."""
        drawn: list[int | None] = [None] * self.num_envs
        for row in np.flatnonzero(rows).tolist():
            if (seed := self._seeds[row]) is not None:
                self._rngs[row] = random_streams.TRAINING_EPISODES.generator(seed)
            drawn[row] = trace_seed(self.split, int(self._rngs[row].integers(self.traces)))
        if has_fixed_trace(vars(self.envs.single.parameters)):
            return drawn, {}
        return drawn, {"trace_seed": [0 if seed is None else seed for seed in drawn]}


def split_vec_env(
    mapping: Mapping[str, Any], number: int, split: str, traces: int, reward_scale: float = 1.0
) -> SplitVecEnv | None:
    """Make environments on the compiled engine, with episodes from a split; None if it cannot run them.

    Parameters
    ----------
    mapping : mapping
        `{id: …, parameter: value, …}`, as `clustergym.envs.registration.make_env` takes it.
    number : int
        Environments.
    split, traces, reward_scale
        As of `SplitVecEnv`.
    """
    made = make_compiled_envs(mapping, number, autoreset_mode=AutoresetMode.DISABLED)
    return None if made is None else SplitVecEnv(made, split, traces, reward_scale)
