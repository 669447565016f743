"""Environments in processes of their own; the training process raises their InputErrors."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3.common.vec_env import SubprocVecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvWrapper

from clustergym.common.errors import InputError

COMPLAINT = "clustergym.complaint"
"""Key of `info` that an `InputError` of the environment's process stands under."""


class Complaining(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Passes an `InputError` on in `info`: a process that raises would print a traceback and end."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        try:
            return self.env.reset(seed=seed, options=options)
        except InputError as error:
            return self._nothing(), {COMPLAINT: str(error)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action; an InputError ends the episode."""
        try:
            observation, reward, terminated, truncated, info = self.env.step(action)
        except InputError as error:
            return self._nothing(), 0.0, True, False, {COMPLAINT: str(error)}
        return observation, float(reward), terminated, truncated, info

    def _nothing(self) -> Any:
        return np.zeros(self.observation_space.shape or (), self.observation_space.dtype)


class ProcessEnvs(VecEnvWrapper):
    """Stable-Baselines3's `SubprocVecEnv`; it raises the InputErrors of its environments.

    Parameters
    ----------
    makers : list of callable
        Each makes the environment of one process.

    Raises
    ------
    InputError
        From `reset` and `step`.
    """

    def __init__(self, makers: list[Callable[[], Any]]) -> None:
        # PyTorch is then imported once, not by every process anew.
        multiprocessing.set_forkserver_preload(["stable_baselines3.common.vec_env"])
        super().__init__(SubprocVecEnv([partial(_complaining, make) for make in makers]))

    def reset(self) -> Any:
        """Begin an episode of each environment."""
        observations = self.venv.reset()
        self._raise(self.venv.reset_infos)
        return observations

    def step_wait(self) -> Any:
        """Return the results of a step of each environment."""
        stepped = self.venv.step_wait()
        self._raise(stepped[3])
        self._raise(self.venv.reset_infos)
        return stepped

    @staticmethod
    def _raise(infos: Any) -> None:
        for info in infos:
            if COMPLAINT in info:
                raise InputError(info[COMPLAINT])


def _complaining(make: Callable[[], Any]) -> Complaining:
    return Complaining(make())
