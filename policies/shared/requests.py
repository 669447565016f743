"""Requests and allotments of jobs, as indices into the View's axes."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.scenario.policy import Decision, View

ALL = slice(None)
"""Positions of all jobs of a View."""


def find_requested_level(view: View) -> Ints:
    """Return the index in `setting.counts` of each job's requested GPU count, shape (n,)."""
    level: Ints = np.searchsorted(view.setting.counts, view.requested_gpus)
    return level


def find_held_level(view: View) -> Ints:
    """Return the index in `setting.counts` of each job's held GPU count, shape (n,); -1 if none."""
    level = np.searchsorted(view.setting.counts, view.gpus)
    return np.where(view.gpus > 0, level, -1)


def request_options(view: View, at: Ints | slice = ALL) -> Bools:
    """Return on which GPU types all jobs, or those at `at`, may run with their requested GPUs, (n, T)."""
    level = np.searchsorted(view.setting.counts, view.requested_gpus[at])
    fits, wanted = view.find_fitting_types(at, level), view.requested_type[at, None]
    asked = (wanted < 0) | (wanted == np.arange(fits.shape[1]))
    options: Bools = fits & asked
    return options


def get_requested_time_s(view: View) -> Floats:
    """Return the seconds per iteration of each job on the GPUs that it requests, shape (n,).

    A request of any type has the time of the fastest type. Where the requested type has no known time (yet),
    the time is that of the fastest known allotment with the requested count, or else with any count.
    """
    times = view.iteration_time_s()
    at_count = times[np.arange(len(view)), :, find_requested_level(view)]
    asked = np.where(request_options(view), at_count, np.inf).min(axis=1)
    wanted: Floats = np.where(np.isfinite(asked), asked, at_count.min(axis=1))
    unknown = np.flatnonzero(~np.isfinite(wanted))
    wanted[unknown] = times[unknown].min(axis=(1, 2))
    return wanted


class Allotments:
    """The GPU type and count that each job will hold after a decision, and the GPUs that are then free.

    Parameters
    ----------
    view : View
    empty : bool
        Start with nothing allotted instead of from what jobs hold.

    Attributes
    ----------
    gpu_type, level : ndarray of int, shape (n,)
        Index of the GPU type and of the count; -1: none.
    free : ndarray of int, shape (T,)
    counts : ndarray of int, shape (K,)
    cost_s : ndarray of float, shape (n, T, K)
        Standstill that a change to an allotment costs.
    """

    def __init__(self, view: View, *, empty: bool = False) -> None:
        none = np.full(len(view), -1, dtype=np.int64)
        self.view, self.counts = view, view.setting.counts
        self.gpu_type: Ints = none if empty else view.gpu_type.copy()
        self.level: Ints = none.copy() if empty else find_held_level(view)
        self.free: Ints = (view.available if empty else view.free).copy()
        self.cost_s = view.restart_cost_s()

    def give(self, at: int, gpu_type: int, level: int) -> None:
        """Give the job at position `at` of the View a GPU type (-1: none) and a GPU count, by its index."""
        if self.gpu_type[at] >= 0:
            self.free[self.gpu_type[at]] += self.counts[self.level[at]]
        self.gpu_type[at], self.level[at] = gpu_type, level
        if gpu_type >= 0:
            self.free[gpu_type] -= self.counts[level]

    def decision(self) -> Decision:
        """Build the Decision that gives the jobs these GPU types and counts."""
        held = np.flatnonzero(self.gpu_type >= 0)
        return Decision(self.view.job[held], self.gpu_type[held], self.counts[self.level[held]])
