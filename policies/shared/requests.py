"""What jobs request and hold, as indices into the View's axes."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.scenario.policy import View

ALL = slice(None)
"""Positions of all jobs of a View."""


def find_requested_level(view: View) -> Ints:
    """Return the index into `setting.counts` of each job's requested count, shape (n,)."""
    level: Ints = np.searchsorted(view.setting.counts, view.requested_gpus)
    return level


def find_held_level(view: View) -> Ints:
    """Return the index into `setting.counts` of each job's held count, shape (n,); -1: none."""
    level = np.searchsorted(view.setting.counts, view.gpus)
    return np.where(view.gpus > 0, level, -1)


def request_options(view: View, at: Ints | slice = ALL) -> Bools:
    """Return on which types the request of each job, or of those at some positions, may run, shape (n, T)."""
    level = np.searchsorted(view.setting.counts, view.requested_gpus[at])
    fits, wanted = view.find_fitting_types(at, level), view.requested_type[at, None]
    asked = (wanted < 0) | (wanted == np.arange(fits.shape[1]))
    options: Bools = fits & asked
    return options


def get_requested_time_s(view: View) -> Floats:
    """Return seconds per iteration at the request, shape (n,).

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
