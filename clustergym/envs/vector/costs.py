"""The costs that a reward weighs, compiled: `clustergym.envs.scheduling_costs`."""

from __future__ import annotations

import numpy as np

from clustergym.arrays import Floats
from clustergym.compiled import columns as c
from clustergym.compiled.episode import Episode
from clustergym.compiled.numba_cache import compiled_in_place, compiled_part
from clustergym.envs.scheduling_costs import BOUND_S
from clustergym.envs.vector.observation import pairwise_sum

NAMES = ("jobs_in_system", "slowdown", "unfairness", "deadlines_met", "broken_promises")
"""Costs in the order of their numbers."""
JOBS_IN_SYSTEM, SLOWDOWN, UNFAIRNESS, DEADLINES_MET, BROKEN_PROMISES = range(len(NAMES))


@compiled_part
def cost(episode: Episode, now_s: float, which: int) -> float:
    """Return a cost of the episode up to a time."""
    if which in (DEADLINES_MET, BROKEN_PROMISES):
        return _promises(episode, now_s, which)
    n = episode.clock[c.JOBS]
    part = np.empty(n)
    _shares(episode, now_s, which, part)
    total = pairwise_sum(part)
    return total / (3600.0 * n) if which == JOBS_IN_SYSTEM else total / n


@compiled_in_place
def _shares(episode: Episode, now_s: float, which: int, part: Floats) -> None:
    """Write what each job adds to a cost."""
    figures, job = episode.figures, episode.job
    for row in range(len(part)):
        leave = job[row, c.LEAVE]
        until_s = now_s if leave == c.NEVER else min(now_s, leave / c.TICKS_PER_S)
        part[row] = max(until_s - figures[row, c.SUBMIT_S], 0.0)
        if which == SLOWDOWN:
            run_s = figures[row, c.RUN_S] if figures[row, c.RUN_S] > BOUND_S else BOUND_S
            part[row] = part[row] / run_s
        elif which == UNFAIRNESS:
            late = part[row] / figures[row, c.FAIR_S]
            part[row] = min(late, np.finfo(np.float64).max) - 1.0 if late > 1.0 else 0.0


@compiled_in_place
def _promises(episode: Episode, now_s: float, which: int) -> float:
    """Return minus the share of jobs that met their deadline, or the share that broke it and was admitted."""
    n, met, broken = episode.clock[c.JOBS], 0, 0
    for row in range(n):
        job, deadline_s = episode.job[row], episode.figures[row, c.DEADLINE_S]
        left = job[c.LEAVE] != c.NEVER
        leave_s = job[c.LEAVE] / c.TICKS_PER_S if left else np.inf
        kept = job[c.PHASE] == c.COMPLETED and leave_s <= deadline_s
        dropped = left and job[c.PHASE] != c.COMPLETED
        met += kept
        broken += min(now_s, leave_s) > deadline_s and not dropped and not kept
    return -(met / n) if which == DEADLINES_MET else broken / n
