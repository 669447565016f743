"""The learned priority auction at a decision point."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clustergym.agents import auction_features as features
from clustergym.agents import move_queue
from clustergym.agents.move_queue import MoveQueue
from clustergym.common.arrays import Floats, Ints
from clustergym.scenario.policy import View
from clustergym.sim.compiled.numba_cache import compile_entry, compile_in_place, compile_part

Singles = npt.NDArray[np.float32]

NONE = -1
BARRED = -np.inf
INPUTS = features.COUNT + 2
"""Of a hidden unit: the features of a move, and two facts of the decision point."""
LEAST_LEFT = 1e-9
"""Iterations that a job about to end counts as having left."""


class Bids(NamedTuple):
    """An auction's inputs: n jobs' remaining iterations, seconds per iteration, restart costs, present GPUs.

    Attributes
    ----------
    remaining, standstill_s, age_s, attained_gpu_s, slack_s : ndarray of float, shape (n,)
        Iterations left; seconds until it works; since its submission; GPU-seconds held; seconds to its
        deadline, NaN: none.
    time_s, cost_s : ndarray of float, shape (n, T, K)
        Seconds per iteration, inf: infeasible or unknown; seconds of standstill after a move.
    held_type, held_level : ndarray of int, shape (n,)
        -1: holds nothing.
    """

    remaining: Floats
    time_s: Floats
    cost_s: Floats
    held_type: Ints
    held_level: Ints
    standstill_s: Floats
    age_s: Floats
    attained_gpu_s: Floats
    slack_s: Floats


class FeatureInputs(NamedTuple):
    """Values of jobs, the queue and GPU types, from which features of moves (starts, GPU doublings) come.

    Attributes
    ----------
    job : ndarray of float, shape (n, features.JOB_FACTS)
    point : ndarray of float, shape (features.POINT_FACTS,)
    type_speed, advantage : ndarray of float, shape (T,) and (n, T)
        As `advantages` has them.
    bias : ndarray of float, shape (n, T, 2)
        Added to the scores of a job's start, and of its doublings, on each type; of length 0: nothing is.
    """

    job: Floats
    point: Floats
    type_speed: Floats
    advantage: Floats
    bias: Floats


class Moves(NamedTuple):
    """The state of an auction: each job's GPUs so far, and the score of its next move on each GPU type.

    Attributes
    ----------
    gpu_type, level : ndarray of int, shape (n,)
        What each job has; -1: nothing.
    target : ndarray of int, shape (n, T)
        The level that its next move on a type leads to; -1: there is none.
    score : ndarray of float, shape (n, T)
        Of that move.
    """

    gpu_type: Ints
    level: Ints
    target: Ints
    score: Floats


class AuctionBuffers(NamedTuple):
    """An auction's free GPUs, its queue of next moves, and an array for the features of one move.

    Attributes
    ----------
    free : ndarray of int, shape (T,)
        GPUs that nothing has.
    values : ndarray of float, shape (features.COUNT,)
        Of the move that is scored.
    queue : MoveQueue
        The moves that may come next.
    """

    free: Ints
    values: Floats
    queue: MoveQueue


def make_bids(view: View, time_s: Floats) -> Bids:
    """Return the auction's inputs for a View's jobs, given seconds per iteration by job, GPU type and count.

    The shape of `time_s` is (n, T, K).

    The arrays of a View cannot be written; those of compiled episodes can. Copies share their machine code.
    """
    held = np.searchsorted(view.setting.counts, view.gpus)
    return Bids(
        view.remaining_iterations.copy(),
        np.where(view.feasible, time_s, np.inf),
        view.restart_cost_s(),
        view.gpu_type.astype(np.int64),
        np.where(view.gpus > 0, held, NONE).astype(np.int64),
        view.standstill_s.copy(),
        view.now_s - view.submit_s,
        view.attained_gpu_s.copy(),
        view.deadline_s - view.now_s,
    )


def make_weights(named: Mapping[str, float]) -> Floats:
    """Return weights given by feature name as an array, shape (features.COUNT,); 0 where none is given."""
    return np.array([named.get(name, 0.0) for name in features.NAMES])


def count_hidden_units(weights: Floats, count: int = features.COUNT) -> int:
    """Return how many hidden units an array of weights for `count` features has.

    Raises
    ------
    ValueError
        If no number of hidden units has weights of this shape.
    """
    # Each hidden unit has a weight in the score, a bias, and a weight for each of its inputs.
    units, rest = divmod(weights.size - count, count + INPUTS - features.COUNT + 2)
    if weights.ndim != 1 or units < 0 or rest:
        raise ValueError(f"weights of shape {weights.shape}")
    return units


@compile_in_place
def next_level(counts: Ints, time_s: Floats, level: int) -> int:
    """Return the index of the least GPU count that is at least twice `counts[level]` and faster, or NONE."""
    for k in range(level + 1, len(counts)):
        if counts[k] >= 2 * counts[level] and time_s[k] < time_s[level]:
            return k
    return NONE


@compile_in_place
def first_level(time_s: Floats) -> int:
    """Return the index of the least GPU count on which the job fits (finite time), or NONE."""
    for k in range(len(time_s)):
        if time_s[k] < np.inf:
            return k
    return NONE


@compile_part
def compute_sizes(counts: Ints, bids: Bids) -> tuple[Floats, Floats, Floats]:
    """Return the least GPU-seconds, seconds, and seconds with a restart that each job still needs, (n,)."""
    jobs, types, levels = bids.time_s.shape
    gpu_s, best_s, soonest_s = np.full(jobs, np.inf), np.full(jobs, np.inf), np.full(jobs, np.inf)
    for j in range(jobs):
        # A job that is about to end has sizes of nothing, whose logarithms would be infinite.
        left = max(bids.remaining[j], LEAST_LEFT)
        for t in range(types):
            for k in range(levels):
                seconds = left * bids.time_s[j, t, k]
                gpu_s[j] = min(gpu_s[j], seconds * counts[k])
                best_s[j] = min(best_s[j], seconds)
                soonest_s[j] = min(soonest_s[j], bids.cost_s[j, t, k] + seconds)
    return gpu_s, best_s, soonest_s


@compile_in_place
def first_levels(time_s: Floats, level: Ints) -> None:
    """Write the index of the least GPU count on which each job fits, by GPU type, or NONE, into `level`."""
    for j in range(level.shape[0]):
        for t in range(level.shape[1]):
            level[j, t] = first_level(time_s[j, t])


@compile_part
def advantages(time_s: Floats, counts: Ints) -> tuple[Floats, Floats]:
    """Return types' mean log speed per GPU (0: a job's best type), (T,), and jobs' deviations, (n, T).

    Per GPU at the least feasible count, relative to the job's best type.
    """
    jobs, types, _ = time_s.shape
    own, mean, seen = np.zeros((jobs, types)), np.zeros(types), np.zeros(types)
    level = np.empty((jobs, types), np.int64)
    first_levels(time_s, level)
    for j in range(jobs):
        best = -np.inf
        for t in range(types):
            k = level[j, t]
            # The logarithm of speed per GPU: differences of it are ratios, whatever an iteration of the job
            # is.
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


@compile_part
def rank_sizes(size: Floats) -> Floats:
    """Return the rank of each job's size, from -1 for the smallest to 1 for the largest, shape (n,)."""
    order = np.argsort(size, kind="mergesort")
    rank = np.zeros(len(size))
    for place in range(len(size)):
        rank[order[place]] = 2.0 * place / max(len(size) - 1, 1) - 1.0
    return rank


