"""Each job's records, its states over time and what failures cost it, from the event log alone."""

from __future__ import annotations

import csv
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clustergym.common.arrays import Floats, Ints
from clustergym.common.writing import atomic_path
from clustergym.results.metrics.intervals import CLOCK_S, Intervals, LogError, Outcome, sum_by_job
from clustergym.sim.log import LAUNCHES, PACES, Event, EventType
from clustergym.trace.trace import Trace


@dataclass(frozen=True, eq=False)
class JobRecords:
    """Arrays of each job's times, GPU-seconds and event counts (launches, preemptions, failures) in a run.

    Attributes
    ----------
    outcome : ndarray of int
        `Outcome`.
    submit_s, first_start_s, end_s : ndarray of float
        Time of the submission, of the first launch, and of the completion or drop; NaN if it did not happen.
    jct_s : ndarray of float
        Completion less submission; NaN for a job that did not finish.
    queue_s, profile_s, run_s : ndarray of float
        Seconds in the system without any GPU, with GPUs only for profiling, and with an allocation
        (standstill included). Their sum is the time in the system: the JCT of a finished job, or the time
        until the end of the run of an unfinished one.
    profile_gpu_s, held_gpu_s : ndarray of float
        GPU-seconds held for profiling, and held for running (standstill included); each job of a pair that
        shares GPUs is charged half of them.
    overhead_gpu_s : ndarray of float
        The part of `held_gpu_s` in which the job stood still after a launch.
    lost_gpu_s : ndarray of float
        The part of `held_gpu_s` whose work was undone by a failure of a node.
    iterations_done : ndarray of float
        Iterations done: the sum over launches, each at its own speed, less those that failures undid.
    launches, restarts, preemptions, migrations, failures, unplaced : ndarray of int
        A restart is a resumption, a rescaling or a migration, not the first launch. Failures are those
        of the job's nodes while it ran; unplaced are launches for which no nodes were found.
    reason : tuple of str, length n
        Why a job was dropped.
    """

    outcome: Ints
    submit_s: Floats
    first_start_s: Floats
    end_s: Floats
    jct_s: Floats
    queue_s: Floats
    profile_s: Floats
    run_s: Floats
    profile_gpu_s: Floats
    held_gpu_s: Floats
    overhead_gpu_s: Floats
    lost_gpu_s: Floats
    iterations_done: Floats
    launches: Ints
    restarts: Ints
    preemptions: Ints
    migrations: Ints
    failures: Ints
    unplaced: Ints
    reason: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.outcome)


def make_records(intervals: Intervals) -> JobRecords:
    """Compute jobs' times, GPU-seconds and event counts from the intervals in which they held GPUs."""
    runs, profiles, n = intervals.launches, intervals.profiles, len(intervals.trace)
    stop_s = np.minimum(runs.stop_s, intervals.end_s)
    ready_s = np.minimum(runs.ready_s, intervals.end_s)
    profile_stop_s = np.minimum(profiles.stop_s, intervals.end_s)
    time_in = _time_in_states(intervals)
    left = np.isfinite(intervals.leave_s)
    finished = intervals.outcome == Outcome.FINISHED
    submit_s = intervals.submit_s
    first_start_s = np.full(n, np.inf)
    # Not the first row of each job: this holds whatever the order of the intervals.
    np.minimum.at(first_start_s, runs.job, runs.start_s)
    # Work is what the log's speeds imply, not what the engine says it did: `check_work_conserved` compares
    # the two.
    done = (stop_s - ready_s) / runs.iteration_time_s
    return JobRecords(
        outcome=intervals.outcome,
        submit_s=submit_s,
        first_start_s=np.where(np.isfinite(first_start_s), first_start_s, np.nan),
        end_s=np.where(left, intervals.leave_s, np.nan),
        jct_s=np.where(finished, intervals.leave_s - submit_s, np.nan),
        queue_s=time_in[State.QUEUED],
        profile_s=time_in[State.PROFILING],
        run_s=time_in[State.RUNNING],
        profile_gpu_s=sum_by_job(profiles.job, profiles.gpus * (profile_stop_s - profiles.start_s), n),
        held_gpu_s=sum_by_job(runs.job, runs.charged_gpus * (stop_s - runs.start_s), n),
        overhead_gpu_s=sum_by_job(runs.job, runs.charged_gpus * (ready_s - runs.start_s), n),
        lost_gpu_s=intervals.lost_gpu_s,
        iterations_done=sum_by_job(runs.job, done, n) - intervals.lost_iterations,
        launches=intervals.count(*LAUNCHES),
        restarts=intervals.count(EventType.RESUME, EventType.RESCALE, EventType.MIGRATE),
        preemptions=intervals.count(EventType.PREEMPT),
        migrations=intervals.count(EventType.MIGRATE),
        failures=intervals.count(EventType.FAIL),
        unplaced=intervals.count(EventType.UNPLACED),
        reason=intervals.reason,
    )


