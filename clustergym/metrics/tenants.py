"""What each tenant had of a run: share, quota kept or not, borrowed GPUs, starvation."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from clustergym.arrays import Bools, Floats, Ints
from clustergym.metrics.intervals import Intervals
from clustergym.sim.log import EventKind
from clustergym.tenants.assigned import Tenants
from clustergym.tenants.queue_tree import of_type


class Standing(NamedTuple):
    """GPUs of all types by leaf, from each of B breakpoints to the next, shape (B, L).

    Attributes
    ----------
    time_s : ndarray of float, shape (B,)
    held : ndarray of float
        GPUs that its jobs hold, those for profiling too; of GPUs that two jobs share each has half.
    wanted : ndarray of float
        GPUs that its jobs in the system ask for, or hold if that is more.
    """

    time_s: Floats
    held: Floats
    wanted: Floats


def standing_of(intervals: Intervals, tenants: Tenants, requested_gpus: Ints) -> Standing:
    """Return what each leaf holds and wants over time."""
    runs, profiles, leaf = intervals.launches, intervals.profiles, tenants.leaf
    times = np.unique(
        np.concatenate(
            [
                *(one for held in (runs, profiles) for one in (held.start_s, held.stop_s)),
                intervals.submit_s,
                intervals.leave_s,
                [intervals.end_s],
            ]
        )
    )
    times = times[times <= intervals.end_s]

    def level(start_s: Floats, stop_s: Floats, at: Ints, amounts: Ints | Floats) -> Floats:
        """Return the sum of amounts by leaf at each breakpoint."""
        found = np.zeros((len(times) + 1, len(tenants.tree.leaves)))
        np.add.at(found, (np.searchsorted(times, start_s), at), amounts)
        np.subtract.at(found, (np.searchsorted(times, stop_s), at), amounts)
        return np.cumsum(found, axis=0)[:-1]

    held = level(runs.start_s, runs.stop_s, leaf[runs.job], runs.charged_gpus)
    held = held + level(profiles.start_s, profiles.stop_s, leaf[profiles.job], profiles.gpus)
    # A job that holds more GPUs than it asked for wants those too.
    more = np.maximum(runs.gpus - requested_gpus[runs.job], 0)
    wanted = level(intervals.submit_s, intervals.leave_s, leaf, requested_gpus)
    wanted = wanted + level(runs.start_s, runs.stop_s, leaf[runs.job], more)
    return Standing(times, held, wanted)


def measure_tenants(
    intervals: Intervals, tenants: Tenants, gpu_types: tuple[str, ...], capacity: Ints, requested_gpus: Ints
) -> dict[str, Any]:
    """Return metrics of each tenant, and over all of them.

    Parameters
    ----------
    intervals : Intervals
    tenants : Tenants
    gpu_types : tuple of str
    capacity : ndarray of int, shape (T,)
        GPUs of the cluster.
    requested_gpus : ndarray of int, shape (n,)

    Returns
    -------
    dict
        `queues`: by leaf `quota_gpus`; `gpu_hours`; `borrowed_gpu_hours`, held beyond the quota;
        `owed_gpu_hours`, that it lacked of its quota while its jobs wanted them, with the `longest_owed_s`
        without a break; `longest_starved_s` with jobs but without a GPU; `jobs`; `preemptions`; mean and
        99th percentile of `jct_s` of finished jobs. `jain_index` of GPU-hours over weight among queues with
        jobs; `allocated_share` of the cluster's GPU-hours.
    """
    standing = standing_of(intervals, tenants, requested_gpus)
    lasting = np.diff(standing.time_s)
    held, wanted = standing.held[:-1], standing.wanted[:-1]
    queues = [tenants.tree.queues[name] for name in tenants.tree.leaves]
    total = int(capacity.sum())
    quota = np.array(
        [
            sum(
                min(of_type(queue.quota, kind), float(most))
                for kind, most in zip(gpu_types, capacity, strict=True)
            )
            for queue in queues
        ]
    )
    owed = np.maximum(np.minimum(quota, wanted) - held, 0.0)
    hours = lasting[:, None] / 3600.0
    gpu_hours = (held * hours).sum(axis=0)
    jobs = np.bincount(tenants.leaf, minlength=len(queues))
    stops = np.bincount(
        tenants.leaf, weights=intervals.count(EventKind.PREEMPT), minlength=len(queues)
    ).astype(int)
    rows = {}
    for at, name in enumerate(tenants.tree.leaves):
        jct_s = (intervals.leave_s - intervals.submit_s)[(tenants.leaf == at) & _finished(intervals)]
        rows[name] = {
            "jobs": int(jobs[at]),
            "quota_gpus": float(quota[at]),
            "gpu_hours": float(gpu_hours[at]),
            "borrowed_gpu_hours": float((np.maximum(held[:, at] - quota[at], 0.0) * hours[:, 0]).sum()),
            "owed_gpu_hours": float((owed[:, at] * hours[:, 0]).sum()),
            "longest_owed_s": _longest(owed[:, at] > 0, lasting),
            "longest_starved_s": _longest((wanted[:, at] > 0) & (held[:, at] == 0), lasting),
            "preemptions": int(stops[at]),
            "jct_mean_s": float(jct_s.mean()) if len(jct_s) else None,
            "jct_p99_s": float(np.percentile(jct_s, 99)) if len(jct_s) else None,
        }
    weights = np.array([queue.weight for queue in queues])
    counted = (jobs > 0) & (weights > 0)
    return {
        "queues": rows,
        "jain_index": jain_index(gpu_hours[counted] / weights[counted]),
        "allocated_share": float(gpu_hours.sum() / (total * hours.sum())) if hours.sum() else None,
    }


def jain_index(values: Floats) -> float | None:
    """Return Jain's index of fairness: 1 where all values are equal, 1/n where one has all."""
    squares = len(values) * float((values**2).sum())
    return float(values.sum()) ** 2 / squares if squares else None


def _finished(intervals: Intervals) -> Bools:
    return np.equal(intervals.count(EventKind.COMPLETE), 1)


def _longest(holds: Bools, lasting: Floats) -> float:
    """Return the longest time for which a condition holds without a break."""
    longest = now = 0.0
    for one, seconds in zip(holds.tolist(), lasting.tolist(), strict=True):
        now = now + seconds if one else 0.0
        longest = max(longest, now)
    return longest
