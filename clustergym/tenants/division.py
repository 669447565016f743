"""GPUs of a cluster divided down a tree of queues."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from clustergym.tenants.capacity import Entitlement, entitled_shares
from clustergym.tenants.fair_share import Claim, fair_shares
from clustergym.tenants.queue_tree import Queue, QueueTree, of_type


def divided(
    tree: QueueTree,
    rule: str,
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
        One of `RULES`.
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
        found = RULES[rule](tree, names, gpu_type, gpus, wanted, usage)
        for name, share in zip(names, found, strict=True):
            shares[name] = share
            give(name, share)

    give(None, total)
    return shares


def _wanted(queue: Queue, request: float, gpu_type: str) -> float:
    return min(request, of_type(queue.limit, gpu_type, math.inf))


Rule = Callable[
    [QueueTree, Sequence[str], str, float, Mapping[str, float], Mapping[str, float]], Sequence[float]
]


def _by_fair_share(
    tree: QueueTree,
    names: Sequence[str],
    gpu_type: str,
    gpus: float,
    wanted: Mapping[str, float],
    usage: Mapping[str, float],
) -> Sequence[float]:
    claims = [
        Claim(
            wanted[name],
            of_type(queue.quota, gpu_type),
            of_type(queue.limit, gpu_type, math.inf),
            queue.weight,
            queue.priority,
            usage.get(name, 0.0),
        )
        for name in names
        for queue in [tree.queues[name]]
    ]
    return fair_shares(gpus, claims, tree.settings.history.weight)


def _by_entitlement(
    tree: QueueTree,
    names: Sequence[str],
    gpu_type: str,
    gpus: float,
    wanted: Mapping[str, float],
    usage: Mapping[str, float],
) -> Sequence[float]:
    entitled = [
        Entitlement(
            min(of_type(queue.quota, gpu_type), gpus),
            of_type(queue.guarantee, gpu_type),
            of_type(queue.limit, gpu_type, math.inf),
        )
        for name in names
        for queue in [tree.queues[name]]
    ]
    return entitled_shares(gpus, entitled, [wanted[name] for name in names])


RULES: Mapping[str, Rule] = {"fair_share": _by_fair_share, "capacity": _by_entitlement}
"""`fair_share`: quota, then priority, then weight with history, as KAI-Scheduler. `capacity`: guarantee,
deserved share and cap, the rest in proportion to what is deserved, as Volcano and YARN."""
