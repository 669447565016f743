"""Duration of collectives, from the latency of a step and the bandwidth of links and networks."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.oracle.roofline.devices import Layout

LINK_STEP_S, NETWORK_STEP_S = 10e-6, 25e-6
"""Latency of a ring step inside a node and between nodes: an all-reduce of a few bytes on 2 to 16 GPUs takes
35 to 230 us inside a node and 90 to 390 us across (arena_comm.csv of Arena's artifact)."""


def groups(size: Floats | float, stride: Floats | float, per_node: Floats) -> tuple[Floats, Floats]:
    """Return ranks per node, and nodes, of groups of `size` ranks that lie `stride` GPUs apart."""
    inside = np.minimum(size, np.maximum(1.0, per_node // stride))
    return inside, np.ceil(size / inside)


def all_reduce_s(volume_bytes: Floats, inside: Floats, across: Floats, layout: Layout) -> Floats:
    """Return the time of a hierarchical ring all-reduce: inside nodes, across them, inside again.

    Its latency is that of a ring through all members.

    Parameters
    ----------
    volume_bytes : ndarray of float
        Buffer of a rank.
    inside, across : ndarray of float
        Members of a group on a node, and nodes it spans.
    layout : Layout
        Its network rate is that of a node, which all groups on the node share.
    """
    link = volume_bytes / inside / (layout.link_gbs * 1e9)
    shared = layout.network_gbs * 1e9 * inside / layout.per_node
    network = volume_bytes / across / shared
    steps = (inside * across - 1) * LINK_STEP_S + (across - 1) * (NETWORK_STEP_S - LINK_STEP_S)
    return 2 * ((inside - 1) * link + (across - 1) * network + steps)


def all_to_all_s(volume_bytes: Floats, inside: Floats, across: Floats, layout: Layout) -> Floats:
    """Return the time of an all-to-all in which each rank sends `volume_bytes` in all; see `all_reduce_s`."""
    part = volume_bytes / (inside * across)
    link = part / (layout.link_gbs * 1e9) + LINK_STEP_S
    network = part * layout.per_node / (layout.network_gbs * 1e9) + NETWORK_STEP_S
    return (inside - 1) * link + inside * (across - 1) * network
