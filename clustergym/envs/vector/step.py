"""Steps of a batch of episodes, compiled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.envs.actions import find_nearest_legal
from clustergym.envs.simpy_episode import MOST_ILLEGAL
from clustergym.envs.vector import costs, edits, observation
from clustergym.envs.vector import episode_state as d
from clustergym.envs.vector.episode_state import Bytes, EpisodeRules, EpisodeState
from clustergym.sim import columns as c
from clustergym.sim.compiled import batch, clock
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import (
    compile_fields,
    compile_in_place,
    compile_inline,
    entry_in_place,
    let_compiled_call,
)
from clustergym.sim.compiled.scenario_arrays import ClusterArrays

EDITED, DECIDED, TERMINATED, TRUNCATED, STALLED = range(5)
"""What a step has come to: the clock stands, it moved to the next decision point, or the episode is over."""
LEAVE, BEGIN = -1, -2
"""In place of an action."""
BLOCK = 32
"""Actions whose masks are added up together."""


select_state = compile_fields(EpisodeState, "states, at", "states.{}[at]")
"""(Agents' states of a batch, episode) -> its state, as views of the batch's arrays."""
take_usual_part = compile_fields(EpisodeState, "state, usual", "state.{}", observation="state.{}[:usual]")
"""(Agent's state, number) -> the state, whose observation has only the first so many numbers."""


@compile_in_place
def begin_episode(episode_state: EpisodeState) -> None:
    """Reset the agent's state for a new episode, in which the observation shows no job yet."""
    episode_state.state[:] = 0
    episode_state.last_cost[:] = 0.0
    episode_state.last_reference[:] = 0.0
    episode_state.observation[:] = 0.0
    episode_state.mask[:] = 0


@compile_inline
def _act(
    episode: Episode, cluster: ClusterArrays, episode_state: EpisodeState, rules: EpisodeRules, action: int
) -> int:
    """Apply an action; return EDITED, DECIDED if time is to pass now, or STALLED."""
    # An illegal action changes nothing and takes no time. So many in a row end the episode, or an agent
    # that only chooses such would never come to its end.
    if not episode_state.mask[action]:
        episode_state.state[d.ILLEGAL] += 1
        episode.clock[c.END] = episode.clock[c.NOW]
        return EDITED if episode_state.state[d.ILLEGAL] < MOST_ILLEGAL else STALLED
    episode_state.state[d.ILLEGAL] = 0
    # The last action is `stop`: the edits so far become the decision, and time passes.
    if action < len(episode_state.mask) - 1:
        at = edits.edit(episode, cluster, episode_state, rules, action)
        observation.update_edited_row(episode, cluster, episode_state, rules, at)
        return EDITED
    # Marked before the decision is enacted: enacting may drop a job, of which there is then no row.
    edits.decide(episode, episode_state, rules)
    return DECIDED if clock.enact(episode, cluster) == c.DECISION else STALLED


@compile_in_place
def classify_end(episode: Episode, came_to: int) -> int:
    """Return how an episode ended (STALLED, TERMINATED or TRUNCATED), given `clock.advance`'s result."""
    if came_to == c.STALLED:
        return STALLED
    # All jobs have left: the end of the problem. Else the horizon has cut it off, and values go on beyond
    # it.
    return TERMINATED if episode.clock[c.LEFT] == episode.clock[c.JOBS] else TRUNCATED


@compile_inline
def _move(episode: Episode, cluster: ClusterArrays) -> int:
    """Simulate on; return DECIDED at the next decision point, or how the episode has ended."""
    came_to = clock.advance(episode, cluster)
    return DECIDED if came_to == c.DECISION else classify_end(episode, came_to)


@compile_inline
def play(
    episode: Episode, cluster: ClusterArrays, episode_state: EpisodeState, rules: EpisodeRules, action: int
) -> int:
    """Begin an episode (BEGIN) or apply an action, and simulate on if time is to pass; return the outcome."""
    if action == BEGIN:
        begin_episode(episode_state)
        outcome = DECIDED
    else:
        outcome = _act(episode, cluster, episode_state, rules, action)
    if outcome == DECIDED:
        outcome = _move(episode, cluster)
    # Illegal actions change nothing, and the observation stays; every other end is shown as it is.
    if outcome != EDITED and not episode_state.state[d.ILLEGAL]:
        if outcome >= TERMINATED:
            episode.clock[c.NOW] = episode.clock[c.END]
        edits.begin(episode, cluster, episode_state, rules)
        observation.begin(episode, cluster, episode_state, rules)
    # Of an episode that is over no action means anything; one that were illegal would be counted as a
    # fault.
    if outcome >= TERMINATED:
        episode_state.mask[:] = 1
    return outcome


@compile_in_place
def find_end_s(
    episode: Episode, episode_state: EpisodeState, rules: EpisodeRules, outcome: int, baseline: bool
) -> float:
    """Return the seconds until which costs count, the agent's or the baseline's."""
    if outcome == STALLED and np.isnan(rules.stall_penalty):
        return costs.end_of_stall_s(episode)
    tick = episode.clock[c.NOW] if outcome == DECIDED else episode.clock[c.END]
    now_s = tick / c.TICKS_PER_S
    if baseline and outcome == TERMINATED:
        # A job that left has stopped to cost: at its own end the baseline costs what it ever will.
        return max(now_s, costs.end_of_reference_s(episode, episode_state))
    return now_s


@compile_in_place
def charge(
    episode: Episode, episode_state: EpisodeState, rules: EpisodeRules, outcome: int, terms: Floats
) -> float:
    """Return a step's reward; write its terms: how far each cost has fallen, less the baseline's fall.

    Returns the reward: their weighted sum, less the penalty of a stall.
    """
    # The agent's costs first, then the baseline's are taken off: the reward is what the agent gains over
    # it.
    for baseline in range(2 if len(episode_state.reference) > 0 else 1):
        last = episode_state.last_reference if baseline else episode_state.last_cost
        until_s = find_end_s(episode, episode_state, rules, outcome, baseline == 1)
        for at in range(len(rules.terms)):
            cost = costs.cost(episode, episode_state, until_s, rules.terms[at], baseline == 1)
            # A reward is the fall of a cost since the last step, so that rewards add up to minus the final
            # cost whatever the steps were (potential-based, without a discount).
            fallen = last[at] - cost
            terms[at] = terms[at] - fallen if baseline else fallen
            last[at] = cost
    reward = 0.0
    for at in range(len(rules.weights)):
        reward += rules.weights[at] * terms[at]
    # In proportion to the jobs that are left: a stall with one job left is not as bad as one with all.
    if outcome == STALLED and not np.isnan(rules.stall_penalty):
        clock = episode.clock
        reward -= rules.stall_penalty * (clock[c.JOBS] - clock[c.LEFT]) / clock[c.JOBS]
    return reward


@entry_in_place
def apply_actions(
    episodes: Episode,
    cluster: ClusterArrays,
    episode_states: EpisodeState,
    rules: EpisodeRules,
    actions: Ints,
    terms: Floats,
    rewards: Floats,
    outcomes: Bytes,
    first: int,
    last: int,
) -> None:
    """Apply an action in each of the episodes first..last - 1, and write rewards and outcomes.

    Parameters
    ----------
    actions : ndarray of int, shape (E,)
        BEGIN brings a new episode to its first decision point; LEAVE leaves an episode as it is.
    terms : ndarray of float, shape (E, m)
        Receive the terms of the rewards.
    rewards : ndarray of float, shape (E,)
    outcomes : ndarray of int8, shape (E,)
        Receive EDITED, DECIDED, TERMINATED, TRUNCATED or STALLED.
    """
    for at in range(first, last):
        action = actions[at]
        if action == LEAVE:
            continue
        episode, episode_state = batch.select_episode(episodes, at), select_state(episode_states, at)
        terms[at], rewards[at] = 0.0, 0.0
        outcome = play(episode, cluster, episode_state, rules, action)
        outcomes[at] = outcome
        # Between decision points the clock stands, so that costs cannot change: edits are free of this sum
        # over jobs.
        if outcome != EDITED and action != BEGIN:
            rewards[at] = charge(episode, episode_state, rules, outcome, terms[at])


let_compiled_call(find_nearest_legal)


@entry_in_place
def repair_actions(masks: Bytes, width: int, illegal: Bools, actions: Ints) -> None:
    """Replace the actions that are said to be illegal by the nearest legal ones."""
    for at in range(len(actions)):
        if illegal[at]:
            actions[at] = find_nearest_legal(masks[at], width, actions[at])


@compile_in_place
def next_bits(states: npt.NDArray[np.uint64], at: int) -> np.uint64:
    """Return 53 random bits, and advance the SplitMix64 generator (Steele et al., 2014) of episode `at`."""
    # A stream for each episode, in one word: the draws of one do not hang on how many are stepped beside
    # it.
    states[at] += np.uint64(0x9E3779B97F4A7C15)
    bits = states[at]
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits >> np.uint64(11)


@entry_in_place
def draw_legal(masks: Bytes, states: npt.NDArray[np.uint64], actions: Ints, first: int, last: int) -> None:
    """Draw a legal action for each of the episodes first..last - 1 from the random generators' `states`.

    It writes them into `actions`; all legal actions are equally probable.
    """
    for at in range(first, last):
        mask = masks[at]
        actions[at] = _nth_legal(mask, np.int64(next_bits(states, at) % np.uint64(_legal(mask))))


@compile_in_place
def _legal(mask: Bytes) -> int:
    legal = 0
    for action in range(len(mask)):
        legal += mask[action]
    return legal


@compile_in_place
def _nth_legal(mask: Bytes, nth: np.int64) -> int:
    """Return the legal action with `nth` others before it; it branches on no action, which would be slow."""
    begin, legal = 0, 0
    # Whole blocks are passed over by their sums; only in the block of the action is each looked at.
    while True:
        more = _legal(mask[begin : begin + BLOCK])
        if legal + more > nth:
            break
        begin, legal = begin + BLOCK, legal + more
    found = begin
    for action in range(begin, min(begin + BLOCK, len(mask))):
        legal += mask[action]
        found += legal <= nth
    return found
