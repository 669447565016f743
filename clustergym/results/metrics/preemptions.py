"""What tenants hold and want over time, and which queue got the GPUs of a job that was stopped or shrunk."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.results.metrics.intervals import Intervals
from clustergym.scenario.tenants.queue_tree import Tenants
from clustergym.sim.log import EventType


def list_losses(intervals: Intervals, tenants: Tenants) -> list[dict[str, Any]]:
    """Return how many GPUs and jobs each leaf queue lost to each other leaf queue.

    A job is stopped or shrunk for its own queue if that has no fewer GPUs of the type after the same moment
    than before, those of jobs that ended by themselves left out; else for the queue that has most more.
    """
    leaf, leaves = tenants.leaf, tenants.tree.leaves
    runs = intervals.launches
    left = _find_own_ends(intervals)
    # Stop and next start at one instant are one change of the job's GPUs: a rescale, not an end.
    goes_on = np.append((runs.job[1:] == runs.job[:-1]) & (runs.start_s[1:] == runs.stop_s[:-1]), False)[
        : len(left)
    ]
    after = np.where(goes_on, np.roll(runs.gpus, -1), 0)
    lost = np.flatnonzero((after < runs.gpus) & ~left & (runs.stop_s <= intervals.end_s))
    times, at = np.unique(runs.stop_s[lost], return_inverse=True)
    net = _net(times, intervals, leaf, len(leaves), left)
    gpu_type, queue = runs.gpu_type[lost], leaf[runs.job[lost]]
    most = net.argmax(axis=1)[at, gpu_type]
    # A queue whose jobs together lost nothing at that instant took from itself; else the queue that gained
    # most of the type is taken to be the cause, as the log does not say for whom a job was stopped.
    taker = np.where(net[at, queue, gpu_type] >= 0, queue, np.where(net[at, most, gpu_type] > 0, most, -1))
    stopped, gpus = after[lost] == 0, (runs.gpus - after)[lost]
    found, other = [], (taker >= 0) & (taker != queue)
    for loser, winner in sorted(set(zip(queue[other].tolist(), taker[other].tolist(), strict=True))):
        rows = (queue == loser) & (taker == winner)
        found.append(
            {
                "of": leaves[loser],
                "by": leaves[winner],
                "stopped": int((rows & stopped).sum()),
                "shrunk": int((rows & ~stopped).sum()),
                "gpus": int(gpus[rows].sum()),
            }
        )
    return found


def _find_own_ends(intervals: Intervals) -> Bools:
    """Return for each interval whether its job ended, was dropped or failed then."""
    runs = intervals.launches
    failed = {
        (event.job, event.time_s) for event in intervals.disturbances if event.event_type == EventType.FAIL
    }
    found: Bools = np.equal(runs.stop_s, intervals.leave_s[runs.job])
    if failed:
        found |= np.array(
            [pair in failed for pair in zip(runs.job.tolist(), runs.stop_s.tolist(), strict=True)]
        )
    return found


def _net(times: Floats, intervals: Intervals, leaf: Ints, leaves: int, left: Bools) -> Ints:
    """Return the change of each leaf queue's GPUs of each type at each time, shape (times, L, T)."""
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


OF_QUEUE = "queue_gpus_"
"""What columns of timeline.csv begin with that have the GPUs held by a queue."""


class QueueUsage(NamedTuple):
    """GPUs that each of L leaf queues holds and wants in each of B time intervals, shape (B, L).

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

    def get_held_gpus(self, time_s: Floats) -> Floats:
        """Return the GPUs that queues hold at given times, shape (times, L); 0 before the first interval."""
        return np.vstack([np.zeros_like(self.held[:1]), self.held])[
            np.searchsorted(self.time_s, time_s, "right")
        ]


def compute_queue_usage(intervals: Intervals, tenants: Tenants, requested_gpus: Ints) -> QueueUsage:
    """Compute the GPUs that each leaf queue holds and wants over time."""
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
    return QueueUsage(times, held, wanted)
