"""What a training minimises on a window: named terms of how it ended, weighed and added."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.envs.scheduling_costs import Yardsticks
from clustergym.errors import InputError, nearest, require
from clustergym.metrics.fairness import UNFAIR_ABOVE
from clustergym.scenario import Scenario

Floats = npt.NDArray[np.float64]


def _log_mean_jct(jct_s: Floats, yardsticks: Yardsticks) -> float:
    return float(np.log(jct_s.mean()))


def _log_p99_jct(jct_s: Floats, yardsticks: Yardsticks) -> float:
    return float(np.log(np.percentile(jct_s, 99)))


def _log_mean_ftf(jct_s: Floats, yardsticks: Yardsticks) -> float:
    return float(np.log((jct_s / yardsticks.fair_s).mean()))


def _unfair_fraction(jct_s: Floats, yardsticks: Yardsticks) -> float:
    return float((jct_s / yardsticks.fair_s > UNFAIR_ABOVE).mean())


def _deadline_missed(jct_s: Floats, yardsticks: Yardsticks) -> float:
    due = np.isfinite(yardsticks.deadline_s)
    late = (yardsticks.submit_s + jct_s)[due] > yardsticks.deadline_s[due]
    return float(late.mean()) if len(late) else 0.0


TERMS: dict[str, Callable[[Floats, Yardsticks], float]] = {
    "jct_mean": _log_mean_jct,
    "jct_p99": _log_p99_jct,
    "ftf_mean": _log_mean_ftf,
    "unfair_fraction": _unfair_fraction,
    "deadline_missed": _deadline_missed,
}
"""Term -> its value for the JCTs of a window, after the metric of the same name (`deadline_missed`: 1 less
`deadline_satisfaction`). Those that are no shares are taken as their logs, so that every window counts alike.
Fairness is that of the metrics: against fluid sharing capped at the request, computed once a window."""


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
        For an unknown term, a weight that is no number from 0, or no term at all.
    """

    weights: Mapping[str, Any]

    def __post_init__(self) -> None:
        for name, weight in self.weights.items():
            if name not in TERMS:
                remedy = nearest(str(name), TERMS)
                raise InputError(f"unknown term {name!r}", field="agent.objective", remedy=remedy)
            number = isinstance(weight, int | float) and not isinstance(weight, bool)
            good = number and math.isfinite(weight) and weight >= 0
            require(good, f"agent.objective.{name}", weight, "give a number from 0")
        some = any(weight > 0 for weight in self.weights.values())
        require(some, "agent.objective", dict(self.weights), f"weigh one of {', '.join(TERMS)}")

    def judge(self, scenario: Scenario) -> Callable[[Floats], float]:
        """Return what gives the objective of a window's JCTs, seconds, shape (n,)."""
        yardsticks = Yardsticks.of(scenario)
        parts = [(float(weight), TERMS[name]) for name, weight in self.weights.items() if weight > 0]
        return lambda jct_s: sum(weight * term(jct_s, yardsticks) for weight, term in parts)