@compile_in_place
def derive_jobs(facts: Floats, point: Floats) -> None:
    """Compute jobs' derived properties, such as log age and lateness, and write them into `facts`."""
    for j in range(len(facts)):
        features.derive_job(facts[j], point)


@compile_part
def compute_feature_inputs(gpus: int, counts: Ints, bids: Bids) -> FeatureInputs:
    """Compute the inputs of moves' features: values of each job, of the whole queue and of each GPU type."""
    jobs, (gpu_s, best_s, soonest_s) = len(bids.remaining), compute_sizes(counts, bids)
    rank, total, logs, known = rank_sizes(gpu_s), 0.0, 0.0, 0
    facts, point = np.empty((jobs, features.JOB_FACTS)), np.empty(features.POINT_FACTS)
    for j in range(jobs):
        facts[j, features.REMAINING] = max(bids.remaining[j], LEAST_LEFT)
        facts[j, features.LEAST_GPU_S], facts[j, features.LEAST_S] = gpu_s[j], best_s[j]
        facts[j, features.SOONEST_S] = soonest_s[j]
        facts[j, features.RANK], facts[j, features.AGE_S] = rank[j], bids.age_s[j]
        facts[j, features.ATTAINED_GPU_S] = bids.attained_gpu_s[j]
        facts[j, features.SLACK_S] = bids.slack_s[j]
        if gpu_s[j] < np.inf:
            logs, total, known = logs + math.log(gpu_s[j]), total + gpu_s[j], known + 1
    point[features.JOBS], point[features.GPUS] = jobs, gpus
    point[features.MEAN_LOG] = logs / max(known, 1)
    point[features.BACKLOG_H] = total / max(gpus, 1) / 3600.0
    features.derive_point(point)
    derive_jobs(facts, point)
    type_speed, advantage = advantages(bids.time_s, counts)
    return FeatureInputs(facts, point, type_speed, advantage, np.empty((0, 0, 0)))


