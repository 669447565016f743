"""Placers of requests for parts of GPUs: each scores the nodes on which a request fits.

A score is a whole number from 0 to 100; the node of the highest one is taken, among equal ones that of the
lowest rank. FGD's paper (section 6, and its simulator) has all six.
"""

from __future__ import annotations

import math

import numpy as np

from clustergym.cluster.parts import WHOLE, Nodes, Requests
from clustergym.common.arrays import Ints
from clustergym.sim.compiled.numba_cache import compiled_in_place
from clustergym.sim.parts.fragmentation import Usual, fragments, idle_milli

PLACERS = ("random-fit", "dot-product", "gpu-clustering", "gpu-packing", "best-fit", "fgd")
RANDOM_FIT, DOT_PRODUCT, GPU_CLUSTERING, GPU_PACKING, BEST_FIT, FGD = range(6)

UNFIT = -1
"""In place of a score: the request does not fit. In place of a device: it takes whole devices, or none."""


@compiled_in_place
def fits(nodes: Nodes, at: int, requests: Requests, kind: int) -> bool:
    """Whether a request fits on a node."""
    if nodes.cpu_milli[at] < requests.cpu_milli[kind] or nodes.memory_mib[at] < requests.memory_mib[kind]:
        return False
    if requests.gpus[kind] == 0:
        return True
    if not (requests.models[kind] >> nodes.model[at]) & 1:
        return False
    fitting = 0
    for device in range(nodes.devices[at]):
        fitting += nodes.gpu_milli[at, device] >= requests.gpu_milli[kind]
    return bool(fitting >= requests.gpus[kind])


@compiled_in_place
def class_of(requests: Requests, kind: int) -> np.int64:
    """Return a request's class: 0 for a part of a device, else its number of devices."""
    return np.int64(0) if requests.gpu_milli[kind] < WHOLE else requests.gpus[kind]


@compiled_in_place
def occupy(nodes: Nodes, at: int, requests: Requests, kind: int, device: int) -> np.int64:
    """Take a request's amounts from a node; return the devices taken, as bits.

    A part is taken from `device`, whole devices from the lowest free ones.
    """
    nodes.cpu_milli[at] -= requests.cpu_milli[kind]
    nodes.memory_mib[at] -= requests.memory_mib[kind]
    left, taken = requests.gpus[kind], np.int64(0)
    if left == 0:
        return taken
    nodes.hosted[at, class_of(requests, kind)] += 1
    if device >= 0:
        nodes.gpu_milli[at, device] -= requests.gpu_milli[kind]
        return np.int64(1) << device
    for place in range(nodes.devices[at]):
        if left and nodes.gpu_milli[at, place] == WHOLE:
            nodes.gpu_milli[at, place] = 0
            taken |= np.int64(1) << place
            left -= 1
    return taken


@compiled_in_place
def take(nodes: Nodes, at: int, requests: Requests, kind: int, device: int) -> np.int64:
    """Allocate a request that fits on a node; return the devices taken, as bits."""
    nodes.version[at] += 1
    return occupy(nodes, at, requests, kind, device)


@compiled_in_place
def give_back(nodes: Nodes, at: int, requests: Requests, kind: int, taken: int | np.int64) -> None:
    """Free what a request has on a node; `taken` has the bits of its devices."""
    nodes.version[at] += 1
    nodes.cpu_milli[at] += requests.cpu_milli[kind]
    nodes.memory_mib[at] += requests.memory_mib[kind]
    if requests.gpus[kind]:
        nodes.hosted[at, class_of(requests, kind)] -= 1
    for place in range(nodes.devices[at]):
        if (taken >> place) & 1:
            nodes.gpu_milli[at, place] += requests.gpu_milli[kind]


@compiled_in_place
def tightest_device(nodes: Nodes, at: int, milli: int) -> int:
    """Return the device with the least that is free and suffices; the lowest of equal ones."""
    best = -1
    for device in range(nodes.devices[at]):
        free = nodes.gpu_milli[at, device]
        if free >= milli and (best < 0 or free < nodes.gpu_milli[at, best]):
            best = device
    return best


@compiled_in_place
def drawn_device(nodes: Nodes, at: int, milli: int, chance: float) -> int:
    """Return one of the devices that suffice, all with the same probability."""
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


@compiled_in_place
def _dot_product(nodes: Nodes, at: int, requests: Requests, kind: int) -> np.int64:
    """Prefer nodes of which the request uses what they have least of."""
    cpu, gpu = float(nodes.most[0]), float(nodes.most[1])
    product = nodes.cpu_milli[at] / cpu * (requests.cpu_milli[kind] / cpu)
    product += idle_milli(nodes, at) / gpu * (requests.gpus[kind] * requests.gpu_milli[kind] / gpu)
    return np.int64(100.0 * (1.0 - product / 2.0))


