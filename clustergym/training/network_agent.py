"""Trains networks in segments; each ends with a validation and saves its state."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import MinLen

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
from clustergym.training.training_state import (
    History,
    Tensors,
    arrays,
    read_state,
    restore,
    select_part,
    write_state,
)

REFERENCE = "hesrpt"
"""The policy whose figure stands beside that of the network on the dev traces."""


@dataclass
class NetworkAgent(EnvironmentAgent):
    """Base of the agents that train a neural network.

    A segment is `validate_every` steps; it begins with new episodes and random streams of its own, so that
    a training that goes on after a kill gives the same bytes. At its end the greedy policy plays the first
    `validation` traces of the dev split; the network with the best mean return there is the result.

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

    def prepare(
        self, model: Any, validate: Any, seed: int, history: History, progress: Progress
    ) -> Tensors | None:
        """Return None; subclasses may prepare the network here, and then return its best tensors."""
        return None

    def segment(self, model: Any, number: int) -> None:
        """Do nothing; subclasses may prepare the algorithm for segment `number` of the training."""

    def train(self, seed: int, processes: Processes, state: Path, progress: Progress) -> TrainingOutcome:
        """Train from the beginning, or on from a killed run's last whole segment; return the best network."""
        needs_torch()
        path = state.with_suffix(".safetensors")
        history, tensors = read_state(path, {"agent": self.name, "seed": seed, **asdict(self)})
        validation = self.make_env("dev", self.validation)
        with self.envs() as envs:
            information, layout = _description(validation)
            model = self.model(envs, seed)
            # Segment 0 is what comes before the first, such as imitation; it has a stream of its own, too.
            self.begin(model, _draw_segment_seed(seed, 0))
            best: Tensors = select_part(tensors, "best.")
            if tensors:
                restore(model, history, tensors, path)
            self._tell(history, progress)
            reference = reference_figures(validation, self.validation)
            # A killed run that had saved a state has prepared already: imitation is not repeated.
            if not tensors:
                best = self.prepare(model, validation, seed, history, progress) or arrays(model.policy)
                _require_finite(model)
                write_state(path, history, model, best)
            while int(model.num_timesteps) < self.steps:
                began, cpu_began = time.monotonic(), time.process_time()
                best = self._segment(model, validation, seed, history, best)
                write_state(path, history, model, best)
                seconds = {
                    "seconds": time.monotonic() - began,
                    "cpu_seconds": time.process_time() - cpu_began,
                }
                row = {**history.rows[-1], **reference, **seconds}
                progress(int(row["steps"]), self.steps, row)
        curves = {**history.stage, "segments": history.rows, "best": history.best}
        return TrainingOutcome(best, information, curves, {**layout, "hidden": list(self.hidden)})

    def _tell(self, history: History, progress: Progress) -> None:
        """Report the progress of the segments that a killed training had saved."""
        progress(0, self.steps, {})
        rounds = history.stage.get("imitation", [])
        for number, row in enumerate(rounds, start=1):
            progress(number, len(rounds), {f"imitation/{name}": value for name, value in row.items()})
        for row in history.rows:
            progress(int(row["steps"]), self.steps, row)

    def _segment(
        self, model: Any, validation: SplitEnv, seed: int, history: History, best: Tensors
    ) -> Tensors:
        number = len(history.rows) + 1
        self.segment(model, number)
        self.begin(model, _draw_segment_seed(seed, number))
        try:
            figures = self.learn(model)
        except (ValueError, RuntimeError):
            # PyTorch's distributions raise either of them on NaN; sb3-contrib switches that check on or off.
            _require_finite(model)
            raise
        _require_finite(model)
        row: dict[str, float] = {"steps": int(model.num_timesteps), **figures}
        row |= greedy_figures(model.policy, validation, self.validation)
        history.rows.append(row)
        # Not >=: of two equal ones the earlier is kept, so that a continued run ends in the same bytes.
        if row["dev_return"] > history.best:
            history.best, best = row["dev_return"], arrays(model.policy)
        return best

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


def _require_finite(model: Any) -> None:
    """Raise an InputError if a value of the network is not finite."""
    if not all(np.isfinite(value).all() for value in arrays(model.policy).values()):
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