@compile_in_place
def score_move(weights: Floats, values: Floats, point: Floats) -> float:
    """Return the score of a move (a job's start, or doubling of GPUs): weighted features, plus hidden units.

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
        # Softsign, which needs no exponential and saturates slowly.
        value += weights[at] * inside / (1.0 + abs(inside))
        at += INPUTS + 2
    return value


@compile_in_place
def fill_move(
    values: Floats, facts: FeatureInputs, counts: Ints, bids: Bids, j: int, t: int, k: int, before: int
) -> None:
    """Write a move's features into `values`: job j's from counts[before] (NONE: 0) to counts[k] of type t."""
    running = bids.held_level[j] >= 0
    features.fill(
        values,
        facts.job[j],
        facts.point,
        bids.time_s[j, t, k],
        bids.time_s[j, t, before] if before >= 0 else np.inf,
        counts[k],
        counts[before] if before >= 0 else 0,
        running,
        running and bids.held_type[j] == t and k <= bids.held_level[j],
        bids.cost_s[j, t, k],
        facts.type_speed[t],
        facts.advantage[j, t],
    )


@compile_part
def begin(bids: Bids) -> Moves:
    """Return the state at the start of an auction, in which no job has GPUs and nothing is scored yet."""
    jobs, types, _ = bids.time_s.shape
    gpu_type, level = np.full(jobs, NONE, np.int64), np.full(jobs, NONE, np.int64)
    target = np.empty((jobs, types), np.int64)
    first_levels(bids.time_s, target)
    return Moves(gpu_type, level, target, np.full((jobs, types), BARRED))


@compile_in_place
def score_moves(
    j: int,
    moves: Moves,
    given: Floats,
    weights: Floats,
    values: Floats,
    facts: FeatureInputs,
    counts: Ints,
    bids: Bids,
) -> None:
    """Write scores of job j's next moves by type into `moves`; BARRED: none, or a doubling that scores <= 0.

    `values` is room for the features of a move.
    """
    before = moves.level[j]
    for t in range(moves.score.shape[1]):
        k = moves.target[j, t]
        moves.score[j, t] = BARRED
        # A job that has something may only grow where it is: a gang is of one type.
        if k < 0 or (before >= 0 and t != moves.gpu_type[j]):
            continue
        if len(given) > 0:
            value = given[j, t, k]
        else:
            fill_move(values, facts, counts, bids, j, t, k, before)
            value = score_move(weights, values, facts.point)
            if len(facts.bias) > 0:
                value += facts.bias[j, t, 0 if before < 0 else 1]
        # Growth must be worth something by itself; a start comes in the order of scores, however low.
        if before < 0 or value > 0.0:
            moves.score[j, t] = value


@compile_in_place
def add_moves(j: int, moves: Moves, queue: MoveQueue) -> None:
    """Put job j's next moves (start, or doubling of GPUs) into the queue, except those that are barred."""
    types = moves.score.shape[1]
    for t in range(types):
        if moves.score[j, t] > BARRED:
            move_queue.push(queue, moves.score[j, t], j * types + t)


