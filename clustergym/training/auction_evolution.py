"""`agent=auction_es`: the auction's weights by CMA-ES, for an objective that is a weighted sum of terms."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from clustergym.agents import auction, beliefs
from clustergym.agents import auction_features as features
from clustergym.agents.auction import INPUTS
from clustergym.agents.auction_checkpoints import load
from clustergym.common import random_streams
from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import InputError, require, require_known
from clustergym.common.parameter_types import NonNegativeFloat, NonNegativeInt, OneOf
from clustergym.common.parameters import check_value
from clustergym.common.processes import Processes, workers
from clustergym.envs.scheduling_costs import ReferenceCostTimes
from clustergym.results.metrics.fairness import UNFAIR_ABOVE
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.scenario import Scenario
from clustergym.training.agents import Progress, TrainingOutcome
from clustergym.training.distribution import Distribution, draw_scenario
from clustergym.training.evolution import EvolutionAgent, evolve, start_search
from clustergym.training.simulated_episodes import auction_episodes
from clustergym.training.windows import BOUNDS, philly_file, record

VALIDATION_SEED_OFFSET = 1_000_003


@dataclass
class AuctionEvolution(EvolutionAgent):
    """Trains the weights of an auction of GPUs by an evolution strategy, on newly sampled scenarios.

    The objective is the mean over windows of `objective`. All candidates of
    a generation meet the same windows, which no other generation sees; every `validate_every` generations the
    distribution's mean is measured on the dev split, and the best such mean is the result. With hidden
    units the covariance is kept diagonal (sep-CMA-ES, Ros and Hansen, 2008), which learns faster in many
    dimensions.

    Parameters
    ----------
    scenarios : mapping
        Of `clustergym.training.distribution.Distribution`.
    information : str
        Information class the agent is trained for; one of `none` knows no iteration times and measures
        jobs.
    measures : bool
        Whether an agent that knows iteration times measures jobs as well. The numbers of
        `clustergym.agents.beliefs` are then searched for with the weights.
    split : str
        Split of the training windows.
    objective : mapping of str to float
        Weights of terms.
    tail : float
        Added to the weight of the term jct_p99, from 0.
    initial : str or None
        Checkpoint to start from, which must have no hidden units; None: `auction_features.PRIOR`.
    hidden : int
        Hidden units beside the weighted sum; what they add to a score is 0 at the start.
    without : tuple of str
        Features that weigh 0 outside hidden units. `queue_double` alone depends on the cluster's size.
    """

    scenarios: Distribution = field(default_factory=Distribution)
    information: Annotated[str, OneOf(InformationClass)] = "data_parallel"
    measures: bool = False
    split: str = "train"
    objective: dict[str, float] = field(default_factory=lambda: {n: float(n == "jct_mean") for n in TERMS})
    tail: NonNegativeFloat = 0.0
    initial: str | None = None
    hidden: NonNegativeInt = 0
    without: tuple[Annotated[str, OneOf(features.NAMES)], ...] = ()

    name = "auction_es"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._goal()

    def train(self, seed: int, processes: Processes, state: Path, progress: Progress) -> TrainingOutcome:
        """Train from the beginning, or from the state that a killed run saved; return the best weights."""
        history = self.read_history(state, seed, features=features.VERSION)
        searched, begin = self._select_searched(), self._start(seed)
        search = start_search(begin[searched], self.sigma, self.population, seed, self.hidden > 0)
        with workers(processes, "spawn") as run:

            def compute_fitness(generation: int, candidates: Sequence[Floats]) -> list[float]:
                weights = [_replace_weights(begin, searched, candidate) for candidate in candidates]
                # Common random numbers: candidates of a generation meet the same windows, the next others.
                first = generation * self.episodes
                return self._evaluate(run, weights, self.split, seed, first, self.episodes)

            def validate_mean(mean: Floats) -> tuple[float, Floats]:
                weights = _replace_weights(begin, searched, mean)
                there = seed + VALIDATION_SEED_OFFSET
                [value] = self._evaluate(run, [weights], "dev", there, 0, self.validation)
                return value, weights

            best, curves = evolve(history, search, compute_fitness, validate_mean, state, progress)
        return TrainingOutcome(
            self._with_start_deadlines(best, seed), InformationClass(self.information), curves
        )

    def record(self) -> dict[str, Any]:
        """Return which traces the windows came from, with digests, and the splits' bounds."""
        drawn = self.scenarios
        if drawn.sources:
            return record(drawn.sources)
        traces: dict[str, Any] = {"origin": drawn.origin}
        if drawn.origin != "synthetic":
            digest = hashlib.sha256(philly_file().read_bytes()).hexdigest()
            bounds = {split: list(days) for split, days in BOUNDS.items()}
            traces["philly.csv"] = {"sha256": digest, **bounds}
        if drawn.origin != "real":
            traces["generators"] = list(drawn.generators)
        return traces

    def _with_start_deadlines(self, weights: Floats, seed: int) -> Floats:
        """Return weights in which those of deadlines are as at the start, unless training had deadlines.

        The search lets such weights drift, and they would count as soon as the agent meets deadlines.
        """
        if self._meets_deadlines():
            return weights
        began, unseen = self._start(seed), [features.NAMES.index(name) for name in features.OF_DEADLINES]
        told = weights.copy()
        for first in (0, *range(features.COUNT + 2, self._scores, INPUTS + 2)):
            # Linear weights come first, then of each hidden unit its weight, its bias and its inputs.
            at = [first + column for column in unseen]
            told[at] = began[at]
        return told

    def _goal(self) -> Objective:
        goal = Objective(self.objective)
        tail = float(goal.weights.get("jct_p99", 0.0)) + self.tail
        return Objective({**goal.weights, "jct_p99": tail})

    def _meets_deadlines(self) -> bool:
        return len(self.scenarios.deadline_slack) > 0 or self.scenarios.traces is not None

    def _select_searched(self) -> Ints:
        """Return the indices of the weights to search: those of deadlines only if there are deadlines."""
        last = self._scores + len(self._beliefs())
        # Without deadlines their features are 0 in every window, and any weight would do.
        linear = np.arange(features.COUNT if self._meets_deadlines() else features.WITHOUT_DEADLINES)
        kept = linear[[features.NAMES[at] not in self.without for at in linear]]
        return np.concatenate([kept, np.arange(features.COUNT, last)])

    def _start(self, seed: int) -> Floats:
        """Return the weights the search begins with; hidden units are random, and add 0 to a score."""
        linear, believed = start(), self._beliefs()
        if self.initial is not None:
            linear, found = beliefs.split(load(self.initial).weights)
            believed[: len(found)] = found[: len(believed)]
        if linear.size != features.COUNT:
            raise InputError(
                "has hidden units already", field="agent.initial", remedy="name a checkpoint of hidden=0"
            )
        # Fixed here, and left out of what is searched.
        linear[[features.NAMES.index(name) for name in self.without]] = 0.0
        units = (
            random_streams.AUCTION_UNITS.generator(seed).normal(size=(self.hidden, INPUTS + 2)) / INPUTS**0.5
        )
        # The weight with which a unit enters a score: the search begins at the linear auction.
        units[:, 0] = 0.0
        return np.concatenate([linear, units.ravel(), believed])

    @property
    def _scores(self) -> int:
        """The number of weights that scores of moves depend on."""
        return features.COUNT + self.hidden * (INPUTS + 2)

    def _beliefs(self) -> Floats:
        """Return the parameters of the estimates of iteration times with which the search begins."""
        if InformationClass(self.information) == InformationClass.NONE:
            return np.array(beliefs.START)
        return np.array(beliefs.START_TOLD if self.measures else ())

    def _evaluate(
        self, run: Any, candidates: Sequence[Floats], split: str, seed: int, first: int, episodes: int
    ) -> list[float]:
        """Return the objective of each candidate, a mean over windows `first` to `first + episodes`."""
        weights = np.stack([np.asarray(weights, dtype=np.float64) for weights in candidates])
        known = InformationClass(self.information)
        task = partial(objectives, self.scenarios, split, seed, known, self._goal(), weights)
        table = np.stack(list(run(task, range(first, first + episodes))))
        if not np.isfinite(table).all():
            raise InputError(
                "is not a finite number", field="objective", remedy="the training scenarios are broken"
            )
        return [float(value) for value in table.mean(axis=0)]


