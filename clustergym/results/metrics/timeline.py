"""The cluster's state over time as piecewise constant functions, from the event log alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.results.metrics.intervals import Intervals, Outcome
from clustergym.results.metrics.jobs import State, StateChanges, state_changes


@dataclass(frozen=True, eq=False)
class Timeline:
    """The cluster's state (jobs, held GPUs, throughput) in each interval between B points in time.

    Attributes
    ----------
    gpu_types : tuple of str
        Axis T.
    time_s : ndarray of float, shape (B,)
        Strictly ascending. The state at a time is the one after all events of that time.
    running_jobs, queued_jobs, profiling_jobs : ndarray of int, shape (B,)
        Number of jobs that hold an allocation, that hold no GPU, and that hold GPUs only for profiling.
        Their sum is the number of jobs in the system.
    held_gpus : ndarray of int, shape (B, T)
        GPUs held by running jobs, standstill included; a fraction if jobs ask for parts of GPUs.
    profiling_gpus : ndarray of int, shape (B,)
        GPUs held for profiling.
    throughput : ndarray of float, shape (B,)
        Samples/s: the sum of global batch / iteration time over the running jobs that do not stand still.
    normalized_throughput : ndarray of float, shape (B,)
        Sum, over the same jobs, of their speed divided by their speed at the request.
    left_out : int
        Submitted jobs without a speed at their request, which `normalized_throughput` leaves out.
    further : mapping of str to ndarray, shape (B,)
        Further columns of a run on divisible nodes (`clustergym.results.metrics.parts.PartUsage`), or with
        queues the GPUs that each holds, for profiling too.
    """

    gpu_types: tuple[str, ...]
    time_s: Floats
    running_jobs: Ints
    queued_jobs: Ints
    profiling_jobs: Ints
    held_gpus: Ints | Floats
    profiling_gpus: Ints | Floats
    throughput: Floats
    normalized_throughput: Floats
    left_out: int
    further: Mapping[str, Floats | Ints] = field(default_factory=dict)

    def integral(self, values: Floats | Ints) -> float:
        """Return the integral over time of one of the timeline's columns."""
        return float(np.dot(values[:-1], np.diff(self.time_s)))

    def peak(self, values: Floats | Ints) -> float:
        """Return the greatest value of one of the timeline's columns; 0 if there is none."""
        return float(np.max(values[:-1], initial=0))


def compute_timeline(
    intervals: Intervals, gpu_types: Sequence[str], reference_iteration_time_s: Floats
) -> Timeline:
    """Compute running jobs, held GPUs and throughput over time from a run's intervals.

    Parameters
    ----------
    intervals : Intervals
        What `read_intervals` read of the log.
    gpu_types : sequence of str
        The cluster's, axis T.
    reference_iteration_time_s : ndarray of float, shape (n,)
        Seconds per iteration at each job's request; NaN or inf where that is infeasible, and the
        normalized throughput leaves out the job.
    """
    runs, profiles, changes = intervals.launches, intervals.profiles, state_changes(intervals)
    known = has_reference(reference_iteration_time_s)
    edges = (runs.start_s, runs.ready_s, runs.stop_s, profiles.start_s, profiles.stop_s, changes.time_s)
    # Every instant at which anything changes: between two of them all columns are constant, so integrals are
    # exact and no rate of sampling is chosen.
    times = np.unique(np.concatenate((*edges, [intervals.end_s])))
    times = times[times <= intervals.end_s]
    # Places among the breakpoints are found once for all columns, which takes longest. After the end: B.
    begin, ready, stop, began, ended, changed = (np.searchsorted(times, edge) for edge in edges)
    in_state = [_jobs_in_state(state, changed, changes, len(times)) for state in State]
    # In half GPUs, as each job of a pair is charged half of each of its GPUs.
    halves = runs.gpus * np.where(runs.shared, 1, 2)
    held = (halves * (runs.gpu_type == index) for index in range(len(gpu_types)))
    batch = intervals.trace.global_batch[runs.job]
    reference_s = np.where(known, reference_iteration_time_s, 0.0)[runs.job]
    return Timeline(
        gpu_types=tuple(gpu_types),
        time_s=times,
        running_jobs=in_state[State.RUNNING],
        queued_jobs=in_state[State.QUEUED],
        profiling_jobs=in_state[State.PROFILING],
        held_gpus=_whole(np.stack([_gpus(begin, stop, gpus, len(times)) for gpus in held], axis=1)),
        profiling_gpus=_gpus(began, ended, profiles.gpus, len(times)),
        throughput=_rate(ready, stop, batch / runs.iteration_time_s, len(times)),
        normalized_throughput=_rate(ready, stop, reference_s / runs.iteration_time_s, len(times)),
        left_out=int(np.sum(~known & (intervals.outcome != Outcome.NOT_SUBMITTED))),
    )


