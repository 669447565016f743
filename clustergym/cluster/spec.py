"""A cluster: GPU types, nodes, and the switches above them."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from clustergym.common.arrays import Ints

Nodes = tuple[tuple[int, int], ...]
"""(node, GPUs on it) pairs of an allocation, nodes ascending."""


class Locality(enum.IntEnum):
    """The lowest network tier that connects all nodes of a placement; it sets the bandwidth between them.

    In an NVLink domain of several nodes, such as a rack of 72 GPUs, each GPU reaches all others at the rate
    of its link, in its node or not: to be in one domain is to be on one node.
    """

    NODE = 0
    DOMAIN = 0
    LEAF = 1
    MINIPOD = 2
    CROSS = 3


@dataclass(frozen=True)
class GpuType:
    """Data sheet of a GPU type and of the nodes that contain it.

    Attributes
    ----------
    name : str
        Canonical name, as in `A100`.
    fp16_tflops, fp32_tflops : float
        Peak dense throughput, TFLOP/s; fp16 with fp32 accumulation.
    tf32_tflops : float or None
        Peak TF32 throughput; None where the GPU has none.
    memory_gb, memory_gbs : float
        Memory, GB; its bandwidth, GB/s.
    link_kind : str
        GPU link inside a node, as in `nvlink3` or `pcie4`.
    link_gbs : float
        That link, GB/s in one direction per GPU.
    nic_gbps : float
        Line rate of the node's network, Gbit/s.
    nic_per_gpu : bool
        Whether every GPU has a network port of that rate to itself.
    fp8_tflops, fp4_tflops, power_w : float or None
        Peak throughput at these precisions, and the limit of a GPU's power; only `oracle=stack` asks for
        them.
    """

    name: str
    fp16_tflops: float
    fp32_tflops: float
    tf32_tflops: float | None
    memory_gb: float
    memory_gbs: float
    link_kind: str
    link_gbs: float
    nic_gbps: float
    nic_per_gpu: bool = False
    fp8_tflops: float | None = None
    fp4_tflops: float | None = None
    power_w: float | None = None

    def links_by(self, technology: str) -> bool:
        """Return whether the link between a node's GPUs is of a technology, such as `nvlink` or `pcie`."""
        return self.link_kind.startswith(technology)


@dataclass(frozen=True)
class NodeGroup:
    """A group of equal nodes with one GPU type.

    Attributes
    ----------
    gpu_type : GpuType
    nodes, gpus_per_node : int
    nodes_per_domain : int
        Nodes whose GPUs one NVLink domain joins; 1: each node is a domain of its own.
    gang_nodes : int or None
        Nodes of a domain that a gang may count on: the others are spare, and a job that needs more GPUs than
        these have is spread over several domains. None: all.
    """

    gpu_type: GpuType
    nodes: int
    gpus_per_node: int
    nodes_per_domain: int = 1
    gang_nodes: int | None = None

    @property
    def domain_gpus(self) -> int:
        """Number of GPUs that NVLink joins in one domain, those of spare nodes left out."""
        return self.gpus_per_node * (self.gang_nodes or self.nodes_per_domain)


@dataclass(frozen=True)
class Fabric:
    """The network of a cluster: how many nodes share a switch, and how oversubscribed each tier is.

    Attributes
    ----------
    nodes_per_leaf, leaves_per_minipod : int
        Nodes of one type fill leaves in order, leaves fill minipods in order; a leaf
        holds nodes of one type only, and whole NVLink domains: as many as fit, but at least one.
    leaf_oversubscription, spine_oversubscription, core_oversubscription : float
        Factor by which a node's network is slower inside a leaf, inside a minipod,
        and across minipods.
    minipods : int or None
        With a number, the nodes in order are shared out evenly over so many minipods (the
        first ones have one node more where they do not divide), `leaves_per_minipod` does
        not count, and leaves are filled inside each minipod.
    """

    nodes_per_leaf: int = 16
    leaves_per_minipod: int = 8
    leaf_oversubscription: float = 1.0
    spine_oversubscription: float = 1.0
    core_oversubscription: float = 2.0
    minipods: int | None = None


