"""Requests that arrive one by one and never leave: each is placed at once, or rejected for good."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.cluster.parts import Nodes, Requests
from clustergym.common import random_streams
from clustergym.common.arrays import Floats, Ints
from clustergym.sim.compiled.numba_cache import compiled
from clustergym.sim.parts.fragmentation import Usual, fragments
from clustergym.sim.parts.known_scores import KnownScores, best, drawn, no_scores, refresh
from clustergym.sim.parts.placers import PLACERS, RANDOM_FIT, UNFIT, drawn_device, take


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
        One of `clustergym.sim.parts.placers.PLACERS`.
    seed : int
        Of `random-fit`.
    """
    number = len(arrivals)
    chances = random_streams.RANDOM_FIT.generator(seed).random((number if placer == "random-fit" else 1, 2))
    scores = no_scores(requests, nodes)
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
    scores: KnownScores,
    found: Filling,
) -> None:
    own, device = np.empty(len(nodes.devices)), np.empty(1, np.int64)
    for at in range(len(nodes.devices)):
        own[at] = fragments(nodes, at, usual)
    used = 0
    for arrival in range(len(arrivals)):
        kind = arrivals[arrival]
        refresh(nodes, requests, kind, placer, usual, scores, device)
        if placer == RANDOM_FIT:
            at = drawn(scores.value[kind], chances[arrival, 0])
        else:
            at = best(scores.value[kind], nodes.rank)
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
