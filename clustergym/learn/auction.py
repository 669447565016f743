"""The learned priority auction at a decision point."""

from __future__ import annotations

import math

import numpy as np

from clustergym.arrays import Floats, Ints
from clustergym.compiled.numba_cache import compiled
from clustergym.learn import features

NONE = -1
BARRED = -np.inf
INPUTS = features.COUNT + 2
"""Of a hidden unit: the features of a move, and two facts of the decision point."""
LEAST_LEFT = 1e-9
"""Iterations that a job about to end counts as having left."""
_fill, _derive_job, _derive_point = features.fill, features.derive_job, features.derive_point


def hidden_units(weights: Floats, count: int = features.COUNT) -> int:
    """Return the number of hidden units that weights belong to, given the number of features.

    Raises
    ------
    ValueError
        If no number of hidden units has weights of this shape.
    """
    units, rest = divmod(weights.size - count, count + INPUTS - features.COUNT + 2)
    if weights.ndim != 1 or units < 0 or rest:
        raise ValueError(f"weights of shape {weights.shape}")
    return units


@compiled
def next_level(counts: Ints, time_s: Floats, level: int) -> int:
    """Return the least level with at least twice the GPUs that is feasible and faster, or NONE."""
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
def sizes_of(
    remaining: Floats, time_s: Floats, cost_s: Floats, counts: Ints
) -> tuple[Floats, Floats, Floats]:
    """Return each job's least GPU-seconds, seconds, and seconds with a restart to its end; inf: never."""
    jobs, types, levels = time_s.shape
    gpu_s, best_s, soonest_s = np.full(jobs, np.inf), np.full(jobs, np.inf), np.full(jobs, np.inf)
    for j in range(jobs):
        left = max(remaining[j], LEAST_LEFT)
        for t in range(types):
            for k in range(levels):
                seconds = left * time_s[j, t, k]
                gpu_s[j] = min(gpu_s[j], seconds * counts[k])
                best_s[j] = min(best_s[j], seconds)
                soonest_s[j] = min(soonest_s[j], cost_s[j, t, k] + seconds)
    return gpu_s, best_s, soonest_s


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
def facts_of(
    gpus: int,
    counts: Ints,
    remaining: Floats,
    time_s: Floats,
    cost_s: Floats,
    age_s: Floats,
    attained_gpu_s: Floats,
    slack_s: Floats,
) -> tuple[Floats, Floats]:
    """Return the facts of the jobs, a row for each, and the facts of the decision point."""
    jobs, (gpu_s, best_s, soonest_s) = len(remaining), sizes_of(remaining, time_s, cost_s, counts)
    rank, total, logs, known = ranks_of(gpu_s), 0.0, 0.0, 0
    facts, point = np.empty((jobs, features.JOB_FACTS)), np.empty(features.POINT_FACTS)
    for j in range(jobs):
        facts[j, features.REMAINING] = max(remaining[j], LEAST_LEFT)
        facts[j, features.LEAST_GPU_S], facts[j, features.LEAST_S] = gpu_s[j], best_s[j]
        facts[j, features.SOONEST_S] = soonest_s[j]
        facts[j, features.RANK], facts[j, features.AGE_S] = rank[j], age_s[j]
        facts[j, features.ATTAINED_GPU_S], facts[j, features.SLACK_S] = attained_gpu_s[j], slack_s[j]
        if gpu_s[j] < np.inf:
            logs, total, known = logs + math.log(gpu_s[j]), total + gpu_s[j], known + 1
    point[features.JOBS], point[features.GPUS] = jobs, gpus
    point[features.MEAN_LOG] = logs / max(known, 1)
    point[features.BACKLOG_H] = total / max(gpus, 1) / 3600.0
    _derive_point(point)
    for j in range(jobs):
        _derive_job(facts[j], point)
    return facts, point


@compiled
def score_of(weights: Floats, values: Floats, point: Floats) -> float:
    """Return a move's score: the weighted sum of its features, plus the output of the hidden units.

    Parameters
    ----------
    weights : ndarray of float, shape (features.COUNT + h * (INPUTS + 2),)
        Of the features; then for each of the h hidden units its weight in the score, its bias, and its
        weights of the features and of the decision point's QUEUE and BACKLOG.
    values : ndarray of float, shape (features.COUNT,)
    point : ndarray of float, shape (features.POINT_FACTS,)
    """
    value, at = 0.0, features.COUNT
    for f in range(features.COUNT):
        value += weights[f] * values[f]
    while at < len(weights):
        inside = weights[at + 1]
        for f in range(features.COUNT):
            inside += weights[at + 2 + f] * values[f]
        inside += weights[at + 2 + features.COUNT] * point[features.QUEUE]
        inside += weights[at + 3 + features.COUNT] * point[features.BACKLOG]
        value += weights[at] * inside / (1.0 + abs(inside))
        at += INPUTS + 2
    return value


