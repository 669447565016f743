"""Read a list of Kueue's Workloads, with the LocalQueues and ResourceFlavors in the same file."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from clustergym.cluster.node_lists import read_product
from clustergym.cluster.slurm_text import known_type
from clustergym.common.columns import MAX_GPUS, parse_seconds
from clustergym.common.errors import shorten_text
from clustergym.common.kubernetes import KubernetesObject, count_gpus, quantity, read_objects
from clustergym.common.left_out import not_read
from clustergym.common.text_files import read_bytes
from clustergym.trace.outcomes import UNKNOWN
from clustergym.trace.readers.sacct import SlurmJob, build_log
from clustergym.trace.records import RecordedJobs
from clustergym.trace.trace import COMPLETED, FAILED, KILLED

NAME = "kueue"


@dataclass
class Names:
    """Lookup for a file of Kueue's Workloads: cluster queues by local queue, and GPU types by flavor.

    Attributes
    ----------
    queue_of : dict
        Cluster queue by (namespace, local queue).
    type_of : dict
        GPU type by flavor.
    """

    queue_of: dict[tuple[str, str], str] = field(default_factory=dict)
    type_of: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_objects(cls, objects: Sequence[KubernetesObject]) -> Names:
        """Read from Kubernetes objects each local queue's cluster queue and each flavor's GPU type."""
        found = cls()
        for one in objects:
            if one.kind == "LocalQueue":
                found.queue_of[one.text("metadata.namespace"), one.name] = one.text("spec.clusterQueue")
            if one.kind == "ResourceFlavor":
                found.type_of[one.name] = read_product(one.labels(), one.name)
        return found


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file's first lines look like an object of Kueue or a list of Kubernetes objects."""
    text = "".join(lines)
    return "apiVersion" in text and ("kueue.x-k8s.io" in text or "kind: List" in text or '"List"' in text)


def read_rows(path: Path) -> tuple[list[SlurmJob], Counter[str], str]:
    """Read all Workloads of Kueue as rows of jobs, with a count of those left out by reason, and a digest."""
    objects = read_objects(path, ("Workload", "LocalQueue", "ResourceFlavor"))
    names, left_out, jobs = Names.from_objects(objects), Counter[str](), []
    for one in objects:
        if one.kind == "Workload":
            gpus, resource, parts = _asked(one)
            # Counted by a reason of their own, and not as CPU jobs: they hold GPUs that others then lack.
            if parts:
                left_out[f"asks for {shorten_text(parts[0], 60)}, a part of a GPU"] += 1
            else:
                jobs.append(_job(one, names, gpus, resource))
    return jobs, left_out, hashlib.sha256(read_bytes(path)).hexdigest()


def _job(one: KubernetesObject, names: Names, gpus: int, resource: str) -> SlurmJob:
    space, local = one.text("metadata.namespace"), one.text("spec.queueName")
    flavors = Counter[str]()
    for assigned in one.items("status.admission.podSetAssignments"):
        flavors[str(assigned.get("flavors", dict, {}).get(resource, ""))] += 1
    flavor = flavors.most_common(1)[0][0] if flavors else ""
    start_s, end_s, outcome = _course(one)
    state = "PENDING" if start_s != start_s else "RUNNING" if end_s != end_s else "COMPLETED"
    limit, urgent = one.get("spec.maximumExecutionTimeSeconds", int, 0), one.get("spec.priority", int, 0)
    if abs(urgent) >= 2**31:
        raise one.error("spec.priority", "is beyond 2^31")
    queue = one.text("status.admission.clusterQueue") or names.queue_of.get((space, local), local)
    return SlurmJob(
        line=0,
        job_id=f"{space}/{one.name}",
        user=space,
        account=queue,
        partition=local,
        qos=str(urgent),
        state=state,
        outcome=outcome,
        submit_s=_moment(one, "metadata.creationTimestamp", one.text("metadata.creationTimestamp")),
        start_s=start_s,
        end_s=end_s,
        duration_s=max(end_s - start_s, 0.0) if state == "COMPLETED" else float("nan"),
        limit_s=float(limit) if 0 < limit < 10**9 else float("nan"),
        gpus=gpus,
        gpu_type=(names.type_of.get(flavor) or known_type(flavor)) if flavor else "",
        from_request=False,
    )


