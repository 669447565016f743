"""Placers of requests for parts of GPUs: each scores the nodes on which a request fits.

A score is a whole number from 0 to 100; the node of the highest one is taken, among equal ones that of the
lowest rank. FGD's paper (section 6, and its simulator) has all six.

The scores of nodes for distinct requests, which are worked out again only for nodes that have changed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from clustergym.cluster.parts import WHOLE, Nodes, Requests
from clustergym.common.arrays import Floats, Ints
from clustergym.sim.compiled.numba_cache import compile_entry, compile_in_place
from clustergym.sim.parts.fragmentation import UsualRequests, fragments, idle_milli

PLACERS = ("random-fit", "dot-product", "gpu-clustering", "gpu-packing", "best-fit", "fgd")
RANDOM_FIT, DOT_PRODUCT, GPU_CLUSTERING, GPU_PACKING, BEST_FIT, FGD = range(6)

UNFIT = -1
"""In place of a score: the request does not fit. In place of a device: it takes whole devices, or none."""


@compile_in_place
def fits(nodes: Nodes, at: int, requests: Requests, request: int) -> bool:
    """Return whether a node has room for a request."""
    if (
        nodes.cpu_milli[at] < requests.cpu_milli[request]
        or nodes.memory_mib[at] < requests.memory_mib[request]
    ):
        return False
    if requests.gpus[request] == 0:
        return True
    if not (requests.models[request] >> nodes.model[at]) & 1:
        return False
    fitting = 0
    for device in range(nodes.devices[at]):
        fitting += nodes.gpu_milli[at, device] >= requests.gpu_milli[request]
    return bool(fitting >= requests.gpus[request])


@compile_in_place
def classify_request(requests: Requests, request: int) -> np.int64:
    """Return a request's type: 0 for a part of a GPU, else its number of GPUs."""
    return np.int64(0) if requests.gpu_milli[request] < WHOLE else requests.gpus[request]


@compile_in_place
def occupy(nodes: Nodes, at: int, requests: Requests, request: int, device: int) -> np.int64:
    """Subtract a request's resources from a node without marking it as changed; return its devices as bits.

    A part is taken from `device`, whole devices from the lowest free ones.
    """
    nodes.cpu_milli[at] -= requests.cpu_milli[request]
    nodes.memory_mib[at] -= requests.memory_mib[request]
    left, taken = requests.gpus[request], np.int64(0)
    if left == 0:
        return taken
    nodes.hosted[at, classify_request(requests, request)] += 1
    if device >= 0:
        nodes.gpu_milli[at, device] -= requests.gpu_milli[request]
        return np.int64(1) << device
    for place in range(nodes.devices[at]):
        if left and nodes.gpu_milli[at, place] == WHOLE:
            nodes.gpu_milli[at, place] = 0
            taken |= np.int64(1) << place
            left -= 1
    return taken


@compile_in_place
def take(nodes: Nodes, at: int, requests: Requests, request: int, device: int) -> np.int64:
    """Allocate a request that fits on a node; return the devices taken, as bits."""
    nodes.version[at] += 1
    return occupy(nodes, at, requests, request, device)


@compile_in_place
def give_back(nodes: Nodes, at: int, requests: Requests, request: int, taken: int | np.int64) -> None:
    """Give back a request's resources on a node; `taken` has the bits of its devices."""
    nodes.version[at] += 1
    nodes.cpu_milli[at] += requests.cpu_milli[request]
    nodes.memory_mib[at] += requests.memory_mib[request]
    if requests.gpus[request]:
        nodes.hosted[at, classify_request(requests, request)] -= 1
    for place in range(nodes.devices[at]):
        if (taken >> place) & 1:
            nodes.gpu_milli[at, place] += requests.gpu_milli[request]


@compile_in_place
def tightest_device(nodes: Nodes, at: int, milli: int) -> int:
    """Return the device with the least free GPU that is enough, or -1."""
    best = -1
    for device in range(nodes.devices[at]):
        free = nodes.gpu_milli[at, device]
        if free >= milli and (best < 0 or free < nodes.gpu_milli[at, best]):
            best = device
    return best


