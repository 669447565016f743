"""Choice of minipods by the learned placer's weights, and episodes of jobs of whole nodes that train it.

Placer and episodes share this definition, so that they cannot disagree.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.sim.compiled.numba_cache import compile_entry, compile_part

NAMES = (
    "fit left",  # in a minipod: nodes it has left free, over those of the largest minipod
    "fit exact",  # whether none is left
    "fit lost",  # how many powers of two less the largest job has that then fits there
    "fragments",  # over the fragments, not the roomiest minipods, which scores 0: 1
    "fragments nodes",  # log2 of the job's nodes / 7
    "fragments free",  # free nodes over all nodes
    "fragments room",  # free nodes of the roomiest minipod over the job's nodes
    "wait",  # for a minipod, instead: the same four
    "wait nodes",
    "wait free",
    "wait room",
    "move nodes",  # of a job across minipods into one, before other jobs: log2 of its nodes
)
"""What each weight is of."""
FIT, FRAGMENTS, WAIT, MOVE = 0, 3, 7, 11
NOWHERE, INSIDE, ACROSS = range(3)
"""Where a job of an episode is."""


class PlacementEpisode(NamedTuple):
    """A simulation's input: jobs that want whole nodes, in which order, and sizes of minipods (node groups).

    Attributes
    ----------
    submit_s, order_s : ndarray of float, shape (n,)
        Ascending; what the policy orders waiting jobs by.
    run_s : ndarray of float, shape (n, 2)
        Run time inside a minipod and across minipods.
    nodes : ndarray of int, shape (n,)
    first_s, move_s : ndarray of float, shape (n,)
        Standstill of the first launch, and of a move.
    sizes : ndarray of int, shape (M,)
        Nodes of each minipod.
    round_s, defragment_s : float
    """

    submit_s: Floats
    order_s: Floats
    run_s: Floats
    nodes: Ints
    first_s: Floats
    move_s: Floats
    sizes: Ints
    round_s: float
    defragment_s: float


@compile_part
def _choose_inside(free: Ints, sizes: Ints, wanted: int, weights: Floats) -> int:
    """Return the minipod of greatest score that has room; -1: none has."""
    best, chosen, largest = -np.inf, -1, sizes.max()
    for m in range(len(free)):
        left = free[m] - wanted
        if left < 0:
            continue
        lost = math.floor(math.log2(free[m])) - (math.floor(math.log2(left)) if left > 0 else -1)
        score = weights[FIT] * left / largest + weights[FIT + 1] * (left == 0) + weights[FIT + 2] * lost
        if score > best:
            best, chosen = score, m
    return chosen


@compile_part
def _score(weights: Floats, first: int, free: Ints, sizes: Ints, wanted: int) -> float:
    """Return the score of splitting a job over minipods (FRAGMENTS) or letting it WAIT."""
    return (
        weights[first]
        + weights[first + 1] * math.log2(wanted) / 7.0
        + weights[first + 2] * free.sum() / sizes.sum()
        + weights[first + 3] * free.max() / wanted
    )


@compile_part
def _spread(free: Ints, wanted: int, fragments: bool, counts: Ints) -> None:
    """Write how many nodes each minipod gives: the roomiest first, best fit last, or the fullest first."""
    left = wanted
    while left > 0:
        chosen = -1
        for m in range(len(free)):
            if counts[m] > 0 or free[m] == 0:
                continue
            if chosen < 0:
                chosen = m
            elif fragments:
                chosen = m if free[m] < free[chosen] else chosen
            else:
                fits, as_yet = free[m] >= left, free[chosen] >= left
                nearer = free[m] < free[chosen] if fits and as_yet else free[m] > free[chosen]
                chosen = m if nearer else chosen
        counts[chosen] = min(left, free[chosen])
        left -= counts[chosen]


@compile_part
def _choose(free: Ints, sizes: Ints, wanted: int, may_wait: bool, weights: Floats, counts: Ints) -> int:
    """Write how many nodes each minipod gives to a job; return whether it then waits, is inside or across."""
    counts[:] = 0
    inside = _choose_inside(free, sizes, wanted, weights)
    if inside >= 0:
        counts[inside] = wanted
        return INSIDE
    fragments = _score(weights, FRAGMENTS, free, sizes, wanted)
    if (
        may_wait
        and wanted <= sizes.max()
        and _score(weights, WAIT, free, sizes, wanted) > max(fragments, 0.0)
    ):
        return NOWHERE
    _spread(free, wanted, fragments > 0.0, counts)
    return ACROSS


@compile_entry
def choose(free: Ints, sizes: Ints, wanted: int, may_wait: bool, weights: Floats) -> Ints:
    """Choose how many nodes each minipod (group of `sizes` nodes) gives a job, shape (M,); all 0: it waits.

    Parameters
    ----------
    free, sizes : ndarray of int, shape (M,)
        Free nodes, at least `wanted` in all, and all nodes of each minipod.
    wanted : int
    may_wait : bool
    weights : ndarray of float, shape (len(NAMES),)
    """
    counts = np.zeros_like(free)
    _choose(free, sizes, wanted, may_wait, weights, counts)
    return counts


@compile_entry
def choose_inside(free: Ints, sizes: Ints, wanted: int, weights: Floats) -> int:
    """Choose the one minipod (group of `sizes` nodes) into which a job moves; -1 if none has room."""
    return _choose_inside(free, sizes, wanted, weights)


@compile_entry
def move_order(nodes: Ints, weights: Floats) -> Ints:
    """Return the order to move jobs that span minipods (indices): most `nodes` first if weights[MOVE] > 0."""
    return np.argsort(-weights[MOVE] * np.log2(nodes), kind="mergesort")


@compile_part
def _move(
    episode: PlacementEpisode, now: float, weights: Floats, where: Ints, held: Ints, end_s: Floats, free: Ints
) -> None:
    """Move jobs that are across minipods into one where that lets them end earlier."""
    across = np.flatnonzero(where == ACROSS)
    open_nodes = free.copy()
    for at in move_order(episode.nodes[across], weights):
        j = across[at]
        own = open_nodes + held[j]
        to = _choose_inside(own, episode.sizes, episode.nodes[j], weights)
        if to < 0:
            continue
        open_nodes[to] -= max(episode.nodes[j] - held[j, to], 0)
        work_s = min(end_s[j] - now, episode.run_s[j, 1])
        ends_s = now + episode.move_s[j] + work_s * episode.run_s[j, 0] / episode.run_s[j, 1]
        if ends_s < end_s[j]:
            free += held[j]
            held[j] = 0
            held[j, to] = episode.nodes[j]
            free[to] -= episode.nodes[j]
            where[j], end_s[j] = INSIDE, ends_s


@compile_part
def _start(
    episode: PlacementEpisode,
    now: float,
    waiting: Ints,
    weights: Floats,
    where: Ints,
    held: Ints,
    end_s: Floats,
    free: Ints,
) -> None:
    """Start the shortest waiting jobs that fit, the largest of them first."""
    room, chosen = free.sum(), np.zeros(len(waiting), np.bool_)
    for at in np.argsort(episode.order_s[waiting], kind="mergesort"):
        if episode.nodes[waiting[at]] <= room:
            room -= episode.nodes[waiting[at]]
            chosen[at] = True
    starting = waiting[chosen]
    for at in np.argsort(-episode.nodes[starting], kind="mergesort"):
        j = starting[at]
        others = free.sum() < episode.sizes.sum()
        where[j] = _choose(free, episode.sizes, episode.nodes[j], others, weights, held[j])
        if where[j] != NOWHERE:
            free -= held[j]
            end_s[j] = now + episode.first_s[j] + episode.run_s[j, where[j] - INSIDE]


@compile_entry
def run(episode: PlacementEpisode, weights: Floats) -> Floats:
    """Run an episode with a placer's weights; return each job's seconds from submission to end."""
    n, now, moved_s = len(episode.submit_s), 0.0, -np.inf
    where, end_s = np.zeros(n, np.int64), np.full(n, np.inf)
    held, free, over = (
        np.zeros((n, len(episode.sizes)), np.int64),
        episode.sizes.copy(),
        np.zeros(n, np.bool_),
    )
    while not over.all():
        for j in range(n):
            if not over[j] and end_s[j] <= now:
                free += held[j]
                over[j], where[j] = True, NOWHERE
        here = ~over & (episode.submit_s <= now)
        if here.any():
            if now - moved_s >= episode.defragment_s:
                moved_s = now
                _move(episode, now, weights, where, held, end_s, free)
            waiting = np.flatnonzero(here & (where == NOWHERE))
            _start(episode, now, waiting, weights, where, held, end_s, free)
            now += episode.round_s
        elif not over.all():
            first = episode.submit_s[~over].min()
            now = math.ceil(first / episode.round_s) * episode.round_s
    return end_s - episode.submit_s