@compiled_in_place
def _best_fit(nodes: Nodes, at: int, requests: Requests, kind: int) -> np.int64:
    """Prefer nodes on which least is left."""
    cpu = (nodes.cpu_milli[at] - requests.cpu_milli[kind]) / float(nodes.most[0])
    gpu = (idle_milli(nodes, at) - requests.gpus[kind] * requests.gpu_milli[kind]) / float(nodes.most[1])
    return np.int64(100.0 * (1.0 - (0.5 * cpu + 0.5 * gpu)))


@compiled_in_place
def _gpu_clustering(nodes: Nodes, at: int, requests: Requests, kind: int) -> np.int64:
    """Prefer nodes with requests of the same class alone, then among others, then empty ones."""
    if requests.gpus[kind] == 0:
        return np.int64(0)
    most = nodes.most[1]
    used, own = 25 * (most - idle_milli(nodes, at)) // most, class_of(requests, kind)
    hosted = nodes.hosted[at].sum()
    if hosted == 0:
        return np.int64(25 + used)
    if nodes.hosted[at, own] == 0:
        return np.int64(used)
    return np.int64((75 if nodes.hosted[at, own] == hosted else 50) + used)


@compiled_in_place
def _gpu_packing(nodes: Nodes, at: int, requests: Requests, kind: int) -> np.int64:
    """Prefer devices in use, then free devices of nodes in use, then empty nodes of few devices."""
    if requests.gpus[kind] == 0:
        return np.int64(0)
    untouched = np.int64(0)
    for device in range(nodes.devices[at]):
        untouched += nodes.gpu_milli[at, device] == WHOLE
    if untouched == nodes.devices[at]:
        return np.int64(max(33 - untouched, untouched))
    if requests.gpu_milli[kind] == WHOLE:
        return np.int64(max(50 - requests.gpus[kind], 33))
    device = tightest_device(nodes, at, requests.gpu_milli[kind])
    free = nodes.gpu_milli[at, device]
    if free == WHOLE:
        return np.int64(49)
    return np.int64(max(100 - free * 100 // WHOLE // 10, 50))


@compiled_in_place
def _gradient(nodes: Nodes, at: int, requests: Requests, kind: int, device: int, usual: Usual) -> np.int64:
    """Return FGD's score: the less the fragments grow, the higher."""
    before = fragments(nodes, at, usual)
    taken = occupy(nodes, at, requests, kind, device)
    grown = fragments(nodes, at, usual) - before
    version = nodes.version[at]
    give_back(nodes, at, requests, kind, taken)
    nodes.version[at] = version
    return np.int64(100.0 * (1.0 / (1.0 + math.exp(grown / WHOLE))))


@compiled_in_place
def _best_gradient(
    nodes: Nodes, at: int, requests: Requests, kind: int, usual: Usual, device: Ints
) -> np.int64:
    """Return FGD's score of the best device for a part of one, the lowest of equal ones, and write it."""
    best = np.int64(UNFIT)
    for place in range(nodes.devices[at]):
        if nodes.gpu_milli[at, place] >= requests.gpu_milli[kind]:
            found = _gradient(nodes, at, requests, kind, place, usual)
            if found > best:
                best, device[0] = found, place
    return best


@compiled_in_place
def score(
    nodes: Nodes, at: int, requests: Requests, kind: int, placer: int, usual: Usual, device: Ints
) -> np.int64:
    """Return the score of a node for a request, and write the device for a part of one.

    Parameters
    ----------
    placer : int
        RANDOM_FIT, DOT_PRODUCT, …
    device : ndarray of int, shape (1,)
        Receives the device, or UNFIT.
    """
    device[0] = UNFIT
    if not fits(nodes, at, requests, kind):
        return np.int64(UNFIT)
    part = requests.gpus[kind] > 0 and requests.gpu_milli[kind] < WHOLE
    if placer == FGD and part:
        return _best_gradient(nodes, at, requests, kind, usual, device)
    if placer == FGD:
        return _gradient(nodes, at, requests, kind, UNFIT, usual)
    if part:
        device[0] = tightest_device(nodes, at, requests.gpu_milli[kind])
    if placer == DOT_PRODUCT:
        return _dot_product(nodes, at, requests, kind)
    if placer == GPU_CLUSTERING:
        return _gpu_clustering(nodes, at, requests, kind)
    if placer == GPU_PACKING:
        return _gpu_packing(nodes, at, requests, kind)
    if placer == BEST_FIT:
        return _best_fit(nodes, at, requests, kind)
    return np.int64(0)
