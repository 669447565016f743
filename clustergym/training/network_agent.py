"""Trains networks in segments; each ends with a validation."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import MinLen

from clustergym.agents.checkpoints import Tensors
from clustergym.common import random_streams
from clustergym.common.errors import InputError
from clustergym.common.parameter_types import Factor, PositiveInt
from clustergym.common.paths import require_extra
from clustergym.common.processes import Processes
from clustergym.envs.scheduling import SchedulingEnv
from clustergym.envs.scheduling_costs import ReferenceCosts, ReferenceCostTimes, jobs_in_system
from clustergym.scenario.policy import InformationClass
from clustergym.training.agents import Progress, TrainingOutcome
from clustergym.training.split_env import EnvironmentAgent, SplitEnv, make_split_env

REFERENCE = "hesrpt"
"""The policy whose figure stands beside that of the network on the dev traces."""


@dataclass
class NetworkAgent(EnvironmentAgent):
    """Base of the agents that train a neural network.

    A segment is `validate_every` steps; it begins with new episodes and random streams of its own. At its
    end the greedy policy plays the first `validation` traces of the dev split; the network with the best mean
    return there is the result.

    Parameters
    ----------
    env : mapping
        `{id: …, parameter: value, …}`, as `clustergym.envs.registration.make_env` takes it.
    steps, validate_every, validation : int
        Steps of the environments in all and in a segment; dev traces.
    traces : int
        Traces of the training split that episodes are drawn from.
    learning_rate : float
    batch_size : int
    hidden : tuple of int
        Widths of the hidden layers.
    split : str
        Split of the training traces.
    """

    env: Mapping[str, Any] = field(default_factory=lambda: {"id": "ClusterGym/Priority-16-v0"})
    steps: PositiveInt = 200_000
    validate_every: PositiveInt = 20_000
    validation: PositiveInt = 16
    traces: PositiveInt = 128
    learning_rate: Factor = 3e-4
    batch_size: PositiveInt = 250
    hidden: Annotated[tuple[PositiveInt, ...], MinLen(1)] = (64, 64)
    split: str = "train"

    @abstractmethod
    def envs(self) -> AbstractContextManager[Any]:
        """Make the training environments, as a context manager that closes them."""

    @abstractmethod
    def model(self, envs: Any, seed: int) -> Any:
        """Make the untrained learning algorithm for environments; its attribute `policy` is the network."""

    @abstractmethod
    def begin(self, model: Any, seed: int) -> None:
        """Seed the random streams of a segment of the training, and begin new episodes."""

    @abstractmethod
    def learn(self, model: Any) -> dict[str, float]:
        """Train for one segment (`validate_every` steps); return its figures, by name."""

    def train(self, seed: int, processes: Processes, state: Path, progress: Progress) -> TrainingOutcome:
        """Train from the beginning, as no state is saved; return the network with the best validation."""
        needs_torch()
        validation = self.make_env("dev", self.validation)
        rows: list[dict[str, float]] = []
        with self.envs() as envs:
            information, layout = _description(validation)
            model = self.model(envs, seed)
            # What comes before the first segment, as the first look at observations, has its own stream.
            self.begin(model, _draw_segment_seed(seed, 0))
            # A folder that cannot be written is said before anything is trained.
            state.parent.mkdir(parents=True, exist_ok=True)
            best_return, best = -float("inf"), _copy_tensors(model.policy)
            progress(0, self.steps, {})
            reference = reference_figures(validation, self.validation)
            while int(model.num_timesteps) < self.steps:
                began, cpu_began = time.monotonic(), time.process_time()
                rows.append(self._segment(model, validation, _draw_segment_seed(seed, len(rows) + 1)))
                # Not >=: of two equal ones the earlier is kept.
                if rows[-1]["dev_return"] > best_return:
                    best_return, best = rows[-1]["dev_return"], _copy_tensors(model.policy)
                seconds = {
                    "seconds": time.monotonic() - began,
                    "cpu_seconds": time.process_time() - cpu_began,
                }
                progress(int(rows[-1]["steps"]), self.steps, {**rows[-1], **reference, **seconds})
        curves = {"segments": rows, "best": best_return}
        return TrainingOutcome(best, information, curves, {**layout, "hidden": list(self.hidden)})

    def _segment(self, model: Any, validation: SplitEnv, seed: int) -> dict[str, float]:
        """Train for a segment, and return its figures and those of its validation."""
        self.begin(model, seed)
        try:
            figures = self.learn(model)
        except (ValueError, RuntimeError):
            # PyTorch's distributions raise either of them on NaN; sb3-contrib switches that check on or off.
            _require_finite(model)
            raise
        _require_finite(model)
        greedy = greedy_figures(model.policy, validation, self.validation)
        return {"steps": int(model.num_timesteps), **figures, **greedy}

    def make_env(self, split: str, traces: int, reward_scale: float = 1.0) -> SplitEnv:
        """Make an environment with episodes from the first `traces` traces of a split."""
        made = make_split_env(self.env, split, traces, reward_scale)
        self.check_env(made)
        return made

    def check_env(self, env: SplitEnv) -> None:
        """Do nothing; subclasses raise an `InputError` for an environment that the agent cannot play."""


def greedy_figures(policy: Any, env: SplitEnv, traces: int) -> dict[str, float]:
    """Return the mean return, and mean JCT in hours, of a network's best actions on traces of a split."""
    returns, hours = [], []
    for index in range(traces):
        returns.append(play(policy, env, index))
        if isinstance(env.unwrapped, SchedulingEnv):
            hours.append(jobs_in_system(env.unwrapped.outcomes))
    figures = {"dev_return": float(np.mean(returns))}
    return {**figures, "dev_jct_h": float(np.mean(hours))} if hours else figures


