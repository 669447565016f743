"""Observations, compiled: the numbers of `clustergym.envs.observations`, in the same order."""

from __future__ import annotations

import math

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.envs.observations import JOB_FEATURES, LONGEST_S, OPTION_FEATURES, QUEUE_FEATURES
from clustergym.envs.vector import episode_state as d
from clustergym.envs.vector.episode_state import EpisodeRules, EpisodeState, Singles
from clustergym.sim import columns as c
from clustergym.sim.compiled import jobs
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_in_place, compile_part
from clustergym.sim.compiled.scenario_arrays import ClusterArrays
from clustergym.sim.compiled.sums import pairwise_sum

PER_LOGARITHM = float(1.0 / np.log1p(LONGEST_S))
LONGEST = math.log1p(LONGEST_S) * PER_LOGARITHM
FEATURES, OPTION_WIDTH, QUEUE_WIDTH = len(JOB_FEATURES), len(OPTION_FEATURES), len(QUEUE_FEATURES)
(
    PRESENT, WAITING, GPUS, GPUS_HELD, ASSIGNED, PREEMPTED, MAY_REJECT, AGE, ATTAINED, WORK_LEFT, TIME_LEFT,
    DONE, WAITED, RESTARTS, STANDSTILL, GPUS_REQUESTED, HAS_DEADLINE, SLACK, LATE, FAIR_LAG,
) = range(FEATURES)  # fmt: skip
EDITS_COLUMN = QUEUE_FEATURES.index("edits")


@compile_in_place
def logarithm(seconds: float) -> float:
    """Scale seconds to 0 to 1 by log(1 + seconds) / log(1 + ten years); NaN becomes 0."""
    if seconds > 0.0:
        # Without a deadline it is the longest time, whose logarithm is known.
        return math.log1p(seconds) * PER_LOGARITHM if seconds < LONGEST_S else LONGEST
    return 0.0


@compile_in_place
def _share(value: float, half: float) -> float:
    return value / (value + half)


@compile_in_place
def begin(episode: Episode, cluster: ClusterArrays, episode_state: EpisodeState, rules: EpisodeRules) -> None:
    """Write the observation at the start of a decision point."""
    types, seen = len(cluster.capacity), episode_state.observation
    for gpu_type in range(types):
        seen[gpu_type] = episode.free[gpu_type] / cluster.capacity[gpu_type]
        seen[types + gpu_type] = 1.0
        seen[2 * types + gpu_type] = cluster.capacity[gpu_type] / rules.total
    # Only then is less than all available; to work it out takes an array.
    if episode.clock[c.RUNNING_PROFILES] > 0:
        _fill_available(episode, cluster, seen[types : 2 * types])
    _fill_queue(episode, episode_state, rules, seen[len(seen) - QUEUE_WIDTH :])
    if not rules.job_rows:
        return
    columns, options = FEATURES + 2 * types, types * len(cluster.counts) * OPTION_WIDTH
    first_job, first_option, count = 3 * types, 3 * types + rules.rows * columns, episode_state.state[d.SHOWN]
    _fill_jobs(episode, cluster, episode_state, rules, seen[first_job : first_job + count * columns])
    _fill_options(episode, cluster, episode_state, seen[first_option : first_option + count * options])
    # Rows without a job are zero, whatever the last observation had there.
    seen[first_job + count * columns : first_option] = 0.0
    seen[first_option + count * options : len(seen) - QUEUE_WIDTH] = 0.0


@compile_in_place
def _add_up(episode: Episode, episode_state: EpisodeState, age: Floats, work: Floats) -> tuple[int, int]:
    """Write age and GPU-seconds left of the jobs in view; return how many wait, and GPUs they ask for."""
    job, now = episode.job, episode.clock[c.NOW]
    now_s, waiting, demand = now / c.TICKS_PER_S, 0, 0
    for at in range(len(age)):
        row = episode.in_view[at]
        age[at] = now_s - episode.figures[row, c.SUBMIT_S]
        left = jobs.compute_remaining(episode, row, now)
        # By what the agent may know: `HIDDEN` says which types of the job are not profiled yet.
        work[at] = episode_state.least_gpu_s[job[row, c.CLASS], job[row, c.HIDDEN]] * left
        if job[row, c.LEVEL] == c.NONE:
            waiting += 1
            demand += job[row, c.REQUESTED_GPUS]
    return waiting, demand


@compile_part
def _fill_available(episode: Episode, cluster: ClusterArrays, share: Singles) -> None:
    """Write the share of each type's GPUs that no profiling run holds."""
    available = cluster.capacity.copy()
    for at in range(episode.clock[c.RUNNING_PROFILES]):
        gpu_type = episode.profile[at, c.NTH_RUNNING] % len(available)
        available[gpu_type] -= episode.clock[c.PROFILE_GPUS]
    for gpu_type in range(len(available)):
        share[gpu_type] = available[gpu_type] / cluster.capacity[gpu_type]


@compile_part
def _fill_queue(episode: Episode, episode_state: EpisodeState, rules: EpisodeRules, queue: Singles) -> None:
    clock, n = episode.clock, episode.clock[c.IN_VIEW]
    age, work = np.empty(n), np.empty(n)
    waiting, demand = _add_up(episode, episode_state, age, work)
    queue[0], queue[1] = _share(n, 50.0), _share(waiting, 50.0)
    queue[2] = _share(n - episode_state.state[d.SHOWN], 50.0) if len(episode_state.shown) > 0 else 0.0
    queue[3] = logarithm(pairwise_sum(age) / max(n, 1))
    queue[4] = _share(demand, rules.total)
    queue[5] = logarithm(pairwise_sum(work) / rules.total)
    queue[6], queue[7] = 0.0, clock[c.LEFT] / (clock[c.LEFT] + n)


