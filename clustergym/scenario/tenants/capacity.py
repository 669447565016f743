"""Queues with a guarantee, a deserved share and a hard cap (Volcano's capacity plugin; YARN's scheduler).

Sources: Volcano, docs/design/capacity-scheduling; Apache Hadoop, capacity scheduler.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clustergym.scenario.tenants.fair_share import EPSILON


@dataclass(frozen=True)
class Entitlement:
    """What a queue is entitled to of one GPU type.

    Attributes
    ----------
    deserved : float
        GPUs that it has back on demand; others use them while it does not.
    guarantee : float
        GPUs of those that are never lent.
    capability : float
        GPUs that it never exceeds.
    """

    deserved: float
    guarantee: float = 0.0
    capability: float = math.inf


def in_order(queues: Mapping[str, Entitlement], allocated: Mapping[str, float]) -> list[str]:
    """Return the queues to serve, the one that has least of what it deserves first."""

    def served(name: str) -> float:
        deserved, held = queues[name].deserved, allocated.get(name, 0.0)
        return held / deserved if deserved else math.inf

    return sorted(queues, key=lambda name: (served(name), list(queues).index(name)))


def room(name: str, queues: Mapping[str, Entitlement], allocated: Mapping[str, float], total: float) -> float:
    """Return the GPUs that a queue may take of those that are idle: none that others are guaranteed."""
    held = allocated.get(name, 0.0)
    kept = sum(
        max(0.0, other.guarantee - allocated.get(other_name, 0.0))
        for other_name, other in queues.items()
        if other_name != name
    )
    idle = total - sum(allocated.values()) - kept
    return max(0.0, min(idle, queues[name].capability - held))


def to_reclaim(
    name: str, wanted: float, queues: Mapping[str, Entitlement], allocated: Mapping[str, float], total: float
) -> dict[str, float]:
    """Return the GPUs that each queue gives back for a queue that wants more.

    The queue takes what is idle, then, up to what it deserves, of those that have more than they deserve, the
    one with most of what it deserves first.
    """
    held = allocated.get(name, 0.0)
    idle = room(name, queues, allocated, total)
    missing = min(wanted, max(0.0, queues[name].deserved - held)) - idle
    given: dict[str, float] = {}
    for other in reversed(in_order(queues, allocated)):
        beyond = allocated.get(other, 0.0) - queues[other].deserved
        if missing > 0 and other != name and beyond > 0:
            given[other] = min(missing, beyond)
            missing -= given[other]
    return given


def entitled_shares(total: float, queues: Sequence[Entitlement], requests: Sequence[float]) -> list[float]:
    """Return the GPUs that each queue comes to have if all take turns, the least served first.

    Each has what it deserves, as far as it asks for it. What is left, but for guarantees that are not used,
    goes one GPU at a time to the queue that then has least of what it deserves, up to its cap.

    Parameters
    ----------
    total : float
        GPUs of the parent.
    queues : sequence of Entitlement
    requests : sequence of float
        GPUs that the jobs of each hold or wait for.
    """
    most = [min(request, queue.capability) for request, queue in zip(requests, queues, strict=True)]
    shares = [min(queue.deserved, wanted) for queue, wanted in zip(queues, most, strict=True)]
    kept = sum(max(0.0, queue.guarantee - share) for queue, share in zip(queues, shares, strict=True))
    left = total - kept - sum(shares)
    while left > EPSILON:
        wanting = [at for at, share in enumerate(shares) if most[at] - share > EPSILON]
        if not wanting:
            break
        # Without anything deserved a queue comes last, the emptiest of such first.
        at = min(
            wanting,
            key=lambda at: (
                shares[at] / queues[at].deserved if queues[at].deserved else math.inf,
                shares[at],
                at,
            ),
        )
        given = min(1.0, left, most[at] - shares[at])
        shares[at] += given
        left -= given
    return shares
