"""Sia: heterogeneity-aware, goodput-optimised scheduling by an integer program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from clustergym.errors import require
from clustergym.policy import Decision, InformationClass, Policy, Setting, View
from policies.shared.goodput import ObservedSpeeds, goodput, open_configurations, restart_factor
from policies.shared.integer_programs import FAILED, LIMIT, Choices, check_solver, solve
from policies.shared.requests import held_level

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass
class Sia(Policy):
    """Sia (SOSP '23), section 3.4.

    Configurations are (type, count): powers of two inside a node, then whole nodes. The goodput of a
    job on each, over the least of its row, is multiplied on all but the one it holds by the restart
    factor max(age - restarts x S, 0) / (age + S), S the seconds of a restart; raised to `power`, the
    sum over jobs is optimised with at most one configuration per job and the capacity of each type.
    A job without GPUs counts `incentive`. Iteration times are bootstrapped from the least count that
    fits on each type, scaled linearly, and corrected by what the job is observed to do (section 3.2).

    Differences from the paper: a job's global batch does not change, so goodput is throughput (see
    `policies.shared.goodput`); the restart factor applies to jobs that hold GPUs, for a waiting one it
    would say nothing about which configuration is best; the allocation incentive is always on. Its
    observations are one time per configuration, where Sia fits a model of them; on a type without
    observations the efficiencies of the others count.

    Parameters
    ----------
    power : float
        Fairness power p, not 0; below 0 the sum is minimised.
    incentive : float
        Allocation incentive lambda: what a job that gets nothing costs (p < 0), or loses.
    growth : int or None
        A job gets at most so many times the most GPUs it has held, from its least count on; None: no
        limit.
    solver : str
        `highs` or `scip`.
    gap : float
        Relative gap at which a solution counts as optimal.
    nodes : int
        Most nodes of a search.
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy.
    """

    name: ClassVar[str] = "sia"
    information_class: ClassVar[InformationClass] = InformationClass.BOOTSTRAP
    power: float = -0.5
    incentive: float = 1.1
    growth: int | None = 2
    solver: str = "scip"
    gap: float = 1e-4
    nodes: int = 10_000
    round_s: float | None = 60.0

    def __post_init__(self) -> None:
        require(self.power != 0, "policy.power", self.power, "give a power above or below 0")
        least = "give at least 1, or a waiting job is worth more than a running one"
        require(self.power > 0 or self.incentive >= 1, "policy.incentive", self.incentive, least)
        require(self.incentive >= 0, "policy.incentive", self.incentive, "give a number from 0")
        require(self.growth is None or self.growth >= 2, "policy.growth", self.growth, "give 2 or more")
        require(0 <= self.gap < 1, "policy.gap", self.gap, "give a fraction below 1")
        require(self.nodes >= 1, "policy.nodes", self.nodes, "give at least 1")
        check_solver(self.solver)
        self._forget()

    def _forget(self) -> None:
        self._speeds = ObservedSpeeds()
        self._failures = self._limits = 0
        self._worst_gap = 0.0

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Forget all observations and counts."""
        self._forget()

    def counters(self) -> Mapping[str, int]:
        """Return solver failures, searches that hit the node limit, and the worst gap in millionths."""
        return {
            "solver_failures": self._failures,
            "node_limits": self._limits,
            "worst_gap_ppm": round(self._worst_gap * 1e6),
        }

    def schedule(self, view: View) -> Decision:
        """Solve the integer program; on failure keep what runs and fill up greedily."""
        if not len(view):
            return Decision.keep(view)
        self._speeds.observe(view)
        time_s = self._speeds.estimates(view, view.iteration_time_s())
        most_gpus = None if self.growth is None else self._speeds.most_gpus(view)
        allowed = open_configurations(view, most_gpus, self.growth or 1)
        worth = np.where(allowed, self._worth(view, time_s), -np.inf)
        types, counts = worth.shape[1:]
        kind, level = np.divmod(np.arange(types * counts), counts)
        used = np.isfinite(worth).reshape(len(view), -1).any(axis=0)
        kind, level = kind[used], level[used]
        problem = Choices(worth[:, kind, level], kind, view.setting.counts[level], view.available)
        solution = solve(problem, self._held(view, kind, level), self.solver, self.gap, self.nodes)
        self._failures += solution.status == FAILED
        self._limits += solution.status == LIMIT
        self._worst_gap = max(self._worst_gap, solution.gap)
        row = np.flatnonzero(solution.choice >= 0)
        choice = solution.choice[row]
        decision = Decision(view.job[row], kind[choice], problem.gpus[choice])
        self._speeds.decided(view, decision)
        return decision

    def _held(self, view: View, kind: Ints, level: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the index of the configuration each job holds, -1: none, shape (n,)."""
        same = (view.gpu_type[:, None] == kind) & (held_level(view)[:, None] == level)
        return np.where(same.any(axis=1), np.argmax(same, axis=1), -1)

    def _worth(self, view: View, time_s: Floats) -> Floats:
        """Return what an allotment adds to the objective, to be maximised, shape (n, T, K)."""
        good = goodput(time_s, view.global_batch[:, None, None])
        least = np.where(good > 0, good, np.inf).min(axis=(1, 2))[:, None, None]
        scaled = np.where(good > 0, good / least, 0.0) * restart_factor(view)
        with np.errstate(divide="ignore"):
            powered = scaled**self.power
        worth = self.incentive - powered if self.power < 0 else self.incentive + powered
        return np.where(good > 0, worth, -np.inf)
