"""Orders of arrival of our own, by FGD's published procedure, where a folder has no order file."""

from __future__ import annotations

import numpy as np

from clustergym.cluster.parts import Nodes, Requests
from clustergym.common import random_streams
from clustergym.common.arrays import Ints
from clustergym.envs.sharing.openb import Orders

ARRIVED = 1.3
"""GPUs that arrive over those installed."""


def drawn_orders(nodes: Nodes, requests: Requests, seed: int) -> Orders:
    """Shuffle pods and nodes; draw more pods, or leave some out, until they ask for `ARRIVED` times the GPUs.

    Where no pod asks for GPUs, all pods arrive once.
    """
    rng = random_streams.PARTS_ORDER.generator(seed)
    asked = requests.gpus * requests.gpu_milli
    order, most = rng.permutation(len(asked)), ARRIVED * nodes.installed_milli
    total = int(asked.sum())
    if total > most:
        order = _fewer(order, asked, most, rng)
    elif total > 0:
        order = np.concatenate([order, _more(requests.gpu_milli, asked, most, rng)])
    return Orders(order, rng.permutation(len(nodes.devices)))


def _more(milli: Ints, asked: Ints, most: float, rng: np.random.Generator) -> Ints:
    """Draw pods until the next would be too many; as published, that test counts one GPU of a pod."""
    drawn, total = [], int(asked.sum())
    while total + milli[row := int(rng.integers(len(asked)))] <= most:
        drawn.append(row)
        total += int(asked[row])
    return np.array(drawn, dtype=np.int64)


def _fewer(order: Ints, asked: Ints, most: float, rng: np.random.Generator) -> Ints:
    leaves = rng.permutation(len(order))
    left = asked[order].sum() - np.cumsum(asked[order[leaves]])
    gone = leaves[: int(np.argmax(left <= most)) + 1]
    stays = np.ones(len(order), dtype=np.bool_)
    stays[gone] = False
    return order[stays]
