"""A task for programs that are agents of `Rack-told-v0`: who enters the table of its page is judged here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import gymnasium
import numpy as np

from clustergym.common import random_streams
from clustergym.common.errors import require
from clustergym.common.parameter_types import Condition
from clustergym.common.parameters import Parameters
from clustergym.envs.episodes import trace_seed
from clustergym.envs.racks.gangs import TRACES, episode_gangs
from clustergym.envs.racks.planning import WEIGHTS, RackPlanner
from clustergym.sim.program import AgentProgram, Limits

RESAMPLES = 5000
RuleWeights = Annotated[tuple[float, ...], Condition(lambda given: len(given) == WEIGHTS, f"({WEIGHTS})")]


@dataclass(frozen=True, eq=False)
class AgentTask(Parameters):
    """A task for programs with a class `Agent`, which play episodes of an environment.

    Attributes
    ----------
    summary : str
    environment : str
    weights : tuple of float
        Of the best static rule, the reference (`clustergym.envs.racks.planning`).
    limits : Limits
        Of a program, over all episodes of a mode together.
    """

    config_key: ClassVar[str] = "task"
    summary: str
    environment: Literal["ClusterGym/Rack-told-v0"]
    weights: RuleWeights
    limits: Limits
    train: ClassVar[tuple[int, ...]] = tuple(trace_seed("train", at) for at in range(TRACES))
    test: ClassVar[tuple[int, ...]] = tuple(trace_seed("test", at) for at in range(TRACES))

    @cached_property
    def _env(self) -> Any:
        return gymnasium.make(self.environment, on_illegal="raise").unwrapped

    def draw_sealed_seeds(self, sha256: str, beacon: str) -> list[int]:
        """Return the seeds of a program's sealed traces, which hang on it and on a later public value."""
        matched = re.match(random_streams.LATER_VALUE, beacon)
        require(matched is not None, "--beacon", beacon, "give 16 to 256 hexadecimal digits")
        return random_streams.derive_seeds([self.environment, sha256, beacon], TRACES)

    def play(
        self, text: str, rights: Mapping[str, Any] | None, seeds: Sequence[int], told: dict[str, Any]
    ) -> Iterator[float]:
        """Yield the hours that gangs waited or stood still in the episode of each seed."""
        told |= {"metric": "hours", "reference": "best static rule"}
        with AgentProgram(text, self.limits, rights) as program:
            yield from (play_episode(self._env, program, seed) for seed in seeds)

    def compare(
        self, results: Sequence[float], seeds: Sequence[int]
    ) -> tuple[dict[str, float], dict[str, list[Any]]]:
        """Return the metrics of a program's episodes, and the hours of each by name."""
        parameters, rng = self._env.parameters, random_streams.COMPARISON.generator(1)
        planner = RackPlanner(parameters, np.array(self.weights))
        drawn = (episode_gangs(parameters, {"trace_seed": seed}, rng) for seed in seeds)
        reference = [sum(planner.play(gangs, rng)) for gangs in drawn]
        ratio, low, high = compare_hours(results, reference)
        scores = {"combined_score": 1 / ratio, "score_low": 1 / high, "score_high": 1 / low}
        numbers = {"hours": [*results], "reference_hours": reference}
        means = {name: float(np.mean(column)) for name, column in numbers.items()}
        return {**scores, **means, "traces": len(seeds)}, numbers


def play_episode(env: Any, program: AgentProgram, seed: int) -> float:
    """Return the hours that gangs waited or stood still in an episode that a program plays."""
    seen, info = env.reset(options={"trace_seed": seed})
    cost, begins, over = 0.0, True, False
    while not over:
        action = program.act(seen, info["action_mask"], begins)
        seen, reward, terminated, truncated, info = env.step(action)
        cost, begins, over = cost - float(reward), False, terminated or truncated
    return cost


def compare_hours(own: Sequence[float], reference: Sequence[float]) -> tuple[float, float, float]:
    """Return a ratio of two plays' hours, and its 95 % bootstrap interval, paired by trace."""
    count = len(own)
    drawn = random_streams.COMPARISON.generator(0).integers(0, count, (RESAMPLES, count))
    hours = np.array([own, reference])
    above, below = hours[:, drawn].sum(axis=2)
    low, high = np.percentile(above / below, [2.5, 97.5])
    return float(hours[0].sum() / hours[1].sum()), float(low), float(high)
