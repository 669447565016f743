"""Reference rows of a comparison: a bound that no policy beats, and the auction fitted to the scenario.

Neither is a policy: both see the whole scenario, and the second its outcome. They show how much a policy
could still gain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from clustergym.agents.auction_checkpoints import load
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError, nearest
from clustergym.common.parameter_types import PositiveInt
from clustergym.common.parameters import checked
from clustergym.results.bounds.bounds import least_work, lower_bounds
from clustergym.results.bounds.certificates import programme_of
from clustergym.results.bounds.price_search import search
from clustergym.scenario.scenario import Scenario
from clustergym.training.compiled_episodes import AuctionEpisode


def lower_bound(scenario: Scenario, seed: int, parameters: Mapping[str, Any]) -> tuple[Floats, float]:
    """Return the JCTs of jobs alone, and the bound of `clustergym.results.bounds.bounds` on their mean."""
    _only(parameters)
    return least_work(scenario)[0], lower_bounds(scenario).jct_mean


def proved_bound(scenario: Scenario, seed: int, parameters: Mapping[str, Any]) -> tuple[Floats, float]:
    """Return the JCTs of jobs alone, and the bound of `results.bounds.price_search` on their mean."""
    _only(parameters)
    return least_work(scenario)[0], search(programme_of(scenario, "jct_mean")).value


def hindsight(scenario: Scenario, seed: int, parameters: Mapping[str, Any]) -> tuple[Floats, float]:
    """Return the JCTs of the auction with weights fitted to this scenario by CMA-ES, and their mean.

    Parameters: `checkpoint` to start from, `generations` of 16 candidates, `sigma`.
    """
    from clustergym.training.evolution import search_from

    given = {"checkpoint": "elastic-linear", "generations": 30, "sigma": 0.2, **parameters}
    _only(given, "checkpoint", "generations", "sigma")
    checked(given["generations"], PositiveInt, "policies.generations")
    if scenario.horizon_s is not None or (scenario.request_gpus == 0).any():
        message, remedy = (
            "needs an episode in which every job completes",
            "leave it out, or choose another trace",
        )
        raise InputError(message, field="policies.hindsight", remedy=remedy)
    start = load(str(given["checkpoint"]))
    episode = AuctionEpisode.of(scenario, start.information_class)
    search = search_from(start.weights, float(given["sigma"]), 16, seed, diagonal=False)
    best = episode.run(start.weights).jct_s
    for _ in range(int(given["generations"])):
        candidates = search.ask()
        outcomes = [episode.run(np.asarray(candidate)).jct_s for candidate in candidates]
        search.tell(candidates, [float(np.log(jct_s.mean())) for jct_s in outcomes])
        best = min([best, *outcomes], key=lambda jct_s: float(jct_s.mean()))
    return best, float(best.mean())


def _only(parameters: Mapping[str, Any], *known: str) -> None:
    for key in parameters:
        if key not in known:
            raise InputError("unknown parameter", field=f"policies.{key}", remedy=nearest(key, known))


BOUNDS: dict[str, Callable[[Scenario, int, Mapping[str, Any]], tuple[Floats, float]]] = {
    "lower_bound": lower_bound,
    "proved_bound": proved_bound,
    "hindsight": hindsight,
}
"""Name of a row -> function that returns the JCTs and the mean that the row shows."""
