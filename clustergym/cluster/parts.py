"""Nodes whose GPUs can be divided, a cluster of such nodes, and requests for parts.

All amounts are whole numbers.

All GPUs of a divisible cluster are one pool, one GPU type of the simulation: a job's run time is that of its
record whatever node it gets, and the placer alone chooses among the models that a job accepts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustergym.cluster.spec import ClusterSpec, Fabric, GpuType, NodeGroup
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.columns import integers, texts
from clustergym.common.errors import InputError
from clustergym.common.text_files import read_csv

WHOLE = 1000
"""Thousandths of a device."""
CLASSES = 33
"""Classes of requests: 0 asks for a part of a device, n for n whole devices."""


class Nodes(NamedTuple):
    """Total and free CPU, memory and GPU of N nodes with at most D devices (GPUs) each.

    Attributes
    ----------
    model : ndarray of int, shape (N,)
        GPU model, as an index.
    devices : ndarray of int, shape (N,)
    rank : ndarray of int, shape (N,)
        Among nodes of equal score the one of lowest rank is taken.
    most : ndarray of int, shape (2,)
        CPU (thousandths of a core) and GPU (thousandths) of the largest node.
    cpu_milli, memory_mib : ndarray of int, shape (N,)
        Free.
    gpu_milli : ndarray of int, shape (N, D)
        Free on each device; 0 where there is none.
    hosted : ndarray of int, shape (N, CLASSES)
        Requests on the node by class; those without GPUs are not counted.
    version : ndarray of int, shape (N,)
        Counts the changes of the node.
    """

    model: Ints
    devices: Ints
    rank: Ints
    most: Ints
    cpu_milli: Ints
    memory_mib: Ints
    gpu_milli: Ints
    hosted: Ints
    version: Ints

    def copy(self) -> Nodes:
        """Return a copy that shares no memory with the original."""
        return Nodes(*(array.copy() for array in self))

    def with_ranks(self, rank: Ints) -> Nodes:
        """Return a copy in which the nodes have other ranks, by which ties are broken."""
        return self.copy()._replace(rank=rank)

    @property
    def installed_milli(self) -> int:
        """Total of all GPUs, free or not, in thousandths of a GPU."""
        return WHOLE * int(self.devices.sum())


def empty_nodes(cpu_milli: Ints, memory_mib: Ints, devices: Ints, model: Ints) -> Nodes:
    """Return nodes with the given totals, all of it free, ranked in their order.

    Parameters
    ----------
    cpu_milli, memory_mib, devices, model : ndarray of int, shape (N,)
    """
    places = np.arange(int(devices.max(initial=0)))
    return Nodes(
        model=model,
        devices=devices,
        rank=np.arange(len(devices)),
        most=np.array([cpu_milli.max(initial=1), WHOLE * max(len(places), 1)]),
        cpu_milli=cpu_milli.copy(),
        memory_mib=memory_mib.copy(),
        gpu_milli=np.where(places < devices[:, None], WHOLE, 0),
        hosted=np.zeros((len(devices), CLASSES), dtype=np.int64),
        version=np.zeros(len(devices), dtype=np.int64),
    )


class Requests(NamedTuple):
    """CPU, memory and GPU that each of K groups of equal jobs asks for.

    Attributes
    ----------
    cpu_milli, memory_mib : ndarray of int, shape (K,)
    gpus : ndarray of int, shape (K,)
        Devices; 0: none.
    gpu_milli : ndarray of int, shape (K,)
        Thousandths of each device; below 1,000 only where one device is asked for.
    models : ndarray of int, shape (K,)
        Bit m is 1 where GPU model m will do.
    """

    cpu_milli: Ints
    memory_mib: Ints
    gpus: Ints
    gpu_milli: Ints
    models: Ints

    def unpack_row(self, request: int) -> tuple[int, int, int, int, int]:
        """Return row `request`: CPU, memory, GPUs, thousandths of each GPU, and accepted models as bits."""
        cpu, memory, gpus, milli, models = (int(column[request]) for column in self)
        return cpu, memory, gpus, milli, models


def distinct(rows: Requests) -> tuple[Requests, Ints]:
    """Return the distinct requests among the given ones, and for each given one the index of its equal."""
    table = np.stack(rows, axis=1)
    _, first, request = np.unique(table, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(first), dtype=np.int64)
    place[order] = np.arange(len(first))
    return Requests(*table[first[order]].T.copy()), place[request.reshape(-1)]


def encode_models(names: Sequence[str], known: Sequence[str]) -> int:
    """Encode the GPU models that a request accepts as bits of an integer; no names mean all models."""
    return sum(1 << known.index(name) for name in set(names)) if names else (1 << len(known)) - 1


class Place(NamedTuple):
    """Where a request is placed: on a node and, for a fraction of a GPU, on one GPU of it.

    The device is -1 for a request of whole devices, which takes the lowest untouched ones, or of none.
    """

    node: int
    device: int = -1


@dataclass(frozen=True, eq=False)
class Parts:
    """The requests of n jobs for parts of nodes whose GPUs can be divided.

    Attributes
    ----------
    requests : Requests
        The K distinct requests.
    request : ndarray of int, shape (n,)
        Each job's request, a row of `requests`.
    accepted : tuple of str, length n
        Names of the models that each job accepts, joined by `|`; empty: any.
    fits : ndarray of bool, shape (n,)
        Whether an empty node has what the job asks for.
    """

    requests: Requests
    request: Ints
    accepted: tuple[str, ...]
    fits: Bools

    @property
    def rows(self) -> Requests:
        """What each job asks for, in columns of shape (n,)."""
        return Requests(*(column[self.request] for column in self.requests))

    @property
    def gpus(self) -> Floats:
        """GPUs that each job asks for, such as 0.5 for half of one, shape (n,)."""
        return (self.requests.gpus * self.requests.gpu_milli)[self.request] / WHOLE


def fitting(nodes: Nodes, requests: Requests) -> Bools:
    """Return a mask of the requests for which some node has room now, shape (K,)."""
    found = np.zeros(len(requests.gpus), dtype=np.bool_)
    for request in range(len(found)):
        cpu, memory, gpus, milli, models = requests.unpack_row(request)
        room = (nodes.cpu_milli >= cpu) & (nodes.memory_mib >= memory)
        if gpus:
            room &= ((models >> nodes.model) & 1).astype(np.bool_)
            room &= (nodes.gpu_milli >= milli).sum(axis=1) >= gpus
        found[request] = room.any()
    return found


def book(nodes: Nodes, request: tuple[int, int, int, int, int], node: int, devices: int, sign: int) -> None:
    """Take a request's amounts from a node and its GPUs `devices` (bits) if sign is -1; return them if 1."""
    cpu, memory, gpus, milli, _ = request
    nodes.cpu_milli[node] += sign * cpu
    nodes.memory_mib[node] += sign * memory
    nodes.version[node] += 1
    if not gpus:
        return
    nodes.hosted[node, 0 if milli < WHOLE else gpus] -= sign
    for device in range(int(nodes.devices[node])):
        if (devices >> device) & 1:
            nodes.gpu_milli[node, device] += sign * milli