def _time_in_states(intervals: Intervals) -> Floats:
    """Return the seconds that each job spends in each state, shape (len(State), n)."""
    changes, n = state_changes(intervals), len(intervals.trace)
    time_s = np.minimum(changes.time_s, intervals.end_s)
    # A job's last change is to OUTSIDE, so the interval between two jobs is never counted.
    lasting_s = np.diff(time_s, append=time_s[-1:])
    return np.stack([sum_by_job(changes.job, lasting_s * (changes.after == state), n) for state in State])


def check_work_conserved(intervals: Intervals, records: JobRecords | None = None) -> None:
    """Raise a `LogError` unless each finished job did exactly its iterations, and no other job more.

    The tolerance is 1e-9 of the iterations, plus what a tick of the clock amounts to at the
    speed of each launch.

    Raises
    ------
    LogError
        Names the first job that does not.
    """
    records = make_records(intervals) if records is None else records
    runs, trace = intervals.launches, intervals.trace
    # Times are whole ticks, so each launch may be off by the work of one tick; the other term is the rounding
    # of sums.
    tick = sum_by_job(runs.job, CLOCK_S / runs.iteration_time_s, len(trace))
    tolerance = 1e-9 * trace.work_iterations + tick
    excess = records.iterations_done - trace.work_iterations
    wrong = excess > tolerance
    # Too little work is an error only of a finished job; too much is one of any.
    wrong |= (records.outcome == Outcome.FINISHED) & (excess < -tolerance)
    if wrong.any():
        row = int(np.argmax(wrong))
        outcome = Outcome(int(records.outcome[row])).name.lower()
        done = float(records.iterations_done[row])
        raise LogError(
            f"job {trace.job_id[row]}: {outcome} with {done!r} of {trace.work_iterations[row]} iterations"
        )


