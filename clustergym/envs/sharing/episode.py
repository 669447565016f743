"""An episode of placing requests for parts of GPUs one by one, and the learned placer's choice in it.

The environment and the training of learned placers play it by the same functions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clustergym.cluster.parts import WHOLE, Nodes, Requests
from clustergym.common.arrays import Floats, Ints
from clustergym.envs.sharing.streams import Stream
from clustergym.sim.compiled.numba_cache import Direct, compile_in_place, entry_in_place
from clustergym.sim.parts import placers
from clustergym.sim.parts.fragmentation import UsualRequests, fragments, idle_milli

NAMES = (
    "alike",
    "balance_after",
    "cpu",
    "cpu_after",
    "device_after",
    "devices",
    "fits",
    "fragments",
    "fragments_after",
    "gpu",
    "gpu_after",
    "growth",
    "memory",
    "memory_after",
    "untouched",
    "untouched_after",
)
"""Features of a node for a request (`clustergym.envs.sharing.environment` says what each is)."""
ALIKE, BALANCE_AFTER, CPU, CPU_AFTER, DEVICE_AFTER, DEVICES, FITS, FRAGMENTS = range(8)
FRAGMENTS_AFTER, GPU, GPU_AFTER, GROWTH, MEMORY, MEMORY_AFTER, UNTOUCHED, UNTOUCHED_AFTER = range(8, 16)

AT, USED, REJECTED = range(3)
"""Counts: the arrival in hand, thousandths of GPUs allocated, requests rejected."""
UNPLACED, REFUSED = -2, -1
"""In place of a node: the request has not come, or fitted nowhere."""


class SharingEpisode(NamedTuple):
    """The state of an episode as arrays, for compiled code: requests, nodes, and what is placed where.

    Attributes
    ----------
    nodes, requests, arrivals, usual
        As of `Stream`; the nodes are this episode's own.
    installed : ndarray of float, shape (3, N)
        CPU, memory and GPU of each node.
    cpu_per_gpu : ndarray of float, shape (1,)
        CPU over GPU of the usual requests, thousandths over thousandths.
    node, devices : ndarray of int, shape (A,)
        Where each is: a node, UNPLACED or REFUSED; bits of its devices.
    counts : ndarray of int, shape (3,)
        AT, USED and REJECTED.
    fragments : ndarray of float, shape (N,)
    features : ndarray of float32, shape (K, N, F)
        A node's features are side by side, as they are written together.
    device, version : ndarray of int, shape (K, N)
        FGD's device for a part; the version of the node that a row of features is of.
    """

    nodes: Nodes
    requests: Requests
    arrivals: Ints
    usual: UsualRequests
    installed: Floats
    cpu_per_gpu: Floats
    node: Ints
    devices: Ints
    counts: Ints
    fragments: Floats
    features: npt.NDArray[np.float32]
    device: Ints
    version: Ints


def start_episode(stream: Stream) -> SharingEpisode:
    """Make the episode of a stream of requests, advanced to its first request that fits on a node."""
    episode = make_empty_episode(stream.nodes.copy(), stream.requests, stream.arrivals, stream.usual)
    _begin(episode)
    return episode


def make_empty_episode(
    nodes: Nodes, requests: Requests, arrivals: Ints, usual: UsualRequests
) -> SharingEpisode:
    """Make an episode with nothing placed; `usual` are the most frequent requests.

    Parameters
    ----------
    nodes : Nodes
        As they are at the start; they are the episode's, not copied.
    requests : Requests
    arrivals : ndarray of int, shape (A,)
        Index of the distinct request of each.
    usual : UsualRequests
    """
    # The compiled step is called without a look at the types of its arguments.
    nodes, requests = Nodes(*map(_whole, nodes)), Requests(*map(_whole, requests))
    cpu, gpus, milli, models = map(_whole, usual[:4])
    usual = UsualRequests(cpu, gpus, milli, models, np.ascontiguousarray(usual.share, np.float64))
    number, shape = len(arrivals), (len(requests.gpus), len(nodes.devices))
    gpu = (usual.share * usual.gpus * usual.gpu_milli).sum()
    return SharingEpisode(
        nodes=nodes,
        requests=requests,
        arrivals=_whole(arrivals),
        usual=usual,
        installed=np.maximum(1.0, np.stack([nodes.cpu_milli, nodes.memory_mib, WHOLE * nodes.devices])),
        cpu_per_gpu=np.array([(usual.share * usual.cpu_milli)[usual.gpus > 0].sum() / max(gpu, 1.0)]),
        node=np.full(number, UNPLACED),
        devices=np.zeros(number, np.int64),
        counts=np.zeros(3, np.int64),
        fragments=np.zeros(shape[1]),
        features=np.zeros((*shape, len(NAMES)), np.float32),
        device=np.full(shape, placers.UNFIT),
        version=np.full(shape, -1),
    )


def _whole(column: Ints) -> Ints:
    return np.ascontiguousarray(column, dtype=np.int64)


def put(episode: SharingEpisode, node: int, device: int) -> None:
    """Place the current request on a node, on `device` if it asks for part of a GPU; advance to the next."""
    _next(episode, node, device)


@entry_in_place
def _begin(episode: SharingEpisode) -> None:
    for at in range(len(episode.fragments)):
        episode.fragments[at] = fragments(episode.nodes, at, episode.usual)
    seek(episode)


@entry_in_place
def _put(episode: SharingEpisode, node: int, device: int) -> None:
    accept(episode, node, device)
    seek(episode)


_next = Direct(_put)


@compile_in_place
def accept(episode: SharingEpisode, node: int, device: int) -> None:
    """Place the current request on a node where it fits, and count it as served; `seek` finds the next."""
    arrival = episode.counts[AT]
    request = episode.arrivals[arrival]
    episode.node[arrival] = node
    episode.devices[arrival] = placers.take(episode.nodes, node, episode.requests, request, device)
    episode.fragments[node] = fragments(episode.nodes, node, episode.usual)
    episode.counts[USED] += episode.requests.gpus[request] * episode.requests.gpu_milli[request]
    episode.counts[AT] += 1


@compile_in_place
def seek(episode: SharingEpisode) -> None:
    """Advance to the next request that fits on a node, and reject those that fit on none."""
    while episode.counts[AT] < len(episode.arrivals):
        arrival = episode.counts[AT]
        if refresh(episode, episode.arrivals[arrival]):
            return
        episode.node[arrival] = REFUSED
        episode.counts[REJECTED] += 1
        episode.counts[AT] += 1


@compile_in_place
def refresh(episode: SharingEpisode, request: int) -> bool:
    """Recompute a request's features on nodes that have changed; return whether it fits on any node."""
    somewhere = False
    for at in range(len(episode.fragments)):
        if episode.version[request, at] != episode.nodes.version[at]:
            _describe(episode, request, at)
            episode.version[request, at] = episode.nodes.version[at]
        somewhere |= episode.features[request, at, FITS] > 0
    return somewhere


