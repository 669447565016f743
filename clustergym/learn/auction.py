"""The learned priority auction at one decision point."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from clustergym.learn import features
from clustergym.learn.compiled import compiled

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NONE = -1
BARRED = -np.inf
_FEATURES = features.COUNT
_fill = features.fill


@compiled
def next_level(counts: Ints, time_s: Floats, level: int) -> int:
    """Return the least level of at least twice the GPUs that is feasible and faster, or NONE."""
    for k in range(level + 1, len(counts)):
        if counts[k] >= 2 * counts[level] and time_s[k] < time_s[level]:
            return k
    return NONE


@compiled
def first_level(time_s: Floats) -> int:
    """Return the least feasible level, or NONE."""
    for k in range(len(time_s)):
        if time_s[k] < np.inf:
            return k
    return NONE


@compiled
def sizes_of(remaining: Floats, time_s: Floats, counts: Ints) -> tuple[Floats, Floats]:
    """Return the least GPU-seconds and the least seconds to the end of each job; inf: runs nowhere."""
    jobs, types, levels = time_s.shape
    gpu_s, best_s = np.full(jobs, np.inf), np.full(jobs, np.inf)
    for j in range(jobs):
        left = max(remaining[j], 1e-9)
        for t in range(types):
            for k in range(levels):
                seconds = left * time_s[j, t, k]
                gpu_s[j] = min(gpu_s[j], seconds * counts[k])
                best_s[j] = min(best_s[j], seconds)
    return gpu_s, best_s


@compiled
def advantages(time_s: Floats, counts: Ints) -> tuple[Floats, Floats]:
    """Return each type's mean log speed, shape (T,), and each job's advantage on it, shape (n, T).

    Per GPU at the least feasible count, relative to the job's best type.
    """
    jobs, types, _ = time_s.shape
    own, mean, seen = np.zeros((jobs, types)), np.zeros(types), np.zeros(types)
    for j in range(jobs):
        best = -np.inf
        for t in range(types):
            k = first_level(time_s[j, t])
            own[j, t] = -np.inf if k < 0 else -math.log(time_s[j, t, k] * counts[k])
            best = max(best, own[j, t])
        for t in range(types):
            if own[j, t] > -np.inf:
                own[j, t] -= best
                mean[t] += own[j, t]
                seen[t] += 1.0
    for t in range(types):
        mean[t] /= max(seen[t], 1.0)
        for j in range(jobs):
            own[j, t] = own[j, t] - mean[t] if own[j, t] > -np.inf else 0.0
    return mean, own


@compiled
def ranks_of(size: Floats) -> Floats:
    """Return ranks from -1 (smallest) to 1; ties in order of the array."""
    order = np.argsort(size, kind="mergesort")
    rank = np.zeros(len(size))
    for place in range(len(size)):
        rank[order[place]] = 2.0 * place / max(len(size) - 1, 1) - 1.0
    return rank


@compiled
def decide(
    weights: Floats,
    available: Ints,
    counts: Ints,
    remaining: Floats,
    time_s: Floats,
    cost_s: Floats,
    held_type: Ints,
    held_level: Ints,
    standstill_s: Floats,
    age_s: Floats,
    attained_gpu_s: Floats,
    slack_s: Floats,
) -> tuple[Ints, Ints]:
    """Hold the auction.

    All GPUs are free at first. The best-scoring move is made again and again: a job that has
    nothing starts with its least count on a type, or one that has something doubles it. A
    doubling must score above 0, a start need not. Then every enlargement of a running job that
    does not repay its restart is reverted, the job barred from it, and the auction goes on.

    Parameters
    ----------
    weights : ndarray of float, shape (features.COUNT,)
    available : ndarray of int, shape (T,)
    counts : ndarray of int, shape (K,)
    remaining, standstill_s, age_s, attained_gpu_s, slack_s : ndarray of float, shape (n,)
    time_s, cost_s : ndarray of float, shape (n, T, K)
    held_type, held_level : ndarray of int, shape (n,)

    Returns
    -------
    (kind, level) : ndarray of int, shape (n,)
        Type and level of each job; -1: none.
    """
    jobs, types, _ = time_s.shape
    gpu_s, best_s = sizes_of(remaining, time_s, counts)
    mean_log, total, known = 0.0, 0.0, 0
    for j in range(jobs):
        if gpu_s[j] < np.inf:
            mean_log += math.log(gpu_s[j])
            total += gpu_s[j]
            known += 1
    mean_log /= max(known, 1)
    type_speed, advantage = advantages(time_s, counts)
    rank, gpus = ranks_of(gpu_s), available.sum()
    backlog_h = total / gpus / 3600.0 if gpus > 0 else 0.0
    free = available.copy()
    kind, level = np.full(jobs, NONE, dtype=np.int64), np.full(jobs, NONE, dtype=np.int64)
    score = np.full((jobs, types), BARRED)
    target = np.full((jobs, types), NONE, dtype=np.int64)
    barred = np.zeros(jobs, dtype=np.bool_)
    values = np.empty(_FEATURES)
    for j in range(jobs):
        for t in range(types):
            target[j, t] = first_level(time_s[j, t])
    # A pass scores the moves that a job's last move opened, then makes the best that has room.
    fresh, changed = np.arange(jobs), jobs
    while True:
        for at in range(changed):
            j = fresh[at]
            for t in range(types):
                k, k0 = target[j, t], level[j]
                score[j, t] = BARRED
                if k < 0 or barred[j] or (k0 >= 0 and t != kind[j]):
                    continue
                same = held_type[j] == t and held_level[j] >= 0
                _fill(
                    values,
                    k0 >= 0,
                    max(remaining[j], 1e-9),
                    time_s[j, t, k],
                    time_s[j, t, k0] if k0 >= 0 else np.inf,
                    counts[k],
                    counts[k0] if k0 >= 0 else 0,
                    gpu_s[j],
                    mean_log,
                    rank[j],
                    age_s[j],
                    best_s[j],
                    attained_gpu_s[j],
                    held_level[j] >= 0,
                    same and k <= held_level[j],
                    cost_s[j, t, k],
                    type_speed[t],
                    advantage[j, t],
                    jobs,
                    gpus,
                    backlog_h,
                    slack_s[j],
                )
                value = 0.0
                for f in range(_FEATURES):
                    value += weights[f] * values[f]
                score[j, t] = value if k0 < 0 or value > 0.0 else BARRED
        best, at_j, at_t = BARRED, NONE, NONE
        for j in range(jobs):
            before = counts[level[j]] if level[j] >= 0 else 0
            for t in range(types):
                if score[j, t] > best and counts[target[j, t]] - before <= free[t]:
                    best, at_j, at_t = score[j, t], j, t
        if at_j >= 0:
            k = target[at_j, at_t]
            free[at_t] -= counts[k] - (counts[level[at_j]] if level[at_j] >= 0 else 0)
            kind[at_j], level[at_j] = at_t, k
            target[at_j, at_t] = next_level(counts, time_s[at_j, at_t], k)
            fresh[0], changed = at_j, 1
            if free.max() > 0:
                continue
        reverted = False
        for j in range(jobs):
            t, k, h = kind[j], level[j], held_level[j]
            if h < 0 or t != held_type[j] or k <= h:
                continue
            stay_s = standstill_s[j] + remaining[j] * time_s[j, t, h]
            if cost_s[j, t, k] + remaining[j] * time_s[j, t, k] >= stay_s:
                free[t] += counts[k] - counts[h]
                level[j], barred[j], reverted = h, True, True
                for other in range(types):
                    score[j, other] = BARRED
        if not reverted:
            return kind, level
        changed = 1 if at_j >= 0 else 0
