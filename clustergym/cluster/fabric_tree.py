"""The switches of a cluster as a tree with equal branches grouped, and a picture of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clustergym.cluster.spec import ClusterSpec, Locality
from clustergym.common.errors import InputError
from clustergym.common.figures import draw_figure

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


MOST_COLUMNS = 20
"""Most leaves to draw one by one; with more, equal minipods, then equal leaves are drawn once."""

COLORS = ("#a6cee3", "#fdbf6f", "#b2df8a", "#fb9a99", "#cab2d6", "#ffff99")
"""Colours of the GPU types, in turn."""

HEIGHTS = {"core": 3.0, "minipod": 2.0, "leaf": 1.0, "domain": 0.5, "nodes": 0.0}


def draw(spec: ClusterSpec, path: Path) -> None:
    """Draw a picture of a cluster's switches and nodes, and write it to a file."""
    shown = columns(minipods(spec))
    leaves = sum(len(minipod.leaves) for minipod in shown)
    size = 3.5 + 1.1 * max(3, leaves), 4.2
    draw_figure(path, size, lambda figure: _Picture(figure.subplots(), spec).draw(shown), "--output")


def columns(runs: Sequence[Minipod]) -> list[Minipod]:
    """Split groups of minipods for a picture into single minipods and leaf switches, as far as they fit."""
    each = [
        Minipod(1, tuple(leaf._replace(leaves=1) for leaf in run.leaves for _ in range(leaf.leaves)))
        for run in runs
        for _ in range(run.minipods)
    ]
    once = [Minipod(1, run.leaves) for run in runs for _ in range(run.minipods)]
    for offered in (each, once):
        if sum(len(minipod.leaves) for minipod in offered) <= MOST_COLUMNS:
            return offered
    if sum(len(run.leaves) for run in runs) > MOST_COLUMNS:
        raise InputError(
            f"more than {MOST_COLUMNS} different leaves do not fit in a picture",
            field="--output",
            remedy="leave it out: the tree in the terminal has no limit",
        )
    return list(runs)


@dataclass
class _Picture:
    axes: Any
    spec: ClusterSpec
    colors: dict[str, str] = field(default_factory=dict)

    def draw(self, shown: Sequence[Minipod]) -> None:
        """Draw the tree of switches from left to right."""
        self.colors = dict(zip(self.spec.gpu_types, cycle(COLORS), strict=False))
        self.axes.axis("off")
        centres, x = [], 0.0
        for minipod in shown:
            centres.append(self._minipod(minipod, x))
            x += len(minipod.leaves) + 0.3
        middle = (centres[0] + centres[-1]) / 2
        for centre in centres:
            self._line((middle, HEIGHTS["core"]), (centre, HEIGHTS["minipod"]))
        self._box(middle, "core", f"core\n{quantify(sum(m.minipods for m in shown), 'minipod')}", "0.8")
        self._tiers(x)

    def _minipod(self, minipod: Minipod, x: float) -> float:
        centre = x + (len(minipod.leaves) - 1) / 2
        for place, leaf in enumerate(minipod.leaves):
            self._line((centre, HEIGHTS["minipod"]), (x + place, HEIGHTS["leaf"]))
            self._leaf(leaf, x + place)
        name = "minipod" if minipod.minipods == 1 else f"{minipod.minipods:,} minipods of"
        self._box(centre, "minipod", f"{name}\n{quantify(minipod.nodes, 'node')}", "0.9")
        return centre

    def _leaf(self, leaf: Leaf, x: float) -> None:
        self._line((x, HEIGHTS["leaf"]), (x, HEIGHTS["nodes"]))
        name = "leaf" if leaf.leaves == 1 else f"{leaf.leaves:,} leaves of"
        self._box(x, "leaf", f"{name}\n{leaf.down_ports:,} down\n{leaf.up_ports:,.4g} up", "0.95")
        if leaf.nodes_per_domain > 1:
            self._box(x, "domain", _domains(leaf).replace(" of ", " of\n", 1), "1.0")
        nodes = f"{quantify(leaf.nodes, 'node')} of\n{leaf.gpus_per_node} {leaf.gpu_type}"
        self._box(x, "nodes", nodes, self.colors[leaf.gpu_type])

    def _tiers(self, width: float) -> None:
        """Write each tier's oversubscription at the left, and a legend of the figures below."""
        rows = {Locality.CROSS: "core", Locality.MINIPOD: "minipod", Locality.LEAF: "leaf"}
        for tier, row in rows.items():
            rate = tier_label(self.spec, tier).replace(", ", "\n", 1)
            self.axes.text(-0.8, HEIGHTS[row], rate, ha="right", va="center", fontsize=8)
        self.axes.set_title(f"{self.spec.name}: {int(self.spec.capacity.sum()):,} GPUs")
        ports = sorted({leaf.port_gbps for run in minipods(self.spec) for leaf in run.leaves})
        rates = ", ".join(f"{rate:g}" for rate in ports)
        note = f"ports of a leaf, each at the rate of its nodes' ports: {rates} Gbit/s"
        self.axes.text(width / 2, -0.55, note, ha="center", va="top", fontsize=8)
        self.axes.set_xlim(-2.6, width)
        self.axes.set_ylim(-0.9, 3.4)

    def _line(self, above: tuple[float, float], below: tuple[float, float]) -> None:
        self.axes.plot([above[0], below[0]], [above[1], below[1]], color="0.5", linewidth=1, zorder=1)

    def _box(self, x: float, row: str, text: str, color: str) -> None:
        box = {"boxstyle": "round,pad=0.25", "facecolor": color, "edgecolor": "0.3"}
        self.axes.text(x, HEIGHTS[row], text, ha="center", va="center", fontsize=7, bbox=box, zorder=2)
