"""Rewards: weighted sums of named terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Generic, TypeVar

from clustergym.common.errors import InputError, nearest, require_known

State = TypeVar("State")


class Reward(Generic[State]):
    """Computes rewards: minus the increase of a weighted sum of costs since the last step.

    Over an episode a term adds up to minus the cost at its end, as each cost is 0 at the start.

    Parameters
    ----------
    costs : mapping of str to callable
        What can be weighted: name -> cost of a state.
    weights : mapping of str to float
        Only these costs are computed.
    """

    def __init__(self, costs: Mapping[str, Callable[[State], float]], weights: Mapping[str, Any]) -> None:
        self.weights = {name: _weight(name, weight, costs) for name, weight in weights.items()}
        if not self.weights:
            raise InputError("names no term", field="reward", remedy=nearest("", costs))
        self._costs = {name: costs[name] for name in self.weights}
        self._last = dict.fromkeys(self.weights, 0.0)

    def reset(self) -> None:
        """Set the last known value of each cost to 0, for a new episode."""
        self._last = dict.fromkeys(self.weights, 0.0)

    def terms(self, state: State) -> dict[str, float]:
        """Return, by name, minus the increase of each cost since the last call, unweighted."""
        now = {name: float(cost(state)) for name, cost in self._costs.items()}
        terms = {name: self._last[name] - cost for name, cost in now.items()}
        # So the terms of an episode telescope: they add up to minus the last cost.
        self._last = now
        return terms

    def total(self, terms: Mapping[str, float]) -> float:
        """Return the reward: the weighted sum of its terms."""
        return sum(weight * terms[name] for name, weight in self.weights.items())


def _weight(name: str, weight: Any, known: Mapping[str, Any]) -> float:
    require_known(name, known, "term", f"reward.{name}")
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not isfinite(weight):
        raise InputError(f"{weight!r} is not a weight", field=f"reward.{name}", remedy="give a finite number")
    return float(weight)
