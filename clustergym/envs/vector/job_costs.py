"""Compute what each job has added to an episode's cost so far, for credit by job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import InputError
from clustergym.envs.scheduling_costs import (
    break_promise,
    compute_age_s,
    exceed_fairness,
    meet_deadline,
    slow_down,
)
from clustergym.sim import columns as c
from clustergym.sim.compiled.episode import Episode

OF_JOBS = ("jobs_in_system", "slowdown", "unfairness", "deadlines_met", "broken_promises")
"""Terms of rewards that are means over jobs."""


class JobTimes(NamedTuple):
    """The times of some jobs: submission, end, deadline, run times without other jobs and with equal shares.

    All arrays have the same shape.

    Attributes
    ----------
    now_s, leave_s : ndarray of float
        Until when costs count; when the job left, inf: it has not.
    completed : ndarray of bool
    submit_s, run_s, fair_s, deadline_s : ndarray of float
    """

    now_s: Floats
    leave_s: Floats
    completed: Bools
    submit_s: Floats
    run_s: Floats
    fair_s: Floats
    deadline_s: Floats

    def cost(self, term: str) -> Floats:
        """Return each job's cost in a term of the reward, such as `slowdown`, in the shape of the times."""
        age_s = compute_age_s(self.now_s, self.leave_s, self.submit_s)
        if term == "jobs_in_system":
            return np.asarray(age_s / 3600.0)
        if term == "slowdown":
            return np.asarray(slow_down(age_s, self.run_s))
        if term == "unfairness":
            return np.asarray(exceed_fairness(age_s, self.fair_s))
        if term == "deadlines_met":
            return np.where(meet_deadline(self.completed, self.leave_s, self.deadline_s), -1.0, 0.0)
        broken = break_promise(self.now_s, self.completed, self.leave_s, self.deadline_s)
        return np.where(broken, 1.0, 0.0)


def read_times(episodes: Episode, jobs: Ints, now: Ints) -> JobTimes:
    """Return the times of jobs, given their positions in the traces of n episodes, shape (n, m)."""
    rows = np.arange(len(jobs))[:, None]
    leave, ticks = episodes.job[rows, jobs, c.LEAVE], now[:, None]
    gone = (leave != c.NEVER) & (leave <= ticks)
    return JobTimes(
        np.broadcast_to(ticks / c.TICKS_PER_S, leave.shape),
        np.where(gone, leave / c.TICKS_PER_S, np.inf),
        gone & (episodes.job[rows, jobs, c.PHASE] == c.COMPLETED),
        *(episodes.figures[rows, jobs, name] for name in (c.SUBMIT_S, c.RUN_S, c.FAIR_S, c.DEADLINE_S)),
    )


def job_costs(episodes: Episode, jobs: Ints, now: Ints, reward: Mapping[str, float]) -> tuple[Floats, Bools]:
    """Return each job's cost so far, a weighted sum of the reward's terms, and whether it has left.

    Both have shape (n, m).

    Parameters
    ----------
    episodes : Episode
    jobs : ndarray of int, shape (n, m)
        -1: no job; it costs 0.
    now : ndarray of int, shape (n,)
        Ticks.
    reward : mapping of str to float
        Weights of terms.

    Raises
    ------
    InputError
        If a term is no mean over jobs.
    """
    check_terms(reward)
    times, there = read_times(episodes, jobs, now), jobs >= 0
    total = sum((weight * times.cost(name) for name, weight in reward.items()), np.zeros(jobs.shape))
    return np.where(there, total, 0.0), there & np.isfinite(times.leave_s)


def check_terms(reward: Mapping[str, float]) -> None:
    """Raise an InputError if a term of the reward is not a mean over jobs."""
    for name in reward:
        if name not in OF_JOBS:
            remedy = f"give terms among {', '.join(OF_JOBS)}"
            raise InputError("is no sum over jobs", field=f"env.reward.{name}", remedy=remedy)
