"""Trains agents of Stable-Baselines3 in segments; each ends with a validation and saves its state."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import MinLen

from clustergym.envs.scheduling import SchedulingEnv
from clustergym.envs.scheduling_costs import jobs_in_system
from clustergym.inputs.errors import InputError, require
from clustergym.inputs.parameter_types import Factor, PositiveFraction, PositiveInt
from clustergym.interface.policy import InformationClass
from clustergym.learn.agents import Progress, Trained
from clustergym.learn.split_env import EnvironmentAgent, SplitEnv, make_split_env
from clustergym.learn.training_state import (
    History,
    Tensors,
    arrays,
    part_of,
    read_state,
    restore,
    write_state,
)

STREAM = 614
FIGURES = ("approx_kl", "entropy_loss", "explained_variance", "value_loss", "loss", "clip_fraction")


@dataclass
class NetworkAgent(EnvironmentAgent):
    """The common part of the agents of Stable-Baselines3.

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
    n_envs : int
        Environments that are stepped together.
    learning_rate, gamma : float
    batch_size : int
    hidden : tuple of int
        Widths of the hidden layers.
    reward_scale : float
        What rewards are multiplied by in training.
    split : str
        Split of the training traces.
    """

    env: Mapping[str, Any] = field(default_factory=lambda: {"id": "ClusterGym/Meta-16-v0"})
    steps: PositiveInt = 200_000
    validate_every: PositiveInt = 20_000
    validation: PositiveInt = 16
    traces: PositiveInt = 128
    n_envs: PositiveInt = 4
    learning_rate: Factor = 3e-4
    gamma: PositiveFraction = 1.0
    batch_size: PositiveInt = 250
    hidden: Annotated[tuple[PositiveInt, ...], MinLen(1)] = (64, 64)
    reward_scale: Factor = 10.0
    split: str = "train"

    def _require_whole_batches(self, n_steps: int) -> None:
        """Refuse a batch size that does not divide a rollout into equal batches."""
        rollout = n_steps * self.n_envs
        remedy = f"give a divisor of n_steps x n_envs = {rollout}"
        require(rollout % self.batch_size == 0, "agent.batch_size", self.batch_size, remedy)

    @abstractmethod
    def model(self, envs: Any, seed: int) -> Any:
        """Return the algorithm of Stable-Baselines3, untrained."""

    def prepare(
        self, model: Any, validate: Any, seed: int, history: History, progress: Progress
    ) -> Tensors | None:
        """Prepare the model before the first segment; return a network to beat, if there is one."""
        return None

    def segment(self, model: Any, number: int) -> None:
        """Prepare the model for a segment."""

    def train(self, seed: int, processes: int, state: Path, progress: Progress) -> Trained:
        """Train from the beginning, or from the last segment that a killed run ended."""
        _needs_torch()
        path = state.with_suffix(".safetensors")
        history, tensors = read_state(path, {"agent": self.name, "seed": seed, **asdict(self)})
        # First in this process, so that what is not valid is said before others are started.
        validation = self.env_of("dev", self.validation)
        with self._envs(processes) as envs:
            information, layout = _description(validation)
            model = self.model(envs, seed)
            _seed(model, seed, 0)
            best: Tensors = part_of(tensors, "best.")
            if tensors:
                restore(model, history, tensors, path)
            self._tell(history, progress)
            if not tensors:
                best = self.prepare(model, validation, seed, history, progress) or arrays(model.policy)
                _require_finite(model)
                write_state(path, history, model, best)
            while int(model.num_timesteps) < self.steps:
                began = time.monotonic()
                best = self._segment(model, validation, seed, history, best)
                write_state(path, history, model, best)
                row = {**history.rows[-1], "seconds": time.monotonic() - began}
                progress(int(row["steps"]), self.steps, row)
        curves = {**history.stage, "segments": history.rows, "best": history.best}
        return Trained(best, information, curves, {**layout, "hidden": list(self.hidden)})

    def _tell(self, history: History, progress: Progress) -> None:
        """Report the progress that a killed training saved."""
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
        _seed(model, seed, number)
        try:
            model.learn(self.validate_every, callback=_whole_schedule(self.steps), reset_num_timesteps=False)
        except (ValueError, RuntimeError):
            # PyTorch's distributions raise either of them on NaN; sb3-contrib switches that check on or off.
            _require_finite(model)
            raise
        _require_finite(model)
        row: dict[str, float] = {"steps": int(model.num_timesteps), **_figures(model)}
        row |= greedy_figures(model.policy, validation, self.validation)
        history.rows.append(row)
        if row["dev_return"] > history.best:
            history.best, best = row["dev_return"], arrays(model.policy)
        return best

    def env_of(self, split: str, traces: int, reward_scale: float = 1.0) -> SplitEnv:
        """Make the environment in a split."""
        made = make_split_env(self.env, split, traces, reward_scale)
        self.check_env(made)
        return made

    def check_env(self, env: SplitEnv) -> None:
        """Raise an `InputError` if the agent cannot play an environment."""

    @contextmanager
    def _envs(self, processes: int) -> Iterator[Any]:
        """Make the training environments: compiled, or else in this process or each in one of its own."""
        from stable_baselines3.common.vec_env import DummyVecEnv

        from clustergym.learn.process_envs import ProcessEnvs
        from clustergym.learn.vector_envs import split_vec_env

        at_once = split_vec_env(self.env, self.n_envs, self.split, self.traces, self.reward_scale)
        make = partial(self.env_of, self.split, self.traces, self.reward_scale)
        makers: list[Any] = [partial(_monitored, make)] * self.n_envs
        several = processes != 1 and self.n_envs > 1
        made = at_once or (ProcessEnvs(makers) if several else DummyVecEnv(makers))
        try:
            yield made
        finally:
            made.close()


def greedy_figures(policy: Any, env: SplitEnv, traces: int) -> dict[str, float]:
    """Return mean return and mean JCT in hours of the greedy policy on the first traces of a split."""
    returns, hours = [], []
    for index in range(traces):
        returns.append(play(policy, env, index))
        if isinstance(env.unwrapped, SchedulingEnv):
            hours.append(jobs_in_system(env.unwrapped.outcomes))
    figures = {"dev_return": float(np.mean(returns))}
    return {**figures, "dev_jct_h": float(np.mean(hours))} if hours else figures


def play(policy: Any, env: SplitEnv, index: int) -> float:
    """Return the return of the greedy policy on a trace."""
    observation, _ = env.reset(options={"index": index})
    total, over = 0.0, False
    while not over:
        if hasattr(policy, "greedy_masked"):
            action = np.int64(policy.greedy_masked(observation, env.action_masks()))
        else:
            found = policy.predict(observation, deterministic=True)[0]
            action = found if found.ndim else np.int64(found)
        observation, reward, terminated, truncated, _ = env.step(action)
        total, over = total + reward, terminated or truncated
    return total


def _monitored(make: Any) -> Any:
    from stable_baselines3.common.monitor import Monitor

    return Monitor(make())


def _seed(model: Any, seed: int, number: int) -> None:
    """Seed a segment's random streams, and begin new episodes."""
    from stable_baselines3.common.utils import set_random_seed

    drawn = int(np.random.default_rng([seed, STREAM, number]).integers(2**31 - 1))
    set_random_seed(drawn)
    model.action_space.seed(drawn)
    model.env.seed(drawn)
    model._last_obs = None
    if model.ep_info_buffer is not None:
        model.ep_info_buffer.clear()


def _require_finite(model: Any) -> None:
    """Raise an InputError if a value of the network is not finite."""
    if not all(np.isfinite(value).all() for value in arrays(model.policy).values()):
        raise InputError(
            "the network has values that are no numbers",
            field="agent.learning_rate",
            remedy="give a smaller one, and another output=",
        )


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


def _description(env: SplitEnv) -> tuple[InformationClass, dict[str, Any]]:
    """Return the information class of an environment, and the shapes that networks depend on."""
    from clustergym.learn.network_checkpoints import description_of

    parameters = getattr(env.unwrapped, "parameters", None)
    information = getattr(parameters, "information", InformationClass.CLAIRVOYANT.value)
    return InformationClass(information), description_of(env)


def _needs_torch() -> None:
    try:
        import safetensors  # noqa: F401
        import stable_baselines3  # noqa: F401
        import torch
    except ImportError as error:
        raise InputError(
            "needs PyTorch and Stable-Baselines3", field="agent", remedy="pip install 'clustergym[rl]'"
        ) from error
    torch.set_num_threads(1)