@compile_in_place
def draw_device(nodes: Nodes, at: int, milli: int, chance: float) -> int:
    """Choose a device with enough free GPU by a random number `chance` from 0 to 1; return -1 if none has."""
    fitting = 0
    for device in range(nodes.devices[at]):
        fitting += nodes.gpu_milli[at, device] >= milli
    left = int(chance * fitting)
    for device in range(nodes.devices[at]):
        if nodes.gpu_milli[at, device] >= milli:
            if left == 0:
                return device
            left -= 1
    return -1


@compile_in_place
def _dot_product(nodes: Nodes, at: int, requests: Requests, request: int) -> np.int64:
    """Score a node by the dot product of the request and the node's free resources."""
    cpu, gpu = float(nodes.most[0]), float(nodes.most[1])
    product = nodes.cpu_milli[at] / cpu * (requests.cpu_milli[request] / cpu)
    product += idle_milli(nodes, at) / gpu * (requests.gpus[request] * requests.gpu_milli[request] / gpu)
    # The smaller the product, the higher the score: nodes with little free of what the request uses go first.
    return np.int64(100.0 * (1.0 - product / 2.0))


@compile_in_place
def _best_fit(nodes: Nodes, at: int, requests: Requests, request: int) -> np.int64:
    """Score a node: the higher, the less would be left free on it."""
    cpu = (nodes.cpu_milli[at] - requests.cpu_milli[request]) / float(nodes.most[0])
    gpu = (idle_milli(nodes, at) - requests.gpus[request] * requests.gpu_milli[request]) / float(
        nodes.most[1]
    )
    return np.int64(100.0 * (1.0 - (0.5 * cpu + 0.5 * gpu)))


@compile_in_place
def _gpu_clustering(nodes: Nodes, at: int, requests: Requests, request: int) -> np.int64:
    """Score a node: best with requests of the same type only, then among others, then empty."""
    if requests.gpus[request] == 0:
        return np.int64(0)
    most = nodes.most[1]
    used, own = 25 * (most - idle_milli(nodes, at)) // most, classify_request(requests, request)
    hosted = nodes.hosted[at].sum()
    if hosted == 0:
        return np.int64(25 + used)
    if nodes.hosted[at, own] == 0:
        return np.int64(used)
    return np.int64((75 if nodes.hosted[at, own] == hosted else 50) + used)


