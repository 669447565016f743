"""Who took GPUs from whom: jobs that were stopped or shrunk, and the queue that had their GPUs then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.results.metrics.intervals import Holdings, Intervals
from clustergym.results.metrics.standing import Standing
from clustergym.sim.log import EventKind

OWN, RECLAIM, FAIR_SHARE, SURPLUS, NOBODY = range(5)
CAUSES = ("own", "reclaim", "fair_share", "surplus", "nobody")
"""Why a job lost GPUs: for others of its queue; for a queue below its quota, below its fair share, or above
both; or no queue had more GPUs of the type then."""


@dataclass(frozen=True, eq=False)
class Takings:
    """Jobs that lost GPUs to a decision, as columns.

    Attributes
    ----------
    queue, taker : ndarray of int
        The job's leaf, and the leaf that had its GPUs; -1: none.
    cause : ndarray of int
        Index into `CAUSES`.
    stopped : ndarray of bool
        Whether it lost all of them.
    gpus : ndarray of int
        GPUs that it lost.
    """

    queue: Ints
    taker: Ints
    cause: Ints
    stopped: Bools
    gpus: Ints

    def of_queue(self, at: int) -> dict[str, dict[str, int]]:
        """Return how often jobs of a leaf were stopped and shrunk, by cause."""
        mine = self.queue == at
        return {
            name: {
                cause: int((mine & rows & (self.cause == place)).sum()) for place, cause in enumerate(CAUSES)
            }
            for name, rows in (("stopped_for", self.stopped), ("shrunk_for", ~self.stopped))
        }

    def between(self, leaves: Sequence[str]) -> list[dict[str, Any]]:
        """Return what each leaf lost to each other."""
        other = (self.taker >= 0) & (self.taker != self.queue)
        found = []
        for queue, taker in sorted(
            set(zip(self.queue[other].tolist(), self.taker[other].tolist(), strict=True))
        ):
            rows = (self.queue == queue) & (self.taker == taker)
            found.append(
                {
                    "of": leaves[queue],
                    "by": leaves[taker],
                    "stopped": int((rows & self.stopped).sum()),
                    "shrunk": int((rows & ~self.stopped).sum()),
                    "gpus": int(self.gpus[rows].sum()),
                }
            )
        return found


def takings_of(intervals: Intervals, leaf: Ints, standing: Standing, quota: Floats, fair: Floats) -> Takings:
    """Return who took GPUs from whom.

    A job is stopped or shrunk for its own queue if that has no fewer GPUs of the type after the same moment
    than before, those of jobs that ended by themselves left out; else for the queue that has most more.

    Parameters
    ----------
    intervals : Intervals
    leaf : ndarray of int, shape (n,)
    standing : Standing
        B breakpoints, L leaves.
    quota : ndarray of float, shape (L,)
    fair : ndarray of float, shape (B, L)
    """
    runs = intervals.launches
    left = _left_by_themselves(intervals)
    goes_on = np.append((runs.job[1:] == runs.job[:-1]) & (runs.start_s[1:] == runs.stop_s[:-1]), False)[
        : len(left)
    ]
    after = np.where(goes_on, np.roll(runs.gpus, -1), 0)
    lost = np.flatnonzero((after < runs.gpus) & ~left & (runs.stop_s <= intervals.end_s))
    times, at = np.unique(runs.stop_s[lost], return_inverse=True)
    net = _net(times, intervals, leaf, len(quota), left)
    kind, queue = runs.gpu_type[lost], leaf[runs.job[lost]]
    most = net.argmax(axis=1)[at, kind]
    taker = np.where(net[at, queue, kind] >= 0, queue, np.where(net[at, most, kind] > 0, most, -1))
    row = np.searchsorted(standing.time_s, times)[at]
    stays = (
        standing.held[np.maximum(row - 1, 0), taker] - _ended(times, runs, leaf, len(quota), left)[at, taker]
    )
    below_quota = stays < np.minimum(quota[taker], standing.wanted[row, taker])
    cause = np.select(
        [taker == queue, taker < 0, below_quota, stays < fair[row, taker] - 1e-9],
        [OWN, NOBODY, RECLAIM, FAIR_SHARE],
        default=SURPLUS,
    )
    return Takings(queue, taker, cause, after[lost] == 0, (runs.gpus - after)[lost])


def _left_by_themselves(intervals: Intervals) -> Bools:
    """Return for each interval whether its job ended, was dropped or failed then."""
    runs = intervals.launches
    failed = {(event.job, event.time_s) for event in intervals.disturbances if event.kind == EventKind.FAIL}
    found: Bools = np.equal(runs.stop_s, intervals.leave_s[runs.job])
    if failed:
        found |= np.array(
            [pair in failed for pair in zip(runs.job.tolist(), runs.stop_s.tolist(), strict=True)]
        )
    return found


def _net(times: Floats, intervals: Intervals, leaf: Ints, leaves: int, left: Bools) -> Ints:
    """Return by how many GPUs of each type each leaf has more after each time, shape (times, L, T)."""
    runs, profiles = intervals.launches, intervals.profiles
    types = int(runs.gpu_type.max(initial=0)) + 1
    found = np.zeros(
        (len(times), leaves, max(types, int(profiles.gpu_type.max(initial=0)) + 1)), dtype=np.int64
    )
    for held, time_s, sign, counts in (
        (runs, runs.start_s, 1, np.ones(len(left), dtype=bool)),
        (profiles, profiles.start_s, 1, np.ones(len(profiles.job), dtype=bool)),
        (runs, runs.stop_s, -1, ~left),
    ):
        rows = np.flatnonzero(counts & np.isin(time_s, times))
        at = np.searchsorted(times, time_s[rows])
        np.add.at(found, (at, leaf[held.job[rows]], held.gpu_type[rows]), sign * held.gpus[rows])
    return found


def _ended(times: Floats, runs: Holdings, leaf: Ints, leaves: int, left: Bools) -> Ints:
    """Return the GPUs of jobs that ended by themselves at each time, shape (times, L)."""
    found = np.zeros((len(times), leaves), dtype=np.int64)
    rows = np.flatnonzero(left & np.isin(runs.stop_s, times))
    np.add.at(found, (np.searchsorted(times, runs.stop_s[rows]), leaf[runs.job[rows]]), runs.gpus[rows])
    return found
