"""Which nodes Slurm gives a job: the best fit among sets of consecutive nodes."""

from __future__ import annotations

import numpy as np

from clustergym.cluster.spec import Nodes
from clustergym.common.arrays import Ints


def consecutive_best_fit(free: Ints, gpus: int, nodes: int = 0) -> Nodes | None:
    """Return the nodes and GPUs on each that Slurm's `select/cons_tres` gives a job by default.

    Nodes with free GPUs are taken in sets of neighbours. The set with the fewest free GPUs that suffice is
    chosen; if none does, the one with the most, and then further ones. Within a set the node with the fewest
    free GPUs that suffice is chosen; if none does, its nodes are filled one after another.

    Parameters
    ----------
    free : ndarray of int, shape (N,)
        GPUs that the job may have on each node.
    gpus : int
    nodes : int
        Nodes that the job asks for, with equally many GPUs on each; 0: any.

    Returns
    -------
    Nodes or None
        (node, GPUs) pairs, nodes ascending; None if too few GPUs or nodes are free.

    Notes
    -----
    From the description of `SelectTypeParameters` in Slurm's documentation, and from what `slurmctld` 22.05.8
    logs with `DebugFlags=SelectType` (`set:N consec CPUs`).
    """
    each = gpus // nodes if nodes else 0
    room = np.where(free >= max(each, 1), free, 0)
    if room.sum() < gpus or np.count_nonzero(room) < nodes:
        return None
    usable = np.flatnonzero(room)
    sets = [part.tolist() for part in np.split(usable, np.flatnonzero(np.diff(usable) > 1) + 1)]
    totals = [int(room[part].sum()) for part in sets]
    left, nodes_left, chosen = gpus, max(nodes, 1), []
    while left > 0 or nodes_left > 0:
        best = _best_set(sets, totals, left, nodes_left)
        part, sets[best] = sets[best], []
        if nodes_left <= 1:
            fits = [node for node in part if room[node] >= left]
            part = [min(fits, key=lambda node: (room[node], node))] if fits else part
        for node in part:
            if left <= 0 and nodes_left <= 0:
                break
            # One GPU is kept for each node that the job must still have.
            taken = each or min(int(room[node]), left - max(nodes_left - 1, 0))
            chosen.append((node, taken))
            left, nodes_left = left - taken, nodes_left - 1
    return tuple(sorted(chosen))


def _best_set(sets: list[list[int]], totals: list[int], gpus: int, nodes: int) -> int:
    best, best_suffices = -1, False
    for at, part in enumerate(sets):
        if not part:
            continue
        suffices = totals[at] >= gpus and len(part) >= nodes
        if (
            best < 0
            or (suffices and not best_suffices)
            or (suffices and totals[at] < totals[best])
            or (not suffices and totals[at] > totals[best])
        ):
            best, best_suffices = at, suffices
    return best
