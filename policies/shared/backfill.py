"""Reservations on a timeline of free GPUs, for backfilling."""

from __future__ import annotations

import numpy as np

from clustergym.arrays import Floats, Ints


class FreeTimeline:
    """The free GPUs of one type over time, by estimates of when running jobs end.

    Parameters
    ----------
    now_s : float
    free : int
        GPUs free now.
    ends_s : ndarray of float, shape (m,)
        When each running job is expected to end, not before now.
    gpus : ndarray of int, shape (m,)
        What it gives back.
    """

    def __init__(self, now_s: float, free: int, ends_s: Floats, gpus: Ints) -> None:
        times, at = np.unique(np.concatenate([[now_s], ends_s]), return_inverse=True)
        given = np.bincount(at, weights=np.concatenate([[free], gpus]), minlength=len(times))
        self.time_s: Floats = times
        self.free: Ints = np.cumsum(given.astype(np.int64))

    def earliest(self, gpus: int, duration_s: float) -> float:
        """Return the earliest start at which `gpus` GPUs are free for `duration_s`; inf: never."""
        enough = self.free >= gpus
        short = np.where(enough, np.inf, self.time_s)
        next_short = np.minimum.accumulate(short[::-1])[::-1]
        starts = np.flatnonzero(enough & (next_short >= self.time_s + duration_s))
        return float(self.time_s[starts[0]]) if len(starts) else np.inf

    def reserve(self, start_s: float, gpus: int, duration_s: float) -> None:
        """Take GPUs off the timeline for a duration, from a start that `earliest` returned."""
        end_s = start_s + duration_s
        if np.isfinite(end_s) and end_s not in self.time_s:
            after = int(np.searchsorted(self.time_s, end_s))
            self.time_s = np.insert(self.time_s, after, end_s)
            self.free = np.insert(self.free, after, self.free[after - 1])
        self.free[(self.time_s >= start_s) & (self.time_s < end_s)] -= gpus
