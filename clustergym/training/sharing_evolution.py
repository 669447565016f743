"""`agent=sharing_es`: a placer of shares by CMA-ES in the Sharing environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.common import random_streams
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.common.parameter_types import PositiveFloat, PositiveInt
from clustergym.common.processes import Processes
from clustergym.envs.registration import make_env
from clustergym.envs.sharing.environment import SharingEnv
from clustergym.envs.sharing.episode import GROWTH, SHAPE, play
from clustergym.envs.sharing.state import COSTS, SharingState
from clustergym.envs.sharing.streams import draw_stream
from clustergym.scenario.policy import InformationClass
from clustergym.training.agents import Progress, TrainingOutcome
from clustergym.training.evolution import EvolutionAgent, evolve, start_search

FIRST_SEED = {"train": 0, "dev": 1_000_000, "test": 2_000_000}
"""The first seed of each split, as `reset(seed=…)` of the environment takes it."""
START = -8.0
"""The weight of `growth` with which the search begins; all others are 0. It places as FGD does, unrounded."""


@dataclass
class SharingEvolution(EvolutionAgent):
    """Trains linear scores that choose nodes for parts of GPUs, by an evolution strategy.

    The objective is minus the mean return of the environment's episodes. Every generation meets new seeds;
    every `validate_every` generations the distribution's mean is measured on dev seeds, and the best such
    mean is the result. Episodes are those of the environment, played without its steps
    (`clustergym.envs.sharing.episode.play`).

    Parameters
    ----------
    env : mapping
        `{id: …, parameter: value, …}`, as `clustergym.envs.registration.make_env` takes it.
    """

    env: Mapping[str, Any] = field(default_factory=lambda: {"id": "ClusterGym/Sharing-v1"})
    generations: PositiveInt = 80
    episodes: PositiveInt = 8
    validation: PositiveInt = 60
    validate_every: PositiveInt = 10
    sigma: PositiveFloat = 0.5

    name = "sharing_es"

    def train(self, seed: int, processes: Processes, state: Path, progress: Progress) -> TrainingOutcome:
        """Train from the beginning, or from the state that a killed run saved; return the best weights."""
        env = make_env(self.env).unwrapped
        if not isinstance(env, SharingEnv):
            raise InputError("has no shares of GPUs to place", field="env", remedy="give env=sharing")
        history = self.read_history(state, seed, start=START)
        start = np.zeros(SHAPE)
        start[:, GROWTH] = START
        search = start_search(start.ravel(), self.sigma, self.population, seed, diagonal=True)
        dev = list_seeds("dev", 0, self.validation)

        def compute_fitness(generation: int, candidates: Sequence[Floats]) -> list[float]:
            met = list_seeds("train", generation * self.episodes, self.episodes)
            return [objective(env, met, candidate) for candidate in candidates]

        def validate_mean(mean: Floats) -> tuple[float, Floats]:
            return objective(env, dev, mean), mean

        best, curves = evolve(history, search, compute_fitness, validate_mean, state, progress)
        return TrainingOutcome(best.reshape(SHAPE), InformationClass.NONE, curves)

    def record(self) -> dict[str, Any]:
        """Return the environment and the seeds that the agent was trained on, for its checkpoint."""
        ends = {"train": self.generations * self.episodes, "dev": self.validation}
        seeds = {split: list_seeds(split, 0, number) for split, number in ends.items()}
        return {"environment": dict(self.env)} | {
            name: [found[0], found[-1]] for name, found in seeds.items()
        }

    def save(self, path: Path, trained: TrainingOutcome, about: Mapping[str, Any]) -> None:
        """Write a checkpoint of the trained placer."""
        from clustergym.training.placer_checkpoints import SHARES

        SHARES.save(path, np.asarray(trained.weights), about)


def list_seeds(split: str, first: int, number: int) -> range:
    """Return `number` seeds of a split (train, dev or test), from its seed number `first` on."""
    begin = FIRST_SEED[split] + first
    return range(begin, begin + number)


def objective(env: SharingEnv, seeds: Sequence[int], weights: Floats) -> float:
    """Return the objective of weights: minus the mean return of the episodes with some seeds."""
    parameters, costs = env.parameters, []
    for seed in seeds:
        rng = random_streams.SHARING_REQUESTS.generator(seed)
        state = SharingState(draw_stream(env.source, parameters.load, rng))
        play(state.episode, np.asarray(weights, dtype=np.float64).reshape(SHAPE))
        # An episode's return is minus its costs at the end, as each is 0 at the start: no step is needed.
        costs.append(sum(weight * COSTS[name](state) for name, weight in parameters.reward.items()))
    return float(np.mean(costs))
