"""Steps of a batch of episodes in which an agent scores the moves of an auction, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clustergym.agents import auction, auction_episode
from clustergym.agents import auction_features as features
from clustergym.agents.auction import Bids
from clustergym.common.arrays import Floats, Ints
from clustergym.envs.auction_actions import PRIORITIES, RANKED, SCORES, WEIGHTS, fill_bias
from clustergym.envs.vector import edits, observation
from clustergym.envs.vector import episode_state as d
from clustergym.envs.vector import step as steps
from clustergym.envs.vector.episode_state import Bytes, EpisodeRules, EpisodeState, Singles
from clustergym.envs.vector.step import BEGIN, DECIDED, LEAVE, TERMINATED
from clustergym.sim import columns as c
from clustergym.sim.compiled import batch, clock
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_in_place, compile_part, entry_in_place
from clustergym.sim.compiled.scenario_arrays import ClusterArrays

HELD = -1
"""What a step has come to where its action decides at the next point, too: nothing is shown yet."""


class AuctionRules(NamedTuple):
    """Constants of an auction in a batch of episodes, such as whether actions are scores or priorities.

    Attributes
    ----------
    decides_by : int
        SCORES, WEIGHTS or PRIORITIES.
    usual : int
        Numbers of an observation before those of the auction.
    ranked : bool
        Those are facts of jobs, not features of moves.
    hold : int
        Decision points for which an action holds; 0: to the end of the episode.
    of_priorities : ndarray of float, shape (features.COUNT,)
        Weights of what priorities are added to.
    """

    decides_by: int
    usual: int
    ranked: bool
    hold: int
    of_priorities: Floats


@compile_in_place
def _mark_moves(
    episode: Episode, counts: Ints, episode_state: EpisodeState, before: int, mask: Bytes
) -> None:
    """Write a mask, shape (R, T K), of the GPU types and counts to which the shown jobs can move."""
    _, types, levels = episode.known_s.shape
    mask[: max(before, episode_state.state[d.SHOWN])] = 0
    for at in range(episode_state.state[d.SHOWN]):
        job = episode.job[episode_state.shown[at]]
        time_s = episode.known_s[job[c.CLASS]]
        for gpu_type in range(types):
            if (job[c.HIDDEN] >> gpu_type) & 1:
                continue
            level = auction.first_level(time_s[gpu_type])
            while level != c.NONE:
                mask[at, gpu_type * levels + level] = 1
                level = auction.next_level(counts, time_s[gpu_type], level)


@compile_in_place
def _places(rows: Ints, shown: Ints, places: Ints) -> None:
    """Write the place of each shown job among the rows; both are ascending."""
    at = 0
    for place in range(len(rows)):
        if at < len(shown) and rows[place] == shown[at]:
            places[at] = place
            at += 1


@compile_in_place
def _show_ranked(facts: Floats, places: Ints, seen: Singles) -> None:
    """Write the features by which the shown jobs are ranked."""
    for at in range(len(places)):
        for column in range(len(RANKED)):
            seen[at, column] = facts[places[at], RANKED[column]]


@compile_in_place
def _release_shown(episode: Episode, counts: Ints, shown: Ints, available: Ints) -> None:
    """Let visible jobs keep their GPUs by default, and count those of jobs with a row as available."""
    for at in range(episode.clock[c.IN_VIEW]):
        job = episode.job[episode.in_view[at]]
        job[c.TARGET_TYPE], job[c.TARGET_LEVEL] = job[c.TYPE], job[c.LEVEL]
    auction_episode.add_held(episode, counts, shown, available)


@compile_part
def _begin_point(
    episode: Episode,
    cluster: ClusterArrays,
    episode_state: EpisodeState,
    rules: EpisodeRules,
    own: AuctionRules,
) -> None:
    """Prepare the agent's state and observation for a new decision point."""
    state, rows = episode_state.state, episode.in_view[: episode.clock[c.IN_VIEW]]
    before = state[d.SHOWN]
    count = edits.choose_rows(episode, rules.rows, state[d.TURN], episode_state.shown)
    state[d.SHOWN] = count
    state[d.TURN] += 1
    observation.begin(episode, cluster, steps.take_usual_part(episode_state, own.usual), rules)
    types, levels = len(cluster.capacity), len(cluster.counts)
    if own.decides_by == SCORES:
        _mark_moves(
            episode,
            cluster.counts,
            episode_state,
            before,
            episode_state.mask.reshape(rules.rows, types * levels),
        )
    elif own.decides_by == PRIORITIES:
        episode_state.mask[: 2 * count], episode_state.mask[2 * count :] = 1, 0
    if len(episode_state.observation) == own.usual:
        return
    seen = episode_state.observation[own.usual :].reshape(rules.rows, -1)
    seen[: max(before, count)] = 0.0
    if count == 0:
        return
    bids = auction_episode.bids_of_rows(episode, cluster, rows)
    available = auction_episode.count_available(episode, cluster, rows).sum()
    facts, values = auction.compute_feature_inputs(available, cluster.counts, bids), np.empty(features.COUNT)
    places = np.empty(count, np.int64)
    _places(rows, episode_state.shown[:count], places)
    if own.ranked:
        _show_ranked(facts.job, places, seen)
        return
    moves = seen.reshape(rules.rows, types, levels, features.COUNT)
    auction.describe_rows(places, facts, cluster.counts, bids, values, moves)