def _replace_weights(weights: Floats, searched: Ints, values: Floats) -> Floats:
    changed = weights.copy()
    changed[searched] = values
    return changed


def start() -> Floats:
    """Return the auction's weights with which the evolutionary search begins."""
    return auction.make_weights(features.PRIOR)


def objectives(
    distribution: Distribution,
    split: str,
    seed: int,
    information: InformationClass,
    goal: Objective,
    weights: Floats,
    index: int,
) -> Floats:
    """Return the objective of each row of auction weights on one sampled scenario, shape (rows,)."""
    scenario = draw_scenario(distribution, split, seed, index)
    jct_s_of, judged = auction_episodes(scenario, information), goal.judge(scenario)
    return np.array([judged(jct_s_of(row)) for row in weights])


def _deadline_missed(jct_s: Floats, yardsticks: ReferenceCostTimes) -> float:
    due = np.isfinite(yardsticks.deadline_s)
    late = (yardsticks.submit_s + jct_s)[due] > yardsticks.deadline_s[due]
    return float(late.mean()) if len(late) else 0.0


TERMS: dict[str, Callable[[Floats, ReferenceCostTimes], float]] = {
    "jct_mean": lambda jct_s, yardsticks: float(np.log(jct_s.mean())),
    "jct_p99": lambda jct_s, yardsticks: float(np.log(np.percentile(jct_s, 99))),
    "ftf_mean": lambda jct_s, yardsticks: float(np.log((jct_s / yardsticks.fair_s).mean())),
    "unfair_fraction": lambda jct_s, yardsticks: float((jct_s / yardsticks.fair_s > UNFAIR_ABOVE).mean()),
    "deadline_missed": _deadline_missed,
}
"""Term -> its value for the JCTs of a window, after the metric of the same name (`deadline_missed` is
1 - `deadline_satisfaction`). Terms other than shares are logs, so that every window counts alike. Fairness is
that of the metrics: against fluid sharing capped at the request, computed once a window."""


@dataclass(frozen=True)
class Objective:
    """An objective to minimise: a weighted sum of terms, such as the mean JCT.

    Parameters
    ----------
    weights : mapping of str to float
        Name of a term -> its weight from 0; 0 leaves it out.
    """

    weights: Mapping[str, Any]

    def __post_init__(self) -> None:
        for name, weight in self.weights.items():
            require_known(name, TERMS, "term", "agent.objective")
            check_value(weight, NonNegativeFloat, f"agent.objective.{name}")
        some = any(weight > 0 for weight in self.weights.values())
        require(some, "agent.objective", dict(self.weights), f"weigh one of {', '.join(TERMS)}")

    def judge(self, scenario: Scenario) -> Callable[[Floats], float]:
        """Return a function that computes the objective from a scenario's JCTs (seconds, shape (n,))."""
        yardsticks = ReferenceCostTimes.from_scenario(scenario)
        parts = [(float(weight), TERMS[name]) for name, weight in self.weights.items() if weight > 0]
        return lambda jct_s: sum(weight * term(jct_s, yardsticks) for weight, term in parts)