POOL = GpuType("GPU", 1.0, 1.0, None, 1.0, 1.0, "none", 1.0, 1.0)
"""The one GPU type of such a cluster; nothing is computed from its data sheet."""

MOST_GPUS_PER_NODE = CLASSES - 1
MOST_MILLI = 10**9
"""Most thousandths of cores, and MiB, of a node or a request."""


class NodeShape(NamedTuple):
    """A group of adjacent, equal nodes: GPU model, GPUs, CPU and memory of each, and their number.

    Attributes
    ----------
    model : str
        Of their GPUs.
    gpus, cpu_milli, memory_mib : int
        On each node: GPUs, thousandths of a core, MiB.
    nodes : int
    """

    model: str
    gpus: int
    cpu_milli: int
    memory_mib: int
    nodes: int = 1


@dataclass(frozen=True, eq=False)
class DivisibleCluster(ClusterSpec):
    """A cluster on which jobs can hold parts of a node: CPU, memory and fractions of a GPU.

    Attributes
    ----------
    shapes : tuple of NodeShape
        In the order of the nodes.
    """

    shapes: tuple[NodeShape, ...]

    @staticmethod
    def from_shapes(name: str, shapes: tuple[NodeShape, ...]) -> DivisibleCluster:
        """Make a cluster of groups of equal nodes."""
        nodes, most = sum(shape.nodes for shape in shapes), max(shape.gpus for shape in shapes)
        return DivisibleCluster(name, (NodeGroup(POOL, nodes, most),), Fabric(), shapes)

    def _of_nodes(self, column: str) -> Ints:
        values = [getattr(shape, column) for shape in self.shapes]
        return np.repeat(np.array(values, dtype=np.int64), [shape.nodes for shape in self.shapes])

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Sorted names of the GPU models on the cluster's nodes."""
        return tuple(sorted({shape.model for shape in self.shapes if shape.gpus}))

    @property
    def named_types(self) -> tuple[str, ...]:
        """Names of the GPU models that jobs may ask for, although all models count as one GPU type."""
        return self.models

    @cached_property
    def node_gpus(self) -> Ints:
        """Number of GPUs on each node, shape (N,)."""
        return self._of_nodes("gpus")

    @cached_property
    def capacity(self) -> Ints:
        """Number of GPUs of the whole cluster, shape (1,), as all count as one type."""
        return np.array([self.node_gpus.sum()])

    @cached_property
    def most_gpus(self) -> int:
        """Most GPUs that one job can hold: those of the largest node."""
        return int(self.node_gpus.max())

    def empty_nodes(self) -> Nodes:
        """Return the resources of all nodes while no job holds anything."""
        known = {name: row for row, name in enumerate(self.models)}
        model = [known.get(shape.model, 0) for shape in self.shapes]
        return empty_nodes(
            self._of_nodes("cpu_milli"),
            self._of_nodes("memory_mib"),
            self.node_gpus,
            np.repeat(np.array(model, dtype=np.int64), [shape.nodes for shape in self.shapes]),
        )

    def fingerprint(self) -> dict[str, Any]:
        """Return everything that determines the cluster except its name, as plain JSON values."""
        return {"fabric": asdict(self.fabric), "shapes": [list(shape) for shape in self.shapes]}


def read_divisible(path: Path) -> DivisibleCluster:
    """Read a list of nodes in openb's format: CSV with cpu_milli, memory_mib, gpu and model."""
    table = read_csv(path, ["cpu_milli", "memory_mib", "gpu", "model"], optional=["sn"])
    gpus = integers(table, "gpu", low=0, high=MOST_GPUS_PER_NODE)
    if not gpus.any():
        raise InputError("no node has a GPU", file=path, field="gpu", remedy="give a list of GPU nodes")
    cpu = integers(table, "cpu_milli", low=0, high=MOST_MILLI)
    memory = integers(table, "memory_mib", low=0, high=MOST_MILLI)
    columns = texts(table, "model"), gpus.tolist(), cpu.tolist(), memory.tolist()
    shapes = tuple(NodeShape(*row) for row in zip(*columns, strict=True))
    return DivisibleCluster.from_shapes(path.name.partition(".")[0], shapes)
