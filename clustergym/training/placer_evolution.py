"""`agent=placer_es`: the learned placer's weights by CMA-ES on compiled episodes of placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import MinLen

from clustergym.agents.minipods import NAMES, PlacementEpisode, run
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.common.parameter_types import PositiveFloat, PositiveInt
from clustergym.common.processes import Processes
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.scenario import Scenario
from clustergym.training.agents import Progress, TrainingOutcome
from clustergym.training.evolution import EvolutionAgent, evolve, start_search

START = {"fit left": -1.0, "wait": -0.5}
"""Where the search begins: best fit in minipods, over the roomiest ones where none has room."""
SEEDS = {"train": 0, "dev": 500}
"""The first seed of each split; those of tests begin at 1000."""


@dataclass
class PlacerEvolution(EvolutionAgent):
    """Trains the weights by which a placer chooses nodes for jobs, by an evolution strategy.

    The objective is the mean over episodes of log(mean JCT). Every generation meets other seeds, in turn;
    every `validate_every` generations the distribution's mean is measured on the dev seeds of all
    scenarios, and the best such mean is the result.

    Parameters
    ----------
    scenarios : tuple of str
        Overrides of each scenario, as words of a command line: jobs of whole nodes on one GPU type.
    seeds : int
        Training seeds of each scenario, from 0 on; `validation` are dev seeds, from 500 on.
    round_s, defragment_s : float
        Seconds between decision points, and between calls of `defragment`.
    """

    scenarios: Annotated[tuple[str, ...], MinLen(1)] = tuple(
        "scenario=pretraining costs=default"
        f"{words} cluster.fabric.core_oversubscription=7.0"
        f" trace.min_duration_s=600 trace.max_duration_s=14400 trace.jobs=800 trace.load={load}"
        for words, load in (("", 0.9), (" cluster=arnold-iii", 0.7), (" cluster=arnold-iii", 1.0))
    )
    seeds: PositiveInt = 16
    validation: PositiveInt = 8
    generations: PositiveInt = 30
    episodes: PositiveInt = 8
    validate_every: PositiveInt = 6
    sigma: PositiveFloat = 0.5
    round_s: PositiveFloat = 300.0
    defragment_s: PositiveFloat = 3600.0

    name = "placer_es"

    def train(self, seed: int, processes: Processes, state: Path, progress: Progress) -> TrainingOutcome:
        """Train from the beginning, or from the state that a killed run saved; return the best weights."""
        history = self.read_history(state, seed, features=NAMES)
        start = np.array([START.get(name, 0.0) for name in NAMES])
        search = start_search(start, self.sigma, self.population, seed, diagonal=False)
        train, dev = self._draw_episodes("train", self.seeds), self._draw_episodes("dev", self.validation)

        def compute_fitness(generation: int, candidates: Sequence[Floats]) -> list[float]:
            first = generation * self.episodes
            at = range(first, first + self.episodes)
            # The same seeds for all scenarios and candidates of a generation.
            met = [episodes[number % self.seeds] for episodes in train for number in at]
            return [objective(met, candidate) for candidate in candidates]

        def validate_mean(mean: Floats) -> tuple[float, Floats]:
            return objective([episode for episodes in dev for episode in episodes], mean), mean

        best, curves = evolve(history, search, compute_fitness, validate_mean, state, progress)
        return TrainingOutcome(best, InformationClass.NONE, curves)

    def record(self) -> dict[str, Any]:
        """Return which scenarios and seeds the agent was trained on, for its checkpoint."""
        ends = {"train": self.seeds, "dev": self.validation}
        return {"scenarios": list(self.scenarios)} | {
            split: [first, first + ends[split] - 1] for split, first in SEEDS.items()
        }

    def save(self, path: Path, trained: TrainingOutcome, about: Mapping[str, Any]) -> None:
        """Write a checkpoint of the trained placer."""
        from clustergym.training.placer_checkpoints import NODES

        NODES.save(path, np.asarray(trained.weights), about)

    def _draw_episodes(self, split: str, seeds: int) -> list[list[PlacementEpisode]]:
        """Return the episodes of each scenario with the seeds of a split."""
        from clustergym.scenario.by_name import compose
        from clustergym.scenario.scenario_config import build_scenario

        drawn = []
        for words in self.scenarios:
            config, first = compose(words.split()), SEEDS[split]
            made = (build_scenario({**config, "seed": seed}) for seed in range(first, first + seeds))
            drawn.append([placement_episode(one, self.round_s, self.defragment_s) for one in made])
        return drawn


def objective(episodes: Sequence[PlacementEpisode], weights: Floats) -> float:
    """Return the objective of a placer's weights: the mean over episodes of log(mean JCT)."""
    return float(np.mean([np.log(run(episode, weights).mean()) for episode in episodes]))


def placement_episode(scenario: Scenario, round_s: float, defragment_s: float) -> PlacementEpisode:
    """Convert a scenario to an episode in which `sjf` orders jobs every `round_s`, and a placer places them.

    Every `defragment_s` seconds the placer may also move running jobs.

    Failures and shared links are left out, and nodes that jobs hold inside a minipod are not told apart.
    """
    spec, trace, asked = scenario.cluster, scenario.trace, scenario.request_gpus
    per_node = int(spec.gpus_per_node[0])
    if len(spec.gpu_types) != 1 or (asked < per_node).any() or (asked % per_node).any():
        remedy = "take jobs of whole nodes on one GPU type, as those of scenario=pretraining"
        raise InputError(f"cannot train a placer on {scenario.name}", field="agent.board", remedy=remedy)
    level, nodes = np.searchsorted(scenario.tables.counts, asked), asked // per_node
    iteration_s = scenario.execution[scenario.class_of, 0, level]
    known = scenario.known_times(InformationClass.CLAIRVOYANT)[scenario.class_of, 0, level]
    return PlacementEpisode(
        submit_s=trace.submit_s.astype(np.float64),
        order_s=known * trace.iterations,
        # Localities from MINIPOD on: leaves are not told apart.
        run_s=np.ascontiguousarray(iteration_s[:, 2:] * trace.iterations[:, None]),
        nodes=nodes.astype(np.int64),
        first_s=scenario.costs.search_s(scenario.tables.counts)[level].astype(np.float64),
        move_s=scenario.checkpoint_s[scenario.class_of].astype(np.float64),
        sizes=np.bincount(spec.node_minipod).astype(np.int64),
        round_s=round_s,
        defragment_s=defragment_s,
    )
