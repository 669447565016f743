"""Whether a ranking of policies stays as it is when conditions change: Kendall's tau under seven changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

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
