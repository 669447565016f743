"""The life of a job, compiled: it is submitted, launched, preempted and moved, and leaves.

Same order of events as `clustergym.sim.job_execution`; the arithmetic is `clustergym.sim.rules`.
The running jobs of an episode are a heap whose first job completes next.
"""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.scenario.clock import ticks
from clustergym.sim import columns as c
from clustergym.sim.compiled import profiles
from clustergym.sim.compiled.episode import Episode, make_void, record, record_nodes, record_plain
from clustergym.sim.compiled.numba_cache import compile_in_place
from clustergym.sim.compiled.placement import give_back, place, take
from clustergym.sim.compiled.scenario_arrays import ClusterArrays
from clustergym.sim.compiled.shared_rules import rules


@compile_in_place
def _before(episode: Episode, row: int, other: int) -> bool:
    """Return whether a job completes before another; at the same tick, the one planned first does."""
    one, two = episode.job[row], episode.job[other]
    return one[c.DUE] < two[c.DUE] or (one[c.DUE] == two[c.DUE] and one[c.DUE_ID] < two[c.DUE_ID])


@compile_in_place
def _put(episode: Episode, place: int, row: int) -> None:
    """Put a job into a place of the heap and move it up while it ends before its parent."""
    running = episode.running
    while place > 0 and _before(episode, row, running[(place - 1) // 2]):
        above = (place - 1) // 2
        running[place] = running[above]
        episode.job[running[place], c.PLACE] = place
        place = above
    running[place] = row
    episode.job[row, c.PLACE] = place


@compile_in_place
def enter_completions(episode: Episode, row: int) -> None:
    """Add a running job to the heap of jobs by the time of their completion."""
    episode.clock[c.RUNNING_JOBS] += 1
    _put(episode, episode.clock[c.RUNNING_JOBS] - 1, row)


@compile_in_place
def leave_completions(episode: Episode, row: int) -> None:
    """Remove a job from the heap of jobs by the time of their completion."""
    running, clock, place = episode.running, episode.clock, episode.job[row, c.PLACE]
    clock[c.RUNNING_JOBS] -= 1
    count = clock[c.RUNNING_JOBS]
    last = running[count]
    if place == count:
        return
    # The last job fills the gap. It may belong below (children rise while they end before it) or above
    # (`_put`), but never both.
    below = 2 * place + 1
    while below < count:
        if below + 1 < count and _before(episode, running[below + 1], running[below]):
            below += 1
        if not _before(episode, running[below], last):
            break
        running[place] = running[below]
        episode.job[running[place], c.PLACE] = place
        place, below = below, 2 * below + 1
    _put(episode, place, last)


@compile_in_place
def is_profiled(episode: Episode, row: int, gpu_type: int) -> bool:
    """Return whether a policy knows a job's iteration times on a GPU type, by profiling or otherwise."""
    return not (episode.job[row, c.HIDDEN] >> gpu_type) & 1


@compile_in_place
def find_level(counts: Ints, gpus: int) -> int:
    """Return the index of the least GPU count that is at least `gpus`."""
    level = 0
    while level < len(counts) and counts[level] < gpus:
        level += 1
    return level


@compile_in_place
def compute_remaining(episode: Episode, row: int, now: np.int64) -> float:
    """Return how many iterations a job has left."""
    job, figures = episode.job[row], episode.figures[row]
    return rules.compute_remaining(
        job[c.PHASE],
        figures[c.REMAINING],
        figures[c.ITERATION_S],
        job[c.WORKED_UNTIL],
        job[c.READY],
        now,
    )


@compile_in_place
def compute_attained(episode: Episode, row: int, now: np.int64) -> float:
    """Return the GPU-seconds that a job has held so far."""
    job, attained = episode.job[row], episode.figures[row, c.ATTAINED_GPU_S]
    return rules.compute_attained(attained, job[c.GPUS], 1.0, job[c.HELD_SINCE], now)


@compile_in_place
def plan_round(episode: Episode) -> None:
    """Plan the next decision round, if the policy decides in rounds and jobs are in the system."""
    clock = episode.clock
    round_ticks, now = clock[c.ROUND], clock[c.NOW]
    if round_ticks == 0 or clock[c.ROUND_PENDING] or (clock[c.IN_VIEW] == 0 and not clock[c.ALWAYS]):
        return
    clock[c.ROUND_PENDING] = 1
    # Not at this tick again: it has its decision, or is about to have it.
    later = clock[c.DECISION_DUE] != 0 or clock[c.DECIDED_AT] >= now
    add_round(episode, rules.find_next_round(round_ticks, later, now))


@compile_in_place
def add_round(episode: Episode, tick: int | np.int64) -> None:
    """Add a decision round at a tick to those that are planned."""
    clock, rounds = episode.clock, episode.rounds
    for at in range(len(rounds)):
        if rounds[at, 0] == c.NEVER:
            rounds[at, 0], rounds[at, 1] = tick, clock[c.NEXT_ID]
            clock[c.NEXT_ID] += 1
            return
    raise RuntimeError("more rounds are planned than a compiled episode has room for")


@compile_in_place
def request_decision(episode: Episode) -> None:
    """Request that the policy decides again at the next possible time."""
    clock = episode.clock
    if clock[c.ROUND] != 0:
        plan_round(episode)
    elif clock[c.DECIDED_AT] < 0 or clock[c.DECIDED_AT] + clock[c.APART] <= clock[c.NOW]:
        clock[c.DECISION_DUE] = 1
    elif not clock[c.ROUND_PENDING]:
        clock[c.ROUND_PENDING] = 1
        add_round(episode, clock[c.DECIDED_AT] + clock[c.APART])


@compile_in_place
def find_in_view(episode: Episode, row: int) -> int:
    """Return the place in `in_view` of the first job whose row is at least `row`."""
    low, high = 0, episode.clock[c.LISTED]
    while low < high:
        middle = (low + high) // 2
        listed = episode.in_view[middle]
        # ~row stands for a job that has left, and is negative.
        if max(listed, ~listed) < row:
            low = middle + 1
        else:
            high = middle
    return low


@compile_in_place
def enqueue(episode: Episode, row: int) -> None:
    """Let a job wait for GPUs, show it to the policy, and request a decision."""
    clock, rows = episode.clock, episode.in_view
    rules.wait(episode.job[row], clock[c.NOW])
    # `in_view` stays ascending: it is the order of the View's rows, and of preemptions and launches.
    at = find_in_view(episode, row)
    if at == clock[c.LISTED] or rows[at] != row:
        for place in range(clock[c.LISTED], at, -1):
            rows[place] = rows[place - 1]
        rows[at] = row
        clock[c.LISTED] += 1
        clock[c.IN_VIEW] += 1
    request_decision(episode)


@compile_in_place
def vacate(episode: Episode, cluster: ClusterArrays, row: int) -> None:
    """Record a job's progress, and release its GPUs."""
    job, clock = episode.job[row], episode.clock
    rules.settle(job, episode.figures[row], 1.0, clock[c.NOW])
    give_back(episode, job[c.FIRST_SHARE], job[c.TYPE])
    leave_completions(episode, row)
    # The engine's clock still visits the completion that is void now, which decides when a stalled run ends.
    make_void(episode, job[c.DUE])
    rules.end_holding(job)
    job[c.NODES], job[c.FIRST_SHARE], job[c.DUE] = 0, c.NONE, c.NEVER


@compile_in_place
def leave(episode: Episode, row: int, phase: int) -> None:
    """Remove a job, which has completed or is dropped, from the system."""
    clock, rows = episode.clock, episode.in_view
    episode.job[row, c.PHASE], episode.job[row, c.LEAVE] = phase, clock[c.NOW]
    clock[c.LEFT] += 1
    clock[c.LAUNCHES] = 0
    clock[c.SCORED_LEFT] -= episode.job[row, c.SCORED]
    if profiles.active(episode):
        profiles.hand_over_profiles(episode, row)
    at = find_in_view(episode, row)
    if at < clock[c.LISTED] and rows[at] == row:
        # To move up all jobs behind it at once takes too long where a hundred thousand wait: `tidy_view` does
        # so once for all that have left. It finds them by this mark, without a look at the job of each row.
        rows[at] = ~row
        clock[c.IN_VIEW] -= 1


@compile_in_place
def tidy_view(episode: Episode) -> None:
    """Take the jobs that have left out of `in_view`."""
    clock, rows = episode.clock, episode.in_view
    if clock[c.LISTED] == clock[c.IN_VIEW]:
        return
    kept = 0
    for at in range(clock[c.LISTED]):
        if rows[at] >= 0:
            rows[kept] = rows[at]
            kept += 1
    clock[c.LISTED] = kept


@compile_in_place
def submit(episode: Episode, row: int) -> None:
    """Let a job enter the system; one that fits on no GPUs is dropped at once."""
    record_plain(episode, c.SUBMITTED, row)
    if episode.job[row, c.REQUESTED_GPUS] == 0:
        record_plain(episode, c.FITS_NOWHERE, row)
        leave(episode, row, c.DROPPED)
        return
    if episode.clock[c.PROFILE_GPUS] > 0:
        profiles.ask(episode, row)
    # All bits are set: the job is known on no type, so that no policy could launch it.
    if episode.job[row, c.HIDDEN] + 1 == 1 << len(episode.free):
        episode.job[row, c.PHASE] = c.PROFILING
    else:
        enqueue(episode, row)


@compile_in_place
def end_profile(episode: Episode, at: int) -> None:
    """End a profiling run; the iteration times that it measured are now known for all jobs that share it."""
    unit, gpu_type = at // len(episode.free), at % len(episode.free)
    profiles.stop(episode, at)
    # Shared profiles are one per model class, and any job of the trace may be of the class; others are one
    # per job.
    shared = episode.clock[c.SHARED_PROFILES]
    for row in range(0 if shared else unit, episode.clock[c.JOBS] if shared else unit + 1):
        if profiles.find_unit(episode, row) == unit:
            episode.job[row, c.HIDDEN] &= ~(1 << gpu_type)
            if episode.job[row, c.PHASE] == c.PROFILING:
                enqueue(episode, row)
    request_decision(episode)


@compile_in_place
def complete(episode: Episode, cluster: ClusterArrays, row: int) -> None:
    """Let a job leave whose work is done."""
    vacate(episode, cluster, row)
    episode.figures[row, c.REMAINING] = 0.0
    record_plain(episode, c.COMPLETE, row)
    leave(episode, row, c.COMPLETED)
    request_decision(episode)


@compile_in_place
def preempt(episode: Episode, cluster: ClusterArrays, row: int) -> None:
    """Take the GPUs of a running job, which then waits."""
    vacate(episode, cluster, row)
    record_plain(episode, c.PREEMPT, row)
    enqueue(episode, row)


@compile_in_place
def drop(episode: Episode, cluster: ClusterArrays, row: int) -> None:
    """Drop a job, which leaves without completing."""
    if episode.job[row, c.LEVEL] != c.NONE:
        vacate(episode, cluster, row)
    record_plain(episode, c.DROP_BY_POLICY, row)
    leave(episode, row, c.DROPPED)


@compile_in_place
def restart_s(episode: Episode, row: int, gpu_type: int, level: int) -> float:
    """Return the seconds for which a job stands still if it is launched with a GPU type and count."""
    job = episode.job[row]
    return rules.compute_restart_s(
        job[c.LAUNCHED],
        episode.clock[c.FIRST_LAUNCH_COSTS],
        episode.checkpoint_s[job[c.CLASS]],
        0.0,
        episode.searched[row, gpu_type, level],
        episode.search_s[level],
    )


@compile_in_place
def find_locality(cluster: ClusterArrays, nodes: Ints) -> int:
    """Return the lowest network tier that connects nodes: 0 one node, 1 leaf, 2 minipod, 3 beyond."""
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
def hold(episode: Episode, cluster: ClusterArrays, row: int, gpu_type: int, level: int, what: int) -> None:
    """Launch a job on the nodes in `episode.placed`, log it as event type `what`, and plan its completion."""
    clock, job, figures = episode.clock, episode.job[row], episode.figures[row]
    now, overhead = clock[c.NOW], ticks(restart_s(episode, row, gpu_type, level))
    gpus = cluster.counts[level]
    job[c.FIRST_SHARE] = take(episode, job[c.NODES], gpu_type, gpus)
    locality = find_locality(cluster, episode.placed[0, : job[c.NODES]])
    # The true time, whatever the policy knows: Views show `known_s`.
    iteration_s = episode.execution_s[job[c.CLASS], gpu_type, level, locality]
    clock[c.LAUNCHES] += 1
    rules.begin_to_hold(job, figures, (gpu_type, level, gpus), iteration_s, overhead, now)
    episode.searched[row, gpu_type, level] = True
    job[c.DUE] = job[c.READY] + rules.count_work(figures[c.REMAINING], iteration_s)
    # The number under which the engine's heap would hold this completion; it orders what is due at one tick.
    job[c.DUE_ID] = clock[c.NEXT_ID]
    clock[c.NEXT_ID] += 1
    enter_completions(episode, row)
    record(episode, what, row, gpu_type, gpus, locality, overhead, iteration_s)
    record_nodes(episode, job[c.NODES])


@compile_in_place
def launch(
    episode: Episode, cluster: ClusterArrays, row: int, gpu_type: int, level: int, rescale: bool
) -> None:
    """Start, resume or (if `rescale`) rescale a job that holds no GPUs, on nodes that placement chooses."""
    what = c.RESCALE if rescale else c.RESUME if episode.job[row, c.LAUNCHED] else c.START
    if episode.job[row, c.MOVES]:
        what, episode.job[row, c.MOVES] = c.MOVED, 0
    episode.job[row, c.NODES] = place(episode, cluster, gpu_type, cluster.counts[level])
    hold(episode, cluster, row, gpu_type, level, what)
