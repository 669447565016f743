"""Turn an event log into intervals: when each job was in the system, held GPUs, and worked."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.sim import columns as c
from clustergym.sim.compiled.event_log import EVENT_TYPES as COMPILED_EVENT_TYPES
from clustergym.sim.compiled.event_log import ArrayEvents
from clustergym.sim.log import NO_JOB, PACES, Event, EventType
from clustergym.trace.trace import Trace

CLOCK_S = 1e-6
"""Resolution of the log's clock, seconds."""

EVENT_TYPES = tuple(EventType)
"""Event types in the order of the second axis of `Intervals.counts`."""

_CODE: dict[str, int] = {event_type: code for code, event_type in enumerate(EVENT_TYPES)}
# Events of rented nodes have none, as those of disturbances.
_COMPILED_CODE = np.array(
    [_CODE.get(COMPILED_EVENT_TYPES[at][0], -1) for at in range(len(COMPILED_EVENT_TYPES))]
)
_PACE = np.array([_CODE[event_type] for event_type in PACES])
_PROFILING = np.array([_CODE[EventType.PROFILE_START], _CODE[EventType.PROFILE_END]])
_BESIDE_CHAIN = np.append(_PROFILING, [_CODE[EventType.UNPLACED], _CODE[EventType.UNDO]])
_NOTHING = len(EVENT_TYPES)
_UNDISTURBED = set(EVENT_TYPES) - {EventType.FAIL, EventType.HANG, EventType.HALT}

_WHILE_RUNNING = (
    EventType.RESCALE,
    EventType.MIGRATE,
    EventType.RATE,
    EventType.HANG,
    EventType.HALT,
    EventType.SAVE,
    EventType.PREEMPT,
    EventType.FAIL,
    EventType.COMPLETE,
    EventType.DROP,
)
_NEXT: dict[EventType | None, tuple[EventType, ...]] = {
    None: (EventType.SUBMIT,),
    EventType.SUBMIT: (EventType.START, EventType.DROP),
    **{pace: _WHILE_RUNNING for pace in PACES},
    EventType.PREEMPT: (EventType.RESUME, EventType.DROP),
    EventType.FAIL: (EventType.RESUME, EventType.DROP),
    EventType.COMPLETE: (),
    EventType.DROP: (),
}


_REAL = ("time_s", "overhead_s", "iteration_time_s", "lost_s", "lost_iterations", "write_share")
_WHOLE = ("event_type", "job", "gpu_type", "gpus", "partner")


class LogError(AssertionError):
    """Raised if the event log contradicts itself or its trace."""


class Outcome(enum.IntEnum):
    """How a job stands at the end of a run: not submitted, unfinished, finished or dropped."""

    NOT_SUBMITTED = 0
    UNFINISHED = 1
    FINISHED = 2
    DROPPED = 3


@dataclass(frozen=True, eq=False)
class Holdings:
    """Intervals in which a job holds GPUs at constant speed, as columns sorted by job and time.

    Attributes
    ----------
    job : ndarray of int
        Row of the trace.
    start_s : ndarray of float
        When the job begins to hold the GPUs.
    ready_s : ndarray of float
        When the job begins to work (not after `stop_s`).
    stop_s : ndarray of float
        When the job stops holding the GPUs; inf if it still holds them when the run ends.
    gpu_type, gpus : ndarray of int
        Index of the type, GPUs held; a part of a GPU where the trace's jobs ask for parts.
    shared : ndarray of bool
        Whether another job holds the same GPUs.
    iteration_time_s : ndarray of float
        Seconds per iteration while the job works; 0 for profiling.
    write_share : ndarray of float
        Share of the time in which the job works that goes into writing checkpoints.
    """

    job: Ints
    start_s: Floats
    ready_s: Floats
    stop_s: Floats
    gpu_type: Ints
    gpus: npt.NDArray[Any]
    shared: Bools
    iteration_time_s: Floats
    write_share: Floats

    @property
    def charged_gpus(self) -> Floats | Ints:
        """GPUs charged in each interval; of two jobs that share GPUs each is charged half."""
        return np.where(self.shared, self.gpus / 2, self.gpus) if self.shared.any() else self.gpus


