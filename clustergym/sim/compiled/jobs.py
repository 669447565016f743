"""What happens to a job, compiled: it is submitted, launched, preempted, moved, and leaves.

Same arithmetic and same order of events as `clustergym.sim.world`.
"""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.sim.compiled import columns as c
from clustergym.sim.compiled import completions, profiles
from clustergym.sim.compiled.cluster_arrays import ClusterArrays
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.happenings import make_void, record, record_nodes, record_plain
from clustergym.sim.compiled.numba_cache import compile_in_place
from clustergym.sim.compiled.placement import give_back, place, take


@compile_in_place
def ticks(seconds: float) -> np.int64:
    """Return seconds as whole ticks; halves go to the even tick."""
    return np.int64(np.rint(seconds * c.TICKS_PER_S))


@compile_in_place
def compute_remaining(episode: Episode, row: int, now: np.int64) -> float:
    """Return the iterations that a job has left."""
    job, remaining = episode.job[row], episode.figures[row, c.REMAINING]
    if job[c.PHASE] != c.RUNNING:
        return remaining
    worked = max(now - max(job[c.WORKED_UNTIL], job[c.READY]), 0)
    return max(remaining - worked / (episode.figures[row, c.ITERATION_S] * c.TICKS_PER_S), 0.0)


@compile_in_place
def compute_attained(episode: Episode, cluster: ClusterArrays, row: int, now: np.int64) -> float:
    """Return the GPU-seconds that a job has held."""
    held = episode.job[row, c.GPUS] * (now - episode.job[row, c.HELD_SINCE]) / c.TICKS_PER_S
    return episode.figures[row, c.ATTAINED_GPU_S] + held


@compile_in_place
def settle(episode: Episode, cluster: ClusterArrays, row: int, now: np.int64) -> None:
    """Record a job's progress before its allotment changes."""
    remaining, attained = compute_remaining(episode, row, now), compute_attained(episode, cluster, row, now)
    episode.figures[row, c.REMAINING], episode.figures[row, c.ATTAINED_GPU_S] = remaining, attained
    episode.job[row, c.WORKED_UNTIL] = episode.job[row, c.HELD_SINCE] = now