@compile_in_place
def best_move(moves: Moves, counts: Ints, free: Ints, queue: MoveQueue) -> tuple[int, int]:
    """Remove and return the best-scoring move that the free GPUs allow, as (job, GPU type), or NONE.

    It leaves the queue. Moves without room are put aside: there is no more room before something is reverted.
    """
    types = moves.score.shape[1]
    while queue.size[0] > 0:
        score, at = move_queue.pop(queue)
        j, t = at // types, at % types
        if moves.score[j, t] != score:  # The job has made another move since.
            continue
        # A growth frees what the job has on the type already.
        before = counts[moves.level[j]] if moves.level[j] >= 0 else 0
        if counts[moves.target[j, t]] - before <= free[t]:
            return j, t
        move_queue.put_aside(queue, score, at)
    return NONE, NONE


@compile_in_place
def revert(moves: Moves, free: Ints, counts: Ints, bids: Bids) -> bool:
    """Undo GPU doublings of running jobs that do not repay a restart; return whether there were any."""
    reverted = False
    for j in range(len(moves.gpu_type)):
        t, k, h = moves.gpu_type[j], moves.level[j], bids.held_level[j]
        if h < 0 or t != bids.held_type[j] or k <= h:
            continue
        # Both sides are seconds to the job's end: as it is, and enlarged with its restart.
        stay_s = bids.standstill_s[j] + bids.remaining[j] * bids.time_s[j, t, h]
        if bids.cost_s[j, t, k] + bids.remaining[j] * bids.time_s[j, t, k] >= stay_s:
            free[t] += counts[k] - counts[h]
            moves.level[j], moves.score[j], moves.target[j], reverted = h, BARRED, NONE, True
    return reverted


@compile_part
def hold(
    given: Floats, weights: Floats, facts: FeatureInputs, available: Ints, counts: Ints, bids: Bids
) -> tuple[Ints, Ints]:
    """Run an auction by scores `given`, else by `weights`; return jobs' GPU types and indices into `counts`.

    Both have shape (n,), and -1 for no GPUs.
    """
    moves = begin(bids)
    room = AuctionBuffers(available.copy(), np.empty(features.COUNT), move_queue.empty(moves.score.size))
    make_moves(moves, given, weights, facts, counts, bids, room)
    return moves.gpu_type, moves.level


@compile_in_place
def make_moves(
    moves: Moves,
    given: Floats,
    weights: Floats,
    facts: FeatureInputs,
    counts: Ints,
    bids: Bids,
    room: AuctionBuffers,
) -> None:
    """Start jobs and double their GPUs one by one, the best-scoring move first, while GPUs are free."""
    free, values, queue = room
    for j in range(len(moves.gpu_type)):
        score_moves(j, moves, given, weights, values, facts, counts, bids)
        add_moves(j, moves, queue)
    while True:
        j, t = best_move(moves, counts, free, queue)
        if j < 0:
            if revert(moves, free, counts, bids):
                # What was put aside for lack of room may fit into what was given back.
                move_queue.take_back(queue)
                continue
            return
        k, before = moves.target[j, t], moves.level[j]
        free[t] -= counts[k] - (counts[before] if before >= 0 else 0)
        moves.gpu_type[j], moves.level[j] = t, k
        moves.target[j, t] = next_level(counts, bids.time_s[j, t], k)
        score_moves(j, moves, given, weights, values, facts, counts, bids)
        add_moves(j, moves, queue)


