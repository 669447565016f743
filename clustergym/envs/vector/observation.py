"""Observations, compiled: the numbers of `clustergym.envs.observations`, in the same order."""

from __future__ import annotations

import math

import numpy as np

from clustergym.arrays import Floats
from clustergym.compiled import columns as c
from clustergym.compiled import jobs
from clustergym.compiled.cluster_arrays import ClusterArrays
from clustergym.compiled.episode import Episode
from clustergym.compiled.numba_cache import compiled, compiled_part
from clustergym.envs.observations import JOB_FEATURES, LONGEST_S, OPTION_FEATURES, QUEUE_FEATURES
from clustergym.envs.vector import desk as d
from clustergym.envs.vector.desk import Desk, Rules, Singles

PER_LOGARITHM = float(1.0 / np.log1p(LONGEST_S))
FEATURES, OPTION_WIDTH, QUEUE_WIDTH = len(JOB_FEATURES), len(OPTION_FEATURES), len(QUEUE_FEATURES)
(
    PRESENT, WAITING, GPUS, GPUS_HELD, ASSIGNED, PREEMPTED, MAY_REJECT, AGE, ATTAINED, WORK_LEFT, TIME_LEFT,
    DONE, WAITED, RESTARTS, STANDSTILL, GPUS_REQUESTED, HAS_DEADLINE, SLACK, LATE, FAIR_LAG,
) = range(FEATURES)  # fmt: skip
EDITS_COLUMN = QUEUE_FEATURES.index("edits")


@compiled_part
def logarithm(seconds: float) -> float:
    """Return log(1 + x) / log(1 + ten years), from 0 to 1; NaN becomes 0."""
    if seconds > 0.0:
        return math.log1p(min(seconds, LONGEST_S)) * PER_LOGARITHM
    return 0.0


@compiled_part
def _sum_of_block(values: Floats, first: int, count: int) -> float:
    """Return the sum of up to 128 values: of eight lanes, and of what is left over."""
    total, whole = 0.0, 0
    if count >= 8:
        whole = count - count % 8
        lane = values[first : first + 8].copy()
        for at in range(8, whole):
            lane[at % 8] += values[first + at]
        total = ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]))
    for at in range(first + whole, first + count):
        total += values[at]
    return total


@compiled
def pairwise_sum(values: Floats) -> float:
    """Return the sum in NumPy's order of additions: halves are added up, down to blocks of 128.

    It is a loop because Numba's cache does not keep functions that call themselves.
    """
    first, count = np.zeros(64, np.int64), np.zeros(64, np.int64)
    halves, sums = np.zeros(64, np.int64), np.zeros((64, 2))
    depth, total, count[0] = 0, 0.0, len(values)
    while True:
        if count[depth] > 128 and halves[depth] < 2:
            left = count[depth] // 2
            left -= left % 8
            right = halves[depth] == 1
            first[depth + 1] = first[depth] + (left if right else 0)
            count[depth + 1] = count[depth] - left if right else left
            depth += 1
            halves[depth] = 0
            continue
        if count[depth] > 128:
            total = sums[depth, 0] + sums[depth, 1]
        else:
            total = _sum_of_block(values, first[depth], count[depth])
        if depth == 0:
            return total
        depth -= 1
        sums[depth, halves[depth]] = total
        halves[depth] += 1


@compiled_part
def _share(value: float, half: float) -> float:
    return value / (value + half)


@compiled_part
def begin(episode: Episode, cluster: ClusterArrays, desk: Desk, rules: Rules) -> None:
    """Compute the observation at the start of a decision point, after `edits.begin`."""
    types, seen = len(cluster.capacity), desk.observation
    for kind in range(types):
        seen[kind] = episode.free[kind] / cluster.capacity[kind]
        seen[types + kind] = 1.0
        seen[2 * types + kind] = cluster.capacity[kind] / rules.total
    if episode.clock[c.RUNNING_PROFILES] > 0:
        _fill_available(episode, cluster, seen[types : 2 * types])
    _fill_queue(episode, desk, rules, seen[len(seen) - QUEUE_WIDTH :])
    if not rules.job_rows:
        return
    columns, options = FEATURES + 2 * types, types * len(cluster.counts) * OPTION_WIDTH
    first_job, first_option = 3 * types, 3 * types + rules.rows * columns
    count = desk.state[d.SHOWN]
    for at in range(count):
        row, begins = desk.shown[at], first_job + at * columns
        _fill_job(episode, cluster, desk, rules, row, seen[begins : begins + columns])
        begins = first_option + at * options
        _fill_options(episode, cluster, desk, row, seen[begins : begins + options])
    seen[first_job + count * columns : first_option] = 0.0
    seen[first_option + count * options : len(seen) - QUEUE_WIDTH] = 0.0


@compiled_part
def _fill_available(episode: Episode, cluster: ClusterArrays, share: Singles) -> None:
    """Write the share of each type's GPUs that no profile holds."""
    available = cluster.capacity.copy()
    for at in range(episode.clock[c.RUNNING_PROFILES]):
        kind = episode.profile[at, c.NTH_RUNNING] % len(available)
        available[kind] -= episode.clock[c.PROFILE_GPUS]
    for kind in range(len(available)):
        share[kind] = available[kind] / cluster.capacity[kind]


