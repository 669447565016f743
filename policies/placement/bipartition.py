"""Cuts of a graph into two parts at a low weight, by Fiduccia and Mattheyses (DAC '82)."""

from __future__ import annotations

import heapq

import numpy as np

from clustergym.common.arrays import Bools, Ints

Edges = list[tuple[int, int, float]]
"""(node, other node, weight)."""

Neighbours = list[list[tuple[int, float]]]

MOST_PASSES = 10
EPSILON = 1e-9


def bipartition(nodes: Ints, edges: Edges, least: int, most: int) -> Bools:
    """Cut the subgraph of `nodes` into two parts so that the edges between them weigh little.

    Parameters
    ----------
    nodes : ndarray of int, shape (n,)
    edges : list of (node, node, weight)
        Those with an end elsewhere do not count.
    least, most : int
        Nodes of the first part.

    Returns
    -------
    ndarray of bool, shape (n,)
        Whether a node is in the first part, which starts out as the first `most` nodes.
    """
    neighbours = _neighbours(nodes, edges)
    inside = [position < most for position in range(len(nodes))]
    for _ in range(MOST_PASSES):
        if not _improve(neighbours, inside, least, most):
            break
    return np.array(inside, dtype=np.bool_)


def cut_weight(inside: Bools, nodes: Ints, edges: Edges) -> float:
    """Return the weight of the edges between the two parts of `nodes`."""
    side = dict(zip(nodes.tolist(), inside.tolist(), strict=True))
    return sum(w for a, b, w in edges if a in side and b in side and side[a] != side[b])


def _neighbours(nodes: Ints, edges: Edges) -> Neighbours:
    position = {node: index for index, node in enumerate(nodes.tolist())}
    found: Neighbours = [[] for _ in position]
    for a, b, weight in edges:
        if a in position and b in position:
            found[position[a]].append((position[b], weight))
            found[position[b]].append((position[a], weight))
    return found


def _improve(neighbours: Neighbours, inside: list[bool], least: int, most: int) -> bool:
    """Move each node at most once and keep the best prefix of moves; return whether that gained.

    Sizes may be off by one between moves, so that parts of fixed size can swap nodes.
    """
    size, best, best_gain, gained = sum(inside), 0, EPSILON, 0.0
    moves = _moves(neighbours, inside, least, most)
    for number, (node, gain) in enumerate(moves, start=1):
        size += 1 if inside[node] else -1  # The node has been moved by now.
        gained += gain
        if least <= size <= most and gained > best_gain:
            best, best_gain = number, gained
    for node, _ in moves[best:]:
        inside[node] = not inside[node]
    return best > 0


def _moves(neighbours: Neighbours, inside: list[bool], least: int, most: int) -> list[tuple[int, float]]:
    """Move nodes, always the one of greatest gain (ties: lowest index); return the moves and gains."""
    gains = [
        sum(weight if inside[other] != inside[node] else -weight for other, weight in near)
        for node, near in enumerate(neighbours)
    ]
    heaps: dict[bool, list[tuple[float, int]]] = {True: [], False: []}
    for node, gain in enumerate(gains):
        heapq.heappush(heaps[inside[node]], (-gain, node))
    size, moved = sum(inside), [False] * len(gains)
    made: list[tuple[int, float]] = []
    while True:
        sides = [side for side in (True, False) if least - 1 <= size + (-1 if side else 1) <= most + 1]
        tops = [(top, side) for side in sides if (top := _top(heaps[side], gains, moved)) is not None]
        if not tops:
            return made
        (_, node), side = min(tops, key=lambda found: found[0])
        heapq.heappop(heaps[side])
        made.append((node, gains[node]))
        inside[node], moved[node] = not side, True
        size += -1 if side else 1
        for other, weight in neighbours[node]:
            if not moved[other]:
                # An edge to the moved node changes from inside to cut or back, hence twice its weight.
                gains[other] += 2 * weight if inside[other] == side else -2 * weight
                heapq.heappush(heaps[inside[other]], (-gains[other], other))


def _top(heap: list[tuple[float, int]], gains: list[float], moved: list[bool]) -> tuple[float, int] | None:
    # Outdated entries are left in the heap and skipped here.
    while heap and (moved[heap[0][1]] or -heap[0][0] != gains[heap[0][1]]):
        heapq.heappop(heap)
    return heap[0] if heap else None