@dataclass(frozen=True, eq=False)
class Intervals:
    """When each of a run's n jobs held GPUs, and how it ended, as read from the event log.

    Attributes
    ----------
    trace : Trace
    end_s : float
        End of the run: the horizon, or the last event if the run ended before.
    launches, profiles : Holdings
        GPUs held for running, and for profiling.
    outcome : ndarray of int, shape (n,)
        `Outcome`.
    submit_s : ndarray of float, shape (n,)
        Time of submission on the log's clock; the trace's for a job never submitted.
    leave_s : ndarray of float, shape (n,)
        Time of completion or drop; inf for all other jobs.
    counts : ndarray of int, shape (n, len(EVENT_TYPES))
        Events of each of `EVENT_TYPES`.
    reason : tuple of str, length n
        Why a job was dropped; empty for other jobs.
    lost_gpu_s, lost_iterations : ndarray of float, shape (n,)
        GPU-seconds of work, and iterations, that disturbances and stops without notice undid.
    undone_s : ndarray of float, shape (n,)
        Seconds of work that these undid, without those of writing checkpoints.
    disturbances : tuple of Event
        Events that disturbances name, and those of jobs that a disturbance interrupted.
    """

    trace: Trace
    end_s: float
    launches: Holdings
    profiles: Holdings
    outcome: Ints
    submit_s: Floats
    leave_s: Floats
    counts: Ints
    reason: tuple[str, ...]
    lost_gpu_s: Floats
    lost_iterations: Floats
    undone_s: Floats
    disturbances: tuple[Event, ...]

    def count(self, *event_types: EventType) -> Ints:
        """Return the number of events of the given types for each job, shape (n,)."""
        return np.asarray(
            self.counts[:, [_CODE[event_type] for event_type in event_types]].sum(axis=1), dtype=np.int64
        )


@dataclass(frozen=True, eq=False)
class _Columns:
    time_s: Floats
    event_type: Ints
    job: Ints
    gpu_type: Ints
    gpus: npt.NDArray[Any]
    overhead_s: Floats
    iteration_time_s: Floats
    lost_s: Floats
    lost_iterations: Floats
    partner: Ints
    write_share: Floats


def read_intervals(events: Sequence[Event], trace: Trace, end_s: float) -> Intervals:
    """Read from a run's event log when each job held GPUs and how it ended.

    The order of simultaneous events of different jobs does not matter.

    Parameters
    ----------
    events : sequence of Event
        In order of time.
    trace : Trace
        The n jobs of the run, submitted or not.
    end_s : float
        End of the run.

    Raises
    ------
    LogError
        If an event lies out of order, after `end_s`, or before its job's submission; if a job's
        events do not follow from one another; if a job due before `end_s` was never submitted.
    """
    disturbances: tuple[Event, ...] = ()
    if isinstance(events, ArrayEvents) and bool((events.event[:, c.EVENT_TYPE] >= c.MOVED).any()):
        # Rented nodes come and go.
        events = list(events)
    if isinstance(events, ArrayEvents):
        columns = _array_columns(events)
    else:
        disturbances = tuple(event for event in events if event.event_type not in _UNDISTURBED)
        events = [event for event in events if event.event_type in _CODE] if disturbances else events
        columns = _columns(events)
    _check_rows(columns, trace, end_s)
    if trace.gpu_milli is not None:
        # After the rows are checked, which demand at least one GPU: from here on a part of a GPU counts as a
        # part.
        columns = replace(columns, gpus=columns.gpus * trace.gpu_milli[columns.job] / 1000)
    submit_s, leave_s = _presence(columns, trace)
    # Stable: within a job events keep the order of the log, which is that of time and, at one instant, of
    # cause.
    by_job = np.argsort(columns.job, kind="stable")
    chain = by_job[~np.isin(columns.event_type[by_job], _BESIDE_CHAIN)]
    _check_chain(columns, chain, trace)
    counts = _count(columns, len(trace))
    reason = [""] * len(trace)
    for index in np.flatnonzero(columns.event_type == _CODE[EventType.DROP]).tolist():
        reason[columns.job[index]] = events[index].reason
    return Intervals(
        trace=trace,
        end_s=end_s,
        launches=_launches(columns, chain),
        profiles=_profiles(columns, by_job, trace),
        outcome=_outcomes(counts, trace, end_s),
        submit_s=submit_s,
        leave_s=leave_s,
        counts=counts,
        reason=tuple(reason),
        lost_gpu_s=sum_by_job(columns.job, columns.lost_s * columns.gpus, len(trace)),
        lost_iterations=sum_by_job(columns.job, columns.lost_iterations, len(trace)),
        undone_s=sum_by_job(columns.job, columns.lost_s * (1.0 - columns.write_share), len(trace)),
        disturbances=disturbances,
    )


def sum_by_job(job: Ints, values: Floats, jobs: int) -> Floats:
    """Return the sum of each job's values, shape (jobs,)."""
    return np.bincount(job, weights=values, minlength=jobs).astype(np.float64)


def _columns(events: Sequence[Event]) -> _Columns:
    raw = list(zip(*events, strict=True)) if len(events) else [()] * len(Event._fields)
    column: dict[str, Any] = dict(zip(Event._fields, raw, strict=True))
    column["event_type"] = [_CODE[event_type] for event_type in column["event_type"]]
    typed: dict[str, Any] = {name: np.array(column[name], dtype=np.float64) for name in _REAL}
    typed |= {name: np.array(column[name], dtype=np.int64) for name in _WHOLE}
    return _Columns(**typed)