@compile_in_place
def _fill_jobs(
    episode: Episode, cluster: ClusterArrays, episode_state: EpisodeState, rules: EpisodeRules, table: Singles
) -> None:
    """Fill the columns of all jobs with a row, in one call since a call per job is slower."""
    job, figures, now, types = episode.job, episode.figures, episode.clock[c.NOW], len(cluster.capacity)
    now_s, width, in_view = now / c.TICKS_PER_S, FEATURES + 2 * types, episode.clock[c.IN_VIEW]
    for place in range(episode_state.state[d.SHOWN]):
        row, at = episode_state.shown[place], place * width
        # `level + 1`: the first size is that of no GPUs.
        runs, level = job[row, c.LEVEL] != c.NONE, job[row, c.LEVEL]
        known = job[row, c.CLASS], job[row, c.HIDDEN]
        remaining, age = jobs.compute_remaining(episode, row, now), now_s - figures[row, c.SUBMIT_S]
        to_deadline = figures[row, c.DEADLINE_S] - now_s
        table[at + PRESENT], table[at + WAITING] = 1.0, not runs
        table[at + GPUS] = table[at + GPUS_HELD] = rules.size_log[level + 1]
        table[at + ASSIGNED] = table[at + PREEMPTED] = 0.0
        table[at + MAY_REJECT] = rules.rejects and not (rules.binding and job[row, c.DECIDED])
        table[at + AGE] = logarithm(age)
        table[at + ATTAINED] = logarithm(jobs.compute_attained(episode, row, now))
        table[at + WORK_LEFT] = logarithm(episode_state.least_gpu_s[known] * remaining)
        table[at + TIME_LEFT] = logarithm(episode_state.least_s[known] * remaining)
        table[at + DONE] = 1.0 - remaining / figures[row, c.ITERATIONS]
        table[at + WAITED] = 0.0 if runs else logarithm(now_s - job[row, c.QUEUED_SINCE] / c.TICKS_PER_S)
        table[at + RESTARTS] = _share(job[row, c.RESTARTS], 4.0)
        standstill_s = max(job[row, c.READY] - now, 0) / c.TICKS_PER_S
        table[at + STANDSTILL] = logarithm(standstill_s) if runs else 0.0
        requested = jobs.find_level(cluster.counts, job[row, c.REQUESTED_GPUS])
        table[at + GPUS_REQUESTED] = rules.size_log[requested + 1]
        table[at + HAS_DEADLINE] = np.isfinite(to_deadline)
        table[at + SLACK], table[at + LATE] = logarithm(to_deadline), to_deadline < 0
        iterations, least_gpu_s = figures[row, c.ITERATIONS], episode_state.least_gpu_s[known]
        # With equal shares n jobs take n times as long, but no job is faster than alone on its best
        # allotment.
        even_s = max(
            least_gpu_s * iterations * in_view / rules.total, episode_state.least_s[known] * iterations
        )
        table[at + FAIR_LAG] = age / (age + even_s) if even_s > 0.0 else 0.0
        for held in range(types):
            table[at + FEATURES + held] = job[row, c.TYPE] == held
            table[at + FEATURES + types + held] = job[row, c.REQUESTED_TYPE] == held


@compile_in_place
def _fill_options(
    episode: Episode, cluster: ClusterArrays, episode_state: EpisodeState, table: Singles
) -> None:
    job, types, levels = episode.job, len(cluster.capacity), len(cluster.counts)
    speed, restart, searched, at = episode_state.speed, episode_state.restart, episode.searched, 0
    costly = episode.clock[c.FIRST_LAUNCH_COSTS] != 0
    for place in range(episode_state.state[d.SHOWN]):
        row = episode_state.shown[place]
        model, hidden, first = job[row, c.CLASS], job[row, c.HIDDEN], at
        # A first launch has no checkpoint to restore, so it is free unless the scenario charges it.
        pays = 1 if costly or job[row, c.LAUNCHED] else 0
        for gpu_type in range(types):
            for level in range(levels):
                table[at] = speed[model, hidden, gpu_type, level, 0]
                table[at + 1] = speed[model, hidden, gpu_type, level, 1]
                table[at + 2] = restart[model, pays, 1 if searched[row, gpu_type, level] else 0, level]
                at += OPTION_WIDTH
        if job[row, c.LEVEL] != c.NONE:
            table[first + (job[row, c.TYPE] * levels + job[row, c.LEVEL]) * OPTION_WIDTH + 2] = 0.0


@compile_in_place
def update_edited_row(
    episode: Episode, cluster: ClusterArrays, episode_state: EpisodeState, rules: EpisodeRules, at: int
) -> None:
    """Update the observation after the agent has changed the GPUs of the job in row `at`."""
    types, seen = len(cluster.capacity), episode_state.observation
    for gpu_type in range(types):
        seen[gpu_type] = episode_state.free[gpu_type] / cluster.capacity[gpu_type]
    seen[len(seen) - QUEUE_WIDTH + EDITS_COLUMN] = _share(episode_state.state[d.EDITS], 10.0)
    if not rules.job_rows:
        return
    job, begins = episode.job[episode_state.shown[at]], 3 * types + at * (FEATURES + 2 * types)
    column = seen[begins : begins + FEATURES + 2 * types]
    column[GPUS] = rules.size_log[job[c.TARGET_LEVEL] + 1]
    column[ASSIGNED], column[PREEMPTED] = job[c.ASSIGNED], job[c.PREEMPTED]
    undecided = rules.rejects and not (rules.binding and job[c.DECIDED])
    column[MAY_REJECT] = undecided and not job[c.ASSIGNED] and not job[c.REJECTED]
    for gpu_type in range(types):
        column[FEATURES + gpu_type] = job[c.TARGET_TYPE] == gpu_type
