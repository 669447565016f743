"""GPUs of a cluster divided down a tree of queues."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from clustergym.tenants.capacity import Entitlement, entitled_shares
from clustergym.tenants.fair_share import Claim, fair_shares
from clustergym.tenants.queue_tree import Queue, QueueTree, of_type

DivisionRule = Literal["fair_share", "capacity"]


def divided(
    tree: QueueTree,
    rule: DivisionRule,
    gpu_type: str,
    total: float,
    requests: Mapping[str, float],
    usage: Mapping[str, float],
) -> dict[str, float]:
    """Return the share of each queue of the GPUs of a type; a parent's is divided among its children.

    Parameters
    ----------
    tree : QueueTree
    rule : str
        `fair_share`: quota, then priority, then weight with history, as KAI-Scheduler. `capacity`: guarantee,
        deserved share and cap, the rest in proportion to what is deserved, as Volcano and YARN.
    gpu_type : str
    total : float
        GPUs of the cluster that may be used.
    requests : mapping of str to float
        GPUs that the jobs of each leaf hold or wait for.
    usage : mapping of str to float
        Part of the cluster's GPU time that each queue has had of late (`History.usage`); left out: none.
    """
    wanted = dict(requests)
    for name in reversed(tree.queues):
        if tree.children[name]:
            wanted[name] = sum(
                _wanted(tree.queues[child], wanted[child], gpu_type) for child in tree.children[name]
            )
    shares: dict[str, float] = {}

    def give(parent: str | None, gpus: float) -> None:
        names = tree.children[parent]
        queues = [tree.queues[name] for name in names]
        asked, used = [wanted[name] for name in names], [usage.get(name, 0.0) for name in names]
        found = _among(rule, queues, gpu_type, gpus, asked, used, tree.settings.history.weight)
        for name, share in zip(names, found, strict=True):
            shares[name] = share
            if tree.children[name]:
                give(name, share)

    give(None, total)
    return shares


def _wanted(queue: Queue, request: float, gpu_type: str) -> float:
    return min(request, of_type(queue.limit, gpu_type, math.inf))


def _among(
    rule: DivisionRule,
    queues: Sequence[Queue],
    gpu_type: str,
    gpus: float,
    wanted: Sequence[float],
    usage: Sequence[float],
    history_weight: float,
) -> list[float]:
    """Return the shares of queues beside each other of their parent's GPUs."""
    quota = [of_type(queue.quota, gpu_type) for queue in queues]
    limit = [of_type(queue.limit, gpu_type, math.inf) for queue in queues]
    if rule == "capacity":
        kept = [of_type(queue.guarantee, gpu_type) for queue in queues]
        deserved = [min(own, gpus) for own in quota]
        return entitled_shares(gpus, [*map(Entitlement, deserved, kept, limit)], wanted)
    weight, priority = [queue.weight for queue in queues], [queue.priority for queue in queues]
    return fair_shares(gpus, [*map(Claim, wanted, quota, limit, weight, priority, usage)], history_weight)
