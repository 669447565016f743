"""Whether a ranking of policies stays as it is when the conditions change: Kendall's tau under seven changes.

To compare tuned policies, each keeps the best of 20 settings drawn from its ranges on two train cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from clustergym.common import random_streams
from clustergym.common.errors import InputError
from clustergym.results.measured_run import simulate
from clustergym.scenario.by_name import compose
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.scenario.scenario import Scenario
from clustergym.scenario.scenario_config import build_scenario


@dataclass(frozen=True)
class Change:
    """A change of the simulated conditions, such as the load, under which policies are compared again.

    Attributes
    ----------
    name : str
    overrides : tuple of str
        Words of the configuration.
    seeds : int
        What is added to the seed of each cell.
    adapt : callable or None
        Changes the scenario once it is built; its seed is the second argument.
    """

    name: str
    overrides: tuple[str, ...] = ()
    seeds: int = 0
    adapt: Callable[[Scenario, int], Scenario] | None = None


def scale_restarts(factor: float) -> Callable[[Scenario, int], Scenario]:
    """Return a function that multiplies a scenario's checkpoint and parallelism-search times by a factor."""

    def adapt(scenario: Scenario, _: int) -> Scenario:
        costs = scenario.costs
        slower = {name: factor * each for name, each in costs.search_s_per_gpu.items()}
        longest = {name: factor * each for name, each in costs.search_s_max.items()}
        costs = replace(costs, search_s_per_gpu=slower, search_s_max=longest)
        return replace(scenario, costs=costs, checkpoint_s=factor * scenario.checkpoint_s)

    return adapt


def list_changes(load: float, cap_s: float, apart_s: float = 60.0) -> tuple[Change, ...]:
    """Return changes of conditions to rank policies under, such as load `load`, or durations up to `cap_s`.

    Parameters
    ----------
    load : float
        Offered load to change to.
    cap_s : float
        Longest duration to change to, seconds: a cap where there is none, a week where there is one.
    apart_s : float
        Least seconds between decisions by the common clock.
    """
    return (
        Change("load", (f"trace.load={load:g}",)),
        Change("restarts x 0.5", adapt=scale_restarts(0.5)),
        Change("restarts x 2", adapt=scale_restarts(2.0)),
        Change("other seeds", seeds=500),
        Change("estimates off by 10 %", ("scenario.estimates_off=0.1",)),
        Change("longest duration", (f"trace.max_duration_s={cap_s:g}",)),
        Change("common clock", ("scenario.rounds=event", f"scenario.apart_s={apart_s:g}")),
    )


def compute_tau(values: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Return Kendall's tau-b between two rankings of the same policies, given a metric's values."""
    from scipy.stats import kendalltau

    names = sorted(values)
    return float(kendalltau([values[name] for name in names], [other[name] for name in names]).statistic)


def measure_cells(
    overrides: Sequence[str], change: Change | None, policies: Sequence[str], seeds: Sequence[int]
) -> Iterator[tuple[str, int, float]]:
    """Simulate each policy with each seed; yield policy, seed and mean JCT (s) of all submitted jobs."""
    more = () if change is None else change.overrides
    for seed in seeds:
        own = seed + (0 if change is None else change.seeds)
        words = [*overrides, *more, f"seed={own}"]
        scenario = build_scenario(compose(words))
        if change is not None and change.adapt is not None:
            scenario = change.adapt(scenario, own)
        for policy in policies:
            config = compose([*words, *_policy_words(policy)])
            made = make_policy(config["policy"]), make_placer(config["placer"])
            metrics = simulate(scenario, *made, seed=own).metrics
            yield policy, seed, float(metrics["jct_mean_censored"] or np.nan)


def _policy_words(policy: str) -> list[str]:
    name, *parameters = policy.split()
    return [f"policy={name}", *(f"policy.{word}" for word in parameters)]


SETTINGS = 20
TRAIN_SEEDS = (0, 1)


@dataclass(frozen=True)
class ParameterRange:
    """The range of values from which a policy's parameter is sampled.

    Attributes
    ----------
    low, high : float
        Both inclusive.
    logarithmic : bool
        Whether values are drawn evenly by their logarithm.
    whole : bool
        Whether values are whole numbers.
    source : str
        Who publishes the range.
    times : tuple of float
        For a parameter that is a list: these values, each times the one that is drawn. Empty: not a list.
    """

    low: float
    high: float
    logarithmic: bool = False
    whole: bool = False
    source: str = ""
    times: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.low <= self.high or (self.logarithmic and self.low <= 0):
            message = f"{self.low:g} to {self.high:g} is no range"
            raise InputError(message, field="ranges", remedy="give low <= high, above 0 if logarithmic")

    def value(self, chance: float) -> float | int | list[float]:
        """Return the parameter's value at a quantile of the range, from 0 to 1."""
        if self.times:
            return [float(f"{each * self._between(chance):.6g}") for each in self.times]
        if self.whole:
            if self.logarithmic:
                return round(self._between(chance))
            return math.floor(self.low + chance * (self.high - self.low + 1))
        return float(f"{self._between(chance):.6g}")

    def _between(self, chance: float) -> float:
        if self.logarithmic:
            return math.exp(math.log(self.low) + chance * (math.log(self.high) - math.log(self.low)))
        return self.low + chance * (self.high - self.low)


Setting = tuple[tuple[str, float | int | list[float]], ...]
"""Values of parameters by name."""


def draw_settings(
    ranges: Mapping[str, ParameterRange], number: int = SETTINGS, seed: int = 0
) -> list[Setting]:
    """Sample parameter settings at random from ranges; equal ranges and seeds give equal settings."""
    if not ranges or number < 1:
        raise InputError("nothing to draw", field="ranges", remedy="give a range, and at least one setting")
    chance = random_streams.TUNED_SETTINGS.generator(seed).random((number, len(ranges)))
    return [
        tuple((name, one.value(float(at))) for (name, one), at in zip(ranges.items(), row, strict=True))
        for row in chance
    ]


def choose_tuned(
    policy: str,
    ranges: Mapping[str, ParameterRange],
    overrides: Sequence[str],
    seeds: Sequence[int] = TRAIN_SEEDS,
    number: int = SETTINGS,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[str, list[tuple[str, float]]]:
    """Try random settings of a policy; return the one with the least mean JCT, and all with their JCTs (s).

    The policy with its own defaults is tried first, and stays where no setting is better.

    Parameters
    ----------
    policy : str
    ranges : mapping of str to ParameterRange
        By parameter of the policy.
    overrides : sequence of str
        Words of the configuration of the train cells.
    seeds : sequence of int
        A cell each.
    number : int
        Settings that are drawn.
    tell : callable
        Called with a text on each trial and its mean JCT.

    Returns
    -------
    str, list of (str, float)
        As `measure_cells` takes it, `NAME KEY=VALUE …`; each that was tried with its mean JCT over cells, s.
    """
    words = [policy]
    words += [
        " ".join([policy, *(f"{key}={value}".replace(" ", "") for key, value in setting)])
        for setting in draw_settings(ranges, number)
    ]
    tried = []
    for word in dict.fromkeys(words):
        jct_s = float(np.mean([each for _, _, each in measure_cells(overrides, None, [word], seeds)]))
        tell(f"{word}: {jct_s:.6g} s")
        tried.append((word, jct_s))
    return min(tried, key=lambda one: one[1])[0], tried