def reference_figures(env: SplitEnv, traces: int) -> dict[str, float]:
    """Return heSRPT's mean JCT in hours on traces of a split, beside which to read `dev_jct_h`.

    Nothing where an environment schedules no jobs, or its reward is of something else.
    """
    core = env.unwrapped
    if not isinstance(core, SchedulingEnv) or not {"jobs_in_system", "log_jct"} & {*core.parameters.reward}:
        return {}
    costs, hours = ReferenceCosts(REFERENCE, core.placer), []
    for index in range(traces):
        env.reset(options={"index": index})
        times = ReferenceCostTimes.from_scenario(core.scenario)
        hours.append(jobs_in_system(costs.outcomes(core.scenario, times, 0)))
    return {f"{REFERENCE}_jct_h": float(np.mean(hours))}


def play(policy: Any, env: SplitEnv, index: int) -> float:
    """Play one trace with a network's most probable actions, and return the sum of rewards."""
    observation, _ = env.reset(options={"index": index})
    total, over = 0.0, False
    while not over:
        if hasattr(policy, "greedy_masked"):
            found = np.asarray(policy.greedy_masked(observation, env.action_masks()))
        else:
            found = policy.predict(observation, deterministic=True)[0]
        action = found if found.ndim else np.int64(found)
        observation, reward, terminated, truncated, _ = env.step(action)
        total, over = total + reward, terminated or truncated
    return total


def _draw_segment_seed(seed: int, number: int) -> int:
    """Return the seed of segment `number` of the training."""
    return int(random_streams.TRAINING_SEGMENTS.generator(seed, number).integers(2**31 - 1))


def _copy_tensors(policy: Any) -> Tensors:
    """Return copies of a network's tensors as NumPy arrays, by name."""
    return {name: value.detach().cpu().numpy().copy() for name, value in policy.state_dict().items()}


def _require_finite(model: Any) -> None:
    """Raise an InputError if a value of the network is not finite."""
    if not all(np.isfinite(value).all() for value in _copy_tensors(model.policy).values()):
        raise InputError(
            "the network has values that are no numbers",
            field="agent.learning_rate",
            remedy="give a smaller one, and another output=",
        )


def _description(env: SplitEnv) -> tuple[InformationClass, dict[str, Any]]:
    """Return the information class of an environment, and the shapes that networks depend on."""
    from clustergym.training.network_checkpoints import describe_env

    parameters = getattr(env.unwrapped, "parameters", None)
    information = getattr(parameters, "information", InformationClass.CLAIRVOYANT.value)
    return InformationClass(information), describe_env(env)


def needs_torch() -> None:
    """Raise an InputError if PyTorch or Stable-Baselines3 is missing; limit PyTorch to one core."""
    with require_extra("needs PyTorch and Stable-Baselines3", "rl", "agent"):
        import safetensors  # noqa: F401
        import stable_baselines3  # noqa: F401
        import torch
    # With one thread a seed gives the same bytes whatever the cores.
    torch.set_num_threads(1)
