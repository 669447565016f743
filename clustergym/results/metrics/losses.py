"""What failures and checkpoints cost: by job, and by cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.results.metrics.intervals import Intervals
from clustergym.results.metrics.jobs import JobRecords
from clustergym.sim.log import PACES, Event, EventKind

UNNAMED = "failure"
"""What the failures are called that name no cause."""

_BESIDE = (EventKind.UNPLACED, EventKind.PROFILE_START, EventKind.PROFILE_END)


class Loss(NamedTuple):
    """What one cause has cost.

    Attributes
    ----------
    interruptions : int
        Jobs interrupted, or restarted on their nodes, by it.
    lost_gpu_hours : float
        GPU time of work that was undone, of standing still until it was noticed, and of restarting.
    """

    interruptions: int
    lost_gpu_hours: float


class _Standstill(NamedTuple):
    cause: str
    gpus: int
    start_s: float
    ready_s: float


class _Ledger:
    """A reader that follows the events of jobs and adds up what each cause costs."""

    def __init__(self) -> None:
        self.interruptions: dict[str, int] = {}
        self.gpu_s: dict[str, float] = {}
        self.still: dict[int, _Standstill] = {}
        self._owing: dict[int, str] = {}

    def follow(self, event: Event) -> None:
        self.stop(event.job, event.time_s)
        cause = event.cause or UNNAMED
        if event.kind in (EventKind.FAIL, EventKind.HALT):
            self.interruptions[cause] = self.interruptions.get(cause, 0) + 1
            self._add(cause, event.gpus * event.lost_s)
        if event.kind == EventKind.FAIL:
            self._owing[event.job] = cause
        elif event.kind in (EventKind.HANG, EventKind.HALT):
            self._stand(cause, event)
        elif event.job in self._owing and event.kind in PACES:
            self._stand(self._owing.pop(event.job), event)

    def stop(self, job: int, now_s: float) -> None:
        """Count the standstill of a job up to now, if it stands still."""
        if job in self.still:
            stood = self.still.pop(job)
            self._add(stood.cause, stood.gpus * (min(stood.ready_s, now_s) - stood.start_s))

    def _stand(self, cause: str, event: Event) -> None:
        ready_s = event.time_s + event.overhead_s
        self.still[event.job] = _Standstill(cause, event.gpus, event.time_s, ready_s)

    def _add(self, cause: str, gpu_s: float) -> None:
        self.gpu_s[cause] = self.gpu_s.get(cause, 0.0) + gpu_s


def losses_by_cause(events: Sequence[Event], end_s: float) -> dict[str, Loss]:
    """Return what each cause of interruptions has cost, by its name, from an event log up to `end_s`."""
    ledger = _Ledger()
    for event in events:
        if event.job >= 0 and event.kind not in _BESIDE:
            ledger.follow(event)
    for job in list(ledger.still):
        ledger.stop(job, end_s)
    return {
        cause: Loss(ledger.interruptions.get(cause, 0), ledger.gpu_s[cause] / 3600)
        for cause in sorted(ledger.gpu_s)
    }


def productive_s(intervals: Intervals) -> Floats:
    """Return the seconds of work of each job that lasted, without writing checkpoints, shape (n,)."""
    runs = intervals.launches
    worked_s = np.minimum(runs.stop_s, intervals.end_s) - np.minimum(runs.ready_s, intervals.end_s)
    n = len(intervals.trace)
    lasted_s: Floats = np.bincount(runs.job, worked_s * (1.0 - runs.write_share), n) - intervals.undone_s
    return lasted_s


def ettr(intervals: Intervals, records: JobRecords) -> Floats:
    """Return the effective training time ratio of each job that was launched, shape (jobs launched,).

    Its productive time over all time from its first launch to its end or that of the run, waiting included
    (Kokolis et al., HPCA '25, section II-E, without the time before the first launch).
    """
    launched = np.isfinite(records.first_start_s)
    end_s = np.where(np.isfinite(records.end_s), records.end_s, intervals.end_s)
    wall_s = (end_s - records.first_start_s)[launched]
    productive = productive_s(intervals)[launched]
    ratio: Floats = np.divide(productive, wall_s, out=np.full(len(wall_s), np.nan), where=wall_s > 0)
    return ratio


def write_gpu_hours(intervals: Intervals) -> float:
    """Return the GPU-hours of writing checkpoints."""
    runs = intervals.launches
    worked_s = np.minimum(runs.stop_s, intervals.end_s) - np.minimum(runs.ready_s, intervals.end_s)
    return float(np.dot(runs.gpus * worked_s, runs.write_share)) / 3600
