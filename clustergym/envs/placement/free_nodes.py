"""Random states of a cluster: the number of free nodes of each minipod."""

from __future__ import annotations

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common.arrays import Ints
from clustergym.common.errors import InputError

MOST_DRAWS = 100_000


def minipod_sizes(cluster: ClusterSpec) -> Ints:
    """Return how many nodes each of a cluster's M minipods (nodes below a spine switch) has, (M,)."""
    return np.bincount(cluster.node_minipod).astype(np.int64)


def draw_free_nodes(sizes: Ints, needed: int, rng: np.random.Generator) -> Ints:
    """Sample how many nodes of each of M minipods are free, at least `needed` in all, shape (M,).

    Each is uniform from 0 to the size of its minipod, independently; states in which fewer than
    `needed` nodes are free in all are drawn again.

    Raises
    ------
    InputError
        If the cluster is too small, or no draw has enough free nodes.
    """
    if needed > sizes.sum():
        raise InputError(
            f"{needed} nodes are more than the cluster's {int(sizes.sum())}",
            field="nodes",
            remedy="take a larger cluster",
        )
    for _ in range(MOST_DRAWS):
        free: Ints = rng.integers(0, sizes + 1)
        if free.sum() >= needed:
            return free
    raise InputError(
        f"no state with {needed} free nodes in {MOST_DRAWS} draws",
        field="nodes",
        remedy="take a larger cluster",
    )
