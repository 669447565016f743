"""GPUs of a cluster divided down a tree of queues, by fair shares (`fair_share`) or by what queues deserve.

Sources of the latter: Volcano, docs/design/capacity-scheduling; Apache Hadoop, capacity scheduler.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from clustergym.scenario.tenants.fair_share import EPSILON, shares_of_wanted
from clustergym.scenario.tenants.queue_tree import Queue, QueueTree, get_most_gpus, get_reserved_gpus, of_type
from clustergym.scenario.tenants.rounding import Bounds, Offers

DivisionRule = Literal["fair_share", "capacity"]


class _Row(NamedTuple):
    """A queue's limits and demand for one GPU type."""

    name: str
    at: int
    quota: float
    most: float
    kept: float
    weight: float
    priority: int
    children: list[_Row]


class Claims(NamedTuple):
    """The GPUs of one type that sibling queues want, with the queues' quotas, weights and priorities.

    Attributes
    ----------
    at : list of int
        Index of each in the tree's queues.
    wanted, quota, weight : list of float
    priority : list of int
    below : dict of int to Claims
        By place in these lists.
    """

    at: list[int]
    wanted: list[float]
    quota: list[float]
    weight: list[float]
    priority: list[int]
    below: dict[int, Claims]


def get_amounts(queue: Queue, gpu_type: str) -> tuple[float, float, float]:
    """Return the GPUs of a type that a queue deserves, may have at most, and has reserved."""
    return of_type(queue.quota, gpu_type), get_most_gpus(queue, gpu_type), get_reserved_gpus(queue, gpu_type)


class Division:
    """Divides the GPUs of one type among the queues of a tree, from the top down.

    Parameters
    ----------
    tree : QueueTree
    rule : str
        `fair_share`: quota, then priority, then weight with history, as KAI-Scheduler. `capacity`: deserved
        share and cap, the rest in proportion to what is deserved, as Volcano and YARN.
    gpu_type : str
    """

    def __init__(self, tree: QueueTree, rule: DivisionRule, gpu_type: str) -> None:
        self.rule, self.history_weight = rule, tree.settings.history.weight
        place = {name: at for at, name in enumerate(tree.queues)}

        def rows(parent: str | None) -> list[_Row]:
            found = []
            for name in tree.children[parent]:
                queue = tree.queues[name]
                amounts = get_amounts(queue, gpu_type)
                found.append(_Row(name, place[name], *amounts, queue.weight, queue.priority, rows(name)))
            return found

        self._top = rows(None)

    def claims(self, requests: Mapping[str, float]) -> Claims:
        """Return each queue's claim: the GPUs it asks for, at least its reserve and at most its limit.

        A queue that asks for less than its reserve, which no other queue may use, still claims the reserve.

        Parameters
        ----------
        requests : mapping of str to float
            GPUs that the jobs of each leaf hold or wait for; left out: none.
        """
        return _claims(self._top, requests)

    def divide(
        self, total: float, claims: Claims, usage: Sequence[float], bounds: list[Bounds] | None = None
    ) -> list[float]:
        """Divide `total` GPUs, and return those that each queue gets.

        Parameters
        ----------
        total : float
            GPUs of the cluster that may be used.
        claims : Claims
        usage : sequence of float
            Part of the cluster's GPU time that each queue has had of late (`History.usage`).
        bounds : list of Bounds, optional
            To which is added within what bounds past use leaves the shares as they are.
        """
        shares = [0.0] * len(usage)
        self._give(claims, total, usage, shares, bounds)
        return shares

    def _give(
        self,
        claims: Claims,
        gpus: float,
        usage: Sequence[float],
        shares: list[float],
        bounds: list[Bounds] | None,
    ) -> None:
        if self.rule == "capacity":
            found = compute_entitled_shares(gpus, [min(own, gpus) for own in claims.quota], claims.wanted)
        else:
            given = claims.wanted, claims.quota, claims.weight, claims.priority
            # Without history past use changes nothing, so that there are no bounds to keep.
            offers = None if bounds is None or self.history_weight <= 0 else Offers(claims.at)
            used = [usage[at] for at in claims.at]
            found = shares_of_wanted(gpus, *given, used, self.history_weight, offers)
            if bounds is not None and offers is not None:
                bounds.append(offers.bounds(self.history_weight))
        for at, share in zip(claims.at, found, strict=True):
            shares[at] = share
        # From the top down: what a queue's children divide is what the queue has got.
        for place, below in claims.below.items():
            self._give(below, found[place], usage, shares, bounds)


def _claims(rows: Sequence[_Row], requests: Mapping[str, float]) -> Claims:
    found = Claims([], [], [], [], [], {})
    for name, at, quota, most, kept, weight, priority, children in rows:
        # Most leaves of a large tree have no jobs, and cannot change what the others get.
        if not (children or kept or name in requests):
            continue
        below = _claims(children, requests) if children else None
        asked = requests.get(name, 0.0) if below is None else sum(below.wanted)
        # From the leaves up: a parent asks for what its queues may have, each within its own limit.
        wanted = min(max(asked, kept), most)
        if wanted > 0:
            if below is not None and below.at:
                found.below[len(found.at)] = below
            found.at.append(at)
            found.wanted.append(wanted)
            found.quota.append(quota)
            found.weight.append(weight)
            found.priority.append(priority)
    return found


_division = lru_cache(maxsize=64)(Division)


def divide_among_queues(
    tree: QueueTree,
    rule: DivisionRule,
    gpu_type: str,
    total: float,
    requests: Mapping[str, float],
    usage: Mapping[str, float],
) -> dict[str, float]:
    """Divide the GPUs of a type among a tree's queues; return each queue's GPUs by its name.

    Parameters
    ----------
    tree, rule, gpu_type
        As of `Division`.
    total
        As of `Division.divide`.
    usage : mapping of str to float
        Part of the cluster's GPU time that each queue has had of late; left out: none.
    requests : mapping of str to float
        As of `Division.claims`.
    """
    division = _division(tree, rule, gpu_type)
    used = [usage.get(name, 0.0) for name in tree.queues]
    return dict(zip(tree.queues, division.divide(total, division.claims(requests), used), strict=True))


def compute_entitled_shares(total: float, deserved: Sequence[float], wanted: Sequence[float]) -> list[float]:
    """Divide GPUs: first what each queue deserves, then the rest one by one to the least served queue.

    Each has what it deserves, as far as it wants it. What is left goes one GPU at a time to the queue that
    then has least of what it deserves (Volcano's capacity plug-in; YARN's scheduler).

    Parameters
    ----------
    total : float
        GPUs of the parent.
    deserved, wanted : sequence of float
        GPUs that each queue has back on demand; those that its jobs hold or wait for, up to its limit.
    """
    shares = [min(own, most) for own, most in zip(deserved, wanted, strict=True)]
    left = total - sum(shares)
    while left > EPSILON:
        wanting = [at for at, share in enumerate(shares) if wanted[at] - share > EPSILON]
        if not wanting:
            break
        # Without anything deserved a queue comes last, the emptiest of such first.
        served = {at: shares[at] / deserved[at] if deserved[at] else math.inf for at in wanting}
        at = min(wanting, key=lambda at: (served[at], shares[at], at))
        given = min(1.0, left, wanted[at] - shares[at])
        shares[at] += given
        left -= given
    return shares
