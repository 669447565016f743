"""Steps of a batch of episodes in which an agent scores the moves of an auction, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clustergym.agents import auction, auction_episode
from clustergym.agents import auction_features as features
from clustergym.agents.auction import Bids
from clustergym.common.arrays import Floats, Ints
from clustergym.envs.vector import desk as d
from clustergym.envs.vector import edits, observation
from clustergym.envs.vector import step as steps
from clustergym.envs.vector.desk import Bytes, Desk, DeskRules
from clustergym.envs.vector.step import BEGIN, DECIDED, LEAVE, STALLED, TERMINATED
from clustergym.sim.compiled import batch, clock
from clustergym.sim.compiled import columns as c
from clustergym.sim.compiled.cluster_arrays import ClusterArrays
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compiled_in_place, compiled_part, entry_in_place


class AuctionRules(NamedTuple):
    """What all episodes have in common besides `DeskRules`.

    Attributes
    ----------
    by_weights : bool
        An action is weights of features, not scores of moves.
    usual : int
        Numbers of an observation before the features of moves.
    """

    by_weights: bool
    usual: int


@compiled_part
def _usual_part(desk: Desk, usual: int) -> Desk:
    """Return a desk whose observation has no moves."""
    return Desk(
        desk.state,
        desk.shown,
        desk.free,
        desk.assignable,
        desk.mask,
        desk.observation[:usual],
        desk.last_cost,
        desk.last_reference,
        desk.reference,
        desk.least_gpu_s,
        desk.least_s,
        desk.speed,
        desk.restart,
    )


@compiled_in_place
def _mark_moves(episode: Episode, counts: Ints, desk: Desk, before: int, mask: Bytes) -> None:
    """Write to the mask, shape (R, T K), where moves lead to; `before` rows had a job."""
    _, types, levels = episode.known_s.shape
    mask[: max(before, desk.state[d.SHOWN])] = 0
    for at in range(desk.state[d.SHOWN]):
        job = episode.job[desk.shown[at]]
        time_s = episode.known_s[job[c.CLASS]]
        for kind in range(types):
            if (job[c.HIDDEN] >> kind) & 1:
                continue
            level = auction.first_level(time_s[kind])
            while level != c.NONE:
                mask[at, kind * levels + level] = 1
                level = auction.next_level(counts, time_s[kind], level)


@compiled_in_place
def _places(rows: Ints, shown: Ints, places: Ints) -> None:
    """Write the place of each shown job among the rows; both are ascending."""
    at = 0
    for place in range(len(rows)):
        if at < len(shown) and rows[place] == shown[at]:
            places[at] = place
            at += 1


@compiled_in_place
def _release_shown(episode: Episode, counts: Ints, shown: Ints, available: Ints) -> None:
    """Let jobs in view keep what they have; make the GPUs of those shown available besides the free ones."""
    for at in range(episode.clock[c.IN_VIEW]):
        job = episode.job[episode.in_view[at]]
        job[c.TARGET_TYPE], job[c.TARGET_LEVEL] = job[c.TYPE], job[c.LEVEL]
    auction_episode.add_held(episode, counts, shown, available)


@compiled_part
def _begin_point(
    episode: Episode, cluster: ClusterArrays, desk: Desk, rules: DeskRules, own: AuctionRules
) -> None:
    """Begin a decision point."""
    state, rows = desk.state, episode.in_view[: episode.clock[c.IN_VIEW]]
    before = state[d.SHOWN]
    count = edits.choose_rows(episode, rules.rows, state[d.TURN], desk.shown)
    state[d.SHOWN] = count
    state[d.TURN] += 1
    observation.begin(episode, cluster, _usual_part(desk, own.usual), rules)
    types, levels = len(cluster.capacity), len(cluster.counts)
    if not own.by_weights:
        _mark_moves(episode, cluster.counts, desk, before, desk.mask.reshape(rules.rows, types * levels))
    if len(desk.observation) == own.usual:
        return
    seen = desk.observation[own.usual :].reshape(rules.rows, types, levels, features.COUNT)
    seen[: max(before, count)] = 0.0
    bids = auction_episode.bids_of_rows(episode, cluster, rows)
    available = auction_episode.available_to(episode, cluster, rows).sum()
    facts, values = auction.facts_of(available, cluster.counts, bids), np.empty(features.COUNT)
    places = np.empty(count, np.int64)
    _places(rows, desk.shown[:count], places)
    auction.describe_rows(places, facts, cluster.counts, bids, values, seen)


@compiled_part
def _decide(episode: Episode, cluster: ClusterArrays, desk: Desk, own: AuctionRules, numbers: Floats) -> None:
    """Set the targets of the jobs in view by an action."""
    if own.by_weights:
        auction_episode.decide(episode, cluster, numbers)
        return
    shown, available = desk.shown[: desk.state[d.SHOWN]], episode.free.copy()
    _release_shown(episode, cluster.counts, shown, available)
    bids: Bids = auction_episode.bids_of_rows(episode, cluster, shown)
    shape = (len(desk.shown), len(cluster.capacity), len(cluster.counts))
    kind, level = auction.decide_by_scores(numbers.reshape(shape), available, cluster.counts, bids)
    auction_episode.set_targets(episode, shown, kind, level)


@entry_in_place
def step(
    episodes: Episode,
    cluster: ClusterArrays,
    desks: Desk,
    rules: DeskRules,
    own: AuctionRules,
    actions: Ints,
    numbers: Floats,
    terms: Floats,
    rewards: Floats,
    outcomes: Bytes,
    first: int,
    last: int,
) -> None:
    """Take an action in each of the episodes first..last, as `clustergym.envs.vector.step.step`.

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
        episode, desk = batch.row_of(episodes, at), steps.desk_of(desks, at)
        terms[at], rewards[at] = 0.0, 0.0
        outcome = DECIDED
        if action == BEGIN:
            steps.begin_episode(desk)
        else:
            _decide(episode, cluster, desk, own, numbers[at])
            if clock.enact(episode, cluster) != c.DECISION:
                outcome = STALLED
        if outcome == DECIDED:
            came_to = clock.advance(episode, cluster)
            if came_to == c.DECISION:
                _begin_point(episode, cluster, desk, rules, own)
            else:
                outcome = steps.ended(episode, came_to)
        outcomes[at] = outcome
        if own.by_weights or outcome >= TERMINATED:
            desk.mask[:] = 1
        if action != BEGIN:
            rewards[at] = steps.charge(episode, desk, rules, outcome, terms[at])


@entry_in_place
def draw_numbers(states: npt.NDArray[np.uint64], numbers: Floats) -> None:
    """Draw an action in each episode: numbers from -1 to 1, all with the same probability."""
    for at in range(len(numbers)):
        for place in range(numbers.shape[1]):
            numbers[at, place] = np.float64(steps.next_bits(states, at)) / 2.0**52 - 1.0