@compiled_part
def _fill_queue(episode: Episode, desk: Desk, rules: Rules, queue: Singles) -> None:
    clock, now_s = episode.clock, episode.clock[c.NOW] / c.TICKS_PER_S
    n, waiting, demand = clock[c.IN_VIEW], 0, 0
    age, work = np.empty(n), np.empty(n)
    for at in range(n):
        row = episode.in_view[at]
        job = episode.job[row]
        age[at] = now_s - episode.figures[row, c.SUBMIT_S]
        work[at] = desk.least_gpu_s[job[c.CLASS], job[c.HIDDEN]] * jobs.remaining_at(
            episode, row, clock[c.NOW]
        )
        if job[c.LEVEL] == c.NONE:
            waiting += 1
            demand += job[c.REQUESTED_GPUS]
    queue[0], queue[1] = _share(n, 50.0), _share(waiting, 50.0)
    queue[2] = _share(n - desk.state[d.SHOWN], 50.0) if len(desk.shown) > 0 else 0.0
    queue[3] = logarithm(pairwise_sum(age) / n)
    queue[4] = _share(demand, rules.total)
    queue[5] = logarithm(pairwise_sum(work) / rules.total)
    queue[6], queue[7] = 0.0, clock[c.LEFT] / clock[c.JOBS]


@compiled_part
def _fill_job(
    episode: Episode, cluster: ClusterArrays, desk: Desk, rules: Rules, row: int, column: Singles
) -> None:
    job, figures, now = episode.job[row], episode.figures[row], episode.clock[c.NOW]
    now_s, runs = now / c.TICKS_PER_S, job[c.LEVEL] != c.NONE
    known = job[c.CLASS], job[c.HIDDEN]
    remaining, age = jobs.remaining_at(episode, row, now), now_s - figures[c.SUBMIT_S]
    to_deadline = figures[c.DEADLINE_S] - now_s
    column[PRESENT], column[WAITING] = 1.0, not runs
    column[GPUS] = column[GPUS_HELD] = rules.size_log[job[c.LEVEL] + 1]
    column[ASSIGNED] = column[PREEMPTED] = 0.0
    column[MAY_REJECT] = rules.rejects and not (rules.binding and job[c.DECIDED])
    column[AGE] = logarithm(age)
    column[ATTAINED] = logarithm(jobs.attained_at(episode, cluster, row, now))
    column[WORK_LEFT] = logarithm(desk.least_gpu_s[known] * remaining)
    column[TIME_LEFT] = logarithm(desk.least_s[known] * remaining)
    column[DONE] = 1.0 - remaining / figures[c.ITERATIONS]
    column[WAITED] = 0.0 if runs else logarithm(now_s - job[c.QUEUED_SINCE] / c.TICKS_PER_S)
    column[RESTARTS] = _share(job[c.RESTARTS], 4.0)
    column[STANDSTILL] = logarithm(max(job[c.READY] - now, 0) / c.TICKS_PER_S) if runs else 0.0
    column[GPUS_REQUESTED] = rules.size_log[np.searchsorted(cluster.counts, job[c.REQUESTED_GPUS]) + 1]
    column[HAS_DEADLINE] = np.isfinite(to_deadline)
    column[SLACK], column[LATE] = logarithm(to_deadline), to_deadline < 0
    lag = age / (age + figures[c.FAIR_S])
    column[FAIR_LAG] = lag if lag > 0.0 else 0.0
    types = len(cluster.capacity)
    for place in range(types):
        column[FEATURES + place] = job[c.TYPE] == place
        column[FEATURES + types + place] = job[c.REQUESTED_TYPE] == place


@compiled_part
def _fill_options(episode: Episode, cluster: ClusterArrays, desk: Desk, row: int, column: Singles) -> None:
    job, types, levels = episode.job[row], len(cluster.capacity), len(cluster.counts)
    pays = int(job[c.LAUNCHED] or episode.clock[c.FIRST_LAUNCH_COSTS])
    speed, restart, searched = (
        desk.speed[job[c.CLASS], job[c.HIDDEN]],
        desk.restart[job[c.CLASS], pays],
        episode.searched[row],
    )
    at = 0
    for kind in range(types):
        for level in range(levels):
            column[at], column[at + 1] = speed[kind, level, 0], speed[kind, level, 1]
            column[at + 2] = restart[1 if searched[kind, level] else 0, level]
            at += OPTION_WIDTH
    if job[c.LEVEL] != c.NONE:
        column[(job[c.TYPE] * levels + job[c.LEVEL]) * OPTION_WIDTH + 2] = 0.0


@compiled_part
def edited(episode: Episode, cluster: ClusterArrays, desk: Desk, rules: Rules, at: int) -> None:
    """Update what an edit of row `at` of the desk has changed."""
    types, seen = len(cluster.capacity), desk.observation
    for kind in range(types):
        seen[kind] = desk.free[kind] / cluster.capacity[kind]
    seen[len(seen) - QUEUE_WIDTH + EDITS_COLUMN] = _share(desk.state[d.EDITS], 10.0)
    if not rules.job_rows:
        return
    job, begins = episode.job[desk.shown[at]], 3 * types + at * (FEATURES + 2 * types)
    column = seen[begins : begins + FEATURES + 2 * types]
    column[GPUS] = rules.size_log[job[c.TARGET_LEVEL] + 1]
    column[ASSIGNED], column[PREEMPTED] = job[c.ASSIGNED], job[c.PREEMPTED]
    undecided = rules.rejects and not (rules.binding and job[c.DECIDED])
    column[MAY_REJECT] = undecided and not job[c.ASSIGNED] and not job[c.REJECTED]
    for kind in range(types):
        column[FEATURES + kind] = job[c.TARGET_TYPE] == kind
