"""Topology-aware placement: dual recursive bi-partitioning of the job and of the minipods.

Source: Amaral et al. (SC '17), a baseline of Arnold's; each cut of the job is refined by Fiduccia and
Mattheyses (DAC '82).
"""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.envs.placement.instances import Assignment, Instance

from .bipartition import Edges, bipartition, cut_weight


def solve(instance: Instance, rng: np.random.Generator | None = None) -> Assignment:
    """Place an instance; `rng` is not used.

    The job is the graph of its communication matrix: edges join neighbouring stages of a row and neighbours
    in the ring of a column, all with the same weight. The weight of each kind of group in the score (alpha)
    comes from Arnold's characterisation, which this baseline does not know. The minipods, by descending free
    nodes, are halved again and again; a part of the job that fits in one half stays whole (in the tighter
    one), otherwise the roomier half is filled and the cut made light.
    """
    if instance.shortfall:
        return Assignment.infeasible(instance)
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
    return [(int(a), int(b), 1.0) for a, b in np.vstack([stages, ring])]
