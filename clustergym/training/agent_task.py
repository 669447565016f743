"""A task for programs that are agents of `Rack-told-v0`; they can enter the table of its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import gymnasium
import numpy as np

from clustergym.common import random_streams
from clustergym.common.parameter_types import Condition
from clustergym.common.parameters import Parameters
from clustergym.envs.episodes import trace_seed
from clustergym.envs.racks.gangs import TRACES, Gangs, episode_gangs
from clustergym.envs.racks.planning import WEIGHTS, RackPlanner
from clustergym.sim.program import AgentProgram, Limits

RESAMPLES = 5000
RuleWeights = Annotated[tuple[float, ...], Condition(lambda given: len(given) == WEIGHTS, f"({WEIGHTS})")]


@dataclass(frozen=True, eq=False)
class AgentTask(Parameters):
    """A task for programs with a class `Agent`, which play episodes of an environment.

    Attributes
    ----------
    summary, environment : str
    weights : tuple of float
        Of the best static rule, the reference (`clustergym.envs.racks.planning`).
    limits : Limits
        Of a program, over all episodes of a mode together.
    """

    config_key: ClassVar[str] = "task"
    metric: ClassVar[str] = "hours"
    reference: ClassVar[Mapping[str, str]] = {"name": "best static rule"}
    train: ClassVar[tuple[int, ...]] = tuple(trace_seed("train", at) for at in range(TRACES))
    test: ClassVar[tuple[int, ...]] = tuple(trace_seed("test", at) for at in range(TRACES))
    summary: str
    environment: Literal["ClusterGym/Rack-told-v0"]
    weights: RuleWeights
    limits: Limits

    @cached_property
    def _env(self) -> Any:
        return gymnasium.make(self.environment, on_illegal="raise").unwrapped

    def make(self, seed: int) -> Gangs:
        """Return the gangs of a seed's episode."""
        rng = random_streams.COMPARISON.generator(0)
        return episode_gangs(self._env.parameters, {"trace_seed": seed}, rng)

    def start(self, text: str, rights: Mapping[str, Any] | None) -> Any:
        """Start the process of a program."""
        return AgentProgram(text, self.limits, rights)

    def run(self, gangs: Gangs, program: AgentProgram) -> float:
        """Return the hours that gangs waited or stood still in an episode that a program plays."""
        seen, info = self._env.reset(options={"gangs": gangs})
        hours, begins, over = 0.0, True, False
        while not over:
            action = program.act(seen, info["action_mask"], begins)
            seen, reward, terminated, truncated, info = self._env.step(action)
            hours, begins, over = hours - float(reward), False, terminated or truncated
        return hours

    def compare(
        self, results: Sequence[float], seeds: Sequence[int]
    ) -> tuple[dict[str, float], dict[str, list[Any]]]:
        """Return the metrics of a program's episodes, and the hours of each by name."""
        planner = RackPlanner(self._env.parameters, np.array(self.weights))
        rng = random_streams.COMPARISON.generator(0)
        reference = [sum(planner.play(self.make(seed), rng)) for seed in seeds]
        ratio, low, high = compare_hours(results, reference)
        numbers = {"hours": [*results], "reference_hours": reference}
        metrics = {"combined_score": 1 / ratio, "score_low": 1 / high, "score_high": 1 / low}
        metrics |= {name: float(np.mean(column)) for name, column in numbers.items()}
        return {**metrics, "traces": len(seeds)}, numbers


def compare_hours(own: Sequence[float], reference: Sequence[float]) -> tuple[float, float, float]:
    """Return a ratio of two plays' hours, and its 95 % bootstrap interval, paired by trace."""
    count, hours = len(own), np.array([own, reference])
    drawn = random_streams.COMPARISON.generator(0).integers(0, count, (RESAMPLES, count))
    above, below = hours[:, drawn].sum(axis=2)
    low, high = np.percentile(above / below, [2.5, 97.5])
    return float(hours[0].sum() / hours[1].sum()), float(low), float(high)
