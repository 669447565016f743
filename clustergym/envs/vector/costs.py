"""The costs that a reward weighs, compiled: `envs.scheduling_costs` says what they are of one job."""

from __future__ import annotations

import math

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.envs import scheduling_costs as of_job
from clustergym.envs.vector.episode_state import EpisodeState
from clustergym.sim import columns as c
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_in_place, compile_part, let_compiled_call
from clustergym.sim.compiled.sums import pairwise_sum

NAMES = ("jobs_in_system", "slowdown", "unfairness", "deadlines_met", "broken_promises", "log_jct")
"""Costs in the order of their numbers."""
JOBS_IN_SYSTEM, SLOWDOWN, UNFAIRNESS, DEADLINES_MET, BROKEN_PROMISES, LOG_JCT = range(len(NAMES))

for rule in of_job.OF_ONE_JOB:
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
    for row in range(episode.clock[c.JOBS]):
        if episode_state.reference[row, 0] != c.NEVER:
            end_s = max(end_s, episode_state.reference[row, 0] / c.TICKS_PER_S)
    return end_s


@compile_part
def cost(episode: Episode, episode_state: EpisodeState, now_s: float, which: int, baseline: bool) -> float:
    """Compute cost `NAMES[which]` until a time, under the agent or, if `baseline`, the baseline policy."""
    if which in (DEADLINES_MET, BROKEN_PROMISES):
        return _promises(episode, episode_state, now_s, which, baseline)
    n = episode.clock[c.JOBS]
    part = np.empty(n)
    _shares(episode, episode_state, now_s, which, baseline, part)
    total = pairwise_sum(part)
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
        leave_s, _ = _leave(episode, episode_state, row, now_s, baseline)
        part[row] = of_job.compute_age_s(now_s, leave_s, figures[row, c.SUBMIT_S])
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
