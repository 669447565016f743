"""Auction: a policy whose jobs bid for GPUs by a rule of ten lines, read off a trained agent's weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.common.parameter_types import Period
from clustergym.scenario.policy import Decision, InformationClass, Policy, View

from .shared.marginal import times_or_guess

if TYPE_CHECKING:
    from clustergym.agents.auction import Bids


LEAST_LEFT = 1e-9
"""Iterations that a job about to end counts as having left."""


@dataclass
class Auction(Policy):
    """A policy whose jobs bid for GPUs, one start or one doubling after the other, by a rule of ten lines.

    The best bid wins GPUs until no start has room and no doubling bids above 0; then enlargements of running
    jobs that do not repay their restart are taken back, as in the learned auction. A job bids for its least
    count by little work left and long time in the system, and for twice its GPUs by what they add to its
    speed, less by how far they are above an even share, and more the longer the backlog. A restart that takes
    much of the time left lowers every bid, and so does a GPU type that suits other jobs better.

    It is the agent `profiled-clusters` of `policy=learned` with round weights, and without those that change
    little. docs/why-the-learned-agent-wins.md compares both.

    Parameters
    ----------
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy; None: at every event.
    """

    name: ClassVar[str] = "auction"
    information_class: ClassVar[InformationClass] = InformationClass.PROFILED
    round_s: Period | None = None

    def schedule(self, view: View) -> Decision:
        """Let jobs bid for all GPUs."""
        from clustergym.agents.auction import decide_by_scores, make_bids

        if not len(view):
            return Decision.keep(view)
        counts, available = view.setting.counts.astype(np.int64), view.available.astype(np.int64)
        bids = make_bids(view, times_or_guess(view))
        # A job's least GPU-seconds may be unknown (inf): it has no moves then, whatever it bids.
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = score(bids, counts, int(available.sum()))
        gpu_type, level = decide_by_scores(scores, available, counts, bids)
        runs = np.flatnonzero(gpu_type >= 0)
        return Decision(view.job[runs], gpu_type[runs], counts[level[runs]])


def score(bids: Bids, counts: Ints, available: int) -> Floats:
    """Return what each job bids for a count of each GPU type, once it has the count before, (n, T, K)."""
    fits, held = np.isfinite(bids.time_s), bids.held_level[:, None, None]
    gpu_s, left = bids.time_s * counts, np.maximum(bids.remaining, LEAST_LEFT)[:, None, None]
    work = left * gpu_s.min((1, 2), keepdims=True)
    known = work[np.isfinite(work)]
    starts = fits & (np.cumsum(fits, axis=2) == 1)
    speed = np.where(fits, 1.0 / bids.time_s, 0.0)
    added = (speed - np.where(starts, 0.0, np.roll(speed, 1, 2))) / np.where(starts, counts, counts / 2)
    # The log of a type's speed for a job beside its best type, and the mean of that over jobs.
    beside = np.log(work[..., 0] / (left[..., 0] * gpu_s.min(2)))
    beside = np.where(fits.any(2), beside, 0.0)[..., None]
    price = beside.sum(0) / np.maximum(fits.any(2).sum(0), 1)[:, None]
    same_type = bids.held_type[:, None, None] == np.arange(len(price))[:, None]
    within = np.where(held < 0, 0.0, np.where(same_type & (np.arange(len(counts)) <= held), 0.5, -0.5))
    # The rule.
    gain = np.log(np.maximum(added * work / left, 1e-6))
    age = np.log1p(bids.age_s / 60.0)[:, None, None]
    restart = bids.cost_s / (bids.cost_s + left * bids.time_s)
    either = 3.0 * gain + 1.5 * (beside - price) + 0.25 * age - 4.0 * restart + within
    start = 2.5 - np.log(work / np.exp(np.log(known).sum() / max(len(known), 1))) - 1.5 * price
    share = counts * len(left) / available
    backlog_h = known.sum() / available / 3600.0
    double = 2.7 - 1.25 * np.log(share) + 0.5 * np.log1p(backlog_h) - 3.0 * price
    bid: Floats = either + np.where(starts, start, double)
    return bid
