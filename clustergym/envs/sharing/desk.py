"""One episode of placement of shares, request by request: what is placed where, and what each node would be.

The environment and the training of learned placers play the same desk.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clustergym.cluster.parts import WHOLE, Nodes, Requests
from clustergym.common.arrays import Floats, Ints
from clustergym.envs.sharing.streams import NEVER, Stream
from clustergym.sim.compiled.numba_cache import Direct, compiled_in_place, entry_in_place
from clustergym.sim.parts import placers
from clustergym.sim.parts.fragmentation import Usual, fragments, idle_milli

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

AT, LEFT, USED, REJECTED = range(4)
"""Counts: the arrival in hand, departures so far, thousandths of GPUs allocated, requests rejected."""
UNPLACED, REFUSED = -2, -1
"""In place of a node: the request has not come, or fitted nowhere."""


class Desk(NamedTuple):
    """An episode; K kinds, N nodes, A arrivals, F features.

    Attributes
    ----------
    nodes, kinds, arrivals, leaves_at, usual
        As of `Stream`; the nodes are this episode's own.
    leaving : ndarray of int, shape (A,)
        The arrivals in the order in which they leave.
    installed : ndarray of float, shape (3, N)
        CPU, memory and GPU of each node.
    cpu_per_gpu : ndarray of float, shape (1,)
        CPU over GPU of the usual requests, thousandths over thousandths.
    node, devices : ndarray of int, shape (A,)
        Where each is or was: a node, UNPLACED or REFUSED; bits of its devices.
    counts : ndarray of int, shape (4,)
        AT, LEFT, USED and REJECTED.
    used_sum : ndarray of int, shape (1,)
        Sum over past arrivals of what was allocated after each.
    fragments : ndarray of float, shape (N,)
    features : ndarray of float32, shape (K, F, N)
    device, version : ndarray of int, shape (K, N)
        FGD's device for a part; the version of the node that a row of features is of.
    """

    nodes: Nodes
    kinds: Requests
    arrivals: Ints
    leaves_at: Ints
    usual: Usual
    leaving: Ints
    installed: Floats
    cpu_per_gpu: Floats
    node: Ints
    devices: Ints
    counts: Ints
    used_sum: Ints
    fragments: Floats
    features: npt.NDArray[np.float32]
    device: Ints
    version: Ints


def begun(stream: Stream) -> Desk:
    """Return the desk of a stream at its first request that fits somewhere."""
    desk = laid_out(stream.nodes.copy(), stream.kinds, stream.arrivals, stream.usual)
    leaving = np.argsort(stream.leaves_at, kind="stable")
    desk = desk._replace(leaves_at=_whole(stream.leaves_at), leaving=leaving)
    _begin(desk)
    return desk


def laid_out(nodes: Nodes, requests: Requests, arrivals: Ints, usual: Usual) -> Desk:
    """Return a desk on which nothing is worked out yet, and which no request leaves.

    Parameters
    ----------
    nodes : Nodes
        As they are at the start; they are the desk's, not copied.
    requests : Requests
    arrivals : ndarray of int, shape (A,)
        The kind of each.
    usual : Usual
    """
    # The compiled step is called without a look at the types of its arguments.
    nodes, kinds = Nodes(*map(_whole, nodes)), Requests(*map(_whole, requests))
    cpu, gpus, milli, models = map(_whole, usual[:4])
    usual = Usual(cpu, gpus, milli, models, np.ascontiguousarray(usual.share, np.float64))
    number, shape = len(arrivals), (len(kinds.gpus), len(nodes.devices))
    gpu = (usual.share * usual.gpus * usual.gpu_milli).sum()
    return Desk(
        nodes=nodes,
        kinds=kinds,
        arrivals=_whole(arrivals),
        leaves_at=np.full(number, NEVER),
        usual=usual,
        leaving=np.arange(number),
        installed=np.maximum(1.0, np.stack([nodes.cpu_milli, nodes.memory_mib, WHOLE * nodes.devices])),
        cpu_per_gpu=np.array([(usual.share * usual.cpu_milli)[usual.gpus > 0].sum() / max(gpu, 1.0)]),
        node=np.full(number, UNPLACED),
        devices=np.zeros(number, np.int64),
        counts=np.zeros(4, np.int64),
        used_sum=np.zeros(1, np.int64),
        fragments=np.zeros(shape[1]),
        features=np.zeros((shape[0], len(NAMES), shape[1]), np.float32),
        device=np.full(shape, placers.UNFIT),
        version=np.full(shape, -1),
    )


def _whole(column: Ints) -> Ints:
    return np.ascontiguousarray(column, dtype=np.int64)


def put(desk: Desk, node: int, device: int) -> None:
    """Place the request in hand, on a device if it asks for a part, and go on to the next that fits."""
    _next(desk, node, device)


@entry_in_place
def _begin(desk: Desk) -> None:
    for at in range(len(desk.fragments)):
        desk.fragments[at] = fragments(desk.nodes, at, desk.usual)
    seek(desk)


@entry_in_place
def _put(desk: Desk, node: int, device: int) -> None:
    accept(desk, node, device)
    seek(desk)


_next = Direct(_put)


@compiled_in_place
def accept(desk: Desk, node: int, device: int) -> None:
    """Place the request in hand on a node on which it fits."""
    arrival = desk.counts[AT]
    kind = desk.arrivals[arrival]
    desk.node[arrival] = node
    desk.devices[arrival] = placers.take(desk.nodes, node, desk.kinds, kind, device)
    desk.fragments[node] = fragments(desk.nodes, node, desk.usual)
    desk.counts[USED] += desk.kinds.gpus[kind] * desk.kinds.gpu_milli[kind]
    desk.used_sum[0] += desk.counts[USED]
    desk.counts[AT] += 1


@compiled_in_place
def seek(desk: Desk) -> None:
    """Let requests leave, and reject arrivals, up to the next arrival that fits somewhere."""
    while desk.counts[AT] < len(desk.arrivals):
        arrival = desk.counts[AT]
        _leave(desk, arrival)
        if refresh(desk, desk.arrivals[arrival]):
            return
        desk.node[arrival] = REFUSED
        desk.counts[REJECTED] += 1
        desk.used_sum[0] += desk.counts[USED]
        desk.counts[AT] += 1


@compiled_in_place
def _leave(desk: Desk, arrival: int) -> None:
    while desk.counts[LEFT] < arrival:
        leaver = desk.leaving[desk.counts[LEFT]]
        if desk.leaves_at[leaver] > arrival:
            return
        desk.counts[LEFT] += 1
        node, kind = desk.node[leaver], desk.arrivals[leaver]
        if node >= 0:
            placers.give_back(desk.nodes, node, desk.kinds, kind, desk.devices[leaver])
            desk.fragments[node] = fragments(desk.nodes, node, desk.usual)
            desk.counts[USED] -= desk.kinds.gpus[kind] * desk.kinds.gpu_milli[kind]


@compiled_in_place
def refresh(desk: Desk, kind: int) -> bool:
    """Compute the features of nodes that have changed since this kind last came; return whether it fits."""
    somewhere = False
    for at in range(len(desk.fragments)):
        if desk.version[kind, at] != desk.nodes.version[at]:
            _describe(desk, kind, at)
            desk.version[kind, at] = desk.nodes.version[at]
        somewhere |= desk.features[kind, FITS, at] > 0
    return somewhere


@compiled_in_place
def _untouched(nodes: Nodes, at: int) -> int:
    found = 0
    for device in range(nodes.devices[at]):
        found += nodes.gpu_milli[at, device] == WHOLE
    return found


@compiled_in_place
def _describe(desk: Desk, kind: int, at: int) -> None:
    """Write the features of a node for a kind of request, and the device that FGD would take for a part."""
    nodes, kinds, row, installed = desk.nodes, desk.kinds, desk.features[kind], desk.installed
    devices = max(nodes.devices[at], 1)
    row[:, at] = 0.0
    row[CPU, at] = nodes.cpu_milli[at] / installed[0, at]
    row[MEMORY, at] = nodes.memory_mib[at] / installed[1, at]
    row[GPU, at] = idle_milli(nodes, at) / installed[2, at]
    row[DEVICES, at] = WHOLE * devices / nodes.most[1]
    row[UNTOUCHED, at] = _untouched(nodes, at) / devices
    row[FRAGMENTS, at] = desk.fragments[at] / installed[2, at]
    hosted = nodes.hosted[at].sum()
    if hosted > 0 and kinds.gpus[kind] > 0:
        row[ALIKE, at] = nodes.hosted[at, placers.class_of(kinds, kind)] / hosted
    value = placers.score(nodes, at, kinds, kind, placers.FGD, desk.usual, desk.device[kind, at : at + 1])
    if value >= 0:
        row[FITS, at] = 1.0
        _describe_after(desk, kind, at)


@compiled_in_place
def _describe_after(desk: Desk, kind: int, at: int) -> None:
    """Write what a node would be with the request on it."""
    nodes, row, installed = desk.nodes, desk.features[kind], desk.installed
    device, version = desk.device[kind, at], nodes.version[at]
    taken = placers.occupy(nodes, at, desk.kinds, kind, device)
    idle, left = idle_milli(nodes, at), fragments(nodes, at, desk.usual)
    row[CPU_AFTER, at] = nodes.cpu_milli[at] / installed[0, at]
    row[MEMORY_AFTER, at] = nodes.memory_mib[at] / installed[1, at]
    row[GPU_AFTER, at] = idle / installed[2, at]
    row[UNTOUCHED_AFTER, at] = _untouched(nodes, at) / max(nodes.devices[at], 1)
    if device >= 0:
        row[DEVICE_AFTER, at] = nodes.gpu_milli[at, device] / WHOLE
    row[FRAGMENTS_AFTER, at] = left / installed[2, at]
    row[GROWTH, at] = (left - desk.fragments[at]) / nodes.most[1]
    usual = nodes.cpu_milli[at] / max(idle * desk.cpu_per_gpu[0], 1.0)
    row[BALANCE_AFTER, at] = usual / (1.0 + usual)
    placers.give_back(nodes, at, desk.kinds, kind, taken)
    nodes.version[at] = version