@dataclass(frozen=True, eq=False)
class ClusterSpec:
    """An immutable cluster: groups of equal nodes, and the network between them.

    Attributes
    ----------
    name : str
    groups : tuple of NodeGroup
        One per GPU type; their order is the order of type indices.
    fabric : Fabric
    """

    name: str
    groups: tuple[NodeGroup, ...]
    fabric: Fabric

    @cached_property
    def gpu_types(self) -> tuple[str, ...]:
        """Names of the cluster's GPU types, in the order of type indices."""
        return tuple(group.gpu_type.name for group in self.groups)

    @property
    def named_types(self) -> tuple[str, ...]:
        """Names of GPU types by which a job may ask for GPUs."""
        return self.gpu_types

    @cached_property
    def capacity(self) -> Ints:
        """Number of GPUs of each type, shape (T,)."""
        return np.array([g.nodes * g.gpus_per_node for g in self.groups], dtype=np.int64)

    @cached_property
    def most_gpus(self) -> int:
        """The most GPUs that one job can hold: all those of the largest type."""
        return int(self.capacity.max())

    @cached_property
    def gpus_per_node(self) -> Ints:
        """Number of GPUs on a node of each type, shape (T,)."""
        return np.array([g.gpus_per_node for g in self.groups], dtype=np.int64)

    @cached_property
    def node_type(self) -> Ints:
        """Index of the GPU type of each node, shape (N,)."""
        return np.repeat(np.arange(len(self.groups)), [g.nodes for g in self.groups])

    @cached_property
    def node_gpus(self) -> Ints:
        """Number of GPUs on each node, shape (N,)."""
        return self.gpus_per_node[self.node_type]

    @cached_property
    def node_leaf(self) -> Ints:
        """Index of each node's leaf switch, ascending, shape (N,)."""
        changes = np.flatnonzero(np.diff(self.node_type) | np.diff(self._assigned_minipod)) + 1
        first = np.zeros(len(self.node_type), dtype=np.int64)
        first[changes] = changes
        position = np.arange(len(first)) - np.maximum.accumulate(first)
        each = np.array([group.nodes_per_domain for group in self.groups])
        in_leaf = np.maximum(self.fabric.nodes_per_leaf // each, 1) * each
        opens = position % in_leaf[self.node_type] == 0
        return np.cumsum(opens) - 1

    @cached_property
    def node_domain(self) -> Ints:
        """Index of the NVLink domain (GPUs that NVLink joins) of each node, ascending, shape (N,)."""
        opens = np.flatnonzero(np.diff(self.node_leaf, prepend=-1))
        position = np.arange(len(self.node_leaf)) - np.repeat(
            opens, np.diff(opens, append=len(self.node_leaf))
        )
        each = np.array([group.nodes_per_domain for group in self.groups])
        return np.cumsum(position % each[self.node_type] == 0) - 1

    @cached_property
    def domain_gpus(self) -> Ints:
        """Number of GPUs that a job may count on in one NVLink domain, by GPU type, shape (T,).

        A node whose GPUs NVLink does not join to others is a domain; spare nodes are left out.
        """
        return np.array([group.domain_gpus for group in self.groups], dtype=np.int64)

    @cached_property
    def has_domains(self) -> bool:
        """Whether NVLink joins the GPUs of several nodes."""
        return any(group.nodes_per_domain > 1 for group in self.groups)

    @cached_property
    def node_minipod(self) -> Ints:
        """Index of the minipod (nodes below one spine switch) of each node, ascending, shape (N,)."""
        if self.fabric.minipods is not None:
            return self._assigned_minipod
        return self.node_leaf // self.fabric.leaves_per_minipod

    @cached_property
    def _assigned_minipod(self) -> Ints:
        nodes, minipods = len(self.node_type), self.fabric.minipods or 1
        sizes = np.full(minipods, nodes // minipods)
        sizes[: nodes % minipods] += 1
        return np.repeat(np.arange(minipods), sizes)

    @cached_property
    def _switches(self) -> tuple[list[int], list[int]]:
        # Plain lists: indexing one node at a time is far faster than in an array.
        return self.node_leaf.tolist(), self.node_minipod.tolist()

    @cached_property
    def _domains(self) -> list[int]:
        domains: list[int] = self.node_domain.tolist()
        return domains

    def locality(self, nodes: Nodes) -> Locality:
        """Return the lowest network tier that connects the nodes of (node, GPUs) pairs."""
        if len(nodes) == 1:
            return Locality.NODE
        leaf, minipod = self._switches
        if self.has_domains and len({self._domains[node] for node, _ in nodes}) == 1:
            return Locality.DOMAIN
        if len({leaf[node] for node, _ in nodes}) == 1:
            return Locality.LEAF
        if len({minipod[node] for node, _ in nodes}) == 1:
            return Locality.MINIPOD
        return Locality.CROSS

    def compact_locality(self, gpu_type: int, gpus: int) -> Locality:
        """Return the lowest network tier within which `gpus` GPUs of a type fit on the empty cluster."""
        group = self.groups[gpu_type]
        if gpus <= group.domain_gpus:
            return Locality.NODE
        needed = -(-gpus // group.gpus_per_node)
        in_leaf, in_minipod = self._most_nodes[gpu_type]
        if needed <= in_leaf:
            return Locality.LEAF
        return Locality.MINIPOD if needed <= in_minipod else Locality.CROSS

    @cached_property
    def _most_nodes(self) -> list[tuple[int, int]]:
        """Most nodes of each type below one leaf switch, and in one minipod."""
        mine = [self.node_type == gpu_type for gpu_type in range(len(self.groups))]
        leaf, minipod = self.node_leaf, self.node_minipod
        # Of each domain a gang may count on some nodes only.
        for rows, group in zip(mine, self.groups, strict=True):
            if group.gang_nodes is not None:
                rows[rows] = self.place_in_domain[rows] < group.gang_nodes
        return [
            (int(np.bincount(leaf[rows]).max(initial=0)), int(np.bincount(minipod[rows]).max(initial=0)))
            for rows in mine
        ]

    @cached_property
    def place_in_domain(self) -> Ints:
        """Position of each node within its NVLink domain, counted from 0, shape (N,)."""
        opens = np.flatnonzero(np.diff(self.node_domain, prepend=-1))
        sizes = np.diff(opens, append=len(self.node_domain))
        place: Ints = np.arange(len(self.node_domain)) - np.repeat(opens, sizes)
        return place

    def bandwidth_gbs(self, gpu_type: int, locality: Locality) -> float:
        """Return the bandwidth at a network tier in one direction, GB/s: per GPU in a node, else per node.

        A node whose GPUs each have a port counts all of its ports.
        """
        group = self.groups[gpu_type]
        if locality == Locality.NODE:
            return group.gpu_type.link_gbs
        ports = group.gpus_per_node if group.gpu_type.nic_per_gpu else 1
        fabric = self.fabric
        slowdown = {
            Locality.LEAF: fabric.leaf_oversubscription,
            Locality.MINIPOD: fabric.spine_oversubscription,
            Locality.CROSS: fabric.core_oversubscription,
        }[locality]
        return group.gpu_type.nic_gbps / 8 * ports / slowdown

    def fingerprint(self) -> dict[str, Any]:
        """Return everything that determines the cluster except its name, as plain JSON values."""
        groups = [_without_defaults(asdict(group)) for group in self.groups]
        return {"groups": groups, "fabric": asdict(self.fabric)}


def _without_defaults(group: dict[str, Any]) -> dict[str, Any]:
    """Return a group without keys that most clusters lack, so that these have the digests they always had."""
    plain = {"nodes_per_domain": 1, "gang_nodes": None}
    kept = {key: value for key, value in group.items() if key not in plain or value != plain[key]}
    optional = ("fp8_tflops", "fp4_tflops", "power_w")
    gpu_type = {k: v for k, v in kept["gpu_type"].items() if k not in optional or v is not None}
    return kept | {"gpu_type": gpu_type}
