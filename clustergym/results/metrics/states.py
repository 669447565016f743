"""The state of each job over time, from the intervals of the event log."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.results.metrics.intervals import Intervals, Outcome


class State(enum.IntEnum):
    """State of a job at an instant."""

    OUTSIDE = 0
    """Not yet submitted, finished, or dropped."""
    QUEUED = 1
    """In the system, holding no GPU."""
    PROFILING = 2
    """In the system, holding GPUs only for profiling."""
    RUNNING = 3
    """In the system, holding an allocation (standstill included)."""


@dataclass(frozen=True, eq=False)
class StateChanges:
    """Changes of the jobs' states, in order of (job, time).

    Attributes
    ----------
    job : ndarray of int, shape (m,)
    time_s : ndarray of float, shape (m,)
        inf: after the end of the run. Several changes of one job may share a time; the
        last of them counts.
    before, after : ndarray of int, shape (m,)
        `State`.
    """

    job: Ints
    time_s: Floats
    before: Ints
    after: Ints


def state_changes(intervals: Intervals) -> StateChanges:
    """Return the changes of each job's state, which starts and ends as `OUTSIDE`."""
    present = np.flatnonzero(intervals.outcome != Outcome.NOT_SUBMITTED)
    runs, profiles = intervals.launches, intervals.profiles
    submit_s, leave_s = intervals.submit_s[present], intervals.leave_s[present]
    groups = (
        (present, submit_s, leave_s),
        (runs.job, runs.start_s, runs.stop_s),
        (profiles.job, profiles.start_s, profiles.stop_s),
    )
    job = np.concatenate([rows for rows, _, _ in groups for _ in range(2)])
    time_s = np.concatenate([edge for _, start, stop in groups for edge in (start, stop)])
    sizes = [len(rows) for rows, _, _ in groups for _ in range(2)]
    deltas = np.repeat(np.kron(np.eye(3, dtype=np.int64), np.array([[1], [-1]])), sizes, axis=0)
    order = np.lexsort((time_s, job))
    inside, running, profiling = np.cumsum(deltas[order], axis=0).T
    after = np.where(profiling > 0, int(State.PROFILING), int(State.QUEUED))
    after = np.where(running > 0, int(State.RUNNING), after)
    after = np.where(inside > 0, after, int(State.OUTSIDE))
    before = np.append(int(State.OUTSIDE), after)[: len(after)]
    return StateChanges(job[order], time_s[order], before, after)
