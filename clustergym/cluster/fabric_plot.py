"""Draw the switches of a cluster as a picture: core, minipods, leaves and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

from clustergym.cluster.fabric_tree import Leaf, Minipod, counted, minipods, tier_label
from clustergym.cluster.spec import ClusterSpec, Locality
from clustergym.common.errors import InputError
from clustergym.common.figures import draw_figure

MOST_COLUMNS = 20
"""Most leaves to draw one by one; with more, equal minipods, then equal leaves are drawn once."""

COLORS = ("#a6cee3", "#fdbf6f", "#b2df8a", "#fb9a99", "#cab2d6", "#ffff99")
"""Colours of the GPU types, in turn."""

HEIGHTS = {"core": 3.0, "minipod": 2.0, "leaf": 1.0, "nodes": 0.0}


def draw(spec: ClusterSpec, path: Path) -> None:
    """Write a picture, see `draw_figure`."""
    shown = columns(minipods(spec))
    leaves = sum(len(minipod.leaves) for minipod in shown)
    size = 3.5 + 1.1 * max(3, leaves), 4.2
    draw_figure(path, size, lambda figure: _Picture(figure.subplots(), spec).draw(shown), "--output")


def columns(runs: Sequence[Minipod]) -> list[Minipod]:
    """Return the columns to draw: every leaf of every minipod, or groups of equal leaves."""
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
            f"more than {MOST_COLUMNS} kinds of leaves do not fit in a picture",
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
        self._box(middle, "core", f"core\n{counted(sum(m.minipods for m in shown), 'minipod')}", "0.8")
        self._tiers(x)

    def _minipod(self, minipod: Minipod, x: float) -> float:
        centre = x + (len(minipod.leaves) - 1) / 2
        for place, leaf in enumerate(minipod.leaves):
            self._line((centre, HEIGHTS["minipod"]), (x + place, HEIGHTS["leaf"]))
            self._leaf(leaf, x + place)
        name = "minipod" if minipod.minipods == 1 else f"{minipod.minipods:,} minipods of"
        self._box(centre, "minipod", f"{name}\n{counted(minipod.nodes, 'node')}", "0.9")
        return centre

    def _leaf(self, leaf: Leaf, x: float) -> None:
        self._line((x, HEIGHTS["leaf"]), (x, HEIGHTS["nodes"]))
        name = "leaf" if leaf.leaves == 1 else f"{leaf.leaves:,} leaves of"
        self._box(x, "leaf", f"{name}\n{leaf.down_ports:,} down\n{leaf.up_ports:,.4g} up", "0.95")
        nodes = f"{counted(leaf.nodes, 'node')} of\n{leaf.gpus_per_node} {leaf.gpu_type}"
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
