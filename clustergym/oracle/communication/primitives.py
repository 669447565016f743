"""The communication primitives, and what share of a volume each moves over links and networks."""

from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Primitive(enum.StrEnum):
    """A collective or transfer. The volume in bytes is named as the measured tables name it.

    All-reduce: a rank's buffer. All-gather: the gathered output. Reduce-scatter: the input of a rank.
    All-to-all: a rank's buffer, of which it keeps the part meant for itself. Send: the message.
    """

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    SEND = "send"


class Factors(NamedTuple):
    """What a group of `ranks` on `nodes` puts through, as multiples of the volume.

    Attributes
    ----------
    link : ndarray of float
        Over the link of a GPU inside a node.
    network : ndarray of float
        Over the network of a node, in one direction; 0 inside a node.
    """

    link: Floats
    network: Floats


def factors(primitive: Primitive, ranks: Floats, nodes: Floats) -> Factors:
    """Return the traffic of one group (ring algorithms; direct exchange for all-to-all).

    A ring enters and leaves every node once, however many ranks it has there. In an all-to-all
    every rank of a node sends to every rank outside.

    Parameters
    ----------
    primitive : Primitive
    ranks, nodes : ndarray of float
        Members of the group, and nodes they lie on; they broadcast.
    """
    ring = (ranks - 1) / ranks
    across = nodes > 1
    if primitive == Primitive.SEND:
        moved = np.where(ranks > 1, 1.0, 0.0)
        return Factors(moved, np.where(across, moved, 0.0))
    if primitive == Primitive.ALL_TO_ALL:
        inside = ranks / nodes
        return Factors(ring, np.where(across, inside * (ranks - inside) / ranks, 0.0))
    rounds = 2.0 if primitive == Primitive.ALL_REDUCE else 1.0
    return Factors(rounds * ring, np.where(across, rounds * ring, 0.0))


def steps(primitive: Primitive, ranks: Floats, nodes: Floats) -> tuple[Floats, Floats]:
    """Return how many hops inside and across nodes one message waits for, beyond the first."""
    if primitive == Primitive.SEND:
        return np.zeros_like(ranks * nodes), np.zeros_like(ranks * nodes)
    return np.maximum(ranks - np.maximum(nodes, 2), 0.0), np.maximum(nodes - 2, 0.0)
