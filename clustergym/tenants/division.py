"""GPUs of a cluster divided down a tree of queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from clustergym.tenants.capacity import Entitlement, entitled_shares
from clustergym.tenants.fair_share import shares_of_wanted
from clustergym.tenants.queue_tree import QueueTree, kept_of, most_of, of_type

DivisionRule = Literal["fair_share", "capacity"]


class _Row(NamedTuple):
    """What a queue may and would have of one GPU type."""

    name: str
    quota: float
    most: float
    kept: float
    weight: float
    priority: int
    children: list[_Row]


class Claims(NamedTuple):
    """What queues beside each other want of one GPU type, those that want any, and what queues in them want.

    Attributes
    ----------
    names : list of str
    wanted, quota, weight : list of float
    priority : list of int
    below : dict of str to Claims
    """

    names: list[str]
    wanted: list[float]
    quota: list[float]
    weight: list[float]
    priority: list[int]
    below: dict[str, Claims]


class Division:
    """Divides the GPUs of a type; a queue's share is divided among its children.

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

        def rows(parent: str | None) -> list[_Row]:
            found = []
            for name in tree.children[parent]:
                queue = tree.queues[name]
                amounts = of_type(queue.quota, gpu_type), most_of(queue, gpu_type), kept_of(queue, gpu_type)
                found.append(_Row(name, *amounts, queue.weight, queue.priority, rows(name)))
            return found

        self._top = rows(None)

    def claims(self, requests: Mapping[str, float]) -> Claims:
        """Return what queues would have if nobody else wanted any.

        One that asks for less than nobody else may use of its own would have that all the same.

        Parameters
        ----------
        requests : mapping of str to float
            GPUs that the jobs of each leaf hold or wait for; left out: none.
        """
        return _claims(self._top, requests)

    def divided(self, total: float, claims: Claims, usage: Mapping[str, float]) -> dict[str, float]:
        """Return the share of each queue that has one.

        Parameters
        ----------
        total : float
            GPUs of the cluster that may be used.
        claims : Claims
        usage : mapping of str to float
            Part of the cluster's GPU time that each queue has had of late (`History.usage`); left out: none.
        """
        shares: dict[str, float] = {}
        self._give(claims, total, usage, shares)
        return shares

    def _give(
        self, claims: Claims, gpus: float, usage: Mapping[str, float], shares: dict[str, float]
    ) -> None:
        if self.rule == "capacity":
            deserved = [Entitlement(min(own, gpus)) for own in claims.quota]
            found = entitled_shares(gpus, deserved, claims.wanted)
        else:
            used = [usage.get(name, 0.0) for name in claims.names]
            given = claims.wanted, claims.quota, claims.weight, claims.priority
            found = shares_of_wanted(gpus, *given, used, self.history_weight)
        shares.update(zip(claims.names, found, strict=True))
        for name, below in claims.below.items():
            self._give(below, shares[name], usage, shares)


def _claims(rows: Sequence[_Row], requests: Mapping[str, float]) -> Claims:
    found = Claims([], [], [], [], [], {})
    for row in rows:
        below = _claims(row.children, requests) if row.children else None
        asked = requests.get(row.name, 0.0) if below is None else sum(below.wanted)
        wanted = min(max(asked, row.kept), row.most)
        if wanted > 0:
            found.names.append(row.name)
            found.wanted.append(wanted)
            found.quota.append(row.quota)
            found.weight.append(row.weight)
            found.priority.append(row.priority)
            if below is not None and below.names:
                found.below[row.name] = below
    return found


_division = lru_cache(maxsize=64)(Division)


def divided(
    tree: QueueTree,
    rule: DivisionRule,
    gpu_type: str,
    total: float,
    requests: Mapping[str, float],
    usage: Mapping[str, float],
) -> dict[str, float]:
    """Return the share of each queue of the GPUs of a type: as `Division`, which is for many divisions.

    Parameters
    ----------
    tree, rule, gpu_type
        As of `Division`.
    total, usage
        As of `Division.divided`.
    requests : mapping of str to float
        As of `Division.claims`.
    """
    division = _division(tree, rule, gpu_type)
    return dict.fromkeys(tree.queues, 0.0) | division.divided(total, division.claims(requests), usage)
