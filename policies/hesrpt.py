"""heSRPT: a policy that gives jobs of concave speedup the shares of least mean flow time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.common.parameter_types import Period
from clustergym.scenario.policy import Decision, InformationClass, View

from .shared.marginal import Target, times_or_guess
from .shared.restart_guard import GuardedPolicy

EXPONENTS = (0.01, 0.99)
"""Bounds of a fitted exponent: speedup must be strictly concave."""


def fit_speedup(counts: Ints, time_s: Floats) -> tuple[Floats, Floats]:
    """Fit speed = k^p / t on k GPUs to each job's iteration times; return p and t of each job.

    Parameters
    ----------
    counts : ndarray of int, shape (K,)
    time_s : ndarray of float, shape (n, T, K)
        Seconds per iteration, inf where infeasible.

    Returns
    -------
    (p, t)
        Exponents within `EXPONENTS`, and seconds per iteration on one GPU by the fit, shape
        (n,); t inf for a job that runs nowhere.
    """
    fastest = time_s.min(axis=1)
    known = np.isfinite(fastest)
    points = np.maximum(known.sum(axis=1), 1)
    x = np.where(known, np.log(counts), 0.0)
    y = np.where(known, -np.log(np.where(known, fastest, 1.0)), 0.0)
    x_mean, y_mean = x.sum(axis=1) / points, y.sum(axis=1) / points
    dx = np.where(known, x - x_mean[:, None], 0.0)
    dy = np.where(known, y - y_mean[:, None], 0.0)
    variance = (dx**2).sum(axis=1)
    slope = np.divide((dx * dy).sum(axis=1), variance, out=np.zeros(len(x)), where=variance > 0)
    exponent = np.clip(slope, *EXPONENTS)
    one_gpu_s = np.where(known.any(axis=1), np.exp(exponent * x_mean - y_mean), np.inf)
    return exponent, one_gpu_s


@dataclass
class HighEfficiencySrpt(GuardedPolicy):
    """The policy heSRPT, whose GPU shares have the least mean flow time for jobs of concave speedup.

    Source: Berg, Vesilo and Harchol-Balter, Performance Evaluation 2020, theorem 4.

    m jobs whose speedup on k servers is k^p, all there at the start, have the least mean flow time if the
    one of i-th greatest remaining size has the share (i/m)^(1/(1-p)) - ((i-1)/m)^(1/(1-p)) of the servers
    at every instant: the shortest job has the most, the longest has little, and no job has nothing.

    Differences from the paper: p is fitted for each job to its profile (least squares of log speed over log
    GPUs, the best type at each count), and the shares are scaled to add up to 1; sizes are in seconds on one
    GPU by that fit; shares are recomputed as jobs arrive, which the paper gives as a heuristic. Shares are
    rounded, as GPUs cannot be divided: down to a count, the shortest job first, each on the fastest type with
    room; then jobs without GPUs get their least count while there is room, and the rest goes, one enlargement
    at a time, where it speeds up a job most relative to its remaining iterations.

    Parameters
    ----------
    guard : bool
        Whether changes of running jobs have to repay their restarts (`GuardedPolicy`).
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy.
    """

    name: ClassVar[str] = "hesrpt"
    information_class: ClassVar[InformationClass] = InformationClass.PROFILED
    round_s: Period | None = 60.0

    def schedule(self, view: View) -> Decision:
        """Give each job its share of the GPUs, by the rank of its remaining size."""
        if not len(view):
            return Decision.keep(view)
        target = Target(view, times_or_guess(view), self.guard, self.find_guarded(view))
        exponent, one_gpu_s = fit_speedup(view.setting.counts, target.time_s)
        size_s = view.remaining_iterations * one_gpu_s
        # The shortest first: rounding down must not cost those whose shares are largest.
        order = np.lexsort((view.job, size_s))
        share = optimal_shares(size_s, exponent) * float(view.available.sum())
        counts, usable = view.setting.counts, np.isfinite(target.time_s)
        target.place(order, usable & (counts <= share[:, None, None]))
        # Rounding down leaves GPUs over, which the theorem gives to somebody at every instant.
        least = np.argmax(usable, axis=2)
        target.place(order, usable & (np.arange(len(counts)) == least[..., None]))
        if self.guard:
            target.keep_running(order)
        target.grow(1.0 / view.remaining_iterations)
        return target.decision()


def optimal_shares(size: Floats, exponent: Floats) -> Floats:
    """Return each job's heSRPT share of the cluster by remaining size and speedup k^exponent on k GPUs, (n,).

    The shares sum to 1.

    Parameters
    ----------
    size : ndarray of float, shape (n,)
        Remaining sizes.
    exponent : ndarray of float, shape (n,)
        p of each job, in (0, 1).
    """
    m = len(size)
    rank = np.empty(m, dtype=np.float64)
    # Theorem 4 counts from the longest: rank 1 has the smallest share.
    rank[np.argsort(-size, kind="stable")] = np.arange(1, m + 1)
    power = 1.0 / (1.0 - exponent)
    # Theorem 4. For equal exponents the sum telescopes to 1; for fitted ones it need not, hence the scaling.
    share = (rank / m) ** power - ((rank - 1.0) / m) ** power
    scaled: Floats = share / share.sum() if m else share
    return scaled