@compile_in_place
def plan_round(episode: Episode) -> None:
    """Plan the next round, if rounds are used and jobs are in the system."""
    clock = episode.clock
    round_ticks, now = clock[c.ROUND], clock[c.NOW]
    if round_ticks == 0 or clock[c.ROUND_PENDING] or clock[c.IN_VIEW] == 0:
        return
    comes_now = clock[c.DECISION_DUE] or clock[c.DECIDED_AT] >= now
    earliest = now + 1 if comes_now else now
    clock[c.ROUND_PENDING] = 1
    add_round(episode, -(-earliest // round_ticks) * round_ticks)


@compile_in_place
def add_round(episode: Episode, tick: np.int64) -> None:
    """Plan a round at a tick."""
    clock, rounds = episode.clock, episode.rounds
    for at in range(len(rounds)):
        if rounds[at, 0] == c.NEVER:
            rounds[at, 0], rounds[at, 1] = tick, clock[c.NEXT_ID]
            clock[c.NEXT_ID] += 1
            return
    raise RuntimeError("more rounds are planned than a compiled episode has room for")


@compile_in_place
def request_decision(episode: Episode) -> None:
    """Ask for a decision at the next possible time."""
    clock = episode.clock
    if clock[c.ROUND] != 0:
        plan_round(episode)
    elif clock[c.DECIDED_AT] < 0 or clock[c.DECIDED_AT] + clock[c.APART] <= clock[c.NOW]:
        clock[c.DECISION_DUE] = 1
    elif not clock[c.ROUND_PENDING]:
        clock[c.ROUND_PENDING] = 1
        add_round(episode, clock[c.DECIDED_AT] + clock[c.APART])


@compile_in_place
def enqueue(episode: Episode, row: int) -> None:
    """Let a job wait; a job that comes into view goes to its place among the rows."""
    clock, rows = episode.clock, episode.in_view
    episode.job[row, c.PHASE], episode.job[row, c.QUEUED_SINCE] = c.QUEUED, clock[c.NOW]
    at = clock[c.IN_VIEW]
    while at > 0 and rows[at - 1] > row:
        at -= 1
    if at == 0 or rows[at - 1] != row:
        for place in range(clock[c.IN_VIEW], at, -1):
            rows[place] = rows[place - 1]
        rows[at] = row
        clock[c.IN_VIEW] += 1
    request_decision(episode)


@compile_in_place
def vacate(episode: Episode, cluster: ClusterArrays, row: int) -> None:
    """Record a job's progress and release its GPUs; `TYPE` and `LEVEL` become NONE."""
    job, clock = episode.job[row], episode.clock
    settle(episode, cluster, row, clock[c.NOW])
    give_back(episode, job[c.FIRST_SHARE], job[c.TYPE])
    completions.leave(episode, row)
    make_void(episode, job[c.DUE])
    job[c.TYPE] = job[c.LEVEL] = c.NONE
    job[c.GPUS], job[c.NODES], job[c.FIRST_SHARE], job[c.DUE] = 0, 0, c.NONE, c.NEVER


@compile_in_place
def leave(episode: Episode, row: int, phase: int) -> None:
    """Take a job out of the system."""
    clock, rows = episode.clock, episode.in_view
    episode.job[row, c.PHASE], episode.job[row, c.LEAVE] = phase, clock[c.NOW]
    clock[c.LEFT] += 1
    clock[c.SCORED_LEFT] -= episode.job[row, c.SCORED]
    if profiles.active(episode):
        profiles.hand_over_profiles(episode, row)
    kept = 0
    for at in range(clock[c.IN_VIEW]):
        if rows[at] != row:
            rows[kept] = rows[at]
            kept += 1
    clock[c.IN_VIEW] = kept


@compile_in_place
def submit(episode: Episode, row: int) -> None:
    """Let a job enter the system, unless it fits nowhere."""
    record_plain(episode, c.SUBMITTED, row)
    if episode.job[row, c.REQUESTED_GPUS] == 0:
        record_plain(episode, c.FITS_NOWHERE, row)
        leave(episode, row, c.DROPPED)
        return
    if episode.clock[c.PROFILE_GPUS] > 0:
        profiles.ask(episode, row)
    if episode.job[row, c.HIDDEN] + 1 == 1 << len(episode.free):
        episode.job[row, c.PHASE] = c.PROFILING
    else:
        enqueue(episode, row)


@compile_in_place
def end_profile(episode: Episode, at: int) -> None:
    """Let a profile end: all jobs that share it are profiled on its type from now on."""
    unit, kind = at // len(episode.free), at % len(episode.free)
    profiles.stop(episode, at)
    shared = episode.clock[c.SHARED_PROFILES]
    for row in range(0 if shared else unit, episode.clock[c.JOBS] if shared else unit + 1):
        if profiles.find_unit(episode, row) == unit:
            episode.job[row, c.HIDDEN] &= ~(1 << kind)
            if episode.job[row, c.PHASE] == c.PROFILING:
                enqueue(episode, row)
    request_decision(episode)


@compile_in_place
def complete(episode: Episode, cluster: ClusterArrays, row: int) -> None:
    """Let a job end."""
    vacate(episode, cluster, row)
    episode.figures[row, c.REMAINING] = 0.0
    record_plain(episode, c.COMPLETE, row)
    leave(episode, row, c.COMPLETED)
    request_decision(episode)


@compile_in_place
def preempt(episode: Episode, cluster: ClusterArrays, row: int) -> None:
    """Take a running job's GPUs away; it waits."""
    vacate(episode, cluster, row)
    record_plain(episode, c.PREEMPT, row)
    enqueue(episode, row)


@compile_in_place
def drop(episode: Episode, cluster: ClusterArrays, row: int) -> None:
    """Let a job leave for good without completing."""
    if episode.job[row, c.LEVEL] != c.NONE:
        vacate(episode, cluster, row)
    record_plain(episode, c.DROP_BY_POLICY, row)
    leave(episode, row, c.DROPPED)


@compile_in_place
def overhead_s(episode: Episode, row: int, kind: int, level: int) -> float:
    """Return the seconds of standstill that a launch costs."""
    job = episode.job[row]
    search = 0.0 if episode.searched[row, kind, level] else episode.search_s[level]
    pays = job[c.LAUNCHED] or episode.clock[c.FIRST_LAUNCH_COSTS]
    return search + (episode.checkpoint_s[job[c.CLASS]] if pays else 0.0)


@compile_in_place
def find_locality(cluster: ClusterArrays, nodes: Ints) -> int:
    """Return the lowest network tier that connects nodes, as `ClusterSpec.locality`."""
    if len(nodes) == 1:
        return 0
    tier = 1
    for node in nodes[1:]:
        if cluster.minipod[node] != cluster.minipod[nodes[0]]:
            return 3
        if cluster.leaf[node] != cluster.leaf[nodes[0]]:
            tier = 2
    return tier


@compile_in_place
def hold(episode: Episode, cluster: ClusterArrays, row: int, kind: int, level: int, what: int) -> None:
    """Launch a job on the nodes in `placed`, and plan its completion."""
    clock, job, figures = episode.clock, episode.job[row], episode.figures[row]
    now, overhead = clock[c.NOW], ticks(overhead_s(episode, row, kind, level))
    gpus = cluster.counts[level]
    job[c.FIRST_SHARE] = take(episode, job[c.NODES], kind, gpus)
    locality = find_locality(cluster, episode.placed[0, : job[c.NODES]])
    iteration_s = episode.execution_s[job[c.CLASS], kind, level, locality]
    job[c.PHASE], job[c.TYPE], job[c.LEVEL], job[c.GPUS] = c.RUNNING, kind, level, gpus
    figures[c.ITERATION_S], job[c.READY] = iteration_s, now + overhead
    job[c.WORKED_UNTIL] = job[c.HELD_SINCE] = now
    job[c.RESTARTS] += what != c.START
    job[c.LAUNCHED] = 1
    episode.searched[row, kind, level] = True
    job[c.DUE] = now + overhead + ticks(figures[c.REMAINING] * iteration_s)
    job[c.DUE_ID] = clock[c.NEXT_ID]
    clock[c.NEXT_ID] += 1
    completions.enter(episode, row)
    record(episode, what, row, kind, gpus, locality, overhead, iteration_s)
    record_nodes(episode, job[c.NODES])


@compile_in_place
def launch(episode: Episode, cluster: ClusterArrays, row: int, kind: int, level: int, rescale: bool) -> None:
    """Start, resume or rescale a job that holds no GPUs."""
    what = c.RESCALE if rescale else c.RESUME if episode.job[row, c.LAUNCHED] else c.START
    episode.job[row, c.NODES] = place(episode, cluster, kind, cluster.counts[level])
    hold(episode, cluster, row, kind, level, what)
