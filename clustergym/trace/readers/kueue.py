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
from clustergym.common.kubernetes import GPU, KubernetesObject, quantity, read_objects
from clustergym.common.text_files import read_bytes
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
    """Read all Workloads of Kueue as rows of jobs, with an empty count of those left out, and a digest.

    Raises
    ------
    InputError
        If a file is not a list of objects, or a field of one is not what Kueue writes.
    """
    objects = read_objects(path)
    names, left_out, jobs = Names.from_objects(objects), Counter[str](), []
    for at, one in enumerate(objects):
        if one.kind == "Workload":
            jobs.append(_job(at, one, names))
    return jobs, left_out, hashlib.sha256(read_bytes(path)).hexdigest()


def _job(at: int, one: KubernetesObject, names: Names) -> SlurmJob:
    space, local = one.text("metadata.namespace"), one.text("spec.queueName")
    gpus, flavors = _asked(one), Counter[str]()
    for assigned in one.items("status.admission.podSetAssignments"):
        flavors[str(assigned.get("flavors", dict, {}).get(GPU, ""))] += 1
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


def _asked(one: KubernetesObject) -> int:
    """Return the number of GPUs that all pods of a Workload request."""
    total = 0
    for pods in one.items("spec.podSets"):
        each = 0
        for container in pods.items("template.spec.containers"):
            limits = container.get("resources.limits", dict, {})
            asked = container.get("resources.requests", dict, {}).get(GPU, limits.get(GPU, 0))
            each += quantity(one, f"spec.podSets: {GPU}", asked)
        total += each * quantity(one, "spec.podSets: count", pods.get("count", int, 1))
    if total > MAX_GPUS:
        raise one.error("spec.podSets", f"{total} GPUs are more than {MAX_GPUS}")
    return total


def _course(one: KubernetesObject) -> tuple[float, float, str]:
    """Return when a workload started and ended, NaN if it did not, and how."""
    times, outcome = dict[str, float](), ""
    for condition in one.items("status.conditions"):
        condition_type = condition.text("type")
        if condition.text("status") != "True":
            continue
        times[condition_type] = _moment(one, condition_type, condition.text("lastTransitionTime"))
        if condition_type == "Finished":
            said = f"{condition.text('reason')} {condition.text('message')}".lower()
            failed = "fail" in said or "error" in said
            outcome = FAILED if failed else KILLED if "deactivat" in said or "delet" in said else COMPLETED
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
