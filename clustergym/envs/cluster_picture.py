"""Draws a square for each GPU of a cluster, inside boxes for its node, leaf switch and spine switch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common.arrays import Ints
from clustergym.envs.rendering import (
    FAINT,
    GAP,
    INK,
    LINE,
    WHITE,
    Picture,
    Pixels,
    Size,
    choose_colour,
    choose_ink,
    measure_width,
)

LARGEST, SMALLEST = 64, 4
"""Pixels of a GPU's square with the gap to the next."""

FREE, DOWN, PROFILING = -1, -2, -3
"""Who holds a GPU, where no job does."""

_COLOURS = {FREE: WHITE, DOWN: INK, PROFILING: FAINT}


class LabelStyle(NamedTuple):
    """How much of the switches' names is written in a picture, and the pixels left between its boxes."""

    leaf: str
    spine: str
    label: int
    padding: int
    gap: int
    node_gap: int


STYLES = (
    LabelStyle("leaf {leaf}: {types}", "spine {spine}", 15, 5, GAP, 4),
    LabelStyle("", "spine {spine}: {types}", 15, 3, 5, 3),
    LabelStyle("", "{spine}", 15, 2, 3, 2),
)
"""From roomy to dense; `make_layout` takes the first that fits."""


class Box(NamedTuple):
    """A rectangle with a label, at a position in pixels."""

    left: int
    top: int
    size: Size
    label: str


@dataclass(frozen=True)
class ClusterLayout:
    """The positions in a picture of all boxes for switches and nodes, and of all squares for GPUs.

    Attributes
    ----------
    square : int
        Pixels of a GPU's square with the gap to the next.
    size : Size
    spines, leaves, nodes : tuple of Box
    left, top, node : ndarray of int, shape (GPUs,)
        Corners of the squares, node after node, and their nodes.
    """

    square: int
    size: Size
    spines: tuple[Box, ...]
    leaves: tuple[Box, ...]
    nodes: tuple[Box, ...]
    left: Ints
    top: Ints
    node: Ints


