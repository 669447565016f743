"""Iteration times as policies know or guess them, compiled.

As `times_or_guess` of `clustergym.policies.shared`.
"""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.sim import columns as c
from clustergym.sim.compiled import jobs
from clustergym.sim.compiled.buddy import sort
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_part

UNKNOWN_JOB_S = 3600.0
"""Run time taken for a job of unknown speed where no job's speed is known."""


@compile_part
def least(values: Floats) -> float:
    """Return the least of some values; inf if there are none."""
    found = np.inf
    for value in values:
        found = min(found, value)
    return found


@compile_part
def _median(values: Floats) -> float:
    half = len(values) // 2
    sort(values)
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


@compile_part
def _slower(time_s: Floats, known: Bools) -> Floats:
    """Return by what factor jobs are slower on each type than on their fastest, a median, shape (T,)."""
    types = time_s.shape[1]
    slower, ratio = np.ones(types), np.empty(len(known))
    for gpu_type in range(types):
        count = 0
        for at in range(len(known)):
            if known[at] and time_s[at, gpu_type] < np.inf:
                ratio[count] = time_s[at, gpu_type] / least(time_s[at])
                count += 1
        if count > 0:
            slower[gpu_type] = _median(ratio[:count])
    return slower


@compile_part
def _guess(episode: Episode, rows: Ints, requested: Ints, time_s: Floats, known: Bools) -> Bools:
    """Guess the times of jobs that are not known; return for which jobs there is a guess."""
    n, types = time_s.shape
    slower, guessed, now = _slower(time_s, known), np.zeros(n, np.bool_), episode.clock[c.NOW]
    run_s, count = np.empty(n), 0
    for at in range(n):
        if known[at]:
            run_s[count] = episode.figures[rows[at], c.ITERATIONS] * least(time_s[at])
            count += 1
    typical_s = _median(run_s[:count]) if count > 0 else UNKNOWN_JOB_S
    for at in range(n):
        if known[at]:
            continue
        row = rows[at]
        job, iterations = episode.job[row], episode.figures[row, c.ITERATIONS]
        done = iterations - jobs.compute_remaining(episode, row, now)
        attained = jobs.compute_attained(episode, row, now)
        ran_s = max(attained / max(job[c.REQUESTED_GPUS], 1), 1e-9)
        # A job that has made progress tells its speed: seconds at its request for each iteration done,
        # divided by how much slower the type is on which it runs than a job's fastest.
        ran_on = slower[job[c.TYPE]] if job[c.TYPE] != c.NONE else 1.0
        base_s = ran_s / max(done, 1e-9) / ran_on if done > 0 else typical_s / iterations
        for gpu_type in range(types):
            if (
                jobs.is_profiled(episode, row, gpu_type)
                and episode.feasible[job[c.CLASS], gpu_type, requested[at]]
            ):
                guessed[at], time_s[at, gpu_type] = True, base_s * slower[gpu_type]
            else:
                time_s[at, gpu_type] = np.inf
    return guessed


@compile_part
def guess_unknown_times(episode: Episode, counts: Ints, rows: Ints, time_s: Floats) -> None:
    """Guess the iteration times of jobs that lack a known time on the GPUs they request, in place.

    Parameters
    ----------
    rows : ndarray of int, shape (n,)
        All jobs in view.
    time_s : ndarray of float, shape (n, T, K)
        Seconds per iteration, inf where infeasible or not known.
    """
    n, types, levels = time_s.shape
    requested, request_s = np.empty(n, np.int64), np.empty((n, types))
    known, some_missing = np.empty(n, np.bool_), False
    for at in range(n):
        requested[at] = jobs.find_level(counts, episode.job[rows[at], c.REQUESTED_GPUS])
        request_s[at] = time_s[at, :, requested[at]]
        known[at] = least(request_s[at]) < np.inf
        some_missing |= not known[at]
    if not some_missing:
        return
    guessed = _guess(episode, rows, requested, request_s, known)
    for at in range(n):
        # A job whose time is known at more GPUs than it asks for keeps that time: it is no guess.
        unknown = guessed[at]
        for gpu_type in range(types):
            for level in range(requested[at], levels):
                unknown &= time_s[at, gpu_type, level] == np.inf
        if unknown:
            time_s[at, :, requested[at]] = request_s[at]