@compile_entry
def decide(weights: Floats, available: Ints, counts: Ints, bids: Bids) -> tuple[Ints, Ints]:
    """Give GPUs out by the best-scored moves (start a job, double one); return types, indices in counts.

    All GPUs are free at first. The best-scoring move is made again and again: a job that has
    nothing starts with its least count on a type, or one that has something doubles it. A
    doubling must score above 0, a start need not. Then every enlargement of a running job that
    does not repay its restart is reverted, the job barred from it, and the auction goes on.

    Parameters
    ----------
    weights : ndarray of float
        As `score_move` takes them.
    available : ndarray of int, shape (T,)
    counts : ndarray of int, shape (K,)
    bids : Bids

    Returns
    -------
    (gpu_type, level) : ndarray of int, shape (n,)
        Type and level of each job; -1: none.
    """
    facts = compute_feature_inputs(available.sum(), counts, bids)
    return hold(np.empty((0, 0, 0)), weights, facts, available, counts, bids)


@compile_entry
def decide_by_scores(scores: Floats, available: Ints, counts: Ints, bids: Bids) -> tuple[Ints, Ints]:
    """Run the auction of `decide`, with the moves' `scores` given; return GPU types and counts' indices.

    Parameters
    ----------
    scores : ndarray of float, shape (n, T, K)
        Of the move of each job on each type that leads to each level; the others count for nothing.
    available, counts, bids
        As of `decide`.
    """
    none = np.empty((0, 0))
    facts = FeatureInputs(none, np.empty(0), np.empty(0), none, np.empty((0, 0, 0)))
    return hold(scores, np.empty(0), facts, available, counts, bids)


@compile_entry
def decide_biased(
    weights: Floats, bias: Floats, available: Ints, counts: Ints, bids: Bids
) -> tuple[Ints, Ints]:
    """Run an auction with a bias added to jobs' scores; return jobs' GPU types and indices into `counts`.

    Parameters
    ----------
    bias : ndarray of float, shape (n, T, 2)
        As of `FeatureInputs`.
    weights, available, counts, bids
        As of `decide`.
    """
    facts = compute_feature_inputs(available.sum(), counts, bids)
    biased = FeatureInputs(facts.job, facts.point, facts.type_speed, facts.advantage, bias)
    return hold(np.empty((0, 0, 0)), weights, biased, available, counts, bids)


@compile_in_place
def describe_moves(
    j: int, facts: FeatureInputs, counts: Ints, bids: Bids, values: Floats, out: Singles
) -> None:
    """Write into `out` the features of job j's start and of each later doubling of its GPUs, on each type."""
    for t in range(out.shape[0]):
        before, k = NONE, first_level(bids.time_s[j, t])
        while k >= 0:
            fill_move(values, facts, counts, bids, j, t, k, before)
            for place in range(len(values)):
                out[t, k, place] = values[place]
            before, k = k, next_level(counts, bids.time_s[j, t], k)


@compile_in_place
def describe_rows(
    rows: Ints, facts: FeatureInputs, counts: Ints, bids: Bids, values: Floats, out: Singles
) -> None:
    """Write the features of the moves of the jobs numbered in `rows` into `out`, one job after the other."""
    for at in range(len(rows)):
        describe_moves(rows[at], facts, counts, bids, values, out[at])


@compile_entry
def job_facts(gpus: int, counts: Ints, bids: Bids) -> Floats:
    """Return jobs' properties that features use, such as age and size, shape (n, features.JOB_FACTS)."""
    return compute_feature_inputs(gpus, counts, bids).job


@compile_entry
def write_move_features(gpus: int, counts: Ints, bids: Bids, out: Singles) -> None:
    """Write the features of all moves (starts, or doublings of GPUs), by job, GPU type and count, into `out`.

    The shape of `out` is (n, T, K, COUNT).
    """
    facts, values = compute_feature_inputs(gpus, counts, bids), np.empty(features.COUNT)
    out[:] = 0.0
    describe_rows(np.arange(len(out)), facts, counts, bids, values, out)
