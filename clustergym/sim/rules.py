"""The rules of one job, each stated once, for both engines.

The SimPy engine calls them as plain Python, the compiled one compiles them (`sim/compiled/shared_rules.py`).
Those that return a number take numbers, or arrays with an entry for each of many jobs; those that change a
job take its rows of `job` and `figures` (`sim/columns.py`). Times are ticks unless a name ends in `_s`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.scenario.clock import ticks
from clustergym.sim import columns as c

Number = Any
"""A number, or an array of them."""


def compute_remaining(
    phase: Number, remaining: Number, iteration_s: Number, worked_until: Number, ready: Number, now: Number
) -> Number:
    """Return the iterations that a job has left at tick `now`; only running jobs work."""
    worked = np.maximum(now - np.maximum(worked_until, ready), 0) * (phase == c.RUNNING)
    return np.maximum(remaining - worked / (iteration_s * c.TICKS_PER_S), 0.0)


def compute_attained(
    attained_gpu_s: Number, gpus: Number, share: Number, since: Number, now: Number
) -> Number:
    """Return the GPU-seconds that a job has held; of two jobs on the same GPUs, each holds half."""
    return attained_gpu_s + gpus * (now - since) * share / c.TICKS_PER_S


def settle(job: Ints, figures: Floats, share: float, now: int) -> None:
    """Record a job's progress, and GPU-seconds of `share` of its GPUs, up to `now`, before these change."""
    figures[c.REMAINING] = compute_remaining(
        job[c.PHASE],
        figures[c.REMAINING],
        figures[c.ITERATION_S],
        job[c.WORKED_UNTIL],
        job[c.READY],
        now,
    )
    figures[c.ATTAINED_GPU_S] = compute_attained(
        figures[c.ATTAINED_GPU_S], job[c.GPUS], share, job[c.HELD_SINCE], now
    )
    job[c.WORKED_UNTIL] = job[c.HELD_SINCE] = now


def compute_restart_s(
    launched: Number,
    first_costs: bool,
    load_s: Number,
    restart_s: Number,
    searched: Number,
    search_s: Number,
) -> Number:
    """Return the seconds a job stands still at launch: to load, after a disturbance, and to search a plan.

    It loads its checkpoint, the first time only if that costs too, as a job that never ran has none; waits
    for what a disturbance has added; and searches for a plan where it has none yet.
    """
    # Arithmetic instead of branches: the arguments may be arrays, and Numba compiles the same line.
    return (launched | first_costs) * load_s + restart_s + (1 - searched) * search_s


def wait(job: Ints, now: int) -> None:
    """Mark a job, which has no GPUs, as waiting from tick `now` on."""
    job[c.PHASE], job[c.QUEUED_SINCE] = c.QUEUED, now


def begin_to_hold(
    job: Ints, figures: Floats, allotment: tuple[int, int, int], iteration_s: float, standstill: int, now: int
) -> None:
    """Mark a job as holding (GPU type, GPU count's index, GPUs) from `now`, working after a standstill."""
    job[c.PHASE] = c.RUNNING
    job[c.TYPE], job[c.LEVEL], job[c.GPUS] = allotment
    figures[c.ITERATION_S], job[c.READY] = iteration_s, now + standstill
    job[c.WORKED_UNTIL] = job[c.HELD_SINCE] = now
    # Each launch but a job's first is a restart.
    job[c.RESTARTS] += job[c.LAUNCHED]
    job[c.LAUNCHED] = 1


def end_holding(job: Ints) -> None:
    """Mark a job as holding no GPUs; `settle` must have been called before."""
    job[c.TYPE] = job[c.LEVEL] = c.NONE
    job[c.GPUS] = 0


def count_work(remaining: float, iteration_s: float) -> int:
    """Return how many ticks a job works on its remaining iterations."""
    return ticks(remaining * iteration_s)


def find_next_round(every: int, later: bool, now: int) -> int:
    """Return the tick of the next decision round, which may be `now` itself unless `later`.

    Rounds lie at multiples of their length since 0, not since the last event. An instant has one decision at
    most, so that the next round after a decision is a later one.
    """
    # Minus the floor of the negative is the ceiling, in whole ticks.
    return -(-(now + later) // every) * every


def pays_to_move(
    restart_s: float, remaining: float, iteration_s: float, iteration_there_s: float, ready: int, now: int
) -> bool:
    """Return whether a job ends earlier if it moves to other GPUs, despite its restart.

    The rest of a standstill that is under way is saved by no move, so it counts for staying.
    """
    standstill_s = max((ready - now) / c.TICKS_PER_S, 0.0)
    return restart_s + remaining * iteration_there_s < standstill_s + remaining * iteration_s


def needs_profile(fits: bool, hidden: Number, gpu_type: int, asked: int, asked_only: bool) -> bool:
    """Return whether a job fits on a GPU type, is not profiled there, and asks for it if `asked_only`.

    With `asked_only`, only if the job asks for that type (`asked`) or for any.
    """
    other = asked_only and asked != c.NONE and asked != gpu_type
    # Bit t of `hidden` is set as long as the job is not profiled on type t.
    return fits and not other and (hidden >> gpu_type) & 1 == 1


def exceeds_launches(launches: int, in_view: int) -> bool:
    """Return whether jobs in view were launched so often that it is time to look whether any got nearer."""
    # 100 times each, and 1,000 in all: a launch that gains nothing is common where restarts are long, and a
    # look at all jobs must cost little.
    return launches > 100 * in_view + 1000


RULES = (
    ticks,
    compute_remaining,
    compute_attained,
    settle,
    compute_restart_s,
    wait,
    begin_to_hold,
    end_holding,
    count_work,
    find_next_round,
    pays_to_move,
    needs_profile,
    exceeds_launches,
)
"""What the compiled engine compiles."""