def job_table(records: JobRecords, trace: Trace, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the job records as columns of a table with a row for each job; NaN is a missing value.

    Columns: job_id, outcome (not_submitted, unfinished, finished or dropped), the fields of
    `JobRecords` by name and unit, and the columns of `extra`, each of length n.
    """
    names = [outcome.name.lower() for outcome in Outcome]
    outcomes = [names[value] for value in records.outcome.tolist()]
    return {"job_id": trace.job_id, **vars(records), "outcome": outcomes, **(extra or {})}


def write_csv(columns: Mapping[str, Any], path: Path) -> None:
    """Write the columns of a table, arrays or sequences, to a CSV file; missing values are empty."""
    with atomic_path(Path(path)) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*map(_cells, columns.values()), strict=True))


def _cells(column: Any) -> Sequence[object]:
    if not isinstance(column, np.ndarray):
        return list(column)
    values = column.tolist()
    return ["" if value != value else value for value in values] if column.dtype.kind == "f" else values


class State(enum.IntEnum):
    """What a job does at an instant: outside of the system, queued, profiling or running."""

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
    """Changes of the jobs' states over time, as columns sorted by job and time.

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
    before: npt.NDArray[np.int8]
    after: npt.NDArray[np.int8]


def state_changes(intervals: Intervals) -> StateChanges:
    """List all changes of the jobs' states, from outside of the system to outside again."""
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
    # Each interval of presence, running and profiling adds 1 at its start and takes 1 at its stop; running
    # sums over a job's edges in order of time give its state between them.
    # Small integers, as a job is in no more of them at once than there are GPU types.
    edges = np.kron(np.eye(3, dtype=np.int16), np.array([[1], [-1]], dtype=np.int16))
    order = np.lexsort((time_s, job))
    inside, running, profiling = np.cumsum(np.repeat(edges, sizes, axis=0)[order], axis=0, dtype=np.int16).T
    # The order of these three is the priority of the states: running wins over profiling, and outside over
    # both.
    after = np.full(len(job), State.QUEUED, dtype=np.int8)
    after[profiling > 0] = State.PROFILING
    after[running > 0] = State.RUNNING
    after[inside == 0] = State.OUTSIDE
    before = np.append(np.int8(State.OUTSIDE), after)[: len(after)]
    return StateChanges(job[order], time_s[order], before, after)


UNNAMED = "failure"
"""What the failures are called that name no cause."""

_BESIDE = (EventType.UNPLACED, EventType.UNDO, EventType.PROFILE_START, EventType.PROFILE_END)


class Loss(NamedTuple):
    """What failures of one cause did: the number of interruptions, and the GPU time lost.

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
        # Whatever happens to a job ends its standstill, which may have been planned to last longer.
        self.stop(event.job, event.time_s)
        cause = event.cause or UNNAMED
        if event.event_type in (EventType.FAIL, EventType.HALT):
            self.interruptions[cause] = self.interruptions.get(cause, 0) + 1
            self._add(cause, event.gpus * event.lost_s)
        # A failed job waits before it stands still: the standstill of its next launch is charged to the
        # failure then, and its time in the queue to nobody.
        if event.event_type == EventType.FAIL:
            self._owing[event.job] = cause
        elif event.event_type in (EventType.HANG, EventType.HALT):
            self._stand(cause, event)
        elif event.job in self._owing and event.event_type in PACES:
            self._stand(self._owing.pop(event.job), event)

    def stop(self, job: int, now_s: float) -> None:
        """Add the GPU time in which a job stood still up to now, if it stands still."""
        if job in self.still:
            stood = self.still.pop(job)
            self._add(stood.cause, stood.gpus * (min(stood.ready_s, now_s) - stood.start_s))

    def _stand(self, cause: str, event: Event) -> None:
        ready_s = event.time_s + event.overhead_s
        self.still[event.job] = _Standstill(cause, event.gpus, event.time_s, ready_s)

    def _add(self, cause: str, gpu_s: float) -> None:
        self.gpu_s[cause] = self.gpu_s.get(cause, 0.0) + gpu_s


def losses_by_cause(events: Sequence[Event], end_s: float) -> dict[str, Loss]:
    """Return interruptions and GPU time lost by each cause of failures, from an event log."""
    ledger = _Ledger()
    for event in events:
        if event.job >= 0 and event.event_type not in _BESIDE:
            ledger.follow(event)
    # Jobs that stand still at the end of the run have lost time up to then.
    for job in list(ledger.still):
        ledger.stop(job, end_s)
    return {
        cause: Loss(ledger.interruptions.get(cause, 0), ledger.gpu_s[cause] / 3600)
        for cause in sorted(ledger.gpu_s)
    }


def productive_s(intervals: Intervals) -> Floats:
    """Return each job's seconds of work that was not undone later, without checkpoint writing, shape (n,)."""
    runs, n = intervals.launches, len(intervals.trace)
    return sum_by_job(runs.job, _worked_s(intervals) * (1.0 - runs.write_share), n) - intervals.undone_s


def ettr(intervals: Intervals, records: JobRecords) -> Floats:
    """Return productive time / time since the first launch (ETTR, 0 to 1) of each job that was launched.

    The time lasts to the job's end or that of the run, waiting included (effective training time ratio,
    Kokolis et al., HPCA '25, section II-E, without the time before the first launch).
    """
    launched = np.isfinite(records.first_start_s)
    end_s = np.where(np.isfinite(records.end_s), records.end_s, intervals.end_s)
    wall_s = (end_s - records.first_start_s)[launched]
    productive = productive_s(intervals)[launched]
    ratio: Floats = np.divide(productive, wall_s, out=np.full(len(wall_s), np.nan), where=wall_s > 0)
    return ratio


def write_gpu_hours(intervals: Intervals) -> float:
    """Return the GPU-hours that all jobs spent on writing checkpoints."""
    runs = intervals.launches
    return float(np.dot(runs.gpus * _worked_s(intervals), runs.write_share)) / 3600


def _worked_s(intervals: Intervals) -> Floats:
    """Return the seconds of work in each interval after a launch or a change of speed."""
    stop_s, ready_s = (
        np.minimum(edge, intervals.end_s) for edge in (intervals.launches.stop_s, intervals.launches.ready_s)
    )
    return stop_s - ready_s