@compiled
def score_moves(
    first: int,
    last: int,
    score: Floats,
    target: Ints,
    kind: Ints,
    level: Ints,
    values: Floats,
    weights: Floats,
    facts: Floats,
    point: Floats,
    counts: Ints,
    time_s: Floats,
    cost_s: Floats,
    held_type: Ints,
    held_level: Ints,
    type_speed: Floats,
    advantage: Floats,
) -> None:
    """Score the next move of jobs `first` to `last` - 1 on each type; moves they must not make are barred.

    `values` is room for the features of a move.
    """
    for j in range(first, last):
        k0, job, running = level[j], facts[j], held_level[j] >= 0
        for t in range(score.shape[1]):
            k = target[j, t]
            score[j, t] = BARRED
            if k < 0 or (k0 >= 0 and t != kind[j]):
                continue
            _fill(
                values,
                job,
                point,
                time_s[j, t, k],
                time_s[j, t, k0] if k0 >= 0 else np.inf,
                counts[k],
                counts[k0] if k0 >= 0 else 0,
                running,
                running and held_type[j] == t and k <= held_level[j],
                cost_s[j, t, k],
                type_speed[t],
                advantage[j, t],
            )
            value = score_of(weights, values, point)
            if k0 < 0 or value > 0.0:
                score[j, t] = value


@compiled
def best_move(score: Floats, target: Ints, level: Ints, counts: Ints, free: Ints) -> tuple[int, int]:
    """Return (job, type) of the best-scoring move that has room; the first of equals; NONE if none has."""
    best, best_j, best_t = BARRED, NONE, NONE
    for j in range(score.shape[0]):
        before = counts[level[j]] if level[j] >= 0 else 0
        for t in range(score.shape[1]):
            if score[j, t] > best and counts[target[j, t]] - before <= free[t]:
                best, best_j, best_t = score[j, t], j, t
    return best_j, best_t


@compiled
def revert(
    kind: Ints,
    level: Ints,
    free: Ints,
    score: Floats,
    target: Ints,
    counts: Ints,
    remaining: Floats,
    time_s: Floats,
    cost_s: Floats,
    held_type: Ints,
    held_level: Ints,
    standstill_s: Floats,
) -> bool:
    """Revert enlargements of running jobs that do not repay their restart; return whether there were any."""
    reverted = False
    for j in range(len(kind)):
        t, k, h = kind[j], level[j], held_level[j]
        if h < 0 or t != held_type[j] or k <= h:
            continue
        stay_s = standstill_s[j] + remaining[j] * time_s[j, t, h]
        if cost_s[j, t, k] + remaining[j] * time_s[j, t, k] >= stay_s:
            free[t] += counts[k] - counts[h]
            level[j], score[j], target[j], reverted = h, BARRED, NONE, True
    return reverted


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
    """Return the outcome of an auction of all GPUs.

    All GPUs are free at first. The best-scoring move is made again and again: a job that has
    nothing starts with its least count on a type, or one that has something doubles it. A
    doubling must score above 0, a start need not. Then every enlargement of a running job that
    does not repay its restart is reverted, the job barred from it, and the auction goes on.

    Parameters
    ----------
    weights : ndarray of float
        As `score_of` takes them.
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
    seen = (remaining, time_s, cost_s, age_s, attained_gpu_s, slack_s)
    facts, point = facts_of(available.sum(), counts, *seen)
    type_speed, advantage = advantages(time_s, counts)
    free, score = available.copy(), np.empty((jobs, types))
    kind, level = np.full(jobs, NONE, dtype=np.int64), np.full(jobs, NONE, dtype=np.int64)
    target = np.empty((jobs, types), dtype=np.int64)
    values = np.empty(features.COUNT)
    scored = (
        values,
        weights,
        facts,
        point,
        counts,
        time_s,
        cost_s,
        held_type,
        held_level,
        type_speed,
        advantage,
    )
    for j in range(jobs):
        for t in range(types):
            target[j, t] = first_level(time_s[j, t])
    score_moves(0, jobs, score, target, kind, level, *scored)
    judged = (counts, remaining, time_s, cost_s, held_type, held_level, standstill_s)
    while True:
        j, t = best_move(score, target, level, counts, free)
        if j < 0:
            if revert(kind, level, free, score, target, *judged):
                continue
            return kind, level
        k = target[j, t]
        free[t] -= counts[k] - (counts[level[j]] if level[j] >= 0 else 0)
        kind[j], level[j] = t, k
        target[j, t] = next_level(counts, time_s[j, t], k)
        score_moves(j, j + 1, score, target, kind, level, *scored)
