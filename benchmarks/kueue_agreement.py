"""How often policy kueue decides as Kueue's own scheduler, on drawn instances whose verdicts were recorded.

`python benchmarks/kueue_agreement.py --data FOLDER [--json FILE]`, where FOLDER holds `instances.jsonl.gz`
and `verdicts.jsonl.gz`. In scope are instances of one flavor, with the same policies for all queues and
without a priority threshold, on which Kueue came to rest and answered alike in all runs; the others that came
to rest are told separately. Two decisions agree if in the end the same jobs run on the same flavors, and the
same jobs were ever preempted.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from clustergym.operators.policies.cohorts import QuotaNode
from clustergym.operators.policies.kueue_cycles import CycleResult, KueueScheduler
from clustergym.operators.policies.kueue_victims import KueueJob, QueueRules, QuotaHolders

from clustergym.common.errors import InputError
from clustergym.common.reading import read_json_lines

RULES = {
    "Never": "never",
    "LowerPriority": "lower_priority",
    "LowerOrNewerEqualPriority": "lower_or_newer",
    "Any": "any",
}
REMEDY = "give the folder with instances.jsonl.gz and verdicts.jsonl.gz"


def read_rows(path: Path) -> dict[int, Mapping[str, Any]]:
    """Return the objects of a file by their `id`."""
    rows = read_json_lines(path, largest_bytes=10**9, longest_line_bytes=10**6, remedy=REMEDY)
    return {row["id"]: row for _, row in rows}


def build_trees(instance: Mapping[str, Any]) -> dict[str, QuotaNode]:
    """Return the queues of an instance by name; one without a cohort is a tree of its own."""
    flavors = tuple(instance["flavors"])
    below: dict[str | None, list[tuple[Mapping[str, Any], bool]]] = {}
    for row in instance["cohorts"]:
        below.setdefault(row["parent"], []).append((row, True))
    alone = []
    for row in instance["queues"]:
        if row.get("cohort") is None:
            alone.append(QuotaNode(gpu_types=flavors, **_amounts(row)))
        else:
            below.setdefault(row["cohort"], []).append((row, False))

    def build(row: Mapping[str, Any], is_cohort: bool) -> QuotaNode:
        inside = below.get(row["name"], []) if is_cohort else []
        children = [build(*one) for one in inside]
        return QuotaNode(gpu_types=flavors, **_amounts(row), children=children)

    roots = [build(row, True) for row, _ in below.get(None, [])] + alone
    nodes = {node.name: node for root in roots for node in root.walk()}
    return {row["name"]: nodes[row["name"]] for row in instance["queues"]}


def _amounts(row: Mapping[str, Any]) -> dict[str, Any]:
    def limits(key: str) -> dict[str, float]:
        given = {flavor: quota.get(key) for flavor, quota in row.get("quota", {}).items()}
        return {flavor: math.inf if most is None else most for flavor, most in given.items()}

    return {
        "name": row["name"],
        "weight": float(row.get("weight", 1)),
        "nominal": {flavor: quota["nominal"] for flavor, quota in row.get("quota", {}).items()},
        "lending_limit": limits("lending_limit"),
        "borrowing_limit": limits("borrowing_limit"),
    }


def build_scheduler(instance: Mapping[str, Any]) -> tuple[KueueScheduler, list[KueueJob]]:
    """Return the scheduler of an instance and its jobs, in their order."""
    queues = build_trees(instance)
    rows = {row["name"]: row for row in instance["queues"]}
    rules = {}
    for name, node in queues.items():
        given = {**instance.get("policies", {}), **rows[name]}
        rules[node] = QueueRules(
            strict=given.get("strategy") == "StrictFIFO",
            within_queue=RULES[given.get("within_cluster_queue", "Never")],
            reclaim=RULES[given.get("reclaim_within_cohort", "Never")],
            borrow=RULES[given.get("borrow_within_cohort", "Never")],
            most_priority=given.get("borrow_max_priority"),
        )
    flavors = list(instance["flavors"])
    holders = QuotaHolders(rules, [math.inf] * len(flavors))
    jobs = []
    # Ties are broken by name, in which a workload's number is padded.
    order = {
        row["name"]: at for at, row in enumerate(sorted(instance["workloads"], key=lambda row: row["name"]))
    }
    for row in instance["workloads"]:
        queue = row["queue"]
        options = tuple(flavors.index(flavor) for flavor in rows[queue]["quota"])
        job = KueueJob(
            order[row["name"]], queues[queue], row["gpus"], row["priority"], row["created"], options
        )
        if "admitted" in row:
            job.gpu_type, job.admitted = flavors.index(row["flavor"]), row["admitted"]
            holders.count(job)
            holders.jobs[job.queue].append(job)
        jobs.append(job)
    waiting = [job for job in jobs if job.gpu_type < 0]
    return KueueScheduler(holders, waiting, instance["fair_sharing"]), jobs


def is_in_scope(instance: Mapping[str, Any], verdict: Mapping[str, Any]) -> bool:
    """Whether an instance has one flavor, equal policies for all queues, no threshold, and came to rest."""
    alike = not any("strategy" in row for row in instance["queues"])
    threshold = instance.get("policies", {}).get("borrow_max_priority") is not None
    return (
        len(instance["flavors"]) == 1 and alike and not threshold and verdict["settled"] and verdict["stable"]
    )


def find_features(instance: Mapping[str, Any], verdict: Mapping[str, Any]) -> list[str]:
    """Return what an instance has that may matter, by which agreement is told."""
    reasons = {
        victim["reason"] for cycle in verdict["cycles"] for victim in cycle.get("preempted", {}).values()
    }
    quotas = [q for row in (*instance["cohorts"], *instance["queues"]) for q in row.get("quota", {}).values()]
    policies = [instance.get("policies", {}), *instance["queues"]]
    found = {
        "fair sharing": instance["fair_sharing"],
        "several flavors": len(instance["flavors"]) > 1,
        "policies per queue": any("strategy" in row for row in instance["queues"]),
        "priority threshold": any("borrow_max_priority" in row for row in policies),
        "lending limit": any("lending_limit" in quota for quota in quotas),
        "borrowing limit": any("borrowing_limit" in quota for quota in quotas),
        "nested cohorts": any(row["parent"] is not None for row in instance["cohorts"]),
        "strict FIFO": any(row.get("strategy") == "StrictFIFO" for row in policies),
        "preempts": bool(reasons),
        "came to rest": verdict["settled"] and verdict["stable"],
    }
    return [*(name for name, has in found.items() if has), *sorted(reasons)]


def _describe_cycle(cycle: CycleResult, names: Mapping[int, str], flavors: list[str]) -> dict[str, Any]:
    return {
        "admitted": {names[id(job)]: flavors[at] for job, at in cycle.admitted},
        "preempted": sorted(names[id(job)] for job, _ in cycle.preempted),
    }


def compare(instance: Mapping[str, Any], verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of an instance: whether the decisions agree, and where they differ."""
    scheduler, jobs = build_scheduler(instance)
    names = {id(job): row["name"] for job, row in zip(jobs, instance["workloads"], strict=True)}
    flavors = list(instance["flavors"])
    cycles = [_describe_cycle(one, names, flavors) for one in scheduler.run(instance["now"])]
    final = {names[id(job)]: flavors[job.gpu_type] for job in jobs if job.gpu_type >= 0}
    preempted = {name for cycle in cycles for name in cycle["preempted"]}
    theirs = {name for cycle in verdict["cycles"] for name in cycle.get("preempted", {})}
    first = verdict["cycles"][0] if verdict["cycles"] else {}
    differs = []
    if final != verdict["final_admitted"]:
        both = sorted(set(final.items()) ^ set(verdict["final_admitted"].items()))
        differs.append("runs: " + ", ".join(f"{name} on {flavor}" for name, flavor in both))
    if preempted != theirs:
        differs.append("preempted: " + ", ".join(sorted(preempted ^ theirs)))
    return {
        "id": instance["id"],
        "in_scope": is_in_scope(instance, verdict),
        "features": find_features(instance, verdict),
        "first_cycle_agrees": cycles[0]["admitted"] == first.get("admitted", {})
        and cycles[0]["preempted"] == sorted(first.get("preempted", {})),
        "agrees": not differs,
        "differs": differs,
    }


