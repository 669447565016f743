"""A cluster of divisible GPUs that one placer fills with requests, as in FGD's experiment."""

from typing import NamedTuple

import numpy as np

from clustergym.cluster.parts import Nodes, Requests
from clustergym.common import random_streams
from clustergym.common.arrays import Floats, Ints
from clustergym.sim.compiled.numba_cache import compile_entry
from clustergym.sim.parts.fragmentation import UsualRequests, fragments
from clustergym.sim.parts.placers import (
    PLACERS,
    RANDOM_FIT,
    UNFIT,
    KnownScores,
    best,
    draw_device,
    draw_node,
    no_scores,
    refresh,
    take,
)


class Filling(NamedTuple):
    """Where each of A arriving requests was placed, if it was, and how much GPU was in use after it.

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


def fill(
    nodes: Nodes, requests: Requests, arrivals: Ints, usual: UsualRequests, placer: str, seed: int
) -> Filling:
    """Place or reject arriving requests by a named placer; track idle GPU that `usual` requests cannot use.

    Parameters
    ----------
    nodes : Nodes
        Receive the requests.
    requests : Requests
        K distinct requests.
    arrivals : ndarray of int, shape (A,)
        Index of each arrival among the distinct requests.
    usual : UsualRequests
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
    place_arrivals(nodes, requests, arrivals, usual, PLACERS.index(placer), chances, scores, found)
    return found


@compile_entry
def place_arrivals(
    nodes: Nodes,
    requests: Requests,
    arrivals: Ints,
    usual: UsualRequests,
    placer: int,
    chances: Floats,
    scores: KnownScores,
    found: Filling,
) -> None:
    """Place requests by a placer's scores, or at random for `random-fit`; write the outcomes into `found`.

    `chances` are the random numbers of `random-fit`; the `usual` requests define what a fragment is.
    """
    own, device = np.empty(len(nodes.devices)), np.empty(1, np.int64)
    for at in range(len(nodes.devices)):
        own[at] = fragments(nodes, at, usual)
    used = 0
    for arrival in range(len(arrivals)):
        request = arrivals[arrival]
        refresh(nodes, requests, request, placer, usual, scores, device)
        if placer == RANDOM_FIT:
            at = draw_node(scores.value[request], chances[arrival, 0])
        else:
            at = best(scores.value[request], nodes.rank)
        if at >= 0:
            place = scores.device[request, at]
            if placer == RANDOM_FIT and place >= 0:
                place = draw_device(nodes, at, requests.gpu_milli[request], chances[arrival, 1])
            found.node[arrival] = at
            found.devices[arrival] = take(nodes, at, requests, request, place)
            used += requests.gpus[request] * requests.gpu_milli[request]
            own[at] = fragments(nodes, at, usual)
        found.used_milli[arrival] = used
        found.fragments_milli[arrival] = own.sum()
