"""The nodes and switches of a cluster as arrays that compiled functions take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common.arrays import Ints

TIERS = 3
"""Leaf, minipod, and all nodes of a type."""


class ClusterArrays(NamedTuple):
    """A cluster as arrays for compiled functions, with T GPU types and K possible GPU counts.

    Nodes of a type lie together; N is the number of nodes, S the most switches of a type in a tier.

    Attributes
    ----------
    capacity, per_node, first_node, nodes : ndarray of int, shape (T,)
        GPUs of the type; GPUs on each node; its first node; how many nodes it has.
    counts : ndarray of int, shape (K,)
        Ascending.
    leaf, minipod : ndarray of int, shape (N,)
        Switches above each node.
    starts, ends : ndarray of int, shape (T, 3, S)
        First node of each switch of a tier, and the node after its last, counted from the type's first.
    switches : ndarray of int, shape (T, 3)
        How many columns of these each tier has.
    compact : ndarray of int, shape (T, K)
        Locality of the most compact placement on the empty cluster.
    """

    capacity: Ints
    per_node: Ints
    first_node: Ints
    nodes: Ints
    counts: Ints
    leaf: Ints
    minipod: Ints
    starts: Ints
    ends: Ints
    switches: Ints
    compact: Ints


def cluster_arrays(cluster: ClusterSpec, counts: Ints) -> ClusterArrays:
    """Return a cluster's nodes and switches as arrays for compiled functions."""
    types = len(cluster.gpu_types)
    own = [np.flatnonzero(cluster.node_type == gpu_type) for gpu_type in range(types)]
    starts = [[np.zeros(1, dtype=np.int64)] * TIERS for _ in own]
    for gpu_type, nodes in enumerate(own):
        for tier, switch in enumerate((cluster.node_leaf[nodes], cluster.node_minipod[nodes])):
            starts[gpu_type][tier] = np.flatnonzero(np.diff(switch, prepend=-1))
    switches = np.array([[len(tier) for tier in tiers] for tiers in starts], dtype=np.int64)
    first = np.zeros((types, TIERS, int(switches.max())), dtype=np.int64)
    last = first.copy()
    for gpu_type, tiers in enumerate(starts):
        for tier, begins in enumerate(tiers):
            first[gpu_type, tier, : len(begins)] = begins
            last[gpu_type, tier, : len(begins)] = [*begins[1:], len(own[gpu_type])]
    compact = [
        [
            cluster.compact_locality(gpu_type, min(int(gpus), int(cluster.capacity[gpu_type])))
            for gpus in counts
        ]
        for gpu_type in range(types)
    ]
    return ClusterArrays(
        cluster.capacity.astype(np.int64),
        cluster.gpus_per_node.astype(np.int64),
        np.array([nodes[0] for nodes in own], dtype=np.int64),
        np.array([len(nodes) for nodes in own], dtype=np.int64),
        counts.astype(np.int64),
        cluster.node_leaf.astype(np.int64),
        cluster.node_minipod.astype(np.int64),
        first,
        last,
        switches,
        np.array(compact, dtype=np.int64),
    )
