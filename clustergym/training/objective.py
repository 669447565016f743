"""The objective that a training minimises on a window: a weighted sum of named terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError, nearest, require
from clustergym.common.parameter_types import NonNegativeFloat
from clustergym.common.parameters import checked
from clustergym.envs.scheduling_costs import Yardsticks
from clustergym.results.metrics.fairness import UNFAIR_ABOVE
from clustergym.scenario.scenario import Scenario


def _deadline_missed(jct_s: Floats, yardsticks: Yardsticks) -> float:
    due = np.isfinite(yardsticks.deadline_s)
    late = (yardsticks.submit_s + jct_s)[due] > yardsticks.deadline_s[due]
    return float(late.mean()) if len(late) else 0.0


TERMS: dict[str, Callable[[Floats, Yardsticks], float]] = {
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
    """A weighted sum of terms, to be minimised.

    Parameters
    ----------
    weights : mapping of str to float
        Name of a term -> its weight from 0; 0 leaves it out.

    Raises
    ------
    InputError
        For an unknown term, a weight that is not a number from 0, or if no term is weighed.
    """

    weights: Mapping[str, Any]

    def __post_init__(self) -> None:
        for name, weight in self.weights.items():
            if name not in TERMS:
                remedy = nearest(str(name), TERMS)
                raise InputError(f"unknown term {name!r}", field="agent.objective", remedy=remedy)
            checked(weight, NonNegativeFloat, f"agent.objective.{name}")
        some = any(weight > 0 for weight in self.weights.values())
        require(some, "agent.objective", dict(self.weights), f"weigh one of {', '.join(TERMS)}")

    def judge(self, scenario: Scenario) -> Callable[[Floats], float]:
        """Return a function from the JCTs of a window (seconds, shape (n,)) to its objective."""
        yardsticks = Yardsticks.of(scenario)
        parts = [(float(weight), TERMS[name]) for name, weight in self.weights.items() if weight > 0]
        return lambda jct_s: sum(weight * term(jct_s, yardsticks) for weight, term in parts)
