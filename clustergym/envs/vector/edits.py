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
    # The oldest are shown at every decision point, the newest soon after they came, and by `turn` each of
    # the others once in a while: a job that is never shown could never be started.
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
    # At least half of the rows are for waiting jobs, and whatever running ones leave free.
    for_waiting = min(waits, max((rows + 1) // 2, rows - runs))
    count = _in_turn(waiting, waits, for_waiting, turn, shown)
    count += _in_turn(running, runs, rows - for_waiting, turn, shown[count:])
    # In the order of submission again, so that a row's place says the same whichever jobs are shown.
    sort(shown[:count])
    return count


@compile_in_place
def begin(episode: Episode, cluster: ClusterArrays, episode_state: EpisodeState, rules: EpisodeRules) -> None:
    """Reset the agent's state for a new decision point, at which no job's GPUs are changed yet."""
    job, state, assignable = episode.job, episode_state.state, episode_state.assignable
    count = choose_rows(episode, rules.rows, state[d.TURN], episode_state.shown)
    state[d.SHOWN], state[d.EDITS] = count, 0
    # Each decision point shows the next jobs in turn, also where nothing was edited.
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
    for at in range(count):
        row, first = episode_state.shown[at], at * width
        held = job[row, c.LEVEL] != c.NONE
        episode_state.target[0, at], episode_state.target[1, at] = job[row, c.TYPE], job[row, c.LEVEL]
        episode_state.waits[first : first + options] = not held
        _all_feasible(episode, episode_state, row, first)
        if held:
            # What a job holds already is no edit.
            assignable[first + job[row, c.TYPE] * levels + job[row, c.LEVEL]] = False
        assignable[first + options] = held
        if rules.rejects:
            assignable[first + options + 1] = not (rules.binding and job[row, c.DECIDED])
    for gpu_type in range(len(episode_state.free)):
        _find_room(cluster, episode_state, rules, gpu_type, 0, levels, c.NONE)
    # Rows without a job: they may hold the mask of the last decision point.
    episode_state.mask[count * width : len(episode_state.mask) - 1] = 0
    refresh(episode_state, rules, count * width)


@compile_in_place
def _all_feasible(episode: Episode, episode_state: EpisodeState, row: int, first: int) -> None:
    """Let a job, from action `first` on, be assigned all on which it fits and is profiled."""
    hidden = episode.job[row, c.HIDDEN]
    feasible = episode.feasible[episode.job[row, c.CLASS]]
    types, levels = feasible.shape
    for gpu_type in range(types):
        shown = not (hidden >> gpu_type) & 1
        for level in range(levels):
            episode_state.assignable[first + gpu_type * levels + level] = shown & feasible[gpu_type, level]


@compile_in_place
def _count_fitting(counts: Ints, gpus: int) -> int:
    """Return how many of the GPU counts are at most `gpus`."""
    fitting = 0
    for level in range(len(counts)):
        fitting += counts[level] <= gpus
    return fitting


@compile_in_place
def _find_room(
    cluster: ClusterArrays,
    episode_state: EpisodeState,
    rules: EpisodeRules,
    gpu_type: int,
    low: int,
    high: int,
    edited: int,
) -> None:
    """Update for which assignments of a GPU type there is room.

    Counts low..high - 1 have changed for all rows. The row `edited`, and rows of jobs that hold such GPUs,
    which they would give back, are worked out again.
    """
    counts, room, target = cluster.counts, episode_state.room, episode_state.target
    levels, count, free = len(counts), episode_state.state[d.SHOWN], episode_state.free[gpu_type]
    first, width = gpu_type * levels, len(cluster.capacity) * levels + 1 + rules.rejects
    for level in range(low, high):
        fits = counts[level] <= free
        for at in range(count):
            room[at * width + first + level] = fits
    for at in range(count):
        holds = target[0, at] == gpu_type
        if holds or at == edited:
            # A job that is moved within its type gives its GPUs back first.
            gpus = free + counts[target[1, at]] if holds else free
            for level in range(levels):
                room[at * width + first + level] = counts[level] <= gpus


@compile_in_place
def _add_free(
    cluster: ClusterArrays,
    episode_state: EpisodeState,
    rules: EpisodeRules,
    gpu_type: int,
    gpus: int,
    edited: int,
) -> None:
    """Add to the free GPUs of a type, after the row `edited` was given other GPUs."""
    # Counts are in ascending order: free GPUs that change from a to b concern only those between.
    before = _count_fitting(cluster.counts, episode_state.free[gpu_type])
    episode_state.free[gpu_type] += gpus
    now = _count_fitting(cluster.counts, episode_state.free[gpu_type])
    _find_room(cluster, episode_state, rules, gpu_type, min(before, now), max(before, now), edited)


@compile_in_place
def refresh(episode_state: EpisodeState, rules: EpisodeRules, count: int) -> None:
    """Update the mask of legal actions, of which the first `count` are those of jobs with a row."""
    assignable, room, waits = episode_state.assignable, episode_state.room, episode_state.waits
    mask, idle = episode_state.mask, False
    # One loop without a branch over all rows, which the compiler turns into vector instructions.
    for action in range(count):
        legal = assignable[action] & room[action]
        mask[action] = legal
        idle |= legal & waits[action]
    # With `mask_stop` an agent may not stop while a waiting job could start: waiting is then never a
    # choice.
    mask[-1] = not (rules.mask_stop and idle)


@compile_in_place
def edit(
    episode: Episode, cluster: ClusterArrays, episode_state: EpisodeState, rules: EpisodeRules, action: int
) -> int:
    """Change a job's GPUs by a legal action other than `stop`; return the job's row in the observation."""
    counts, levels = cluster.counts, len(cluster.counts)
    options = len(cluster.capacity) * levels
    width = options + 1 + rules.rejects
    at, option = action // width, action % width
    row, first = episode_state.shown[at], at * width
    job, target, assignable = episode.job[row], episode_state.target, episode_state.assignable
    gpu_type, level = job[c.TARGET_TYPE], job[c.TARGET_LEVEL]
    if option < options:
        job[c.TARGET_TYPE], job[c.TARGET_LEVEL] = option // levels, option % levels
        job[c.ASSIGNED] = 1
    else:
        job[c.TARGET_TYPE] = job[c.TARGET_LEVEL] = c.NONE
        job[c.PREEMPTED if option == options else c.REJECTED] = 1
    target[0, at], target[1, at] = job[c.TARGET_TYPE], job[c.TARGET_LEVEL]
    # A preempted job may be assigned anew at the same decision point; what was assigned or rejected is
    # settled, so that edits come to an end.
    if option == options:
        _all_feasible(episode, episode_state, row, first)
        assignable[first + options] = False
        episode_state.waits[first : first + options] = True
    else:
        assignable[first : first + width] = False
    # First what the job gives back, then what it takes: it may take the same GPUs again.
    if level != c.NONE:
        _add_free(cluster, episode_state, rules, gpu_type, counts[level], at)
    if option < options:
        _add_free(cluster, episode_state, rules, option // levels, -counts[option % levels], at)
    episode_state.state[d.EDITS] += 1
    refresh(episode_state, rules, episode_state.state[d.SHOWN] * width)
    return at


@compile_in_place
def decide(episode: Episode, episode_state: EpisodeState, rules: EpisodeRules) -> None:
    """Mark the observation's jobs as decided, so that no later edit rejects them, if rules are binding."""
    if rules.binding:
        for at in range(episode_state.state[d.SHOWN]):
            episode.job[episode_state.shown[at], c.DECIDED] = 1
