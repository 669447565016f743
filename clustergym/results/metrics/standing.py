"""What tenants hold and want over time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.results.metrics.intervals import Intervals
from clustergym.scenario.tenants.assigned import Tenants

OF_QUEUE = "queue_gpus_"
"""What columns of timeline.csv begin with that have the GPUs held by a queue."""


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

    def held_at(self, time_s: Floats) -> Floats:
        """Return the GPUs held at some times, shape (times, L); none before the first breakpoint."""
        return np.vstack([np.zeros_like(self.held[:1]), self.held])[
            np.searchsorted(self.time_s, time_s, "right")
        ]


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
