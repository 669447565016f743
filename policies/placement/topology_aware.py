"""Topology-aware placement: dual recursive bi-partitioning of the job and of the minipods.

Source: Amaral et al. (SC '17), a baseline of Arnold's; each cut of the job is refined by Fiduccia and
Mattheyses (DAC '82).
"""

from __future__ import annotations

import heapq

import numpy as np

from clustergym.common.arrays import Bools, Ints
from clustergym.scenario.placement_problem import Assignment, Instance


def solve(instance: Instance, rng: np.random.Generator | None = None) -> Assignment:
    """Place a job by repeated bipartition of its communication graph; `rng` is not used.

    The job is the graph of its communication matrix: edges join neighbouring stages of a row and neighbours
    in the ring of a column, all with the same weight. The weight of each type of group in the score (alpha)
    comes from Arnold's characterisation, which this baseline does not know. The minipods, by descending free
    nodes, are halved again and again; a part of the job that fits in one half stays whole (in the tighter
    one), otherwise the roomier half is filled and the cut made light.
    """
    edges = _edges(instance)
    minipod = np.full(instance.job.nodes, -1, dtype=np.int64)
    order = np.argsort(-instance.free_nodes, kind="stable")
    open_parts = [(np.arange(instance.job.nodes, dtype=np.int64), order)]
    while open_parts:
        nodes, minipods = open_parts.pop()
        if len(minipods) == 1:
            minipod[nodes] = minipods[0]
        else:
            open_parts += _halve(nodes, minipods, instance.free_nodes, edges, instance.group_nodes)
    counts = np.zeros((instance.groups, instance.minipods), dtype=np.int64)
    np.add.at(counts, (np.arange(instance.job.nodes) // instance.group_nodes, minipod), 1)
    return Assignment(counts)


def _halve(
    nodes: Ints, minipods: Ints, free: Ints, edges: Edges, group_nodes: int
) -> list[tuple[Ints, Ints]]:
    """Cut a part of the job in two: the lighter of cuts started along groups and across groups."""
    first, second = np.array_split(minipods, 2)
    rooms = int(free[first].sum()), int(free[second].sum())
    for half, room in ((second, rooms[1]), (first, rooms[0])):
        if room >= len(nodes):
            return [(nodes, half)]
    cuts = []
    # The refinement only finds a local optimum, so it starts once with groups kept together and once with the
    # nodes of equal place in their groups together.
    for start in (nodes, nodes[np.argsort(nodes % group_nodes, kind="stable")]):
        inside = bipartition(start, edges, len(nodes) - rooms[1], rooms[0])
        cuts.append((cut_weight(inside, start, edges), start, inside))
    _, start, inside = min(cuts, key=lambda cut: cut[0])
    return [(np.sort(start[inside]), first), (np.sort(start[~inside]), second)]


def _edges(instance: Instance) -> Edges:
    """Return the edges of the communication graph; nodes are numbered group after group."""
    cells = np.arange(instance.job.nodes).reshape(instance.groups, instance.group_nodes)
    matrix = cells if instance.unit == "pp" else cells.T
    stages = np.stack([matrix[:, :-1].ravel(), matrix[:, 1:].ravel()], axis=1)
    ring = np.stack([matrix[:-1].ravel(), matrix[1:].ravel()], axis=1)
    if len(matrix) > 2:
        ring = np.vstack([ring, np.stack([matrix[-1], matrix[0]], axis=1)])
    return [(int(a), int(b)) for a, b in np.vstack([stages, ring])]


Edges = list[tuple[int, int]]
"""(node, other node), all of the same weight."""

Neighbours = list[list[int]]

MOST_PASSES = 10


def bipartition(nodes: Ints, edges: Edges, least: int, most: int) -> Bools:
    """Cut a graph's `nodes` in two with little weight across; mark the first part: `least` to `most` nodes.

    Parameters
    ----------
    nodes : ndarray of int, shape (n,)
    edges : list of (node, node)
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


def cut_weight(inside: Bools, nodes: Ints, edges: Edges) -> int:
    """Return the number of the edges between the two parts of `nodes`."""
    side = dict(zip(nodes.tolist(), inside.tolist(), strict=True))
    return sum(a in side and b in side and side[a] != side[b] for a, b in edges)


def _neighbours(nodes: Ints, edges: Edges) -> Neighbours:
    position = {node: index for index, node in enumerate(nodes.tolist())}
    found: Neighbours = [[] for _ in position]
    for a, b in edges:
        if a in position and b in position:
            found[position[a]].append(position[b])
            found[position[b]].append(position[a])
    return found


def _improve(neighbours: Neighbours, inside: list[bool], least: int, most: int) -> bool:
    """Move each node at most once and keep the best prefix of moves; return whether that gained.

    Sizes may be off by one between moves, so that parts of fixed size can swap nodes.
    """
    size, best, best_gain, gained = sum(inside), 0, 0, 0
    moves = _moves(neighbours, inside, least, most)
    for number, (node, gain) in enumerate(moves, start=1):
        size += 1 if inside[node] else -1  # The node has been moved by now.
        gained += gain
        if least <= size <= most and gained > best_gain:
            best, best_gain = number, gained
    for node, _ in moves[best:]:
        inside[node] = not inside[node]
    return best > 0


def _moves(neighbours: Neighbours, inside: list[bool], least: int, most: int) -> list[tuple[int, int]]:
    """Move nodes, always the one of greatest gain (ties: lowest index); return the moves and gains."""
    gains = [
        sum(1 if inside[other] != inside[node] else -1 for other in near)
        for node, near in enumerate(neighbours)
    ]
    heaps: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    for node, gain in enumerate(gains):
        heapq.heappush(heaps[inside[node]], (-gain, node))
    size, moved = sum(inside), [False] * len(gains)
    made: list[tuple[int, int]] = []
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
        for other in neighbours[node]:
            if not moved[other]:
                # An edge to the moved node changes from inside to cut or back, hence twice its weight.
                gains[other] += 2 if inside[other] == side else -2
                heapq.heappush(heaps[inside[other]], (-gains[other], other))


def _top(heap: list[tuple[int, int]], gains: list[int], moved: list[bool]) -> tuple[int, int] | None:
    # Outdated entries are left in the heap and skipped here.
    while heap and (moved[heap[0][1]] or -heap[0][0] != gains[heap[0][1]]):
        heapq.heappop(heap)
    return heap[0] if heap else None
