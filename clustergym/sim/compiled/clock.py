"""The clock of an episode, compiled: it moves from decision point to decision point.

Same decision points, and same order of what happens at one tick, as `clustergym.sim.engine`.
"""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Bools, Ints
from clustergym.sim import columns as c
from clustergym.sim.compiled import jobs, profiles
from clustergym.sim.compiled.defragment import defragment
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_in_place, compile_part
from clustergym.sim.compiled.scenario_arrays import ClusterArrays
from clustergym.sim.compiled.shared_rules import rules
from clustergym.sim.engine import IDLE_ROUNDS


@compile_in_place
def _next_tick(episode: Episode) -> np.int64:
    """Return the tick of the next event, or c.NEVER."""
    clock, job = episode.clock, episode.job
    tick = clock[c.WAKE]
    if clock[c.AHEAD] < clock[c.JOBS]:
        tick = min(tick, max(job[clock[c.AHEAD], c.SUBMIT], clock[c.NOW]))
    for at in range(len(episode.rounds)):
        tick = min(tick, episode.rounds[at, 0])
    if clock[c.RUNNING_JOBS] > 0:
        tick = min(tick, job[episode.running[0], c.DUE])
    for at in range(clock[c.RUNNING_PROFILES]):
        tick = min(tick, episode.profile[episode.profile[at, c.NTH_RUNNING], c.PROFILE_DUE])
    return tick


@compile_in_place
def _arrive(episode: Episode) -> None:
    """Let the jobs of this tick enter the system, in order of rows."""
    clock = episode.clock
    first = clock[c.AHEAD]
    while clock[c.AHEAD] < clock[c.JOBS] and episode.job[clock[c.AHEAD], c.SUBMIT] <= clock[c.NOW]:
        clock[c.AHEAD] += 1
    # The engine plans the next submission before this tick's jobs are queued, so that its number is lower
    # than that of anything they cause.
    clock[c.ARRIVAL_ID] = clock[c.NEXT_ID]
    clock[c.NEXT_ID] += 1
    for row in range(first, clock[c.AHEAD]):
        jobs.submit(episode, row)


@compile_in_place
def _happen(episode: Episode, cluster: ClusterArrays) -> bool:
    """Let the first event of this tick happen; return False if there is none."""
    clock, job, rounds = episode.clock, episode.job, episode.rounds
    now, first, planned, ending = clock[c.NOW], c.NEVER, c.NONE, c.NONE
    # Several events may be planned for one tick. They happen in the order in which they were planned, as in
    # SimPy's heap: the least number wins.
    for at in range(len(rounds)):
        if rounds[at, 0] == now and rounds[at, 1] < first:
            first, planned = rounds[at, 1], at
    if clock[c.RUNNING_JOBS] > 0:
        row = episode.running[0]
        if job[row, c.DUE] == now and job[row, c.DUE_ID] < first:
            first, ending = job[row, c.DUE_ID], row
    measured = profiles.find_due_profile(episode, first)
    if measured != c.NONE:
        first = episode.profile[measured, c.PROFILE_ID]
    if (
        clock[c.AHEAD] < clock[c.JOBS]
        and job[clock[c.AHEAD], c.SUBMIT] <= now
        and clock[c.ARRIVAL_ID] < first
    ):
        _arrive(episode)
    elif measured != c.NONE:
        jobs.end_profile(episode, measured)
    elif ending != c.NONE:
        jobs.complete(episode, cluster, ending)
    elif planned != c.NONE:
        rounds[planned, 0] = c.NEVER
        clock[c.ROUND_PENDING], clock[c.DECISION_DUE] = 0, 1
    else:
        return False
    return True


@compile_in_place
def _end_early(episode: Episode, at_horizon: bool) -> int:
    """End an episode at the horizon, or stalled where its jobs wait for nothing.

    The engine's clock still visits the completions that changes of allotments have made void.
    """
    clock = episode.clock
    jobs.tidy_view(episode)
    clock[c.NOW] = max(clock[c.NOW], clock[c.VOID_UNTIL])
    at_horizon |= clock[c.VOID_BEYOND] != 0
    clock[c.END] = clock[c.HORIZON] if at_horizon else clock[c.NOW]
    return c.OVER if at_horizon else c.STALLED


@compile_in_place
def _any_queued(episode: Episode) -> bool:
    """Return whether any job in view waits, so that a decision comes before profiling runs start."""
    for at in range(episode.clock[c.LISTED]):
        row = episode.in_view[at]
        if row >= 0 and episode.job[row, c.PHASE] == c.QUEUED:
            return True
    return False


@compile_in_place
def advance(episode: Episode, cluster: ClusterArrays) -> int:
    """Simulate up to the next decision point; return DECISION, or OVER or STALLED at the end.

    WAKEUP: rented nodes are due at this tick, after all else that happens then; with SERVED it goes on.
    """
    clock, tick = episode.clock, episode.clock[c.NOW]
    served = clock[c.SERVED] != 0
    clock[c.SERVED] = 0
    while served or clock[c.SCORED_LEFT] > 0:
        if not served:
            tick = _next_tick(episode)
            if tick == c.NEVER or tick > clock[c.HORIZON]:
                return _end_early(episode, tick != c.NEVER)
            clock[c.NOW] = tick
            while _happen(episode, cluster):
                pass
            if tick == clock[c.WAKE]:
                return c.WAKEUP
        served = False
        # Profiles have the first claim on free GPUs, except before a decision with jobs in the queue: there
        # they start after the launches (`end_decision`).
        if profiles.active(episode) and not (clock[c.DECISION_DUE] and _any_queued(episode)):
            profiles.start_waiting(episode, cluster)
        # What is launched at the horizon has no time to run.
        if not clock[c.DECISION_DUE] or tick >= clock[c.HORIZON]:
            continue
        clock[c.DECISION_DUE] = 0
        if clock[c.DECIDED_AT] == tick:
            # A log identifies decisions by their times, so that an instant has at most one.
            jobs.add_round(episode, tick + 1)
        elif clock[c.IN_VIEW] > 0 or (clock[c.ALWAYS] and clock[c.LEFT] < clock[c.JOBS]):
            clock[c.DECIDED_AT] = tick
            clock[c.DECISION_POINTS] += 1
            jobs.tidy_view(episode)
            # Before the View is made, which then shows where jobs are after the moves.
            defragment(episode, cluster)
            return c.DECISION
    jobs.tidy_view(episode)
    clock[c.END] = clock[c.NOW]
    return c.OVER


