"""One request at a time: the nodes' scores, and what a request takes and gives back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.cluster.parts import Nodes, Requests
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import require_known
from clustergym.sim.compiled.numba_cache import compile_entry
from clustergym.sim.parts import placers
from clustergym.sim.parts.fragmentation import UsualRequests, fragments


class PlacedRequest(NamedTuple):
    """Where a request was placed: its node, and its devices as bits of an integer."""

    node: int
    devices: int


@compile_entry
def compute_fragments(nodes: Nodes, usual: UsualRequests) -> Floats:
    """Return each node's idle GPU that usual requests cannot use, in thousandths, averaged over requests."""
    found = np.empty(len(nodes.devices))
    for at in range(len(found)):
        found[at] = fragments(nodes, at, usual)
    return found


@compile_entry
def find_fitting_requests(nodes: Nodes, requests: Requests) -> Bools:
    """Return a mask of the requests for which some node has room, shape (K,)."""
    found = np.zeros(len(requests.gpus), np.bool_)
    for request in range(len(found)):
        for at in range(len(nodes.devices)):
            if placers.fits(nodes, at, requests, request):
                found[request] = True
                break
    return found


def score_nodes(
    nodes: Nodes, requests: Requests, request: int, placer: str, usual: UsualRequests
) -> tuple[Ints, Ints]:
    """Return a placer's score of each node for a request (-1: no room), and the GPU to be used in part.

    Returns
    -------
    tuple of ndarray of int, shape (N,)
        Scores from 0 to 100, -1 where the request does not fit; devices, -1 where it takes no part of one.
    """
    require_known(placer, placers.PLACERS, "placer", "placer")
    value, device = np.empty((2, len(nodes.devices)), dtype=np.int64)
    _score_all(nodes, requests, request, placers.PLACERS.index(placer), usual, value, device)
    return value, device


@compile_entry
def _score_all(
    nodes: Nodes,
    requests: Requests,
    request: int,
    placer: int,
    usual: UsualRequests,
    value: Ints,
    device: Ints,
) -> None:
    for at in range(len(value)):
        value[at] = placers.score(nodes, at, requests, request, placer, usual, device[at : at + 1])


def place(
    nodes: Nodes, requests: Requests, request: int, placer: str, usual: UsualRequests
) -> PlacedRequest | None:
    """Allocate a request on the node with the best score, and return where; None if it fits nowhere.

    `random-fit` gives all nodes the same score here. None: the request fits nowhere.
    """
    value, device = score_nodes(nodes, requests, request, placer, usual)
    at = int(np.lexsort((nodes.rank, -value))[0])
    if value[at] < 0:
        return None
    return PlacedRequest(at, int(_take(nodes, at, requests, request, int(device[at]))))


@compile_entry
def _take(nodes: Nodes, at: int, requests: Requests, request: int, device: int) -> np.int64:
    return placers.take(nodes, at, requests, request, device)


def release(nodes: Nodes, requests: Requests, request: int, placed: PlacedRequest) -> None:
    """Give back the CPU, memory and GPU that a request holds."""
    _give_back(nodes, placed.node, requests, request, placed.devices)


@compile_entry
def _give_back(nodes: Nodes, at: int, requests: Requests, request: int, devices: int) -> None:
    placers.give_back(nodes, at, requests, request, devices)
