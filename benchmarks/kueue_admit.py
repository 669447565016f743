"""How often `clustergym twin admit` answers as Kueue's own scheduler, on instances with recorded verdicts.

`python benchmarks/kueue_admit.py --data FOLDER [--instances N] [--json FILE]`. Of each instance in scope
(`kueue_agreement.is_in_scope`) one waiting workload is taken as the one not submitted yet; everything is
written as Kueue's objects and read by the commands that an operator uses. Two answers agree if the job starts
now by `admit`, and is admitted in the end by Kueue, or neither.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from clustergym.operators.twin.admit import Admission, Request, read_request
from clustergym.operators.twin.ahead import Ahead
from clustergym.operators.twin.folder import TwinFolder, read_rules, write_rules
from kueue_agreement import is_in_scope, read_rows

from clustergym.common.columns import iso
from clustergym.common.errors import InputError
from clustergym.trace.present import read_queue

GPU, TYPE = "nvidia.com/gpu", "A100"


def _moment(second: float) -> str:
    return f"{iso(1_772_323_200 + round(second))}Z"


def _quotas(row: Mapping[str, Any]) -> dict[str, Any]:
    keys = {"nominal": "nominalQuota", "borrowing_limit": "borrowingLimit", "lending_limit": "lendingLimit"}
    flavors = [
        {"name": TYPE, "resources": [{"name": GPU} | {keys[key]: most for key, most in quota.items()}]}
        for quota in row.get("quota", {}).values()
    ]
    spec: dict[str, Any] = {"fairSharing": {"weight": str(row.get("weight", 1))}}
    return spec | ({"resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}]} if flavors else {})


def make_rules(instance: Mapping[str, Any]) -> dict[str, Any]:
    """Return an instance's queues and cohorts as a list of Kueue's objects."""
    rules = instance.get("policies", {})
    reclaim, borrow = rules.get("reclaim_within_cohort", "Never"), rules.get("borrow_within_cohort", "Never")
    preemption = {
        "reclaimWithinCohort": reclaim,
        "withinClusterQueue": rules.get("within_cluster_queue", "Never"),
        "borrowWithinCohort": {"policy": borrow},
    }
    items = []
    for row in instance["cohorts"]:
        parent = {"parentName": row["parent"]} if row["parent"] else {}
        items.append({"kind": "Cohort", "metadata": {"name": row["name"]}, "spec": _quotas(row) | parent})
    for row in instance["queues"]:
        spec = _quotas(row) | ({"cohortName": row["cohort"]} if row.get("cohort") else {})
        spec |= {"preemption": preemption, "queueingStrategy": rules.get("strategy", "BestEffortFIFO")}
        items.append({"kind": "ClusterQueue", "metadata": {"name": row["name"]}, "spec": spec})
    return {"apiVersion": "v1", "kind": "List", "items": items}


def make_workload(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a workload of an instance as Kueue's object."""
    container = {"resources": {"requests": {GPU: str(row["gpus"])}}}
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    meta = {"name": row["name"], "namespace": "a", "creationTimestamp": _moment(row["created"])}
    spec = {"queueName": row["queue"], "priority": row["priority"], "podSets": [pods]}
    status: dict[str, Any] = {}
    if "admitted" in row:
        at = {"type": "Admitted", "status": "True", "lastTransitionTime": _moment(row["admitted"])}
        assigned = [{"name": "main", "count": 1, "flavors": {GPU: TYPE}}]
        status = {
            "conditions": [at],
            "admission": {"clusterQueue": row["queue"], "podSetAssignments": assigned},
        }
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": meta,
        "spec": spec,
        "status": status,
    }


def ask(instance: Mapping[str, Any], folder: Path) -> tuple[str, bool]:
    """Write an instance as files; return the job in question, and whether `admit` starts it now."""
    waiting = [row for row in instance["workloads"] if "admitted" not in row]
    asked = waiting[instance["id"] % len(waiting)]
    files = {
        "queues.json": make_rules(instance),
        "now.json": {
            "apiVersion": "v1",
            "kind": "List",
            "items": [make_workload(row) for row in instance["workloads"] if row is not asked],
        },
        "job.json": make_workload(asked),
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    rules = read_rules([folder / "queues.json"], "account", instance["fair_sharing"])
    write_rules(folder, rules.queues, rules.policy, "queues.json")
    quotas = [row.get("quota", {}) for row in (*instance["cohorts"], *instance["queues"])]
    count = sum(quota["nominal"] for row in quotas for quota in row.values())
    nodes = f"name: drawn\nnodes:\n- {{gpu_type: {TYPE}, count: {max(count, 1)}, gpus_per_node: 1}}\n"
    (folder / "cluster.yaml").write_text(nodes)
    start = _moment(0)[:-1]
    head = "job_id,submit_time,start_time,duration,gpus,gpu_type,user,virtual_cluster,outcome"
    log = f"{head}\n0,{start},{start},3600,1,{TYPE},a,{instance['queues'][0]['name']},completed\n"
    (folder / "log.csv").write_text(log)
    present = read_queue(folder / "now.json", _moment(instance["now"])[:-1])
    request = read_request(folder / "job.json", present.now_s)
    # It is submitted now, but Kueue was asked with the time at which it was created.
    created_s = present.now_s - instance["now"] + asked["created"]
    request = Request(replace(request.job, submit_s=created_s))
    answer = Admission(Ahead(TwinFolder(folder), present)).decide_now(request)
    return asked["name"], answer["what"] == "start"


def main() -> int:
    """Compare the answers; print their agreement, and write it; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--instances", type=int, default=200)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    instances = read_rows(options.data / "instances.jsonl.gz")
    verdicts = read_rows(options.data / "verdicts.jsonl.gz")
    found, wrong = Counter[bool](), list[int]()
    for at, instance in instances.items():
        waits = any("admitted" not in row for row in instance["workloads"])
        if sum(found.values()) == options.instances or not (waits and is_in_scope(instance, verdicts[at])):
            continue
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
            name, starts = ask(instance, Path(folder))
        agrees = starts == (name in verdicts[at]["final_admitted"])
        found[agrees] += 1
        wrong += [] if agrees else [at]
    n = sum(found.values())
    print(f"{found[True]} of {n} answers agree ({found[True] / n:.1%}); not: {wrong}")
    if options.json:
        options.json.write_text(json.dumps({"agree": found[True], "n": n, "not": wrong}) + "\n")
        print(f"wrote {options.json}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