@compile_in_place
def _has_changed(episode: Episode, row: int) -> bool:
    job = episode.job[row]
    return job[c.TARGET_TYPE] != job[c.TYPE] or job[c.TARGET_LEVEL] != job[c.LEVEL]


@compile_in_place
def _launches(episode: Episode, cluster: ClusterArrays, rows: Ints, launches: Ints) -> int:
    """Write the jobs that are to hold other GPUs than now, the largest first; return how many."""
    count = 0
    # The widest jobs first, as they are hardest to place, and by row among equally wide ones: the order of
    # the engine's (-GPUs, row, type).
    for level in range(len(cluster.counts) - 1, -1, -1):
        for row in rows:
            if episode.job[row, c.TARGET_LEVEL] == level and _has_changed(episode, row):
                launches[count] = row
                count += 1
    return count


@compile_in_place
def _take_away(episode: Episode, cluster: ClusterArrays, rows: Ints) -> None:
    """Drop the rejected jobs, then preempt those that are to hold no GPUs."""
    job = episode.job
    for row in rows:
        if job[row, c.REJECTED]:
            jobs.drop(episode, cluster, row)
    for row in rows:
        if job[row, c.PHASE] == c.RUNNING and job[row, c.TARGET_LEVEL] == c.NONE:
            jobs.preempt(episode, cluster, row)


@compile_in_place
def launch(episode: Episode, cluster: ClusterArrays, launches: Ints, was_running: Bools) -> None:
    """Take the GPUs of all jobs in `launches`, then launch each; mark in `was_running` which held any."""
    job = episode.job
    # All give up their GPUs before the first is launched: a decision is legal as a whole, and jobs may swap
    # GPUs.
    for at in range(len(launches)):
        if job[launches[at], c.LEVEL] != c.NONE:
            was_running[at] = True
            jobs.vacate(episode, cluster, launches[at])
    for at in range(len(launches)):
        gpu_type, level = job[launches[at], c.TARGET_TYPE], job[launches[at], c.TARGET_LEVEL]
        jobs.launch(episode, cluster, launches[at], gpu_type, level, was_running[at])


@compile_part
def enact(episode: Episode, cluster: ClusterArrays) -> int:
    """Carry out the decision written in the jobs in view (drop, preempt, launch); return DECISION or STALLED.

    Drops come first, then preemptions, then launches. A rejected job's target is NONE.
    """
    clock = episode.clock
    rows = episode.in_view[: clock[c.IN_VIEW]].copy()
    _take_away(episode, cluster, rows)
    launches = np.empty(len(rows), np.int64)
    count = _launches(episode, cluster, rows, launches)
    launch(episode, cluster, launches[:count], np.zeros(count, np.bool_))
    return end_decision(episode, cluster)


@compile_in_place
def end_decision(episode: Episode, cluster: ClusterArrays) -> int:
    """Start waiting profiling runs and plan the next round after a decision; return DECISION or STALLED."""
    clock = episode.clock
    clock[c.DECISION_DUE] = 0
    jobs.tidy_view(episode)
    if profiles.active(episode):
        profiles.start_waiting(episode, cluster)
    clock[c.IDLE_ROUNDS] = clock[c.IDLE_ROUNDS] + 1 if _hopeless(episode) else 0
    if clock[c.IDLE_ROUNDS] > IDLE_ROUNDS:
        clock[c.END] = clock[c.NOW]
        return c.STALLED
    if rules.exceeds_launches(clock[c.LAUNCHES], clock[c.IN_VIEW]) and not _has_gained(episode):
        clock[c.END], clock[c.LAUNCHES] = clock[c.NOW], c.ENDLESS
        return c.STALLED
    jobs.plan_round(episode)
    return c.DECISION


@compile_in_place
def _has_gained(episode: Episode) -> bool:
    """Return whether a job has fewer iterations left than ever at such a look, or jobs are still to come."""
    clock = episode.clock
    clock[c.LAUNCHES] = 0
    gained = clock[c.AHEAD] < clock[c.JOBS]
    if not gained:
        for row in episode.in_view[: clock[c.IN_VIEW]]:
            left = jobs.compute_remaining(episode, row, clock[c.NOW])
            if left < episode.figures[row, c.LEAST_LEFT]:
                episode.figures[row, c.LEAST_LEFT] = left
                gained = True
    return gained


@compile_in_place
def _hopeless(episode: Episode) -> bool:
    """Return whether jobs wait and nothing can change that: none runs, arrives or is profiled."""
    clock = episode.clock
    if clock[c.IN_VIEW] == 0 or clock[c.AHEAD] < clock[c.JOBS] or profiles.active(episode):
        return False
    return clock[c.RUNNING_JOBS] == 0
