"""The text that a run prints: a heading before it, and its results after it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clustergym.common.tables import print_table
from clustergym.results.columns import IN_COLUMNS
from clustergym.results.report.metric_tables import comparison_table, tenants_table, verdict
from clustergym.results.result_writing import FILES
from clustergym.scenario.policy import Placer, Policy
from clustergym.scenario.request_changes import RequestChanges, request_changes
from clustergym.scenario.scenario import Scenario
from clustergym.trace.describe import print_drawn, print_outcomes


def print_heading(
    scenario: Scenario, policies: Sequence[Policy], seed: int, placer: Placer | None = None
) -> None:
    """Print a run's scenario, policies and placer, and what of its trace was generated or changed."""
    gpus = " + ".join(
        f"{count} {name}"
        for count, name in zip(scenario.cluster.capacity, scenario.cluster.gpu_types, strict=True)
    )
    names = " against ".join(policy.name for policy in policies)
    until = "to completion" if scenario.horizon_s is None else f"for {scenario.horizon_s:,.0f} s"
    print(
        f"{names} on scenario {scenario.name} v{scenario.version}: trace {scenario.trace.name} "
        f"({len(scenario.trace):,} jobs), cluster {scenario.cluster.name} ({gpus}), seed {seed}, {until}"
    )
    if placer is not None and placer.defragment_s is not None:
        print(
            f"note: each {placer.defragment_s:,.0f} s placer {placer.name} may move running jobs to closer "
            "nodes, under any policy (never: placer.defragment_s=null)"
        )
    print_drawn(scenario.trace, "trace.rule, trace.any_type, trace.reference_cluster")
    print_outcomes(scenario.trace, "trace.outcomes")
    print_request_changes(request_changes(scenario), len(scenario.trace))


def print_request_changes(changes: RequestChanges, jobs: int) -> None:
    """Print how many jobs' requests were changed in which way, and the setting that decides it."""
    if changes.rounded:
        before, after = changes.largest
        print(
            f"note: {changes.rounded:,} of {jobs:,} GPU counts were rounded up to powers of two, "
            f"{changes.asked_gpus:,} GPUs to {changes.given_gpus:,} in all (at most {before:,} to {after:,}; "
            "keep them: trace.counts=keep)"
        )
    if changes.raised or changes.moved:
        print(
            f"note: jobs that do not fit in memory as they ask: {changes.raised:,} were raised to the least "
            f"count that fits, {changes.moved:,} moved to another GPU type (see jobs.csv)"
        )
    if changes.dropped:
        why = [f"{changes.too_large:,} ask for more GPUs than the cluster has"] * bool(changes.too_large)
        why += [f"{changes.no_time:,} have no iteration time on any of its GPUs"] * bool(changes.no_time)
        print(f"note: {changes.dropped:,} of {jobs:,} jobs are dropped: {', '.join(why)} (see jobs.csv)")


def print_results(results: list[dict[str, Any]], scenario: Scenario, folder: Path, in_full: bool) -> None:
    """Print a table of all metrics (or only of mean JCT, unless `in_full`), and where the files are."""
    where = os.path.relpath(folder) if folder.is_relative_to(Path.cwd()) else str(folder)
    if not in_full:
        stopped = scenario.horizon_s is not None
        jct_s = results[0]["metrics"]["jct_mean_censored" if stopped else "jct_mean"]
        counted = ", unfinished jobs counted to the horizon" * stopped
        counted += _describe_dropped(results[0]["metrics"])
        print(f"mean JCT {'-' if jct_s is None else f'{jct_s:,.0f} s'}{counted}; wrote {where}/")
        return
    metrics = [name for name in results[0]["metrics"] if any(result["metrics"][name] for result in results)]
    print_table(comparison_table(results, metrics))
    if "tenants" in results[0]:
        print_table(tenants_table(results[0]["tenants"]))
    if len(results) > 1 and (sentence := verdict(results, scenario.horizon_s is not None)):
        print(sentence)
    files = [name if (folder / name).exists() else IN_COLUMNS[name] for name in FILES]
    print(f"wrote {where}/: {', '.join(files)}" + (" (and compare/)" if len(results) > 1 else ""))
    if (folder / "report.html").is_file():
        print(f"report: {where}/report.html")
    if "events.jsonl.gz" in files:
        print(f"try next: {_program()} report {shlex.quote(where)} --serve    plays it in the browser")


def _describe_dropped(metrics: Mapping[str, Any]) -> str:
    """Return a clause on the jobs that a mean leaves out because they were dropped, empty if none was."""
    dropped, jobs = metrics["jobs_dropped"], metrics["jobs_total"]
    return f" without {dropped:,} of {jobs:,} jobs, which were dropped" if dropped else ""


def _program() -> str:
    """Return how the command `clustergym` can be called from here."""
    script = Path(sys.executable).with_name("clustergym")
    if shutil.which("clustergym") is not None:
        return "clustergym"
    if not script.is_file():
        return f"{shlex.quote(sys.executable)} -m clustergym"
    return os.path.relpath(script) if script.is_relative_to(Path.cwd()) else str(script)
