"""A schedule that was made in hindsight, and the policy that carries it out."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.scenario.policy import Decision, InformationClass, Policy, View

NAME = "best-known"
"""Of the policy in its log, and of the entry's folder on a board."""


class Plan(NamedTuple):
    """A schedule of a scenario, as the weights and biases of an auction that makes it.

    Attributes
    ----------
    weights : ndarray of float
        As `clustergym.agents.auction.score_of` takes them.
    bias : ndarray of float, shape (n, T, 2)
        As `clustergym.agents.biased_auction.decide` takes it; minus infinity: the job never starts on that
        type, and waits for another.
    """

    weights: Floats
    bias: Floats


class Planned(Policy):
    """A policy that carries out the plan of a search in hindsight."""

    name: ClassVar[str] = NAME
    information_class = InformationClass.CLAIRVOYANT

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self._plan = plan

    def schedule(self, view: View) -> Decision:
        """Hold the auction with the plan's weights and biases."""
        from clustergym.agents.auction import bids_of
        from clustergym.agents.biased_auction import decide

        if not len(view):
            return Decision.keep(view)
        counts, rows = view.setting.counts.astype(np.int64), view.job.astype(np.int64)
        bids, available = bids_of(view, view.iteration_time_s()), view.available.astype(np.int64)
        kind, level = decide(self._plan.weights, self._plan.bias, available, counts, bids, rows)
        runs = np.flatnonzero(kind >= 0)
        return Decision(view.job[runs], kind[runs], counts[level[runs]])
