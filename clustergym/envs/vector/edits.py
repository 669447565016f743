"""The actions that edit allotments, compiled: those of `clustergym.envs.actions.EditActions`."""

from __future__ import annotations

from clustergym.common.arrays import Ints
from clustergym.envs.vector import episode_state as d
from clustergym.envs.vector.episode_state import EpisodeRules, EpisodeState
from clustergym.sim import columns as c
from clustergym.sim.compiled.buddy import sort
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_in_place, compile_part
from clustergym.sim.compiled.scenario_arrays import ClusterArrays


@compile_in_place
def _in_turn(ordered: Ints, count: int, number: int, turn: int, chosen: Ints) -> int:
    """Choose `number` of `count` jobs: half from the start, a quarter from the end, the rest in turn."""
    if number >= count:
        for place in range(count):
            chosen[place] = ordered[place]
        return count
    front, back = number // 2, number // 4
    between, places = count - back - front, number - front - back
    for place in range(front):
        chosen[place] = ordered[place]
    for place in range(places):
        chosen[front + place] = ordered[front + (turn * places + place) % between]
    for place in range(back):
        chosen[front + places + place] = ordered[count - back + place]
    return number


@compile_part
def choose_rows(episode: Episode, rows: int, turn: int, shown: Ints) -> int:
    """Write indices of at most `rows` jobs to show into `shown`, others at each `turn`; return their number.

    `clustergym.envs.actions.choose_rows` says which they are, and how `turn` varies them.
    """
    n, in_view = episode.clock[c.IN_VIEW], episode.in_view
    if n <= rows:
        for at in range(n):
            shown[at] = in_view[at]
        return n
    waiting, running = in_view[:n].copy(), in_view[:n].copy()
    waits, runs = 0, 0
    for at in range(n):
        if episode.job[in_view[at], c.LEVEL] == c.NONE:
            waiting[waits] = in_view[at]
            waits += 1
        else:
            running[runs] = in_view[at]
            runs += 1
    for_waiting = min(waits, max((rows + 1) // 2, rows - runs))
    count = _in_turn(waiting, waits, for_waiting, turn, shown)
    count += _in_turn(running, runs, rows - for_waiting, turn, shown[count:])
    sort(shown[:count])
    return count


@compile_in_place
def begin(episode: Episode, cluster: ClusterArrays, episode_state: EpisodeState, rules: EpisodeRules) -> None:
    """Reset the agent's state for a new decision point, at which no job's GPUs are changed yet."""
    job, state, mask = episode.job, episode_state.state, episode_state.mask
    count = choose_rows(episode, rules.rows, state[d.TURN], episode_state.shown)
    state[d.SHOWN], state[d.EDITS] = count, 0
    state[d.TURN] += 1
    for at in range(episode.clock[c.IN_VIEW]):
        row = episode.in_view[at]
        job[row, c.TARGET_TYPE], job[row, c.TARGET_LEVEL] = job[row, c.TYPE], job[row, c.LEVEL]
        job[row, c.ASSIGNED] = job[row, c.PREEMPTED] = job[row, c.REJECTED] = 0
    for gpu_type in range(len(episode_state.free)):
        episode_state.free[gpu_type] = episode.free[gpu_type]
    levels = len(cluster.counts)
    options = len(cluster.capacity) * levels
    width = options + 1 + rules.rejects
    mask[count * width : len(mask) - 1] = 0
    for at in range(count):
        row = episode_state.shown[at]
        _all_feasible(episode, episode_state, row, at)
        held = job[row, c.LEVEL] != c.NONE
        if held:
            episode_state.assignable[at, job[row, c.TYPE] * levels + job[row, c.LEVEL]] = False
        mask[at * width + options] = held
        if rules.rejects:
            mask[at * width + options + 1] = not (rules.binding and job[row, c.DECIDED])
    refresh(episode, cluster, episode_state, rules)


@compile_in_place
def _all_feasible(episode: Episode, episode_state: EpisodeState, row: int, at: int) -> None:
    """Let the job in a row be assigned all GPU types and counts on which it fits and is profiled."""
    hidden = episode.job[row, c.HIDDEN]
    feasible = episode.feasible[episode.job[row, c.CLASS]]
    types, levels = feasible.shape
    for gpu_type in range(types):
        for level in range(levels):
            shown = not (hidden >> gpu_type) & 1
            episode_state.assignable[at, gpu_type * levels + level] = shown and feasible[gpu_type, level]


@compile_in_place
def refresh(
    episode: Episode, cluster: ClusterArrays, episode_state: EpisodeState, rules: EpisodeRules
) -> None:
    """Update the mask of legal actions, given the GPUs that are free."""
    levels, types, mask = len(cluster.counts), len(cluster.capacity), episode_state.mask
    width = types * levels + 1 + rules.rejects
    idle = False
    for at in range(episode_state.state[d.SHOWN]):
        job = episode.job[episode_state.shown[at]]
        target = job[c.TARGET_LEVEL]
        for gpu_type in range(types):
            room = episode_state.free[gpu_type]
            if target != c.NONE and job[c.TARGET_TYPE] == gpu_type:
                room += cluster.counts[target]
            for level in range(levels):
                option = gpu_type * levels + level
                legal = episode_state.assignable[at, option] and cluster.counts[level] <= room
                mask[at * width + option] = legal
                idle |= legal and target == c.NONE
    mask[-1] = not (rules.mask_stop and idle)


@compile_in_place
def edit(
    episode: Episode, cluster: ClusterArrays, episode_state: EpisodeState, rules: EpisodeRules, action: int
) -> int:
    """Change a job's GPUs by a legal action other than `stop`; return the job's row in the observation."""
    levels = len(cluster.counts)
    options = len(cluster.capacity) * levels
    width = options + 1 + rules.rejects
    at, option = action // width, action % width
    row = episode_state.shown[at]
    job, mask = episode.job[row], episode_state.mask
    if job[c.TARGET_LEVEL] != c.NONE:
        episode_state.free[job[c.TARGET_TYPE]] += cluster.counts[job[c.TARGET_LEVEL]]
    if option < options:
        job[c.TARGET_TYPE], job[c.TARGET_LEVEL] = option // levels, option % levels
        episode_state.free[option // levels] -= cluster.counts[option % levels]
        job[c.ASSIGNED] = 1
    else:
        job[c.TARGET_TYPE] = job[c.TARGET_LEVEL] = c.NONE
        job[c.PREEMPTED if option == options else c.REJECTED] = 1
    if option == options:
        _all_feasible(episode, episode_state, row, at)
        mask[at * width + options] = 0
    else:
        episode_state.assignable[at] = False
        mask[at * width + options : (at + 1) * width] = 0
    episode_state.state[d.EDITS] += 1
    refresh(episode, cluster, episode_state, rules)
    return at


@compile_in_place
def decide(episode: Episode, episode_state: EpisodeState, rules: EpisodeRules) -> None:
    """Mark the observation's jobs as decided, so that no later edit rejects them, if rules are binding."""
    if rules.binding:
        for at in range(episode_state.state[d.SHOWN]):
            episode.job[episode_state.shown[at], c.DECIDED] = 1
