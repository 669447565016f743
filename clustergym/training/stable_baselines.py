"""`agent=ppo`: proximal policy optimisation of Stable-Baselines3, unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from clustergym.common.errors import InputError, require
from clustergym.common.parameter_types import AtLeastTwo, Factor, PositiveFraction, PositiveInt
from clustergym.training.network_agent import NetworkAgent
from clustergym.training.split_env import SplitEnv

OF_PPO = (
    *("n_steps", "n_epochs", "batch_size", "learning_rate", "gamma", "gae_lambda", "clip_range", "ent_coef"),
)
"""The agent's parameters that are PPO's."""
FIGURES = ("approx_kl", "entropy_loss", "explained_variance", "value_loss", "loss", "clip_fraction")


@dataclass
class Ppo(NetworkAgent):
    """Proximal policy optimisation (Schulman et al., 2017) with separate actor and critic networks.

    Parameters
    ----------
    n_envs : int
        Environments that are stepped together.
    gamma : float
    reward_scale : float
        What rewards are multiplied by in training.
    n_steps, n_epochs : int
        Steps of each environment between updates; passes over them.
    gae_lambda, clip_range, ent_coef : float
    """

    n_envs: PositiveInt = 4
    gamma: PositiveFraction = 0.98
    reward_scale: Factor = 10.0
    n_steps: AtLeastTwo = 1250
    n_epochs: PositiveInt = 10
    gae_lambda: float = 0.98
    clip_range: float = 0.2
    ent_coef: float = 0.003

    name = "ppo"

    def __post_init__(self) -> None:
        super().__post_init__()
        rollout = self.n_steps * self.n_envs
        remedy = f"give a divisor of n_steps x n_envs = {rollout}"
        require(rollout % self.batch_size == 0, "agent.batch_size", self.batch_size, remedy)

    def check_env(self, env: SplitEnv) -> None:
        """Raise an InputError if illegal actions, which this agent may choose, are errors."""
        parameters = getattr(env.unwrapped, "parameters", None)
        if getattr(parameters, "on_illegal", None) == "raise":
            raise InputError(
                "the agent knows no masks, and illegal actions are to raise",
                field="env.on_illegal",
                remedy="give repair, or leave it out",
            )

    def model(self, envs: Any, seed: int) -> Any:
        """Make Stable-Baselines3's PPO for the training environments."""
        from stable_baselines3 import PPO

        given: dict[str, Any] = {name: getattr(self, name) for name in OF_PPO}
        layers = {"net_arch": list(self.hidden)}
        return PPO("MlpPolicy", envs, seed=seed, device="cpu", policy_kwargs=layers, **given)

    @contextmanager
    def envs(self) -> Iterator[Any]:
        """Make the training environments: on the compiled engine, or else stepped one by one."""
        from stable_baselines3.common.monitor import Monitor
        from stable_baselines3.common.vec_env import DummyVecEnv

        from clustergym.training.vector_envs import split_vec_env

        given = self.split, self.traces, self.reward_scale
        at_once = split_vec_env(self.env, self.n_envs, *given)
        made = at_once or DummyVecEnv([lambda: Monitor(self.make_env(*given))] * self.n_envs)
        try:
            yield made
        finally:
            made.close()

    def begin(self, model: Any, seed: int) -> None:
        """Seed all random streams for a segment of the training, and begin new episodes."""
        from stable_baselines3.common.utils import set_random_seed

        set_random_seed(seed)
        model.action_space.seed(seed)
        model.env.seed(seed)
        # Stable-Baselines3 then resets the environments when it learns on: an episode cut by a segment's end
        # is not continued, as a training that was killed there could not either.
        model._last_obs = None
        if model.ep_info_buffer is not None:
            model.ep_info_buffer.clear()

    def learn(self, model: Any) -> dict[str, float]:
        """Train for one segment (`validate_every` steps); return its figures, by name."""
        model.learn(self.validate_every, callback=_whole_schedule(self.steps), reset_num_timesteps=False)
        return _figures(model)


def _whole_schedule(steps: int) -> Any:
    """Return a callback that makes schedules last for all segments, not for each segment."""
    from stable_baselines3.common.callbacks import BaseCallback

    class WholeSchedule(BaseCallback):
        def _on_training_start(self) -> None:
            self.model._total_timesteps = steps

        def _on_step(self) -> bool:
            return True

    return WholeSchedule()


def _figures(model: Any) -> dict[str, float]:
    """Return the algorithm's last figures, and the mean return of the segment's episodes."""
    logged = {name: model.logger.name_to_value.get(f"train/{name}") for name in FIGURES}
    found = {name: float(value) for name, value in logged.items() if value is not None}
    episodes = [episode["r"] for episode in model.ep_info_buffer or ()]
    return {**found, "train_return": float(np.mean(episodes))} if episodes else found