def _whole(halves: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return GPUs of half GPUs: whole numbers where none is a part."""
    return halves // 2 if halves.dtype.kind == "i" else halves / 2


def has_reference(reference_iteration_time_s: Floats) -> Bools:
    """Return whether each job's iteration time on its requested GPUs is finite and positive, shape (n,)."""
    return np.isfinite(reference_iteration_time_s) & (reference_iteration_time_s > 0)


def _deltas(at: Ints, amounts: Ints, breakpoints: int) -> Ints:
    """Sum integer changes at each breakpoint, ignoring changes after the end of the run (at B)."""
    # Whole numbers are summed, not floats: a level that returns to 0 is 0, whatever happened between.
    total = np.zeros(breakpoints + 1, dtype=np.int64)
    np.add.at(total, at, amounts)
    return total[:-1]


def _level(start: Ints, stop: Ints, amounts: Ints, breakpoints: int) -> Ints:
    """Return the sum, at each breakpoint, of the amounts of all intervals that contain it."""
    return np.cumsum(_deltas(start, amounts, breakpoints) - _deltas(stop, amounts, breakpoints))


def _gpus(start: Ints, stop: Ints, gpus: npt.NDArray[Any], breakpoints: int) -> npt.NDArray[Any]:
    """Return `_level` of whole GPUs, or of thousandths of GPUs."""
    if gpus.dtype.kind == "i":
        return _level(start, stop, gpus, breakpoints)
    return np.asarray(_level(start, stop, np.rint(1000 * gpus).astype(np.int64), breakpoints) / 1000)


def _rate(start: Ints, stop: Ints, rates: Floats, breakpoints: int) -> Floats:
    """Sum rates like `_level`, in fixed point, so that sums return to exactly 0 in any order."""
    total = float(rates.sum())
    if total == 0:
        return np.zeros(breakpoints)
    scale = 2.0 ** (60 - np.ceil(np.log2(total)))
    fixed = np.rint(rates * scale).astype(np.int64)
    return np.asarray(_level(start, stop, fixed, breakpoints) / scale, dtype=np.float64)


def _jobs_in_state(state: State, at: Ints, changes: StateChanges, breakpoints: int) -> Ints:
    """Return the number of jobs in a state from each breakpoint on; the changes are at breakpoints `at`."""
    change = (changes.after == state).astype(np.int64) - (changes.before == state)
    return np.cumsum(_deltas(at, change, breakpoints))


def timeline_table(record: Timeline) -> dict[str, Any]:
    """Return the timeline as columns of a table; each row's state lasts until the next row's time."""
    return {
        "time_s": record.time_s,
        "running_jobs": record.running_jobs,
        "queued_jobs": record.queued_jobs,
        "profiling_jobs": record.profiling_jobs,
        **{f"held_gpus_{name}": record.held_gpus[:, t] for t, name in enumerate(record.gpu_types)},
        "profiling_gpus": record.profiling_gpus,
        "throughput": record.throughput,
        "normalized_throughput": record.normalized_throughput,
        **record.further,
    }
