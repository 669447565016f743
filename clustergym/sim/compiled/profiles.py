"""The profiles that jobs wait for, compiled.

Same order of events as `clustergym.sim.profiling`.
"""

from __future__ import annotations

import numpy as np

from clustergym.sim import columns as c
from clustergym.sim.compiled.episode import Episode, make_void, record, record_nodes
from clustergym.sim.compiled.numba_cache import compile_in_place, compile_part
from clustergym.sim.compiled.placement import give_back, place, take
from clustergym.sim.compiled.scenario_arrays import ClusterArrays
from clustergym.sim.compiled.shared_rules import rules


@compile_in_place
def find_unit(episode: Episode, row: int) -> int:
    """Return the index under which a job's speed is measured: its model class's, or the job's own row."""
    return episode.job[row, c.CLASS] if episode.clock[c.SHARED_PROFILES] else row


@compile_in_place
def active(episode: Episode) -> bool:
    """Return whether any profiling run, which measures a job's speed, waits or runs."""
    return episode.clock[c.WAITING_PROFILES] + episode.clock[c.RUNNING_PROFILES] > 0


@compile_in_place
def find_due_profile(episode: Episode, number: np.int64) -> int:
    """Return the profiling run due now that was planned first, if its event number is < `number`; or NONE."""
    found, first = c.NONE, number
    for nth in range(episode.clock[c.RUNNING_PROFILES]):
        at = episode.profile[nth, c.NTH_RUNNING]
        due, own = episode.profile[at, c.PROFILE_DUE], episode.profile[at, c.PROFILE_ID]
        if due == episode.clock[c.NOW] and own < first:
            found, first = at, own
    return found


@compile_in_place
def _append(episode: Episode, list_column: int, count_column: int, at: int) -> None:
    clock = episode.clock
    episode.profile[clock[count_column], list_column] = at
    clock[count_column] += 1


@compile_in_place
def _remove(episode: Episode, list_column: int, count_column: int, at: int) -> None:
    clock, kept = episode.clock, 0
    for nth in range(clock[count_column]):
        found = episode.profile[nth, list_column]
        if found != at:
            episode.profile[kept, list_column] = found
            kept += 1
    clock[count_column] = kept


@compile_in_place
def ask(episode: Episode, row: int) -> None:
    """Queue the profiling runs (which measure speed) that a job needs and nobody has queued yet."""
    job, types = episode.job[row], len(episode.free)
    for gpu_type in range(types):
        fits = False
        for level in range(episode.feasible.shape[2]):
            fits |= episode.feasible[job[c.CLASS], gpu_type, level]
        asked, asked_only = job[c.REQUESTED_TYPE], episode.clock[c.REQUESTED_ONLY] != 0
        if not rules.needs_profile(fits, job[c.HIDDEN], gpu_type, asked, asked_only):
            continue
        at = find_unit(episode, row) * types + gpu_type
        if episode.profile[at, c.STATE] == c.IDLE:
            episode.profile[at, c.STATE], episode.profile[at, c.OWNER] = c.WAITING, row
            _append(episode, c.NTH_WAITING, c.WAITING_PROFILES, at)


@compile_in_place
def _start(episode: Episode, at: int) -> None:
    """Start a profiling run on the nodes in `episode.placed`."""
    profile, clock = episode.profile[at], episode.clock
    gpu_type = at % len(episode.free)
    profile[c.PROFILE_SHARE] = take(episode, profile[c.PROFILE_NODES], gpu_type, clock[c.PROFILE_GPUS])
    # The engine lets a profile that starts twice at a tick end when the first start says.
    if profile[c.SINCE] != clock[c.NOW]:
        profile[c.PROFILE_ID] = clock[c.NEXT_ID]
    clock[c.NEXT_ID] += 1
    profile[c.STATE], profile[c.SINCE] = c.MEASURING, clock[c.NOW]
    profile[c.PROFILE_DUE] = clock[c.NOW] + profile[c.LEFT_TICKS]
    _append(episode, c.NTH_RUNNING, c.RUNNING_PROFILES, at)
    record(episode, c.PROFILE_START, profile[c.OWNER], gpu_type, clock[c.PROFILE_GPUS], c.NONE, 0, 0.0)
    record_nodes(episode, profile[c.PROFILE_NODES])


