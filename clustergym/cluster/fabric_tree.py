"""The switches of a cluster as a tree with equal branches grouped."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clustergym.cluster.spec import ClusterSpec, Locality

if TYPE_CHECKING:
    from rich.tree import Tree


class Leaf(NamedTuple):
    """A group of adjacent, equal leaf switches, with the nodes and ports of each.

    Attributes
    ----------
    leaves : int
    nodes : int
        Nodes of each leaf.
    gpu_type : str
    gpus_per_node : int
    ports : int
        Network ports of each node.
    port_gbps : float
        Line rate of a port, Gbit/s.
    spine_oversubscription : float
    nodes_per_domain : int
        Nodes that an NVLink domain joins; 1: each node is one.
    """

    leaves: int
    nodes: int
    gpu_type: str
    gpus_per_node: int
    ports: int
    port_gbps: float
    spine_oversubscription: float
    nodes_per_domain: int = 1

    @property
    def down_ports(self) -> int:
        """Number of ports from a leaf down to its nodes."""
        return self.nodes * self.ports

    @property
    def up_ports(self) -> float:
        """Number of ports from a leaf up to the spine, each as fast as a node's port."""
        return self.down_ports / self.spine_oversubscription


class Minipod(NamedTuple):
    """A group of adjacent, equal minipods (nodes below a spine switch), each with the same leaf switches."""

    minipods: int
    leaves: tuple[Leaf, ...]

    @property
    def nodes(self) -> int:
        """Number of nodes in one minipod."""
        return sum(leaf.leaves * leaf.nodes for leaf in self.leaves)

    @property
    def gpus(self) -> int:
        """Number of GPUs in one minipod."""
        return sum(leaf.leaves * leaf.nodes * leaf.gpus_per_node for leaf in self.leaves)

    def up_gbps(self, core_oversubscription: float) -> float:
        """Return the bandwidth from one minipod up to the core switches, in Gbit/s."""
        below = sum(leaf.leaves * leaf.down_ports * leaf.port_gbps for leaf in self.leaves)
        return below / core_oversubscription


def minipods(spec: ClusterSpec) -> list[Minipod]:
    """Return the minipods (groups of nodes below a spine switch) of a cluster; equal ones are grouped."""
    single = [_minipod(spec, number) for number in range(int(spec.node_minipod[-1]) + 1)]
    return [Minipod(len(list(run)), leaves) for leaves, run in groupby(single)]


def _minipod(spec: ClusterSpec, number: int) -> tuple[Leaf, ...]:
    mine = np.flatnonzero(spec.node_minipod == number)
    first, sizes = np.unique(spec.node_leaf[mine], return_index=True, return_counts=True)[1:]
    found = []
    for (gpu_type, nodes), run in groupby(
        zip(spec.node_type[mine[first]].tolist(), sizes.tolist(), strict=True)
    ):
        group = spec.groups[gpu_type]
        ports = group.gpus_per_node if group.gpu_type.nic_per_gpu else 1
        leaf = (group.gpu_type.name, group.gpus_per_node, ports, group.gpu_type.nic_gbps)
        factor = spec.fabric.spine_oversubscription
        found.append(Leaf(len(list(run)), nodes, *leaf, factor, group.nodes_per_domain))
    return tuple(found)


def tier_label(spec: ClusterSpec, tier: Locality) -> str:
    """Return a text with a network tier's oversubscription, and a node's bandwidth through it."""
    factor = {
        Locality.LEAF: spec.fabric.leaf_oversubscription,
        Locality.MINIPOD: spec.fabric.spine_oversubscription,
        Locality.CROSS: spec.fabric.core_oversubscription,
    }[tier]
    rates = sorted({spec.bandwidth_gbs(gpu_type, tier) for gpu_type in range(len(spec.groups))})
    shown = " to ".join(f"{rate:,.4g}" for rate in dict.fromkeys((rates[0], rates[-1])))
    return f"{factor:g}:1, {shown} GB/s a node"


def quantify(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun in singular or plural, such as `2 nodes`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def text_tree(spec: ClusterSpec) -> Tree:
    """Return a cluster's switches and nodes as a tree of text for the terminal."""
    from rich.markup import escape
    from rich.tree import Tree

    core = tier_label(spec, Locality.CROSS)
    drawn = Tree(escape(f"{spec.name}: {int(spec.capacity.sum()):,} GPUs; core {core}"))
    spine, leaves = tier_label(spec, Locality.MINIPOD), tier_label(spec, Locality.LEAF)
    for run in minipods(spec):
        each = " of" if run.minipods > 1 else ":"
        inside = f"{quantify(run.minipods, 'minipod')}{each} {quantify(run.nodes, 'node')}, {run.gpus:,} GPUs"
        up = f"{run.up_gbps(spec.fabric.core_oversubscription) / 1000:,.4g} Tbit/s up"
        branch = drawn.add(f"{inside}; spine {spine}; {up}")
        for leaf in run.leaves:
            branch.add(escape(_leaf_text(leaf)))
    drawn.add(f"inside a leaf {leaves}")
    return drawn


def _leaf_text(leaf: Leaf) -> str:
    each = " of" if leaf.leaves > 1 else ":"
    ports = f"ports of {leaf.port_gbps:g} Gbit/s: {leaf.down_ports:,} down, {leaf.up_ports:,.4g} up"
    nodes = f"{quantify(leaf.nodes, 'node')} of {leaf.gpus_per_node} {leaf.gpu_type}"
    if leaf.nodes_per_domain > 1:
        nodes += f" in {_domains(leaf)}"
    return f"{quantify(leaf.leaves, 'leaf', 'leaves')}{each} {nodes}; {ports}"


def _domains(leaf: Leaf) -> str:
    """Return the NVLink domains of a leaf in words."""
    domains, most = -(-leaf.nodes // leaf.nodes_per_domain), min(leaf.nodes, leaf.nodes_per_domain)
    each = "" if domains == 1 else "up to " if leaf.nodes % leaf.nodes_per_domain else ""
    return f"{quantify(domains, 'NVLink domain')} of {each}{most * leaf.gpus_per_node} GPUs"
