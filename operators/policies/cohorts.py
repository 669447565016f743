"""Quotas that queues of a cohort lend each other, as Kueue counts them.

Source: Kueue's KEP-79 (cohorts in cohorts) and KEP-1714 (fair sharing), and its documentation of cluster
queues.

Read the rules of a cluster with Kueue: ClusterQueues and Cohorts as queues, preemption as a policy.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from clustergym.cluster.node_lists import read_product
from clustergym.common.errors import InputError
from clustergym.common.kubernetes import GPUS, KubernetesObject, amount, quantity, read_objects
from clustergym.common.left_out import not_modelled, not_read

from .slurm_rules import Rules


class QuotaNode:
    """A queue or a cohort of Kueue, with its quota, what it may borrow, and what it uses, by GPU type.

    A queue takes jobs, a cohort is a group of queues and cohorts. A node's quota is its own GPUs and what its
    children lend it. What a child uses of the GPUs that it keeps for itself (its quota beyond its lending
    limit) does not count on its parent.

    Parameters
    ----------
    name : str
    gpu_types : tuple of str
        Axis T of the lists below.
    nominal : mapping of str to float, optional
        GPUs by type that are its own.
    weight : float
        Its part of what is lent; 0: it gives way first.
    lending_limit, borrowing_limit : mapping of str to float, optional
        Most of its own that others may use, and most of others' that it may use, by GPU type.
    children : sequence of QuotaNode
        Of which this node becomes the parent; none: a queue.

    Attributes
    ----------
    parent : QuotaNode or None
        None: the root, which borrows from nobody.
    quota, kept, used : list of float, length T
        Own GPUs and those that children lend; of these, what nobody else may use; and what is in use here.
    height : int
        Levels of cohorts at and below this node; a queue has none.
    """

    def __init__(
        self,
        name: str,
        gpu_types: Sequence[str],
        nominal: Mapping[str, float] | None = None,
        weight: float = 1.0,
        lending_limit: Mapping[str, float] | None = None,
        borrowing_limit: Mapping[str, float] | None = None,
        children: Sequence[QuotaNode] = (),
    ) -> None:
        def by_type(given: Mapping[str, float] | None, missing: float) -> list[float]:
            return [float((given or {}).get(gpu_type, missing)) for gpu_type in gpu_types]

        self.name, self.weight, self.children = name, weight, children
        self.parent: QuotaNode | None = None
        for child in children:
            child.parent = self
        self.queues = [node for node in children if not node.children]
        self.cohorts = [node for node in children if node.children]
        self.nominal = by_type(nominal, 0.0)
        self.quota: list[float] = [
            own + sum(child.quota[at] - child.kept[at] for child in children)
            for at, own in enumerate(self.nominal)
        ]
        lent = by_type(lending_limit, math.inf)
        self.kept: list[float] = [
            max(0.0, quota - most) for quota, most in zip(self.quota, lent, strict=True)
        ]
        self._most_borrowed = by_type(borrowing_limit, math.inf)
        self.used = [0.0] * len(gpu_types)
        self.height: int = 1 + max((node.height for node in self.cohorts), default=0) if children else 0

    def walk(self) -> Iterator[QuotaNode]:
        """Yield this node and all nodes below it in the tree."""
        yield self
        for child in self.children:
            yield from child.walk()

    def clear(self) -> None:
        """Set the used GPUs of this node and of all nodes below it to 0."""
        for node in self.walk():
            node.used = [0.0] * len(node.used)

    def ancestors(self) -> Iterator[QuotaNode]:
        """Yield the cohorts that contain this node, from its parent up to the root."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def available(self, at: int) -> float:
        """Return GPUs of type index `at` that the node may still use, own or borrowed; may be negative."""
        if self.parent is None:
            return self.quota[at] - self.used[at]
        kept, used = self.kept[at], self.used[at]
        lent_by_parent = self.quota[at] - kept - max(0.0, used - kept) + self._most_borrowed[at]
        return max(0.0, kept - used) + min(lent_by_parent, self.parent.available(at))

    def count_reserved_gpus(self, at: int) -> float:
        """Return the unused GPUs of type index `at` that no other node may borrow from this one."""
        return max(0.0, self.kept[at] - self.used[at])

    @cached_property
    def attainable(self) -> list[float]:
        """GPUs of each type that this node could use if no other node used any."""
        if self.parent is None:
            return self.quota
        above = [kept + most for kept, most in zip(self.kept, self.parent.attainable, strict=True)]
        own = [q + most for q, most in zip(self.quota, self._most_borrowed, strict=True)]
        return [min(pair) for pair in zip(own, above, strict=True)]

    def most_with_borrowing(self, at: int) -> float:
        """Return the node's own GPUs of type index `at` plus the most it may borrow; inf without limit."""
        return self.nominal[at] + self._most_borrowed[at]

    def use(self, at: int, gpus: float) -> None:
        """Count GPUs of type index `at` as used here and, beyond those kept for this node, by its cohorts.

        Below 0 they are given back: `use(at, -n)` undoes `use(at, n)` exactly, whatever came in between.
        """
        before = max(0.0, self.used[at] - self.kept[at])
        self.used[at] += gpus
        beyond = max(0.0, self.used[at] - self.kept[at]) - before
        if self.parent is not None and beyond:
            self.parent.use(at, beyond)

    def borrows(self, at: int, more: float = 0.0) -> bool:
        """Return whether `more` GPUs of type index `at` would take this node above its quota."""
        return self.used[at] + more > self.quota[at]

    def share(self) -> tuple[bool, float]:
        """Return a sort key: borrowed share of what is lendable / weight; last those of weight 0 that borrow.

        Kueue's dominant resource share; GPUs of all types are one resource. A node of weight 0 that borrows
        comes after all others (True), and then by its share before the weight.
        """
        if self.parent is None:
            return False, 0.0
        borrowed = sum(max(used - quota, 0.0) for used, quota in zip(self.used, self.quota, strict=True))
        lendable = sum(self.parent.attainable)
        if borrowed == 0 or lendable == 0:
            return False, 0.0
        return (True, borrowed / lendable) if self.weight == 0 else (False, borrowed / lendable / self.weight)