@compile_in_place
def _count_untouched(nodes: Nodes, at: int) -> int:
    found = 0
    for device in range(nodes.devices[at]):
        found += nodes.gpu_milli[at, device] == WHOLE
    return found


@compile_in_place
def _describe(episode: SharingEpisode, request: int, at: int) -> None:
    """Write a node's features for a request, and the device FGD's rule would take for a part of a GPU."""
    nodes, requests, row, installed = (
        episode.nodes,
        episode.requests,
        episode.features[request, at],
        episode.installed,
    )
    devices = max(nodes.devices[at], 1)
    row[:] = 0.0
    row[CPU] = nodes.cpu_milli[at] / installed[0, at]
    row[MEMORY] = nodes.memory_mib[at] / installed[1, at]
    row[GPU] = idle_milli(nodes, at) / installed[2, at]
    row[DEVICES] = WHOLE * devices / nodes.most[1]
    row[UNTOUCHED] = _count_untouched(nodes, at) / devices
    row[FRAGMENTS] = episode.fragments[at] / installed[2, at]
    hosted = nodes.hosted[at].sum()
    if hosted > 0 and requests.gpus[request] > 0:
        row[ALIKE] = nodes.hosted[at, placers.classify_request(requests, request)] / hosted
    value = placers.score(
        nodes, at, requests, request, placers.FGD, episode.usual, episode.device[request, at : at + 1]
    )
    if value >= 0:
        row[FITS] = 1.0
        _describe_placed_node(episode, request, at)


