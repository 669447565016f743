"""The costs that a reward weighs, of an episode (compiled) and by job, by the rules of `scheduling_costs`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import InputError
from clustergym.envs import scheduling_costs as of_job
from clustergym.envs.scheduling_costs import (
    break_promise,
    compute_age_s,
    exceed_fairness,
    find_stall_end_s,
    meet_deadline,
    slow_down,
)
from clustergym.envs.vector.episode_state import EpisodeState
from clustergym.sim import columns as c
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_in_place, compile_part, let_compiled_call
from clustergym.sim.compiled.sums import pairwise_sum

OF_JOBS = ("jobs_in_system", "slowdown", "unfairness", "deadlines_met", "broken_promises")
"""Terms of rewards that are means over jobs."""
NAMES = (*OF_JOBS, "log_jct", "owed")
"""Costs in the order of their numbers."""
JOBS_IN_SYSTEM, SLOWDOWN, UNFAIRNESS, DEADLINES_MET, BROKEN_PROMISES, LOG_JCT, OWED = range(len(NAMES))

for rule in (*of_job.OF_ONE_JOB, find_stall_end_s):
    let_compiled_call(rule)


@compile_in_place
def _leave(
    episode: Episode, episode_state: EpisodeState, row: int, now_s: float, baseline: bool
) -> tuple[float, bool]:
    """Return when a job left, in seconds (inf: not by `now_s`), and whether it had completed."""
    if baseline:
        tick, completed = episode_state.reference[row, 0], episode_state.reference[row, 1] == 1
    else:
        tick, completed = episode.job[row, c.LEAVE], episode.job[row, c.PHASE] == c.COMPLETED
    leave_s = tick / c.TICKS_PER_S
    return (leave_s, completed) if tick != c.NEVER and leave_s <= now_s else (np.inf, False)


@compile_in_place
def end_of_reference_s(episode: Episode, episode_state: EpisodeState) -> float:
    """Return the seconds at which the last job leaves if the baseline policy schedules."""
    end_s = 0.0
    # Jobs that the baseline never finishes are no end.
    for row in range(episode.clock[c.JOBS]):
        if episode_state.reference[row, 0] != c.NEVER:
            end_s = max(end_s, episode_state.reference[row, 0] / c.TICKS_PER_S)
    return end_s


@compile_in_place
def end_of_stall_s(episode: Episode) -> float:
    """Return the seconds until which jobs that have not left cost, where the episode is stalled now."""
    figures = episode.figures[: episode.clock[c.JOBS]]
    end_s = episode.clock[c.END] / c.TICKS_PER_S
    return of_job.find_stall_end_s(end_s, figures[:, c.SUBMIT_S], figures[:, c.RUN_S])


@compile_part
def cost(episode: Episode, episode_state: EpisodeState, now_s: float, which: int, baseline: bool) -> float:
    """Compute cost `NAMES[which]` until a time, under the agent or, if `baseline`, the baseline policy."""
    if which == OWED:
        return episode_state.queue_costs[1 if baseline else 0]
    if which in (DEADLINES_MET, BROKEN_PROMISES):
        return _promises(episode, episode_state, now_s, which, baseline)
    n = episode.clock[c.JOBS]
    part = np.empty(n)
    _shares(episode, episode_state, now_s, which, baseline, part)
    # Summed in pairs as NumPy does, so that both engines give the same number to the last bit.
    total = pairwise_sum(part)
    # Not below a second: the logarithm of nothing is no cost.
    if which == LOG_JCT:
        return math.log(max(total / n, 1.0))
    return total / (3600.0 * n) if which == JOBS_IN_SYSTEM else total / n


@compile_in_place
def _shares(
    episode: Episode, episode_state: EpisodeState, now_s: float, which: int, baseline: bool, part: Floats
) -> None:
    """Write what each job contributes to a cost."""
    figures = episode.figures
    for row in range(len(part)):
        # A job that leaves later counts like one that never does: until now.
        tick = episode_state.reference[row, 0] if baseline else episode.job[row, c.LEAVE]
        part[row] = of_job.compute_age_s(now_s, tick / c.TICKS_PER_S, figures[row, c.SUBMIT_S])
        if which == SLOWDOWN:
            part[row] = of_job.slow_down(part[row], figures[row, c.RUN_S])
        elif which == UNFAIRNESS:
            part[row] = of_job.exceed_fairness(part[row], figures[row, c.FAIR_S])


@compile_in_place
def _promises(
    episode: Episode, episode_state: EpisodeState, now_s: float, which: int, baseline: bool
) -> float:
    """Return minus the share of jobs that met their deadline, or the share that broke a promised one."""
    n, met, broken = episode.clock[c.JOBS], 0, 0
    for row in range(n):
        deadline_s = episode.figures[row, c.DEADLINE_S]
        leave_s, completed = _leave(episode, episode_state, row, now_s, baseline)
        met += of_job.meet_deadline(completed, leave_s, deadline_s)
        broken += of_job.break_promise(now_s, completed, leave_s, deadline_s)
    return -(met / n) if which == DEADLINES_MET else broken / n


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
    rows = np.arange(len(jobs))[:, None]
    leave, ticks = episodes.job[rows, jobs, c.LEAVE], now[:, None]
    # A job that leaves after `now` counts as one that is there: of what comes later nothing may be known.
    gone = (leave != c.NEVER) & (leave <= ticks)
    now_s, leave_s = ticks / c.TICKS_PER_S, np.where(gone, leave / c.TICKS_PER_S, np.inf)
    completed = gone & (episodes.job[rows, jobs, c.PHASE] == c.COMPLETED)
    figures = (c.SUBMIT_S, c.RUN_S, c.FAIR_S, c.DEADLINE_S)
    submit_s, run_s, fair_s, deadline_s = (episodes.figures[rows, jobs, name] for name in figures)
    age_s = compute_age_s(now_s, leave_s, submit_s)
    costs: dict[str, Callable[[], Floats]] = {
        "jobs_in_system": lambda: age_s / 3600.0,
        "slowdown": lambda: slow_down(age_s, run_s),
        "unfairness": lambda: exceed_fairness(age_s, fair_s),
        "deadlines_met": lambda: np.where(meet_deadline(completed, leave_s, deadline_s), -1.0, 0.0),
        "broken_promises": lambda: 1.0 * break_promise(now_s, completed, leave_s, deadline_s),
    }
    total = sum((weight * costs[name]() for name, weight in reward.items()), np.zeros(jobs.shape))
    return np.where(jobs >= 0, total, 0.0), (jobs >= 0) & gone


def check_terms(reward: Mapping[str, float]) -> None:
    """Raise an InputError if a term of the reward is not a mean over jobs."""
    for name in reward:
        if name not in OF_JOBS:
            remedy = f"give terms among {', '.join(OF_JOBS)}"
            raise InputError("is no sum over jobs", field=f"env.reward.{name}", remedy=remedy)
