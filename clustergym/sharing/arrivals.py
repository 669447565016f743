"""Requests that arrive one by one and never leave: each is placed at once, or rejected for good."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.arrays import Floats, Ints
from clustergym.compiled.numba_cache import compiled, compiled_in_place
from clustergym.sharing.fragmentation import Usual, fragments
from clustergym.sharing.nodes import Nodes, Requests
from clustergym.sharing.placers import (
    PLACERS,
    RANDOM_FIT,
    UNFIT,
    drawn_device,
    score,
    take,
)


class Filling(NamedTuple):
    """What became of A arrivals.

    Attributes
    ----------
    node : ndarray of int, shape (A,)
        Where each was placed; -1: rejected.
    devices : ndarray of int, shape (A,)
        Bits of the devices it has.
    used_milli : ndarray of int, shape (A,)
        Thousandths of GPUs allocated after each arrival.
    fragments_milli : ndarray of float, shape (A,)
        Expected thousandths of idle GPU that a usual request cannot use, after each arrival.
    """

    node: Ints
    devices: Ints
    used_milli: Ints
    fragments_milli: Floats


class _Scores(NamedTuple):
    """Scores that are known, by kind and node, with the version of the node that they are of."""

    value: Ints
    device: Ints
    version: Ints


def fill(nodes: Nodes, requests: Requests, arrivals: Ints, usual: Usual, placer: str, seed: int) -> Filling:
    """Place requests in their order of arrival.

    Parameters
    ----------
    nodes : Nodes
        Receive the requests.
    requests : Requests
        K kinds.
    arrivals : ndarray of int, shape (A,)
        The kind of each arrival.
    usual : Usual
    placer : str
        One of `clustergym.sharing.placers.PLACERS`.
    seed : int
        Of `random-fit`.
    """
    number, shape = len(arrivals), (len(requests.gpus), len(nodes.devices))
    chances = np.random.default_rng([seed, 0]).random((number if placer == "random-fit" else 1, 2))
    scores = _Scores(*(np.full(shape, UNFIT) for _ in range(3)))
    found = Filling(
        np.full(number, UNFIT), np.zeros(number, np.int64), np.zeros(number, np.int64), np.zeros(number)
    )
    _fill(nodes, requests, arrivals, usual, PLACERS.index(placer), chances, scores, found)
    return found


@compiled
def _fill(
    nodes: Nodes,
    requests: Requests,
    arrivals: Ints,
    usual: Usual,
    placer: int,
    chances: Floats,
    scores: _Scores,
    found: Filling,
) -> None:
    own, device = np.empty(len(nodes.devices)), np.empty(1, np.int64)
    for at in range(len(nodes.devices)):
        own[at] = fragments(nodes, at, usual)
    used = 0
    for arrival in range(len(arrivals)):
        kind = arrivals[arrival]
        _refresh(nodes, requests, kind, placer, usual, scores, device)
        if placer == RANDOM_FIT:
            at = _drawn(scores.value[kind], chances[arrival, 0])
        else:
            at = _best(scores.value[kind], nodes.rank)
        if at >= 0:
            place = scores.device[kind, at]
            if placer == RANDOM_FIT and place >= 0:
                place = drawn_device(nodes, at, requests.gpu_milli[kind], chances[arrival, 1])
            found.node[arrival] = at
            found.devices[arrival] = take(nodes, at, requests, kind, place)
            used += requests.gpus[kind] * requests.gpu_milli[kind]
            own[at] = fragments(nodes, at, usual)
        found.used_milli[arrival] = used
        found.fragments_milli[arrival] = own.sum()


@compiled_in_place
def _refresh(
    nodes: Nodes, requests: Requests, kind: int, placer: int, usual: Usual, scores: _Scores, device: Ints
) -> None:
    """Score the nodes that have changed since this kind of request last came."""
    for at in range(len(nodes.devices)):
        if scores.version[kind, at] != nodes.version[at]:
            scores.value[kind, at] = score(nodes, at, requests, kind, placer, usual, device)
            scores.device[kind, at] = device[0]
            scores.version[kind, at] = nodes.version[at]


@compiled_in_place
def _best(values: Ints, rank: Ints) -> int:
    """Return the node of the highest score, of equal ones that of the lowest rank; -1: none fits."""
    best = -1
    for at in range(len(values)):
        if values[at] < 0:
            continue
        if best < 0 or values[at] > values[best] or (values[at] == values[best] and rank[at] < rank[best]):
            best = at
    return best


@compiled_in_place
def _drawn(values: Ints, chance: float) -> int:
    """Return one of the nodes on which a request fits, all with the same probability; -1: none."""
    fitting = 0
    for at in range(len(values)):
        fitting += values[at] >= 0
    left = int(chance * fitting)
    for at in range(len(values)):
        if values[at] >= 0:
            if left == 0:
                return at
            left -= 1
    return -1