def _asked(one: KubernetesObject) -> tuple[int, str, list[str]]:
    """Return the GPUs of all pods of a Workload, their resource, and parts of GPUs that they ask for.

    A workload that was admitted in part has fewer pods than it asked for (Kueue, Partial admission).
    """
    admitted = {
        assigned.text("name"): assigned.get("count", int, None)
        for assigned in one.items("status.admission.podSetAssignments")
    }
    total, resources, parts = 0, set[str](), list[str]()
    for pods in one.items("spec.podSets"):
        # Init containers run one after the other before the others, which run together.
        groups = [[container] for container in pods.items("template.spec.initContainers")]
        each = 0
        for group in (pods.items("template.spec.containers"), *groups):
            needed = 0
            for container in group:
                asked = container.get("resources.limits", dict, {}) | container.get(
                    "resources.requests", dict, {}
                )
                gpus, resource, some = count_gpus(one, "spec.podSets", asked)
                needed += gpus
                parts += some
                resources |= {resource} - {""}
            each = max(each, needed)
        # A pod set of which 0 are admitted needs 0: only a missing number means all.
        count = admitted.get(pods.text("name"))
        count = pods.get("count", int, 1) if count is None else count
        total += each * quantity(one, "spec.podSets: count", count)
    if total > MAX_GPUS:
        raise one.error("spec.podSets", f"{total} GPUs are more than {MAX_GPUS}")
    if len(resources) > 1:
        raise one.error("spec.podSets", f"asks for {' and '.join(sorted(resources))}, GPUs of two vendors")
    return total, next(iter(resources), ""), parts


KILLED_FOR = (
    *("AdmissionChecksRejected", "OutOfSync", "OwnerNotFound", "WorkloadNotFound", "Deactivated"),
    *("InactiveWorkload", "MaximumExecutionTimeExceeded", "RequeuingLimitExceeded"),
)
REASONS = {"Succeeded": COMPLETED, "Failed": FAILED, **dict.fromkeys(KILLED_FOR, KILLED)}
"""Reasons of Kueue's condition `Finished` -> outcomes."""


def _read_outcome(condition: KubernetesObject) -> str:
    reason, message = condition.text("reason"), condition.text("message").lower()
    if reason == "JobFinished":
        # Until 0.9 Kueue had one reason for all, and copied the words of the job's own condition.
        return COMPLETED if "success" in message or not message else FAILED
    if reason not in REASONS:
        not_read([f"reason {reason} of the condition Finished"])
    return REASONS.get(reason, UNKNOWN)


def _course(one: KubernetesObject) -> tuple[float, float, str]:
    """Return when a workload started and ended, NaN if it did not, and how."""
    times, outcome = dict[str, float](), ""
    for condition in one.items("status.conditions"):
        condition_type = condition.text("type")
        if condition.text("status") != "True":
            continue
        times[condition_type] = _moment(one, condition_type, condition.text("lastTransitionTime"))
        if condition_type == "Finished":
            outcome = _read_outcome(condition)
    # With admission checks a quota is reserved some time before a workload may start.
    start_s = times.get("Admitted", times.get("QuotaReserved", float("nan")))
    return start_s, times.get("Finished", float("nan")), outcome


def _moment(one: KubernetesObject, field: str, text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError as problem:
        raise one.error(field, str(problem)) from problem


def read_log(path: Path) -> RecordedJobs:
    """Read those Workloads of Kueue that ran; their models are not named.

    Submission is the object's creation, the start its last admission, the end the condition `Finished`; the
    team is the cluster queue, the user the namespace, the partition the local queue. A workload that still
    runs is taken to end with the last event of the list.
    """
    rows, left_out, sha256 = read_rows(path)
    found = build_log(path, NAME, sha256, rows, left_out, {})
    priority = {job.job_id: int(job.qos) for job in rows}
    return replace(found, priority=np.array([priority.get(name, 0) for name in found.job_id], dtype=np.int64))
