"""Read the rules of a cluster with Kueue: ClusterQueues and Cohorts as queues, preemption as a policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from clustergym.cluster.node_lists import read_product
from clustergym.common.errors import InputError
from clustergym.common.kubernetes import GPU, KubernetesObject, quantity, read_objects
from clustergym.scenario.tenants.slurm_rules import Rules

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
    """Read ClusterQueues, Cohorts and ResourceFlavors of one or more files.

    A ClusterQueue without a cohort, and a cohort without a parent, borrows nothing. The policy has one
    setting for all queues: the one that most of them have.

    Raises
    ------
    InputError
        If there is no ClusterQueue, or a quota is no number of GPUs.
    """
    objects = [one for path in paths for one in read_objects(path)]
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
            parent = one.text("spec.cohort") or one.text("spec.cohortName") or one.text("spec.parentName")
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
    for field, (parameter, words) in PREEMPTION.items():
        given = [words.get(one.text(f"spec.preemption.{field}"), "never") for one in queues]
        policy[parameter] = _most(given, f"ClusterQueues of another preemption.{field}", guessed)
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
    for field, flavor, value in _quotas(one):
        gpu_type = types.get(flavor, read_product({}, flavor))
        amounts[field][gpu_type] = amounts[field].get(gpu_type, 0) + quantity(one, field, value)
    found |= {field: amount for field, amount in amounts.items() if amount or field == "quota"}
    weight = one.get("spec.fairSharing.weight", (str, int), "1")
    if str(weight).isascii() and str(weight).isdigit() and str(weight) != "1":
        found["weight"] = float(str(weight)[:9])
    return found


def _quotas(one: KubernetesObject) -> Iterable[tuple[str, str, Any]]:
    fields = {"nominalQuota": "quota", "borrowingLimit": "borrowing_limit", "lendingLimit": "lending_limit"}
    for group in one.items("spec.resourceGroups"):
        for flavor in group.items("flavors"):
            name = str(flavor.content.get("name", ""))
            for resource in flavor.items("resources"):
                if resource.content.get("name") != GPU:
                    continue
                for key, field in fields.items():
                    if resource.content.get(key) is not None:
                        yield field, name, resource.content[key]


def _add_quotas(name: str, own: dict[str, int], queues: dict[str, Any]) -> None:
    """Let every cohort above a queue have the queue's own quota too: a cohort's is all that is in it."""
    seen, parent = {name}, queues[name].get("parent")
    while parent is not None and parent not in seen:
        for gpu_type, gpus in own.items():
            queues[parent]["quota"][gpu_type] = queues[parent]["quota"].get(gpu_type, 0) + gpus
        seen.add(parent)
        parent = queues[parent].get("parent")