@compile_in_place
def stop(episode: Episode, at: int) -> None:
    """Stop a profiling run; the ticks that it has run so far count when it starts again."""
    profile, clock = episode.profile[at], episode.clock
    gpu_type = at % len(episode.free)
    give_back(episode, profile[c.PROFILE_SHARE], gpu_type)
    # Measured time counts although the profile stops: it goes on from here when it starts again.
    profile[c.LEFT_TICKS] -= clock[c.NOW] - profile[c.SINCE]
    profile[c.STATE] = c.IDLE
    make_void(episode, profile[c.PROFILE_DUE])
    _remove(episode, c.NTH_RUNNING, c.RUNNING_PROFILES, at)
    record(episode, c.PROFILE_END, profile[c.OWNER], gpu_type, clock[c.PROFILE_GPUS], c.NONE, 0, 0.0)
    record_nodes(episode, profile[c.PROFILE_NODES])


@compile_in_place
def start_waiting(episode: Episode, cluster: ClusterArrays) -> None:
    """Start waiting profiling runs on free GPUs, first come first served on each GPU type."""
    clock, types, gpus = episode.clock, len(episode.free), episode.clock[c.PROFILE_GPUS]
    for gpu_type in range(types):
        nth = 0
        while nth < clock[c.WAITING_PROFILES] and episode.free[gpu_type] >= gpus:
            at = episode.profile[nth, c.NTH_WAITING]
            if at % types != gpu_type:
                nth += 1
                continue
            _remove(episode, c.NTH_WAITING, c.WAITING_PROFILES, at)
            episode.profile[at, c.PROFILE_NODES] = place(episode, cluster, gpu_type, gpus)
            _start(episode, at)


@compile_in_place
def _heir(episode: Episode, row: int) -> int:
    """Return the first other job in the system that shares a job's profiling runs; NONE if there is none."""
    if not episode.clock[c.SHARED_PROFILES]:
        return c.NONE
    for other in range(episode.clock[c.AHEAD]):
        phase = episode.job[other, c.PHASE]
        there = c.FUTURE < phase < c.COMPLETED
        if there and other != row and find_unit(episode, other) == find_unit(episode, row):
            return other
    return c.NONE


@compile_part
def hand_over_profiles(episode: Episode, row: int) -> None:
    """Give the profiling runs of a leaving job to another job that shares them, or stop them."""
    clock, types = episode.clock, len(episode.free)
    mine, count = np.empty(types, np.int64), 0
    for nth in range(clock[c.RUNNING_PROFILES]):
        at = episode.profile[nth, c.NTH_RUNNING]
        if episode.profile[at, c.OWNER] == row:
            mine[count] = at
            count += 1
    for gpu_type in range(types):
        at = find_unit(episode, row) * types + gpu_type
        if episode.profile[at, c.STATE] == c.WAITING and episode.profile[at, c.OWNER] == row:
            mine[count] = at
            count += 1
    heir = _heir(episode, row) if count > 0 else c.NONE
    for at in mine[:count]:
        # A running profile is stopped and started even where it passes to an heir, as the log names who holds
        # its GPUs.
        runs = episode.profile[at, c.STATE] == c.MEASURING
        if runs:
            stop(episode, at)
        elif heir == c.NONE:
            _remove(episode, c.NTH_WAITING, c.WAITING_PROFILES, at)
            episode.profile[at, c.STATE] = c.IDLE
        if heir != c.NONE:
            episode.profile[at, c.OWNER] = heir
            if runs:
                _start(episode, at)
