"""The virtual clock of fluid fair sharing, compiled: `clustergym.policies.shared.virtual_clock.FairQueue`."""

from __future__ import annotations

import numpy as np

from clustergym.agents.compiled_policies.memory import Memory
from clustergym.common.arrays import Floats
from clustergym.sim.compiled import columns as c
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.fluid import SLACK
from clustergym.sim.compiled.numba_cache import compiled_part
from clustergym.sim.compiled.seen import Seen

# Columns of `Memory.figure`.
NOW_S, CLOCK, FIRST, LAST, KNOWN_JOBS, KNOWN_GPU_S = range(6)
"""Simulated and virtual time; rows FIRST to LAST of ACTIVE; number and GPU-seconds of jobs of known size."""
# Columns of `Memory.of_job`.
ARRIVED, FINISH, KNOWN, ACTIVE = range(4)
"""Whether a job has arrived; its virtual finish; whether its size is known. Those of the jobs that fluid
sharing still serves, ascending."""


@compiled_part
def _advance(memory: Memory, gpus: float, until_s: float) -> None:
    """Advance the clock to a time; fluid sharing ends jobs on the way."""
    figure, of_job = memory.figure, memory.of_job
    first, last = int(figure[FIRST]), int(figure[LAST])
    while first < last:
        level = gpus / (last - first)
        step_s = max(of_job[first, ACTIVE] - figure[CLOCK], 0.0) / min(gpus, level)
        if figure[NOW_S] + step_s > until_s:
            figure[CLOCK] += (until_s - figure[NOW_S]) * min(gpus, level)
            break
        figure[NOW_S] += step_s
        figure[CLOCK] += step_s * min(gpus, level)
        figure[CLOCK] = max(figure[CLOCK], of_job[first, ACTIVE])
        reached = figure[CLOCK] * (1 + SLACK)
        while first < last and of_job[first, ACTIVE] <= reached:
            first += 1
    figure[FIRST], figure[NOW_S] = first, until_s


@compiled_part
def _arrive(memory: Memory, row: int, work_gpu_s: float) -> None:
    """Add a job now."""
    figure, of_job = memory.figure, memory.of_job
    finish, at = figure[CLOCK] + work_gpu_s, int(figure[LAST])
    while at > figure[FIRST] and of_job[at - 1, ACTIVE] > finish:
        of_job[at, ACTIVE] = of_job[at - 1, ACTIVE]
        at -= 1
    of_job[at, ACTIVE] = finish
    figure[LAST] += 1
    of_job[row, ARRIVED], of_job[row, FINISH] = 1.0, finish


@compiled_part
def finishes(episode: Episode, seen: Seen, memory: Memory, gpus: float, work_gpu_s: Floats) -> Floats:
    """Return the virtual finish of each job, GPU-seconds, shape (n,).

    `work_gpu_s` is looked at only for jobs that were not seen before.
    """
    finish = np.empty(len(seen.row))
    for at in range(len(seen.row)):
        row = seen.row[at]
        if memory.of_job[row, ARRIVED] == 0.0:
            _advance(memory, gpus, max(episode.figures[row, c.SUBMIT_S], memory.figure[NOW_S]))
            _arrive(memory, row, work_gpu_s[at])
        finish[at] = memory.of_job[row, FINISH]
    return finish