def print_table(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print how many instances agree, in scope, beyond it, and by feature."""
    rested = [row for row in rows if "came to rest" in row["features"]]
    groups = {
        "in scope": [row for row in rested if row["in_scope"]],
        "beyond scope": [row for row in rested if not row["in_scope"]],
    }
    counts = Counter(name for row in rested for name in row["features"])
    for name, _ in counts.most_common():
        groups[f"  {name}"] = [row for row in rested if name in row["features"]]
    print(f"{'instances that came to rest':<34} {'n':>6} {'first cycle':>12} {'agrees':>8}")
    for name, group in groups.items():
        if group:
            first = sum(row["first_cycle_agrees"] for row in group) / len(group)
            agrees = sum(row["agrees"] for row in group) / len(group)
            print(f"{name:<34} {len(group):>6} {first:>12.4f} {agrees:>8.4f}")
    for row in rested:
        if not row["agrees"]:
            print(f"instance {row['id']}: {'; '.join(row['differs'])}")


def main() -> None:
    """Compare all instances of a folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    arguments = parser.parse_args()
    try:
        instances = read_rows(arguments.data / "instances.jsonl.gz")
        verdicts = read_rows(arguments.data / "verdicts.jsonl.gz")
    except InputError as error:
        print(f"kueue_agreement: {error}", file=sys.stderr)
        sys.exit(2)
    rows = [compare(instance, verdicts[at]) for at, instance in instances.items()]
    print_table(rows)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
        print(f"wrote {arguments.json}")


if __name__ == "__main__":
    main()
