"""A learned placer of shares: scores linear in the features of nodes, with weights by class of request."""

from __future__ import annotations

from clustergym.cluster.parts import WHOLE, Requests
from clustergym.common.arrays import Floats, Ints
from clustergym.envs.sharing.desk import AT, FITS, NAMES, Desk, accept, refresh, seek
from clustergym.sim.compiled.numba_cache import compiled_in_place, entry_in_place
from clustergym.sim.parts.fragmentation import fragments

CLASSES = ("no GPU", "part", "one GPU", "several GPUs")
SHAPE = (len(CLASSES), len(NAMES))
"""Of the weights."""


@compiled_in_place
def class_of(kinds: Requests, kind: int) -> int:
    """Return the class of a kind of request, an index of CLASSES."""
    if kinds.gpus[kind] == 0:
        return 0
    if kinds.gpu_milli[kind] < WHOLE:
        return 1
    return 2 if kinds.gpus[kind] == 1 else 3


@entry_in_place
def choose(desk: Desk, weights: Floats) -> int:
    """Return the node of the highest score for the request in hand, of equal ones that of the lowest rank."""
    kind = desk.arrivals[desk.counts[AT]]
    own, rank, best, most = weights[class_of(desk.kinds, kind)], desk.nodes.rank, -1, 0.0
    for at in range(len(rank)):
        if desk.features[kind, FITS, at] == 0.0:
            continue
        score = 0.0
        for feature in range(len(own)):
            score += own[feature] * desk.features[kind, feature, at]
        if best < 0 or score > most or (score == most and rank[at] < rank[best]):
            best, most = at, score
    return best


@entry_in_place
def play(desk: Desk, weights: Floats) -> None:
    """Place all requests that are left; weights of shape SHAPE."""
    while desk.counts[AT] < len(desk.arrivals):
        node = choose(desk, weights)
        accept(desk, node, desk.device[desk.arrivals[desk.counts[AT]], node])
        seek(desk)


@entry_in_place
def answer(desk: Desk, weights: Floats, arrival: int, noted: Ints) -> int:
    """Return the node for any of the arrivals, on nodes that others change; -1: it fits nowhere.

    Parameters
    ----------
    noted : ndarray of int, shape (N,)
        Versions of the nodes that `desk.fragments` is of; -1: of none. Brought up to date.
    """
    for at in range(len(noted)):
        if noted[at] != desk.nodes.version[at]:
            desk.fragments[at] = fragments(desk.nodes, at, desk.usual)
            noted[at] = desk.nodes.version[at]
    desk.counts[AT] = arrival
    return choose(desk, weights) if refresh(desk, desk.arrivals[arrival]) else -1
