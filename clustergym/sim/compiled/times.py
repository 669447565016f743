"""Iteration times as policies know or guess them, compiled.

As `request_times` and `times_or_guess` of `clustergym.policies.shared`.
"""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Bools, Floats
from clustergym.sim import columns as c
from clustergym.sim.compiled import jobs
from clustergym.sim.compiled.buddy import sort
from clustergym.sim.compiled.cluster_arrays import ClusterArrays
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_in_place, compile_part
from clustergym.sim.compiled.seen import ViewArrays, standstill_s

UNKNOWN_JOB_S = 3600.0
"""Run time taken for a job of unknown speed where no job's speed is known."""


@compile_in_place
def is_profiled(episode: Episode, row: int, kind: int) -> bool:
    """Whether a job needs no profile on a type, or has it."""
    return not (episode.job[row, c.HIDDEN] >> kind) & 1


@compile_part
def least(values: Floats) -> float:
    """Return the least of some values; inf if there is none."""
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
    """Return the median over known jobs of each type's time by the job's fastest, shape (T,)."""
    types = time_s.shape[1]
    slower, ratio = np.ones(types), np.empty(len(known))
    for kind in range(types):
        count = 0
        for at in range(len(known)):
            if known[at] and time_s[at, kind] < np.inf:
                ratio[count] = time_s[at, kind] / least(time_s[at])
                count += 1
        if count > 0:
            slower[kind] = _median(ratio[:count])
    return slower


@compile_part
def _guess(episode: Episode, cluster: ClusterArrays, seen: ViewArrays, time_s: Floats, known: Bools) -> Bools:
    """Guess the times of jobs that are not known; return for which jobs there is a guess."""
    n, types = time_s.shape
    slower, guessed = _slower(time_s, known), np.zeros(n, np.bool_)
    run_s, count = np.empty(n), 0
    for at in range(n):
        if known[at]:
            run_s[count] = episode.figures[seen.row[at], c.ITERATIONS] * least(time_s[at])
            count += 1
    typical_s = _median(run_s[:count]) if count > 0 else UNKNOWN_JOB_S
    for at in range(n):
        if known[at]:
            continue
        row = seen.row[at]
        job, iterations = episode.job[row], episode.figures[row, c.ITERATIONS]
        done = iterations - seen.remaining[at]
        attained = jobs.compute_attained(episode, row, episode.clock[c.NOW])
        ran_s = max(attained / max(seen.gpus[at], 1), 1e-9)
        ran_on = slower[seen.gpu_type[at]] if seen.gpu_type[at] != c.NONE else 1.0
        base_s = ran_s / max(done, 1e-9) / ran_on if done > 0 else typical_s / iterations
        for kind in range(types):
            if is_profiled(episode, row, kind) and episode.feasible[job[c.CLASS], kind, seen.requested[at]]:
                guessed[at], time_s[at, kind] = True, base_s * slower[kind]
            else:
                time_s[at, kind] = np.inf
    return guessed


@compile_part
def request_times(episode: Episode, cluster: ClusterArrays, seen: ViewArrays) -> tuple[Floats, Bools]:
    """Return seconds per iteration at the request on each type, shape (n, T), and which jobs' are guessed."""
    n, types = len(seen.row), len(cluster.capacity)
    time_s, known, unknown = np.empty((n, types)), np.empty(n, np.bool_), 0
    for at in range(n):
        own = episode.job[seen.row[at], c.CLASS]
        for kind in range(types):
            shown = is_profiled(episode, seen.row[at], kind)
            time_s[at, kind] = episode.known_s[own, kind, seen.requested[at]] if shown else np.inf
        known[at] = least(time_s[at]) < np.inf
        unknown += not known[at]
    if unknown == 0:
        return time_s, np.zeros(n, np.bool_)
    return time_s, _guess(episode, cluster, seen, time_s, known)


@compile_part
def remaining_at_request_s(seen: ViewArrays, request_s: Floats) -> Floats:
    """Return the seconds until each job ends at its request on each type, shape (n, T)."""
    left_s = np.empty(request_s.shape)
    for at in range(len(seen.row)):
        for kind in range(request_s.shape[1]):
            wait_s = standstill_s(seen, at, kind, seen.requested[at])
            left_s[at, kind] = seen.remaining[at] * request_s[at, kind] + wait_s
    return left_s


@compile_part
def compute_known_times(episode: Episode, cluster: ClusterArrays, seen: ViewArrays) -> Floats:
    """Return the seconds per iteration that the policy knows, shape (n, T, K)."""
    n, types, levels = len(seen.row), len(cluster.capacity), len(cluster.counts)
    time_s = np.empty((n, types, levels))
    for at in range(n):
        own = episode.job[seen.row[at], c.CLASS]
        for kind in range(types):
            shown = is_profiled(episode, seen.row[at], kind)
            for level in range(levels):
                time_s[at, kind, level] = episode.known_s[own, kind, level] if shown else np.inf
    return time_s


@compile_part
def times_or_guess(episode: Episode, cluster: ClusterArrays, seen: ViewArrays) -> tuple[Floats, Bools]:
    """Return the seconds per iteration that the policy knows or guesses, shape (n, T, K).

    Jobs of which no time is known at their requested count or above have the guess of `request_times` there;
    also returns which jobs these are.
    """
    time_s, n = compute_known_times(episode, cluster, seen), len(seen.row)
    unknown, none = np.zeros(n, np.bool_), True
    for at in range(n):
        unknown[at] = True
        for kind in range(time_s.shape[1]):
            for level in range(seen.requested[at], time_s.shape[2]):
                unknown[at] &= time_s[at, kind, level] == np.inf
        none &= not unknown[at]
    if none:
        return time_s, unknown
    request_s, guessed = request_times(episode, cluster, seen)
    for at in range(n):
        unknown[at] &= guessed[at]
        if unknown[at]:
            for kind in range(time_s.shape[1]):
                time_s[at, kind, seen.requested[at]] = request_s[at, kind]
    return time_s, unknown