def node_columns(gpus: int) -> int:
    """Return in how many columns a node's GPUs are drawn in a picture: 2 for 4 GPUs, 4 for 8 or 16."""
    return 1 << -(-(gpus - 1).bit_length() // 2)


def make_layout(cluster: ClusterSpec, most: Size) -> ClusterLayout:
    """Return where a cluster's boxes are in a picture, with GPU squares as large as fit in the size `most`.

    If not even the smallest squares fit, the layout is higher than `most`.
    """
    leaves = _make_leaves(cluster)
    # Squares first, words second: fewer words only where not even the smallest squares fit.
    for style in STYLES:
        tree = _largest(leaves, style, most)
        if tree.size.height <= most.height and tree.size.width <= most.width:
            break
    return tree.layout()


def _largest(leaves: Sequence[_Leaf], style: LabelStyle, most: Size) -> _Tree:
    """Return the layout tree with the largest squares that fit, or with the smallest if none fit."""
    # Bisection: larger squares never make a picture smaller.
    best, low, high = _lowest(leaves, style, SMALLEST, most.width), SMALLEST + 1, LARGEST
    while low <= high:
        square = (low + high) // 2
        tree = _lowest(leaves, style, square, most.width)
        if tree.size.height <= most.height and tree.size.width <= most.width:
            best, low = tree, square + 1
        else:
            high = square - 1
    return best


def _lowest(leaves: Sequence[_Leaf], style: LabelStyle, square: int, most: int) -> _Tree:
    """Return the layout tree of least height, among all numbers of nodes side by side in a leaf's box."""
    # All are tried: labels and line breaks make the height no monotone function of the columns.
    columns = range(1, max(leaf.nodes for leaf in leaves) + 1)
    tries = [_Tree(leaves, style, square, number, most) for number in columns]
    return min(
        [tree for tree in tries if tree.size.width <= most] or tries[:1], key=lambda tree: tree.size.height
    )


class _Leaf(NamedTuple):
    """A leaf switch with equal nodes, as a picture shows it."""

    number: int
    spine: int
    nodes: int
    gpus: int
    gpu_type: str


def _make_leaves(cluster: ClusterSpec) -> list[_Leaf]:
    _, first, nodes = np.unique(cluster.node_leaf, return_index=True, return_counts=True)
    return [
        _Leaf(
            leaf,
            int(cluster.node_minipod[node]),
            int(number),
            int(cluster.node_gpus[node]),
            cluster.gpu_types[cluster.node_type[node]],
        )
        for leaf, (node, number) in enumerate(zip(first, nodes, strict=True))
    ]


class _Tree:
    """The sizes and positions of the boxes of a picture, for a number of nodes side by side in a leaf."""

    def __init__(
        self, leaves: Sequence[_Leaf], style: LabelStyle, square: int, columns: int, most: int
    ) -> None:
        self.style, self.square, self.columns = style, square, columns
        self.members: dict[int, list[_Leaf]] = {}
        for leaf in leaves:
            self.members.setdefault(leaf.spine, []).append(leaf)
        self.inner, self.spine_sizes = [], []
        for spine, members in self.members.items():
            sizes = [self._leaf_size(leaf) for leaf in members]
            places, size = _flow(sizes, most - 2 * style.padding, style.gap)
            self.inner.append(places)
            self.spine_sizes.append(self._around(size, self._spine_label(spine), 12))
        self.places, self.size = _flow(self.spine_sizes, most, style.gap)

    def _spine_label(self, spine: int) -> str:
        types = dict.fromkeys(leaf.gpu_type for leaf in self.members[spine])
        return self.style.spine.format(spine=spine, types=", ".join(types))

    def _leaf_label(self, leaf: _Leaf) -> str:
        return self.style.leaf.format(leaf=leaf.number, types=leaf.gpu_type)

    def _around(self, inner: Size, label: str, size: int) -> Size:
        """Return the size of a box: its content, with the label above."""
        padding = 2 * self.style.padding
        width = max(inner.width, math.ceil(measure_width(label, size)))
        return Size(width + padding, inner.height + padding + (self.style.label if label else 0))

    def _node_size(self, leaf: _Leaf) -> Size:
        columns = node_columns(leaf.gpus)
        return Size(columns * self.square + 1, -(-leaf.gpus // columns) * self.square + 1)

    def _leaf_size(self, leaf: _Leaf) -> Size:
        (wide, high), gap = self._node_size(leaf), self.style.node_gap
        beside = min(self.columns, leaf.nodes)
        inner = Size(beside * (wide + gap) - gap, -(-leaf.nodes // beside) * (high + gap) - gap)
        return self._around(inner, self._leaf_label(leaf), 11)

    def layout(self) -> ClusterLayout:
        """Return the positions of all boxes and squares of the picture."""
        spines, leaves, nodes, lefts, tops = [], [], [], [], []
        for (spine, members), place, size, inner in zip(
            self.members.items(), self.places, self.spine_sizes, self.inner, strict=True
        ):
            spines.append(Box(*place, size, self._spine_label(spine)))
            left, top = self._inside(spines[-1])
            for leaf, (x, y) in zip(members, inner, strict=True):
                leaves.append(Box(left + x, top + y, self._leaf_size(leaf), self._leaf_label(leaf)))
                for node in self._place_nodes(leaf, leaves[-1]):
                    columns, gpus = node_columns(leaf.gpus), np.arange(leaf.gpus)
                    nodes.append(node)
                    lefts.append(node.left + 1 + gpus % columns * self.square)
                    tops.append(node.top + 1 + gpus // columns * self.square)
        node_of = np.repeat(np.arange(len(nodes)), [len(gpus) for gpus in lefts])
        squares = np.concatenate(lefts), np.concatenate(tops), node_of
        return ClusterLayout(self.square, self.size, tuple(spines), tuple(leaves), tuple(nodes), *squares)

    def _inside(self, box: Box) -> tuple[int, int]:
        padding = self.style.padding
        return box.left + padding, box.top + padding + (self.style.label if box.label else 0)

    def _place_nodes(self, leaf: _Leaf, box: Box) -> list[Box]:
        size, beside = self._node_size(leaf), min(self.columns, leaf.nodes)
        left, top = self._inside(box)
        across, down = size.width + self.style.node_gap, size.height + self.style.node_gap
        return [
            Box(left + at % beside * across, top + at // beside * down, size, "") for at in range(leaf.nodes)
        ]


def _flow(sizes: Sequence[Size], most: int, gap: int) -> tuple[list[tuple[int, int]], Size]:
    """Place rectangles side by side in lines of at most `most` pixels; return places and total size."""
    places, left, top, line, width = [], 0, 0, 0, 0
    for size in sizes:
        if left and left + size.width > most:
            left, top, line = 0, top + line + gap, 0
        places.append((left, top))
        line, width = max(line, size.height), max(width, left + size.width)
        left += size.width + gap
    return places, Size(width, top + line)


def draw_switches(picture: Picture, layout: ClusterLayout, left: int, top: int) -> None:
    """Draw the boxes of switches, with their names, and of nodes, with the top left corner at (left, top)."""
    for boxes, fill, line, size in ((layout.spines, WHITE, LINE, 12), (layout.leaves, (247,) * 3, LINE, 11)):
        for box in boxes:
            x, y = left + box.left, top + box.top
            picture.box(x, y, *box.size, fill, line)
            picture.text(x + 4, y + 3, box.label, size, FAINT)
    for node in layout.nodes:
        picture.box(left + node.left, top + node.top, *node.size, LINE)


def fill_squares(pixels: Pixels, layout: ClusterLayout, owners: Ints, left: int, top: int) -> None:
    """Paint the square of each GPU in the colour of the job that holds it, in place.

    Parameters
    ----------
    pixels : ndarray of uint8, shape (height, width, 3)
    owners : ndarray of int, shape (GPUs,)
        Row of a job, or FREE, DOWN or PROFILING.
    """
    colours = np.array(
        [_COLOURS.get(owner) or choose_colour(owner) for owner in owners.tolist()], dtype=np.uint8
    )
    inside = np.arange(layout.square - 1)
    rows = (top + layout.top)[:, None, None] + inside[:, None]
    columns = (left + layout.left)[:, None, None] + inside
    pixels[rows, columns] = colours[:, None, None]


def number_squares(picture: Picture, layout: ClusterLayout, owners: Ints, left: int, top: int) -> None:
    """Write a job's number once across its adjacent squares on each node, if they are wide enough."""
    side = layout.square
    size = min(14, side - 3)
    if size < 8:
        return
    # Squares of one job beside each other in a line; the first line of a node has the number.
    begins = np.flatnonzero(np.diff(owners, prepend=FREE) | np.diff(layout.node, prepend=-1))
    for first, end in zip(begins.tolist(), [*begins[1:].tolist(), len(owners)], strict=True):
        owner, y = int(owners[first]), int(layout.top[first])
        room, width = side * int((layout.top[first:end] == y).sum()), measure_width(str(owner), size)
        if owner >= 0 and width <= room - 2:
            x, middle = left + int(layout.left[first]) + (room - 1) // 2, top + y + (side - 1) // 2
            colour = choose_colour(owner)
            picture.box(x - width // 2, middle - size // 2, width, size, colour)
            picture.text(x, middle, str(owner), size, choose_ink(colour), "mm")
