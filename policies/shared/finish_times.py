"""Estimates of jobs' run times: on an allotment, and alone on an equal share of the cluster.

The ideal of an exclusive 1/N share follows Themis (NSDI '20, section 3.1) and Gavel's isolated
allocation (OSDI '20, section 4.2): a job has 1/N of the GPUs of every type to itself. As a gang
of g GPUs it can use them all only part of the time; and it can run in one place at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats
from clustergym.scenario.policy import View

from .requests import find_requested_level

UNKNOWN_JOB_S = 3600.0
"""Run time taken for a job of unknown speed where no job's speed is known."""


class RequestTimes(NamedTuple):
    """Seconds per iteration of each job on its requested number of GPUs, by GPU type, and which are guessed.

    Attributes
    ----------
    time_s : ndarray of float, shape (n, T)
        inf where the request cannot run, or is not known to.
    guessed : ndarray of bool, shape (n,)
        Jobs for whose request the policy's information class has a time on no type.
    """

    time_s: Floats
    guessed: Bools


def request_times(view: View) -> RequestTimes:
    """Return seconds per iteration of each job on its requested GPU count, by GPU type, guessed if unknown.

    The times of a job that is known on no type but fits on some are guessed. Their ratios between types are
    the medians of the known jobs. Their level is such that the job is as fast as it has been so far or, if it
    has not run yet, that on its best type it takes as long as the median job.
    """
    row, level = np.arange(len(view)), find_requested_level(view)
    time_s = view.iteration_time_s()[row, :, level]
    known: Bools = np.isfinite(time_s.min(axis=1))
    if known.all():
        return RequestTimes(time_s, ~known)
    fits = view.feasible[row, :, level]
    guessed = ~known & fits.any(axis=1)
    # If no job is guessed, the jobs without a known time fit nowhere.
    guess = np.where(fits, _guess_s(view, time_s, known), np.inf) if guessed.any() else np.inf
    return RequestTimes(np.where(known[:, None], time_s, guess), guessed)


def _guess_s(view: View, time_s: Floats, known: Bools) -> Floats:
    best_s = time_s[known].min(axis=1)
    slower = _slower(time_s[known] / best_s[:, None])
    typical_s = _median(view.iterations[known] * best_s) if known.any() else UNKNOWN_JOB_S
    done = view.iterations - view.remaining_iterations
    # Service received as time at the request: policies do not see for how long a job worked on how many GPUs.
    ran_s = np.maximum(view.attained_gpu_s / np.maximum(view.requested_gpus, 1), 1e-9)
    ran_on = np.where(view.gpus > 0, slower[view.gpu_type], 1.0)
    base_s = np.where(done > 0, ran_s / np.maximum(done, 1e-9) / ran_on, typical_s / view.iterations)
    guess: Floats = base_s[:, None] * slower
    return guess


def _slower(ratio: Floats) -> Floats:
    """Return the median of each type's finite entries, shape (T,); 1 for a type without any."""
    columns = [column[np.isfinite(column)] for column in ratio.T]
    return np.array([_median(column) if len(column) else 1.0 for column in columns])


def _median(values: Floats) -> float:
    """Return the median of one or more finite values; much faster than NumPy's on few values."""
    ordered, half = np.sort(values), len(values) // 2
    middle = ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2
    return float(middle)


def remaining_s(view: View) -> Floats:
    """Return the seconds until each job ends on each GPU type and count, shape (n, T, K).

    Returns
    -------
    ndarray of float, shape (n, T, K)
        The restart that the allotment would cost, or the rest of the present restart, plus the remaining
        work; inf where no time is known.
    """
    left: Floats = view.remaining_iterations[:, None, None] * view.iteration_time_s() + standstill_s(view)
    return left


def standstill_s(view: View) -> Floats:
    """Return the seconds until each job works if given each GPU type and count now, shape (n, T, K)."""
    wait = view.restart_cost_s().copy()
    held = np.flatnonzero(view.gpus > 0)
    level = np.searchsorted(view.setting.counts, view.gpus[held])
    # A job that keeps its allotment restarts for nothing; it only waits for the rest of a restart under way.
    wait[held, view.gpu_type[held], level] = view.standstill_s[held]
    return wait


def remaining_at_request_s(view: View, times: RequestTimes) -> Floats:
    """Return the seconds until each job ends if given its requested GPU count, by GPU type, shape (n, T)."""
    level = find_requested_level(view)
    wait = view.restart_cost_s()[np.arange(len(view)), :, level]
    held = np.flatnonzero((view.gpus > 0) & (view.gpus == view.requested_gpus))
    wait[held, view.gpu_type[held]] = view.standstill_s[held]
    left: Floats = view.remaining_iterations[:, None] * times.time_s + wait
    return left


def compute_isolated_shares(view: View, times: RequestTimes, jobs: Floats | float | None = None) -> Floats:
    """Return the share of time each job runs on each GPU type if `jobs` jobs share all GPUs equally, (n, T).

    Parameters
    ----------
    view : View
    times : RequestTimes
    jobs : float or ndarray of float, shape (n,), optional
        N, how many jobs share the cluster; None: those in the system now.

    Returns
    -------
    ndarray of float, shape (n, T)
        G_t / (N g), on the types that the request can run on, scaled down where the shares
        of a job would exceed 1 in all.
    """
    sharing = np.asarray(len(view) if jobs is None else jobs, dtype=np.float64)
    per_job = np.broadcast_to(np.maximum(sharing, 1.0) * view.requested_gpus, (len(view),))
    share = view.setting.capacity[None, :] / per_job[:, None]
    share = np.where(np.isfinite(times.time_s), share, 0.0)
    # At most all of its time: a gang runs in one place at a time.
    limited: Floats = share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    return limited


def compute_isolated_rate(view: View, times: RequestTimes, jobs: Floats | float | None = None) -> Floats:
    """Return each job's iterations per second if `jobs` jobs share all GPUs equally; 0 if unknown."""
    rate: Floats = (compute_isolated_shares(view, times, jobs) / times.time_s).sum(axis=1)
    return rate


def compute_isolated_remaining_s(view: View, times: RequestTimes) -> Floats:
    """Return the seconds each job has left if all present share the GPUs equally; inf if unknown."""
    return _seconds(view.remaining_iterations, compute_isolated_rate(view, times))


def ideal_s(view: View, times: RequestTimes, jobs: Floats | float | None = None) -> Floats:
    """Return each job's total run time (s) if `jobs` jobs share all GPUs equally; inf if unknown."""
    return _seconds(view.iterations, compute_isolated_rate(view, times, jobs))


def _seconds(iterations: Floats, rate: Floats) -> Floats:
    return np.where(rate > 0, iterations / np.where(rate > 0, rate, 1.0), np.inf)
