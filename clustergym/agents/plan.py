"""A schedule that was made in hindsight, and the policy that carries it out."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.scenario.policy import Decision, InformationClass, Policy, View

NAME = "best-known"
"""Of the policy in its log, and of the entry's folder on a board."""


class Plan(NamedTuple):
    """A schedule of a known trace, stored as the weights and biases of the auction that produces it.

    Attributes
    ----------
    weights : ndarray of float
        As `clustergym.agents.auction.score_move` takes them.
    bias : ndarray of float, shape (n, T, 2)
        As of `clustergym.agents.auction.FeatureInputs`, for all jobs of the trace; minus infinity: the job
        never starts on that type, and waits for another.
    """

    weights: Floats
    bias: Floats


class PlanPolicy(Policy):
    """A policy that carries out a schedule which was searched for with the whole trace known."""

    name: ClassVar[str] = NAME
    information_class = InformationClass.CLAIRVOYANT

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self._plan = plan

    def schedule(self, view: View) -> Decision:
        """Return the decision of a hindsight schedule, replayed as an auction with its weights and biases."""
        from clustergym.agents.auction import decide_biased, make_bids

        if not len(view):
            return Decision.keep(view)
        counts, bias = view.setting.counts.astype(np.int64), self._plan.bias[view.job]
        bids, available = make_bids(view, view.iteration_time_s()), view.available.astype(np.int64)
        gpu_type, level = decide_biased(self._plan.weights, bias, available, counts, bids)
        runs = np.flatnonzero(gpu_type >= 0)
        return Decision(view.job[runs], gpu_type[runs], counts[level[runs]])
