"""The scores of nodes for kinds of requests, which are worked out again only for nodes that have changed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.cluster.parts import Nodes, Requests
from clustergym.common.arrays import Floats, Ints
from clustergym.sim.compiled.numba_cache import compiled, compiled_in_place
from clustergym.sim.parts.fragmentation import Usual
from clustergym.sim.parts.placers import RANDOM_FIT, UNFIT, drawn_device, score


class KnownScores(NamedTuple):
    """Scores that are known, by kind and node, with the version of the node that they are of."""

    value: Ints
    device: Ints
    version: Ints


def no_scores(requests: Requests, nodes: Nodes) -> KnownScores:
    """Return scores of which none is known."""
    return KnownScores(*(np.full((len(requests.gpus), len(nodes.devices)), UNFIT) for _ in range(3)))


@compiled_in_place
def refresh(
    nodes: Nodes, requests: Requests, kind: int, placer: int, usual: Usual, scores: KnownScores, device: Ints
) -> None:
    """Score the nodes that have changed since this kind of request last came."""
    for at in range(len(nodes.devices)):
        if scores.version[kind, at] != nodes.version[at]:
            scores.value[kind, at] = score(nodes, at, requests, kind, placer, usual, device)
            scores.device[kind, at] = device[0]
            scores.version[kind, at] = nodes.version[at]


@compiled_in_place
def best(values: Ints, rank: Ints) -> int:
    """Return the node of the highest score, of equal ones that of the lowest rank; -1: none fits."""
    best = -1
    for at in range(len(values)):
        if values[at] < 0:
            continue
        if best < 0 or values[at] > values[best] or (values[at] == values[best] and rank[at] < rank[best]):
            best = at
    return best


@compiled_in_place
def drawn(values: Ints, chance: float) -> int:
    """Return one of the nodes on which a request fits, all with the same probability; -1: none."""
    fitting = 0
    for at in range(len(values)):
        fitting += values[at] >= 0
    left = int(chance * fitting)
    for at in range(len(values)):
        if values[at] >= 0:
            if left == 0:
                return at
            left -= 1
    return -1


@compiled
def best_place(
    nodes: Nodes,
    requests: Requests,
    kind: int,
    placer: int,
    usual: Usual,
    scores: KnownScores,
    chances: Floats,
) -> tuple[int, int]:
    """Return the node that a placer chooses for a request, -1: none, and the device of a part of one.

    Parameters
    ----------
    placer : int
        Position in `clustergym.sim.parts.placers.PLACERS`.
    chances : ndarray of float, shape (2,)
        Between 0 and 1: what `random-fit` draws the node and the device by.
    """
    device = np.empty(1, np.int64)
    refresh(nodes, requests, kind, placer, usual, scores, device)
    if placer != RANDOM_FIT:
        at = best(scores.value[kind], nodes.rank)
        return at, (scores.device[kind, at] if at >= 0 else -1)
    at = drawn(scores.value[kind], chances[0])
    if at < 0 or scores.device[kind, at] < 0:
        return at, -1
    return at, drawn_device(nodes, at, requests.gpu_milli[kind], chances[1])