def _array_columns(events: ArrayEvents) -> _Columns:
    """Return the columns of events from arrays, without building `Event` objects."""
    event, nothing = events.event, np.broadcast_to(0.0, len(events))
    return _Columns(
        time_s=event[:, c.TIME] / c.TICKS_PER_S,
        event_type=_COMPILED_CODE[event[:, c.EVENT_TYPE]],
        job=event[:, c.JOB].copy(),
        gpu_type=event[:, c.EVENT_GPU_TYPE],
        gpus=event[:, c.EVENT_GPUS],
        overhead_s=event[:, c.OVERHEAD] / c.TICKS_PER_S,
        iteration_time_s=events.iteration_s,
        lost_s=nothing,
        lost_iterations=nothing,
        partner=np.broadcast_to(NO_JOB, len(events)),
        write_share=nothing,
    )


def _refuse(wrong: Bools, columns: _Columns, trace: Trace, what: str) -> None:
    """Raise a `LogError` for the first event that is marked in `wrong`."""
    if not wrong.any():
        return
    index = int(np.argmax(wrong))
    row = int(columns.job[index])
    name = trace.job_id[row] if 0 <= row < len(trace) else f"row {row}"
    event_type = EVENT_TYPES[columns.event_type[index]]
    raise LogError(f"job {name}: event {index} ({event_type} at {float(columns.time_s[index])!r} s): {what}")


def _check_rows(columns: _Columns, trace: Trace, end_s: float) -> None:
    _refuse((columns.job < 0) | (columns.job >= len(trace)), columns, trace, "the trace has no such row")
    # Written so that NaN, for which every comparison is false, is refused as well.
    _refuse(~(columns.time_s <= end_s), columns, trace, f"lies after the end of the run, {end_s!r} s")
    # Equal times are in order: several events may happen at one tick.
    late = np.diff(columns.time_s, prepend=-np.inf) < 0
    _refuse(late, columns, trace, "lies before the event above it")
    launch = np.isin(columns.event_type, _PACE)
    holds = launch | (columns.event_type == _CODE[EventType.PROFILE_START])
    _refuse(holds & ((columns.gpus < 1) | (columns.gpu_type < 0)), columns, trace, "holds no GPUs")
    _refuse(launch & ~(columns.overhead_s >= 0), columns, trace, "has a negative overhead")
    speed = (columns.iteration_time_s > 0) & np.isfinite(columns.iteration_time_s)
    _refuse(launch & ~speed, columns, trace, "has no finite positive iteration time")


def _presence(columns: _Columns, trace: Trace) -> tuple[Floats, Floats]:
    """Return when each job entered and left the system; check that its profiling lies between."""
    submit = columns.event_type == _CODE[EventType.SUBMIT]
    off = np.abs(columns.time_s - trace.submit_s[columns.job]) > CLOCK_S
    _refuse(submit & off, columns, trace, "is not at the submit time of the trace")
    # The log's own times replace the trace's where it has them: they are whole ticks, and differences with
    # other events of the log are then exact.
    submit_s, leave_s = trace.submit_s.copy(), np.full(len(trace), np.inf)
    submit_s[columns.job[submit]] = columns.time_s[submit]
    leaving = np.isin(columns.event_type, (_CODE[EventType.COMPLETE], _CODE[EventType.DROP]))
    leave_s[columns.job[leaving]] = columns.time_s[leaving]
    early = columns.time_s < submit_s[columns.job]
    _refuse(early, columns, trace, "lies before the job's submission")
    beside = np.isin(columns.event_type, (_CODE[EventType.PROFILE_START], _CODE[EventType.UNPLACED]))
    late = (columns.time_s > leave_s[columns.job]) & beside
    _refuse(late, columns, trace, "lies after the job left")
    return submit_s, leave_s


def _check_chain(columns: _Columns, chain: Ints, trace: Trace) -> None:
    """Check that each job's events, apart from profiling, come in a possible order."""
    # A table of transitions instead of a loop over jobs: logs have millions of events, and one look-up checks
    # all.
    allowed = np.zeros((_NOTHING + 1, len(EVENT_TYPES)), dtype=np.bool_)
    for before, after in _NEXT.items():
        allowed[
            _NOTHING if before is None else _CODE[before], [_CODE[event_type] for event_type in after]
        ] = True
    event_type, job = columns.event_type[chain], columns.job[chain]
    # `chain` is sorted by job, so the event above is the same job's unless the job changes here.
    first = np.diff(job, prepend=-1) != 0
    type_before = np.where(first, _NOTHING, np.roll(event_type, 1))
    wrong = np.zeros(len(columns.event_type), dtype=np.bool_)
    wrong[chain] = ~allowed[type_before, event_type]
    _refuse(wrong, columns, trace, "does not follow from the job's event before it")


