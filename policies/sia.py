"""Sia: a policy that chooses GPU types, counts and batches for goodput, by an integer program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import require
from clustergym.common.parameter_types import AtLeastTwo, NonNegativeFloat, NonZeroFloat, Period
from clustergym.scenario.policy import Decision, InformationClass, Setting, View

from .shared.goodput import (
    GoodputPolicy,
    ObservedSpeeds,
    batch_options,
    get_requested_time_s,
    goodput_at_best_batch,
    open_configurations,
    restart_factor,
)
from .shared.integer_programs import Choices
from .shared.requests import find_held_level


@dataclass
class Sia(GoodputPolicy):
    """The policy Sia (SOSP '23), which chooses GPU types, counts and batches of the greatest total goodput.

    Configurations are (type, count): powers of two inside a node, then whole nodes. The value of a
    configuration for a job is its goodput divided by the job's least goodput, times the restart factor
    max(age - restarts x S, 0) / (age + S) unless the job holds it already, with S the seconds of a
    restart. The sum over jobs of these values, raised to `power`, is optimised with at most one
    configuration per job and within the capacity of each type; a job without GPUs has the value
    `incentive`. Iteration times are bootstrapped from the least count that fits on each type, scaled
    linearly, and corrected by what the job is observed to do (section 3.2).

    A job's global batch is the one of greatest goodput, throughput times statistical efficiency, on its
    allotment; it is chosen anew at every decision point, and changes without a restart. While a
    job restarts, its allocation stays.

    Differences from the paper: the batch is one of a few (`View.batch_options`), where Sia chooses the local
    batch from a range; its efficiency is known, where Sia measures the noise scale at the present batch; the
    allocation incentive is always on. Its observations are one time per configuration, where Sia fits a model
    of them: the seconds that a configuration takes beyond the bootstrap are added at every batch. A type
    without observations takes the efficiencies of the others.

    Parameters
    ----------
    batch, solver, gap, nodes
        As of `policies.shared.goodput.GoodputPolicy`.
    hold : bool
        Whether a job that restarts keeps its allocation until it works (`preserve_ckpt_allocs` of the
        published simulator).
    waiting_factor : bool
        Whether the restart factor applies to waiting jobs too, as in the published simulator: one of
        age under S is then worth less than half. A job whose launch costs nothing has factor 1, and so
        have all waiting jobs where the policy is asked at events alone, for nobody else may come.
    power : float
        Fairness power p, not 0; below 0 the sum is minimised.
    incentive : float
        Allocation incentive lambda: what a job that gets nothing costs (p < 0), or loses.
    growth : int or None
        A job gets at most so many times the most GPUs it has held, from its least count on; None: no
        limit.
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy.
    """

    name: ClassVar[str] = "sia"
    information_class: ClassVar[InformationClass] = InformationClass.BOOTSTRAP
    hold: bool = True
    waiting_factor: bool = True
    power: NonZeroFloat = -0.5
    incentive: NonNegativeFloat = 1.1
    growth: AtLeastTwo | None = 2
    round_s: Period | None = 60.0

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = "give at least 1, or a waiting job is worth more than a running one"
        require(self.power > 0 or self.incentive >= 1, "policy.incentive", self.incentive, remedy)
        self._forget()

    def _forget(self) -> None:
        self._speeds = ObservedSpeeds()
        self.forget_solutions()
        self._worst_gap = 0.0

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Forget the observed speeds and the solver's counters of the last run."""
        self._forget()

    def counters(self) -> Mapping[str, int]:
        """Return how many jobs choose a batch, and the solver's failures, limits met and worst gap (ppm)."""
        return {**super().counters(), "worst_gap_ppm": round(self._worst_gap * 1e6)}

    def schedule(self, view: View) -> Decision:
        """Choose GPUs by an integer program; if that fails, keep running jobs and start others greedily."""
        if not len(view):
            return Decision.keep(view)
        options = batch_options(self.batch, view)
        self._speeds.observe(view, options)
        time_s = self._speeds.estimates(view, get_requested_time_s(view, options))
        good, batch = goodput_at_best_batch(view, options, time_s)
        most_gpus = None if self.growth is None else self._speeds.most_gpus(view)
        allowed = open_configurations(view, most_gpus, self.growth or 1)
        worth = np.where(allowed, self._worth(view, good), -np.inf)
        # As preserve_ckpt_allocs of the published simulator: a job that restarts is no part of the program.
        restarting = (view.standstill_s > 0) & (view.gpus > 0) & self.hold
        on, at = self._solved(view, worth, restarting)
        row = np.flatnonzero(on >= 0)
        best = None if options is None else batch[row, on[row], at[row]]
        decision = Decision(view.job[row], on[row], view.setting.counts[at[row]], batch=best)
        self._speeds.record_decision(view, decision, options)
        return decision

    def _solved(self, view: View, worth: Floats, stays: Bools) -> tuple[Ints, Ints]:
        """Solve for all jobs but those of `stays`; return each job's type and count index; -1: none."""
        on, at = np.where(stays, view.gpu_type, -1), np.where(stays, find_held_level(view), -1)
        others = np.flatnonzero(~stays)
        types, counts = worth.shape[1:]
        # Configurations that no job may have now are left out; the program has a column for each of the rest.
        used = np.flatnonzero(np.isfinite(worth[others]).reshape(len(others), types * counts).any(axis=0))
        if not len(used):
            return on, at
        gpu_type, level = np.divmod(used, counts)
        free = view.available - np.bincount(on[stays], view.gpus[stays], types).astype(np.int64)
        problem = Choices(worth[others][:, gpu_type, level], gpu_type, view.setting.counts[level], free)
        held = self._find_held(view, gpu_type, level)[others]
        solution = self.solve(problem, held)
        self._worst_gap = max(self._worst_gap, solution.gap)
        some = solution.choice >= 0
        on[others[some]], at[others[some]] = gpu_type[solution.choice[some]], level[solution.choice[some]]
        return on, at

    def _find_held(self, view: View, gpu_type: Ints, level: Ints) -> Ints:
        """Return the index of the configuration that each job holds, shape (n,); -1: none."""
        same = (view.gpu_type[:, None] == gpu_type) & (find_held_level(view)[:, None] == level)
        return np.where(same.any(axis=1), np.argmax(same, axis=1), -1)

    def _worth(self, view: View, good: Floats) -> Floats:
        """Return the coefficient of each allotment in the maximised objective, shape (n, T, K)."""
        # Section 3.4: each row of the goodput matrix is divided by its least entry, so that jobs are
        # comparable.
        least = np.where(good > 0, good, np.inf).min(axis=(1, 2))[:, None, None]
        # Asked at events alone, waiting jobs would have no later round in which their factor has grown.
        waiting = self.waiting_factor and view.setting.round_s is not None
        scaled = np.where(good > 0, good / least, 0.0) * restart_factor(view, waiting)
        with np.errstate(divide="ignore"):
            powered = scaled**self.power
        # For p < 0 the program minimises powers and a job without GPUs costs lambda; the same as maximising
        # what each allotment saves of that.
        worth = self.incentive - powered if self.power < 0 else self.incentive + powered
        return np.where(good > 0, worth, -np.inf)
