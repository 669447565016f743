"""Optimus: a policy that gives GPUs to the jobs whose remaining time they shorten most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.common.parameter_types import Period
from clustergym.scenario.policy import Decision, InformationClass, View

from .shared.finish_times import standstill_s
from .shared.integer_programs import Choices, improve_choice
from .shared.marginal import times_or_guess
from .shared.requests import find_held_level
from .shared.restart_guard import GuardedPolicy


@dataclass
class Optimus(GuardedPolicy):
    """The policy Optimus (EuroSys '18), which gives GPUs to the job whose remaining time falls most per GPU.

    Every job first gets the least count it runs on, those with the least remaining time first; then,
    one at a time, the job gets more GPUs whose estimated remaining time falls most per added GPU,
    until no GPU is left or none helps. Each round starts anew.

    Differences from the paper: jobs have no parameter servers, so a GPU is the one resource; counts grow
    to any that is allowed, not by one; GPU types differ, so a job's type is chosen with its count, and a
    change of type counts all GPUs it takes. Speeds are profiles of data parallelism instead of fits to short
    runs; a job without such a profile runs as requested, at a guessed speed.

    Parameters
    ----------
    guard : bool
        Whether rescaling has to repay its restart (`GuardedPolicy`).
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy.
    """

    name: ClassVar[str] = "optimus"
    information_class: ClassVar[InformationClass] = InformationClass.DATA_PARALLEL
    round_s: Period | None = 60.0

    def schedule(self, view: View) -> Decision:
        """Give every job its fewest GPUs, then more GPUs one step at a time to the job that gains most."""
        if not len(view):
            return Decision.keep(view)
        # Section 4.1: the estimated remaining time on every allotment is all that decides.
        left_s = self._left_s(view)
        stays = np.flatnonzero(self.find_guarded(view))
        only = np.zeros_like(left_s, dtype=np.bool_)
        only[stays, view.gpu_type[stays], find_held_level(view)[stays]] = True
        # What the guard keeps: value 0 cannot be improved, and all else is impossible.
        left_s[stays] = np.where(only[stays], 0.0, np.inf)
        types, counts = left_s.shape[1:]
        gpu_type, level = np.divmod(np.arange(types * counts), counts)
        flat = left_s.reshape(len(view), -1)
        problem = Choices(-flat, gpu_type, view.setting.counts[level], view.available)
        # Section 4.1: after the first allotment of each job the greatest marginal gain decides, GPU by GPU.
        choice = improve_choice(problem, self._first(problem, flat), none=-np.inf)
        row = np.flatnonzero(choice >= 0)
        return Decision(view.job[row], gpu_type[choice[row]], problem.gpus[choice[row]])

    def _left_s(self, view: View) -> Floats:
        """Return the estimated seconds until each job ends, with `guard` restart included, (n, T, K)."""
        time_s = np.where(view.feasible, times_or_guess(view), np.inf)
        work_s: Floats = view.remaining_iterations[:, None, None] * time_s
        return work_s + standstill_s(view) if self.guard else work_s

    def _first(self, problem: Choices, left_s: Floats) -> Ints:
        """Return each job's smallest allotment, given in order of remaining time while GPUs are free."""
        usable = np.isfinite(left_s)
        count = np.where(usable, problem.gpus, np.iinfo(np.int64).max)
        least = usable & (count == count.min(axis=1, keepdims=True))
        shown_s = np.where(least, left_s, np.inf)
        free, choice = problem.capacity.copy(), np.full(len(left_s), -1, dtype=np.int64)
        for row in np.argsort(shown_s.min(axis=1), kind="stable"):
            fits_s = np.where(problem.gpus <= free[problem.gpu_type], left_s[row], np.inf)
            # The least count if it has room, else the fastest of whatever has.
            options = np.where(least[row], fits_s, np.inf)
            column = int(np.argmin(options if np.isfinite(options).any() else fits_s))
            if np.isfinite(fits_s[column]):
                choice[row] = column
                free[problem.gpu_type[column]] -= problem.gpus[column]
            if not free.any():
                break
        return choice