def _count(columns: _Columns, jobs: int) -> Ints:
    # By column: the zeros of event types that no job has, which are most, then take no memory.
    counts = np.zeros((jobs, len(EVENT_TYPES)), dtype=np.int64, order="F")
    for code in np.unique(columns.event_type).tolist():
        counts[:, code] = np.bincount(columns.job[columns.event_type == code], minlength=jobs)
    return counts


def _outcomes(counts: Ints, trace: Trace, end_s: float) -> Ints:
    submitted = counts[:, _CODE[EventType.SUBMIT]] > 0
    # A job due at the very end may be missing: the run can end at that tick before it is submitted.
    forgotten = ~submitted & (trace.submit_s < end_s - CLOCK_S)
    if forgotten.any():
        row = int(np.argmax(forgotten))
        raise LogError(f"job {trace.job_id[row]}: due at {trace.submit_s[row]} s but never submitted")
    outcome = np.where(submitted, int(Outcome.UNFINISHED), int(Outcome.NOT_SUBMITTED))
    # The chain was checked, so that a job has at most one of the two events that follow.
    outcome[counts[:, _CODE[EventType.COMPLETE]] > 0] = Outcome.FINISHED
    outcome[counts[:, _CODE[EventType.DROP]] > 0] = Outcome.DROPPED
    return outcome


def _launches(columns: _Columns, chain: Ints) -> Holdings:
    """Return the intervals after launches and changes of speed; each lasts until the job's next event."""
    job, time_s = columns.job[chain], columns.time_s[chain]
    # A job's last interval has no next event and lasts beyond the run; who uses it cuts it at the end.
    last = np.append(job[1:] != job[:-1], True)[: len(job)]
    stop = np.where(last, np.inf, np.roll(time_s, -1))
    launch = np.isin(columns.event_type[chain], _PACE)
    index, stop = chain[launch], stop[launch]
    return Holdings(
        job=columns.job[index],
        start_s=columns.time_s[index],
        # A job that is stopped while it stands still never gets ready: its interval has no working part.
        ready_s=np.minimum(columns.time_s[index] + columns.overhead_s[index], stop),
        stop_s=stop,
        gpu_type=columns.gpu_type[index],
        gpus=columns.gpus[index],
        shared=columns.partner[index] != NO_JOB,
        iteration_time_s=columns.iteration_time_s[index],
        write_share=columns.write_share[index],
    )


def _profiles(columns: _Columns, by_job: Ints, trace: Trace) -> Holdings:
    """Return the profiling intervals, matching each end with the job's earliest open start on that type."""
    # A job may be profiled on several types at a time, and on one type again after an interruption: the n-th
    # end on a type belongs to the n-th start there.
    start, start_key = _number_events(columns, by_job, EventType.PROFILE_START)
    stop, stop_key = _number_events(columns, by_job, EventType.PROFILE_END)
    # One more key, greater than all, stands for "no such start".
    keys = np.append(start_key, np.iinfo(np.int64).max)
    place = np.searchsorted(start_key, stop_key)
    began = np.append(start, len(columns.event_type))[place]
    wrong = np.zeros(len(columns.event_type), dtype=np.bool_)
    wrong[stop[(keys[place] != stop_key) | (began > stop)]] = True
    _refuse(wrong, columns, trace, "ends a profiling that had not started")
    stop_s = np.full(len(start), np.inf)
    stop_s[place] = columns.time_s[stop]
    return Holdings(
        job=columns.job[start],
        start_s=columns.time_s[start],
        ready_s=columns.time_s[start],
        stop_s=stop_s,
        gpu_type=columns.gpu_type[start],
        gpus=columns.gpus[start],
        shared=np.zeros(len(start), dtype=np.bool_),
        iteration_time_s=np.zeros(len(start)),
        write_share=np.zeros(len(start)),
    )


def _number_events(columns: _Columns, by_job: Ints, event_type: EventType) -> tuple[Ints, Ints]:
    """Return the events of a type in order of (job, type, time), with ascending keys.

    A key encodes job, GPU type, and the event's number among those of the same job and type.
    """
    index = by_job[columns.event_type[by_job] == _CODE[event_type]]
    index = index[np.lexsort((columns.gpu_type[index], columns.job[index]))]
    group = columns.job[index] * (int(columns.gpu_type.max(initial=0)) + 2) + columns.gpu_type[index] + 1
    position = np.arange(len(index))
    first = np.where(np.diff(group, prepend=group[:1] - 1) != 0, position, 0)
    return index, group * len(columns.event_type) + position - np.maximum.accumulate(first)
