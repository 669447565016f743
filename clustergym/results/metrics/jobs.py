"""The records of all jobs: one row per job of the trace, from the event log alone."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.common.writing import atomic_path
from clustergym.results.metrics.intervals import CLOCK_S, Intervals, LogError, Outcome
from clustergym.results.metrics.states import State, state_changes
from clustergym.sim.log import LAUNCHES, EventKind
from clustergym.trace.trace import Trace


@dataclass(frozen=True, eq=False)
class JobRecords:
    """The records of all jobs, one per row of the trace; every array has shape (n,).

    Attributes
    ----------
    outcome : ndarray of int
        `Outcome`.
    submit_s, first_start_s, end_s : ndarray of float
        Submission, first launch, completion or drop; NaN if it did not happen.
    jct_s : ndarray of float
        Completion less submission; NaN for a job that did not finish.
    queue_s, profile_s, run_s : ndarray of float
        Seconds in the system without any GPU, holding GPUs for profiling only, and holding an
        allocation (standstill included). They add up to the time in the system: to the JCT of a
        finished job, to the time so far of an unfinished one.
    profile_gpu_s, held_gpu_s : ndarray of float
        GPU-seconds held for profiling, and held for running (standstill included); each job of a pair that
        shares GPUs is charged half of them.
    overhead_gpu_s : ndarray of float
        The part of `held_gpu_s` in which the job stood still after a launch.
    lost_gpu_s : ndarray of float
        The part of `held_gpu_s` in which work was done that a failure of a node undid.
    iterations_done : ndarray of float
        Integrated piecewise, each launch at its own speed, less what failures undid.
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


def records_of(intervals: Intervals) -> JobRecords:
    """Return the record of each job, from what `read_intervals` read of the log."""
    runs, profiles, n = intervals.launches, intervals.profiles, len(intervals.trace)
    stop_s = np.minimum(runs.stop_s, intervals.end_s)
    ready_s = np.minimum(runs.ready_s, intervals.end_s)
    profile_stop_s = np.minimum(profiles.stop_s, intervals.end_s)
    time_in = _time_in_states(intervals)
    left = np.isfinite(intervals.leave_s)
    finished = intervals.outcome == Outcome.FINISHED
    submit_s = intervals.submit_s
    first_start_s = np.full(n, np.inf)
    np.minimum.at(first_start_s, runs.job, runs.start_s)
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
        profile_gpu_s=_sum(profiles.job, profiles.gpus * (profile_stop_s - profiles.start_s), n),
        held_gpu_s=_sum(runs.job, runs.charged_gpus * (stop_s - runs.start_s), n),
        overhead_gpu_s=_sum(runs.job, runs.charged_gpus * (ready_s - runs.start_s), n),
        lost_gpu_s=intervals.lost_gpu_s,
        iterations_done=_sum(runs.job, done, n) - intervals.lost_iterations,
        launches=intervals.count(*LAUNCHES),
        restarts=intervals.count(EventKind.RESUME, EventKind.RESCALE, EventKind.MIGRATE),
        preemptions=intervals.count(EventKind.PREEMPT),
        migrations=intervals.count(EventKind.MIGRATE),
        failures=intervals.count(EventKind.FAIL),
        unplaced=intervals.count(EventKind.UNPLACED),
        reason=intervals.reason,
    )


def _sum(job: Ints, values: Floats, n: int) -> Floats:
    return np.bincount(job, weights=values, minlength=n).astype(np.float64)


def _time_in_states(intervals: Intervals) -> Floats:
    """Return the seconds that each job spends in each state, shape (len(State), n)."""
    changes, n = state_changes(intervals), len(intervals.trace)
    time_s = np.minimum(changes.time_s, intervals.end_s)
    # A job's last change is to OUTSIDE, so the interval between two jobs is never counted.
    lasting_s = np.diff(time_s, append=time_s[-1:])
    return np.stack([_sum(changes.job, lasting_s * (changes.after == state), n) for state in State])


def check_work_conserved(intervals: Intervals, records: JobRecords | None = None) -> None:
    """Check that finished jobs did all their iterations (as many as their log says), and no job more.

    The tolerance is 1e-9 of the iterations, plus what a tick of the clock amounts to at the
    speed of each launch.

    Raises
    ------
    LogError
        Names the first job that does not.
    """
    records = records_of(intervals) if records is None else records
    runs, trace = intervals.launches, intervals.trace
    tick = _sum(runs.job, CLOCK_S / runs.iteration_time_s, len(trace))
    tolerance = 1e-9 * trace.work_iterations + tick
    excess = records.iterations_done - trace.work_iterations
    wrong = excess > tolerance
    wrong |= (records.outcome == Outcome.FINISHED) & (excess < -tolerance)
    if wrong.any():
        row = int(np.argmax(wrong))
        outcome = Outcome(int(records.outcome[row])).name.lower()
        done = float(records.iterations_done[row])
        raise LogError(
            f"job {trace.job_id[row]}: {outcome} with {done!r} of {trace.work_iterations[row]} iterations"
        )


_COLUMNS = (
    "submit_s",
    "first_start_s",
    "end_s",
    "jct_s",
    "queue_s",
    "profile_s",
    "run_s",
    "profile_gpu_s",
    "held_gpu_s",
    "overhead_gpu_s",
    "lost_gpu_s",
    "iterations_done",
    "launches",
    "restarts",
    "preemptions",
    "migrations",
    "failures",
    "unplaced",
    "reason",
)


def write_jobs_csv(
    records: JobRecords, trace: Trace, path: Path, extra: Mapping[str, Sequence[object]] | None = None
) -> None:
    """Write a CSV file with one line per job; missing values are empty.

    Columns: job_id, outcome (not_submitted, unfinished, finished or dropped), the fields of
    `JobRecords` by name and unit, and the columns of `extra`, each of length n.
    """
    extra = extra or {}
    outcomes = [Outcome(value).name.lower() for value in records.outcome.tolist()]
    own = (_text(getattr(records, name)) for name in _COLUMNS)
    columns = [trace.job_id, outcomes, *own, *extra.values()]
    with atomic_path(Path(path)) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("job_id", "outcome", *_COLUMNS, *extra))
        writer.writerows(zip(*columns, strict=True))


def _text(column: Floats | Ints | tuple[str, ...]) -> list[str | int | float]:
    values = list(column) if isinstance(column, tuple) else column.tolist()
    return ["" if value != value else value for value in values]