@compile_in_place
def _describe_placed_node(episode: SharingEpisode, request: int, at: int) -> None:
    """Write the features of a node as it would be with the request on it."""
    nodes, row, installed = episode.nodes, episode.features[request, at], episode.installed
    # The request is put on the node and taken off again, so that `after` is shown by the rule itself and no
    # second formula; the node's version is put back, as nothing has changed.
    device, version = episode.device[request, at], nodes.version[at]
    taken = placers.occupy(nodes, at, episode.requests, request, device)
    idle, left = idle_milli(nodes, at), fragments(nodes, at, episode.usual)
    row[CPU_AFTER] = nodes.cpu_milli[at] / installed[0, at]
    row[MEMORY_AFTER] = nodes.memory_mib[at] / installed[1, at]
    row[GPU_AFTER] = idle / installed[2, at]
    row[UNTOUCHED_AFTER] = _count_untouched(nodes, at) / max(nodes.devices[at], 1)
    if device >= 0:
        row[DEVICE_AFTER] = nodes.gpu_milli[at, device] / WHOLE
    row[FRAGMENTS_AFTER] = left / installed[2, at]
    row[GROWTH] = (left - episode.fragments[at]) / nodes.most[1]
    # CPU left for each GPU left, over what usual requests take, as x / (1 + x): 0.5 is a balanced node.
    usual = nodes.cpu_milli[at] / max(idle * episode.cpu_per_gpu[0], 1.0)
    row[BALANCE_AFTER] = usual / (1.0 + usual)
    placers.give_back(nodes, at, episode.requests, request, taken)
    nodes.version[at] = version


CLASSES = ("no GPU", "part", "one GPU", "several GPUs")
SHAPE = (len(CLASSES), len(NAMES))
"""Of the weights."""


@compile_in_place
def classify_request(requests: Requests, request: int) -> int:
    """Return the type of a request as a number: 0 CPU alone, 1 part of a GPU, 2 one GPU, 3 several GPUs."""
    if requests.gpus[request] == 0:
        return 0
    if requests.gpu_milli[request] < WHOLE:
        return 1
    return 2 if requests.gpus[request] == 1 else 3


@entry_in_place
def choose(episode: SharingEpisode, weights: Floats) -> int:
    """Return the node with the greatest sum of features x weights[request's type]; -1 if none fits."""
    request = episode.arrivals[episode.counts[AT]]
    own, rank, best, most = weights[classify_request(episode.requests, request)], episode.nodes.rank, -1, 0.0
    for at in range(len(rank)):
        if episode.features[request, at, FITS] == 0.0:
            continue
        score = 0.0
        for feature in range(len(own)):
            score += own[feature] * episode.features[request, at, feature]
        # Equal scores go to the node of lower rank, as with every placer: no order of floating-point sums
        # decides.
        if best < 0 or score > most or (score == most and rank[at] < rank[best]):
            best, most = at, score
    return best


@entry_in_place
def play(episode: SharingEpisode, weights: Floats) -> None:
    """Place all remaining requests, each on the node with the highest weighted sum of features."""
    while episode.counts[AT] < len(episode.arrivals):
        node = choose(episode, weights)
        accept(episode, node, episode.device[episode.arrivals[episode.counts[AT]], node])
        seek(episode)


@entry_in_place
def answer(episode: SharingEpisode, weights: Floats, arrival: int, noted: Ints) -> int:
    """Return the best node for request number `arrival`, or -1, after updating nodes changed since `noted`.

    Parameters
    ----------
    noted : ndarray of int, shape (N,)
        Versions of the nodes that `episode.fragments` is of; -1: of none. Brought up to date.
    """
    for at in range(len(noted)):
        # Only of nodes that something has happened on since the last answer.
        if noted[at] != episode.nodes.version[at]:
            episode.fragments[at] = fragments(episode.nodes, at, episode.usual)
            noted[at] = episode.nodes.version[at]
    episode.counts[AT] = arrival
    return choose(episode, weights) if refresh(episode, episode.arrivals[arrival]) else -1