@compile_part
def _decide(
    episode: Episode, cluster: ClusterArrays, episode_state: EpisodeState, own: AuctionRules, numbers: Floats
) -> None:
    """Set the GPUs that each job in view is to hold, as an action's auction decides."""
    if own.decides_by == WEIGHTS:
        auction_episode.decide(episode, cluster, numbers)
        return
    shown, available = episode_state.shown[: episode_state.state[d.SHOWN]], episode.free.copy()
    _release_shown(episode, cluster.counts, shown, available)
    bids: Bids = auction_episode.bids_of_rows(episode, cluster, shown)
    types = len(cluster.capacity)
    if own.decides_by == PRIORITIES:
        bias = np.empty((len(shown), types, 2))
        fill_bias(numbers, bias)
        gpu_type, level = auction.decide_biased(own.of_priorities, bias, available, cluster.counts, bids)
    else:
        scores = numbers.reshape((len(episode_state.shown), types, len(cluster.counts)))
        gpu_type, level = auction.decide_by_scores(scores, available, cluster.counts, bids)
    auction_episode.set_targets(episode, shown, gpu_type, level)


@compile_part
def _act(
    episode: Episode, cluster: ClusterArrays, episode_state: EpisodeState, own: AuctionRules, numbers: Floats
) -> int:
    """Decide once, and simulate on; return why that stopped, such as c.DECISION."""
    _decide(episode, cluster, episode_state, own, numbers)
    episode_state.state[d.HELD] += 1
    if clock.enact(episode, cluster) != c.DECISION:
        return c.STALLED
    return clock.advance(episode, cluster)


@entry_in_place
def apply_auctions(
    episodes: Episode,
    cluster: ClusterArrays,
    episode_states: EpisodeState,
    rules: EpisodeRules,
    own: AuctionRules,
    actions: Ints,
    numbers: Floats,
    terms: Floats,
    rewards: Floats,
    outcomes: Bytes,
    first: int,
    last: int,
) -> None:
    """Apply `numbers` as auction actions in episodes first..last - 1 where `actions` is 0; write the rewards.

    An action that holds for several decision points is taken at one of them, as there may be no room for more
    events; the outcome is HELD until it has been taken at all.

    Parameters
    ----------
    actions : ndarray of int, shape (E,)
        BEGIN, LEAVE, or 0: take the action in `numbers`.
    numbers : ndarray of float, shape (E, A)
    """
    for at in range(first, last):
        action = actions[at]
        if action == LEAVE:
            continue
        episode, episode_state = batch.select_episode(episodes, at), steps.select_state(episode_states, at)
        terms[at], rewards[at] = 0.0, 0.0
        if action == BEGIN:
            steps.begin_episode(episode_state)
            came_to = clock.advance(episode, cluster)
        else:
            came_to = _act(episode, cluster, episode_state, own, numbers[at])
        outcome = DECIDED if came_to == c.DECISION else steps.classify_end(episode, came_to)
        if action != BEGIN and outcome == DECIDED and episode_state.state[d.HELD] != own.hold:
            outcomes[at] = HELD
            continue
        outcomes[at], episode_state.state[d.HELD] = outcome, 0
        if outcome >= TERMINATED:
            episode.clock[c.NOW] = episode.clock[c.END]
        if outcome == DECIDED or action != BEGIN:
            _begin_point(episode, cluster, episode_state, rules, own)
        if own.decides_by == WEIGHTS or outcome >= TERMINATED:
            episode_state.mask[:] = 1
        if action != BEGIN:
            rewards[at] = steps.charge(episode, episode_state, rules, outcome, terms[at])


@entry_in_place
def draw_numbers(states: npt.NDArray[np.uint64], numbers: Floats) -> None:
    """Write random actions, uniform from -1 to 1, into `numbers`, and advance the generators' `states`."""
    for at in range(len(numbers)):
        for place in range(numbers.shape[1]):
            numbers[at, place] = np.float64(steps.next_bits(states, at)) / 2.0**52 - 1.0
