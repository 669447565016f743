"""Steps of a batch of episodes, compiled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from clustergym.arrays import Bools, Floats, Ints
from clustergym.compiled import batch, clock
from clustergym.compiled import columns as c
from clustergym.compiled.cluster_arrays import ClusterArrays
from clustergym.compiled.episode import Episode
from clustergym.compiled.numba_cache import compiled
from clustergym.envs.scheduling import MOST_ILLEGAL, STALLED_S
from clustergym.vector import costs, edits, observation
from clustergym.vector import desk as d
from clustergym.vector.desk import Bytes, Desk, Rules

EDITED, DECIDED, TERMINATED, TRUNCATED, STALLED = range(5)
"""What a step has come to: the clock stands, it moved to the next decision point, or the episode is over."""


@compiled
def desk_of(desks: Desk, at: int) -> Desk:
    """Return the desk of one episode of a batch; its arrays share their memory."""
    return Desk(
        desks.state[at],
        desks.shown[at],
        desks.free[at],
        desks.assignable[at],
        desks.mask[at],
        desks.observation[at],
        desks.last_cost[at],
        desks.least_gpu_s[at],
        desks.least_s[at],
        desks.speed[at],
        desks.restart[at],
    )


@compiled
def begin(episodes: Episode, cluster: ClusterArrays, desks: Desk, rules: Rules, at: int) -> bool:
    """Bring a new episode to its first decision point; return False if it has none."""
    episode, desk = batch.row_of(episodes, at), desk_of(desks, at)
    desk.state[:] = 0
    desk.last_cost[:] = 0.0
    desk.observation[:] = 0.0
    desk.mask[:] = 0
    if clock.advance(episode, cluster) != c.DECISION:
        return False
    edits.begin(episode, cluster, desk, rules)
    observation.begin(episode, cluster, desk, rules)
    return True


@compiled
def _move(
    episode: Episode, cluster: ClusterArrays, desk: Desk, rules: Rules, came_to: int, terms: Floats
) -> int:
    """Begin the next decision point or end the episode, and write the terms of the reward."""
    now_s, outcome = episode.clock[c.NOW] / c.TICKS_PER_S, DECIDED
    if came_to == c.DECISION:
        edits.begin(episode, cluster, desk, rules)
        observation.begin(episode, cluster, desk, rules)
    else:
        now_s = episode.clock[c.END] / c.TICKS_PER_S + (STALLED_S if came_to == c.STALLED else 0.0)
        desk.mask[:] = 1
        finished = episode.clock[c.LEFT] == episode.clock[c.JOBS]
        outcome = STALLED if came_to == c.STALLED else TERMINATED if finished else TRUNCATED
    for at in range(len(rules.terms)):
        now = costs.cost(episode, now_s, rules.terms[at])
        terms[at] = desk.last_cost[at] - now
        desk.last_cost[at] = now
    return outcome


@compiled
def _act(
    episode: Episode, cluster: ClusterArrays, desk: Desk, rules: Rules, action: int, terms: Floats
) -> tuple[int, bool]:
    """Take an action; return what the step has come to, and whether the action was illegal."""
    state, terms[:] = desk.state, 0.0
    if not desk.mask[action]:
        state[d.ILLEGAL] += 1
        if state[d.ILLEGAL] < MOST_ILLEGAL:
            return EDITED, True
        episode.clock[c.END] = episode.clock[c.NOW]
        return _move(episode, cluster, desk, rules, c.STALLED, terms), True
    state[d.ILLEGAL] = 0
    if action < len(desk.mask) - 1:
        at = edits.edit(episode, cluster, desk, rules, action)
        observation.edited(episode, cluster, desk, rules, at)
        return EDITED, False
    edits.decide(episode, desk, rules)
    came_to = clock.enact(episode, cluster)
    if came_to == c.DECISION:
        came_to = clock.advance(episode, cluster)
    return _move(episode, cluster, desk, rules, came_to, terms), False


@compiled
def step(
    episodes: Episode,
    cluster: ClusterArrays,
    desks: Desk,
    rules: Rules,
    actions: Ints,
    terms: Floats,
    rewards: Floats,
    outcomes: Bytes,
    illegal: Bools,
    first: int,
    last: int,
) -> None:
    """Take an action in each of the episodes first..last; those with action -1 are left as they are.

    Parameters
    ----------
    actions : ndarray of int, shape (E,)
    terms : ndarray of float, shape (E, m)
        Receive the terms of the rewards.
    rewards : ndarray of float, shape (E,)
    outcomes : ndarray of int8, shape (E,)
        Receive EDITED, DECIDED, TERMINATED, TRUNCATED or STALLED.
    illegal : ndarray of bool, shape (E,)
    """
    for at in range(first, last):
        if actions[at] < 0:
            continue
        episode, desk = batch.row_of(episodes, at), desk_of(desks, at)
        outcomes[at], illegal[at] = _act(episode, cluster, desk, rules, actions[at], terms[at])
        reward = 0.0
        for place in range(len(rules.weights)):
            reward += rules.weights[place] * terms[at, place]
        rewards[at] = reward


@compiled
def draw_legal(masks: Bytes, states: npt.NDArray[np.uint64], actions: Ints, first: int, last: int) -> None:
    """Draw a legal action in each of the episodes first..last, all with the same probability.

    `states` is the generator's state of each episode: SplitMix64 (Steele et al., 2014).
    """
    for at in range(first, last):
        mask, legal = masks[at], 0
        for action in range(len(mask)):
            legal += mask[action]
        states[at] += np.uint64(0x9E3779B97F4A7C15)
        bits = states[at]
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits ^= bits >> np.uint64(31)
        left = np.int64((bits >> np.uint64(11)) % np.uint64(legal))
        for action in range(len(mask)):
            if mask[action]:
                if left == 0:
                    actions[at] = action
                    break
                left -= 1