def common_root(node: QuotaNode) -> QuotaNode:
    """Return the root of the tree that contains a node."""
    while node.parent is not None:
        node = node.parent
    return node


def sides_below_common_cohort(one: QuotaNode, other: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
    """Return for each of two queues its ancestor just below their lowest common cohort."""
    mine = [one, *one.ancestors()]
    theirs = [other, *other.ancestors()]
    depth = next(depth for depth, node in enumerate(mine) if node in theirs)
    return mine[depth - 1], theirs[theirs.index(mine[depth]) - 1]


MOST_LEVELS = 100
"""Most cohorts above a queue: the time to add up quotas grows with their number for each queue."""
PREEMPTION = {
    "reclaimWithinCohort": ("reclaim_within_cohort", {"LowerPriority": "lower_priority", "Any": "any"}),
    "withinClusterQueue": (
        "within_cluster_queue",
        {"LowerPriority": "lower_priority", "LowerOrNewerEqualPriority": "lower_or_newer"},
    ),
    "borrowWithinCohort.policy": ("borrow_within_cohort", {"LowerPriority": "lower_priority"}),
}
"""Fields of a ClusterQueue's preemption, and the parameters of the policy `kueue`; otherwise `never`."""


def read_kueue_rules(paths: Sequence[Path], fair_sharing: bool = False) -> Rules:
    """Read Kueue's ClusterQueues, Cohorts and ResourceFlavors from files, as quotas and policy parameters.

    A ClusterQueue without a cohort, and a cohort without a parent, borrows nothing. The policy has one
    setting for all queues: the one that most of them have.
    """
    used = ("ClusterQueue", "Cohort", "ResourceFlavor", "LocalQueue", "WorkloadPriorityClass")
    objects = [one for path in paths for one in read_objects(path, used)]
    types = {
        one.name: read_product(one.labels(), one.name) for one in objects if one.kind == "ResourceFlavor"
    }
    queues = [one for one in objects if one.kind == "ClusterQueue"]
    if not queues:
        remedy = "print them with kubectl get clusterqueues,cohorts,resourceflavors -o json"
        raise InputError("has no ClusterQueue", file=paths[0], remedy=remedy)
    found: dict[str, Any] = {}
    for one in objects:
        if one.kind in ("ClusterQueue", "Cohort"):
            parents = (f"spec.{key}" for key in ("cohort", "cohortName", "parentName", "parent"))
            parent = next((name for name in map(one.text, parents) if name), "")
            found[one.name] = _queue(one, types, parent)
    for parent in {queue["parent"] for queue in found.values() if "parent" in queue} - found.keys():
        found[parent] = {"quota": {}}
    for name, own in {name: dict(queue["quota"]) for name, queue in found.items()}.items():
        _add_quotas(name, own, found)
    for queue in found.values():
        if "parent" not in queue:
            queue["borrowing_limit"] = 0
    guessed = Counter[str]()
    policy: dict[str, Any] = {"name": "kueue", "round_s": None, "fair_sharing": fair_sharing}
    for rule, (parameter, words) in PREEMPTION.items():
        said = [one.text(f"spec.preemption.{rule}") for one in queues]
        not_read([f"preemption.{rule} {word}" for word in said if word not in (*words, "Never", "")])
        given = [words.get(word, "never") for word in said]
        policy[parameter] = _most(given, f"ClusterQueues of another preemption.{rule}", guessed)
    strict = [
        "strict" if one.text("spec.queueingStrategy") == "StrictFIFO" else "best_effort" for one in queues
    ]
    policy["queueing"] = _most(strict, "ClusterQueues of another queueingStrategy", guessed)
    return Rules({"assign_by": "virtual_cluster", "oversubscribe": True, "queues": found}, policy, guessed)


def _most(given: Sequence[str], others: str, guessed: Counter[str]) -> str:
    first, count = Counter(given).most_common(1)[0]
    guessed[others] += len(given) - count
    return first


def _queue(one: KubernetesObject, types: dict[str, str], parent: str) -> dict[str, Any]:
    found: dict[str, Any] = {"parent": parent} if parent else {}
    amounts: dict[str, dict[str, int]] = {"quota": {}, "borrowing_limit": {}, "lending_limit": {}}
    _name_not_modelled(one)
    for limit, flavor, value in _quotas(one):
        gpu_type = types.get(flavor, read_product({}, flavor))
        amounts[limit][gpu_type] = amounts[limit].get(gpu_type, 0) + quantity(one, limit, value)
    found |= {field: limits for field, limits in amounts.items() if limits or field == "quota"}
    weight = amount(one, "spec.fairSharing.weight", one.get("spec.fairSharing.weight", (str, int, float), 1))
    if weight != 1:
        found["weight"] = weight
    return found


def _name_not_modelled(one: KubernetesObject) -> None:
    """Note what a queue asks of Kueue that the policy does not do."""
    stopped = one.text("spec.stopPolicy")
    if stopped not in ("", "None"):
        not_modelled([f"stopPolicy {stopped} of {one.kind} {one.name}: its jobs start as others' do"])
    for key in ("admissionChecks", "admissionChecksStrategy", "admissionScope", "flavorFungibility"):
        if one.get("spec", dict, {}).get(key):
            not_modelled([key])
    if one.get("spec.namespaceSelector", dict, {}):
        not_modelled(["namespaceSelector"])
    if one.get("spec.preemption.borrowWithinCohort.maxPriorityThreshold", int, None) is not None:
        not_modelled(["borrowWithinCohort.maxPriorityThreshold"])


def _quotas(one: KubernetesObject) -> Iterable[tuple[str, str, Any]]:
    fields = {"nominalQuota": "quota", "borrowingLimit": "borrowing_limit", "lendingLimit": "lending_limit"}
    for group in one.items("spec.resourceGroups"):
        for flavor in group.items("flavors"):
            name = str(flavor.content.get("name", ""))
            for resource in flavor.items("resources"):
                if resource.content.get("name") not in GPUS:
                    not_modelled([f"quota of {resource.content.get('name')}"])
                    continue
                for key, limit in fields.items():
                    if resource.content.get(key) is not None:
                        yield limit, name, resource.content[key]


def _add_quotas(name: str, own: dict[str, int], queues: dict[str, Any]) -> None:
    """Add a queue's own quota to every cohort above it: a cohort's quota is the sum of those in it."""
    seen, parent = {name}, queues[name].get("parent")
    while parent is not None and parent not in seen:
        if len(seen) > MOST_LEVELS:
            message, remedy = f"lies in more than {MOST_LEVELS} cohorts", "name the parent that it has"
            raise InputError(message, field=name, remedy=remedy)
        for gpu_type, gpus in own.items():
            queues[parent]["quota"][gpu_type] = queues[parent]["quota"].get(gpu_type, 0) + gpus
        seen.add(parent)
        parent = queues[parent].get("parent")
