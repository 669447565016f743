"""Time limits that end jobs, as Slurm's do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.common.parameters import Parameters
from clustergym.scenario.clock import ticks
from clustergym.scenario.disturbance import ActiveDisturbance, Disturbance, DisturbedRun
from clustergym.trace.trace import Trace


@dataclass(frozen=True)
class TimeLimits(Parameters, Disturbance):
    """Time limits of jobs: a job that runs for longer than it requested is dropped.

    The time counts from a job's start, restarts and standstill included; a job that was preempted has all
    of it again, as a job that Slurm requeues.

    Attributes
    ----------
    kill : bool
        Whether they are.
    """

    config_key: ClassVar[str] = "scenario.time_limits"
    key = "time_limits"
    switch = "kill"
    ends_jobs = True

    kill: bool = False

    def check(self, trace: Trace) -> None:
        """Raise an `InputError` if the trace has no time limits."""
        if self.kill and trace.time_limit_s is None:
            remedy = "give trace.time_limits=keep, or factors to draw them by, as [1,5]"
            raise InputError("the trace has no time limits", field=f"{self.config_key}.kill", remedy=remedy)

    def start(self, run: DisturbedRun) -> ActiveDisturbance:
        """Start to watch the launches of a run's jobs, so as to stop them at their limits."""
        limits = run.trace.time_limit_s
        return _ActiveTimeLimits(run, np.full(len(run.trace), np.nan) if limits is None else limits)


class _ActiveTimeLimits(ActiveDisturbance):
    def __init__(self, run: DisturbedRun, limit_s: Floats) -> None:
        self._run, self._limit_s = run, limit_s
        self._watched: dict[int, int] = {}

    def note_launch(self, row: int) -> None:
        """Start the clock of a job that has just started or resumed, not of one that was moved."""
        # When it last began to wait names the run: a job that is moved keeps it, and its clock goes on.
        since, limit_s = self._run.find_queued_tick(row), float(self._limit_s[row])
        if math.isfinite(limit_s) and self._watched.get(row) != since:
            self._watched[row] = since
            # A job that ends just in time is not late.
            self._run.follow(self._end(row, since, self._run.now + ticks(limit_s) + 1))

    def _end(self, row: int, since: int, tick: int) -> Iterator[int]:
        yield tick
        if self._run.find_queued_tick(row) == since and self._run.find_work_tick(row) is not None:
            self._run.drop(row, "time limit")
            self._run.decide_again()
