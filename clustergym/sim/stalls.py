"""Runs that cannot go on, and the line that says why."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Bools, Ints
from clustergym.scenario.disturbances.capacity import ActiveCapacity
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.scenario import Scenario
from clustergym.sim import columns as c
from clustergym.sim import rules
from clustergym.sim.job_execution import JobExecution

IDLE_ROUNDS = 1000
"""A run counts as stalled after this many rounds in which nothing runs and nothing can happen."""


class StalledError(RuntimeError):
    """Raised if a run cannot continue, as no event or decision will start a job."""


class StallWatch:
    """Detects that a run cannot continue, as jobs wait that nothing will start.

    Attributes
    ----------
    idle_rounds : int
        Decisions in a row after which nothing ran and nothing could happen.
    """

    def __init__(self, execution: JobExecution, rented: ActiveCapacity | None = None) -> None:
        self._rented = rented
        self._execution, self._jobs, self._queue = execution, execution.jobs, execution.queue
        self._scenario, self._views = execution.scenario, execution.progress.views
        self.idle_rounds = 0

    def check(self) -> None:
        """Raise a StalledError if, after several decisions in a row, jobs wait that nothing can start.

        Raises
        ------
        StalledError
            If it could not for more than `IDLE_ROUNDS` decisions in a row, or if jobs are launched again and
            again and none comes nearer to its end.
        """
        waits = bool(self._queue.in_view) and not (self._jobs.gpus[self._queue.rows] > 0).any()
        # A repair is still to come, and may give waiting jobs room.
        down = self._execution.allocator.allocations.down
        if waits and down and not (self._rented and down <= self._rented.list_unrented()):
            return
        hopeless = waits and not self._queue.ahead and not self._execution.profiler.active
        hopeless &= not self._jobs.saving
        hopeless &= not any(course.active for course in self._execution.courses)
        self.idle_rounds = self.idle_rounds + 1 if hopeless else 0
        if self.idle_rounds > IDLE_ROUNDS:
            raise self.error()
        if (
            rules.exceeds_launches(self._execution.launches, len(self._queue.in_view))
            and not self._has_gained()
        ):
            raise make_endless_error(self._scenario, self._queue.rows, self._queue.clock.now_s)

    def _has_gained(self) -> bool:
        """Return whether a job has fewer iterations left than ever at such a look, or jobs are still to come.

        What stops undo counts as gained only once: where each round's work is undone, no job gets below what
        it had left at the end of the best round.
        """
        self._execution.launches = 0
        if self._queue.ahead:
            return True
        rows, least = self._queue.rows, self._jobs.figures[:, c.LEAST_LEFT]
        left = self._jobs.compute_remaining(rows, self._queue.clock.now)
        gained = left < least[rows]
        least[rows] = np.minimum(left, least[rows])
        return bool(gained.any())

    def error(self) -> StalledError:
        """Make the error for a run that cannot continue."""
        rows, views = np.asarray(self._queue.rows, dtype=np.int64), self._views
        return make_stalled_error(
            self._scenario,
            views.information,
            rows,
            self._jobs.find_profiled_types(rows),
            self._queue.clock.now_s,
        )


def make_endless_error(scenario: Scenario, rows: Ints, now_s: float) -> StalledError:
    """Make the error for a run whose jobs (`rows`) are launched for ever without coming nearer to an end."""
    names = [scenario.trace.job_id[row] for row in np.asarray(rows, dtype=np.int64)[:3].tolist()]
    more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
    return StalledError(
        f"without end at {now_s:.0f} s: jobs {', '.join(names)}{more} are launched again and again, and none "
        "comes nearer to its end: stops undo its work, or restarts take all its time (let rounds be longer "
        "than a restart and than checkpoints.every_s, or choose another policy)"
    )


def make_stalled_error(
    scenario: Scenario, information: InformationClass, waiting: Ints, profiled: Bools, now_s: float
) -> StalledError:
    """Make the error for a run that cannot continue: how many jobs wait, and why if known.

    Parameters
    ----------
    scenario : Scenario
    information : InformationClass
        What the policy knows of iteration times.
    waiting : ndarray of int, shape (n,)
        Rows of the jobs in view.
    profiled : ndarray of bool, shape (n, T)
        GPU types on which each of them is profiled.
    now_s : float
    """
    first = scenario.trace.job_id[int(waiting[0])] if len(waiting) else "none"
    untimed = _untimed(scenario, information, waiting, profiled)
    return StalledError(
        f"stalled at {now_s:.0f} s: {len(waiting)} jobs wait (first: {first}), nothing runs and "
        f"the policy starts nothing{untimed}"
    )


def _untimed(scenario: Scenario, information: InformationClass, rows: Ints, profiled: Bools) -> str:
    """Return a clause on waiting jobs whose iteration time at the request the policy does not know."""
    if information == InformationClass.NONE or not len(rows):
        return ""
    own, gpu_types = scenario.class_of[rows], scenario.cluster.gpu_types
    level = np.searchsorted(scenario.tables.counts, scenario.request_gpus[rows])
    wanted = scenario.request_type[rows, None]
    asked = (wanted < 0) | (wanted == np.arange(len(gpu_types)))
    fits = scenario.feasible[own, :, level] & profiled & asked
    known = np.isfinite(scenario.known_times(information)[own, :, level])
    untimed = np.flatnonzero(fits.any(axis=1) & ~(known & fits).any(axis=1))
    if not len(untimed):
        return ""
    first = int(untimed[0])
    row, gpu_type = int(rows[first]), gpu_types[int(np.argmax(fits[first]))]
    return (
        f"; information class {information.value} knows no finite time of {len(untimed)} of them "
        f"where their requests fit (first: {scenario.trace.job_id[row]}, {scenario.request_gpus[row]} "
        f"{gpu_type}): start such jobs by View.feasible, or declare another class"
    )