@compile_in_place
def _gpu_packing(nodes: Nodes, at: int, requests: Requests, request: int) -> np.int64:
    """Score a node: best if devices in use suffice, then if others are in use, then if empty."""
    if requests.gpus[request] == 0:
        return np.int64(0)
    untouched = np.int64(0)
    for device in range(nodes.devices[at]):
        untouched += nodes.gpu_milli[at, device] == WHOLE
    if untouched == nodes.devices[at]:
        return np.int64(max(33 - untouched, untouched))
    if requests.gpu_milli[request] == WHOLE:
        return np.int64(max(50 - requests.gpus[request], 33))
    device = tightest_device(nodes, at, requests.gpu_milli[request])
    free = nodes.gpu_milli[at, device]
    if free == WHOLE:
        return np.int64(49)
    return np.int64(max(100 - free * 100 // WHOLE // 10, 50))


@compile_in_place
def _gradient(
    nodes: Nodes, at: int, requests: Requests, request: int, device: int, usual: UsualRequests
) -> np.int64:
    """Return FGD's score of a node: the higher, the less unusable idle GPU grows."""
    before = fragments(nodes, at, usual)
    taken = occupy(nodes, at, requests, request, device)
    grown = fragments(nodes, at, usual) - before
    # Tried and undone: the node is as before, so that scores which are known of it stay known.
    version = nodes.version[at]
    give_back(nodes, at, requests, request, taken)
    nodes.version[at] = version
    # A sigmoid of the growth in GPUs, cut to a whole number: near zero many placements score alike, and ranks
    # decide.
    return np.int64(100.0 * (1.0 / (1.0 + math.exp(grown / WHOLE))))


@compile_in_place
def _best_gradient(
    nodes: Nodes, at: int, requests: Requests, request: int, usual: UsualRequests, device: Ints
) -> np.int64:
    """Return FGD's score of the best device for a part of one, the lowest of equal ones, and write it."""
    best = np.int64(UNFIT)
    for place in range(nodes.devices[at]):
        if nodes.gpu_milli[at, place] >= requests.gpu_milli[request]:
            found = _gradient(nodes, at, requests, request, place, usual)
            if found > best:
                best, device[0] = found, place
    return best


@compile_in_place
def score(
    nodes: Nodes, at: int, requests: Requests, request: int, placer: int, usual: UsualRequests, device: Ints
) -> np.int64:
    """Return a placer's score of a node; write to `device` which GPU a request for part of one would get.

    Parameters
    ----------
    placer : int
        RANDOM_FIT, DOT_PRODUCT, …
    device : ndarray of int, shape (1,)
        Receives the device, or UNFIT.
    """
    device[0] = UNFIT
    if not fits(nodes, at, requests, request):
        return np.int64(UNFIT)
    part = requests.gpus[request] > 0 and requests.gpu_milli[request] < WHOLE
    if placer == FGD and part:
        return _best_gradient(nodes, at, requests, request, usual, device)
    if placer == FGD:
        return _gradient(nodes, at, requests, request, UNFIT, usual)
    if part:
        device[0] = tightest_device(nodes, at, requests.gpu_milli[request])
    if placer == DOT_PRODUCT:
        return _dot_product(nodes, at, requests, request)
    if placer == GPU_CLUSTERING:
        return _gpu_clustering(nodes, at, requests, request)
    if placer == GPU_PACKING:
        return _gpu_packing(nodes, at, requests, request)
    if placer == BEST_FIT:
        return _best_fit(nodes, at, requests, request)
    return np.int64(0)


class KnownScores(NamedTuple):
    """Cached scores of nodes by request, each with the version of the node that it was computed for."""

    value: Ints
    device: Ints
    version: Ints


def no_scores(requests: Requests, nodes: Nodes) -> KnownScores:
    """Return an empty cache of scores of nodes."""
    return KnownScores(*(np.full((len(requests.gpus), len(nodes.devices)), UNFIT) for _ in range(3)))


@compile_in_place
def refresh(
    nodes: Nodes,
    requests: Requests,
    request: int,
    placer: int,
    usual: UsualRequests,
    scores: KnownScores,
    device: Ints,
) -> None:
    """Recompute cached scores of a request on nodes changed since then; `device` is working memory."""
    for at in range(len(nodes.devices)):
        if scores.version[request, at] != nodes.version[at]:
            scores.value[request, at] = score(nodes, at, requests, request, placer, usual, device)
            scores.device[request, at] = device[0]
            scores.version[request, at] = nodes.version[at]


@compile_in_place
def best(values: Ints, rank: Ints) -> int:
    """Return the node with the highest score, the lowest rank among equal ones; -1 if none fits."""
    best = -1
    for at in range(len(values)):
        if values[at] < 0:
            continue
        if best < 0 or values[at] > values[best] or (values[at] == values[best] and rank[at] < rank[best]):
            best = at
    return best


@compile_in_place
def draw_node(values: Ints, chance: float) -> int:
    """Choose one of the nodes on which a request fits, given a random number `chance`; -1 if none."""
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


@compile_entry
def best_place(
    nodes: Nodes,
    requests: Requests,
    request: int,
    placer: int,
    usual: UsualRequests,
    scores: KnownScores,
    chances: Floats,
) -> tuple[int, int]:
    """Return the node that a placer chooses (-1: none), and which GPU of it a request for part of one gets.

    Parameters
    ----------
    placer : int
        Position in `clustergym.sim.parts.placers.PLACERS`.
    chances : ndarray of float, shape (2,)
        Between 0 and 1: what `random-fit` draws the node and the device by.
    """
    device = np.empty(1, np.int64)
    refresh(nodes, requests, request, placer, usual, scores, device)
    if placer != RANDOM_FIT:
        at = best(scores.value[request], nodes.rank)
        return at, (scores.device[request, at] if at >= 0 else -1)
    at = draw_node(scores.value[request], chances[0])
    if at < 0 or scores.device[request, at] < 0:
        return at, -1
    return at, draw_device(nodes, at, requests.gpu_milli[request], chances[1])
