"""Sia's page (SOSP '23): 64 GPUs of three types, its own simulator's workloads and profiles."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from clustergym.common.tables import table
from clustergym.scenario.scenario import Scenario

from . import page
from .claim_files import judge_claims, published
from .claims import FAIR as FAIR_RULES
from .claims import PUBLISHED as AS_PUBLISHED
from .claims import difference
from .reproduction import (
    Figures,
    Found,
    Options,
    Parameters,
    RunSpec,
    check_published,
    choose,
    number,
    run_all,
)

SUMMARY = "64 GPUs of three types, its workloads and profiles (SOSP '23)"
POLICIES = ("sia", "gavel", "pollux", "ares", "fcfs")
WORKLOADS = (("philly", 1), ("saturn", 1))
"""Those of which its own simulator's figures are published."""
SLOW = ("pollux",)
"""The quick form leaves these policies out."""

FAIR, PUBLISHED = "exact counts", "its job lengths"
_FAIR = ("costs=sia", "scenario.counts=any")
SETTINGS: Mapping[str, tuple[str, ...]] = {
    FAIR: _FAIR,
    PUBLISHED: (*_FAIR, "costs.first_launch=true", "trace.sia_lengths=noise"),
}
NAMES = {FAIR: "fair", PUBLISHED: "as published"}

ROWS: Mapping[str, tuple[str, Parameters]] = {
    "sia": ("sia", ()),
    "gavel max-sum": ("gavel", (("objective", "max_total_throughput"),)),
    "gavel max-min": ("gavel", (("objective", "max_min_fairness"),)),
    "pollux": ("pollux", ()),
    "ares": ("ares", ()),
    "fcfs": ("fcfs", ()),
}
"""Policy and parameters of each row."""

REFERENCE: Mapping[str, Mapping[str, Figures]] = published("sia")
"""What the paper's own simulator gave, by workload and row: hours, and restarts a job."""
PUBLISHED_ROWS = {label for rows in REFERENCE.values() for label in rows}


def reproduce(options: Options) -> page.Report:
    """Simulate the runs that reproduce the paper Sia, and return its page with the results."""
    folder = options.data / "sia" / "workloads"
    check_published(folder / trace_type / f"workload-{at}.csv" for trace_type, at in WORKLOADS)
    chosen, note = choose(POLICIES, options.policies)
    traces = [f"{trace_type}-{at}" for trace_type, at in WORKLOADS]
    known = [
        (name, label) for name in traces for label in REFERENCE.get(name, ()) if ROWS[label][0] in chosen
    ]
    sections = [page.words(page.passage("sia", "settings"))]
    for name in traces:
        slow = SLOW if options.quick and not options.policies else ()
        labels = [label for label, (policy, _) in ROWS.items() if policy in chosen and policy not in slow]
        sections.append(_workload(name, labels))
    found = run_all(page.list_specs(sections), build_run_scenario, options)
    introduction = page.passage("sia", "introduction") + note
    claims = judge_claims("sia", sia_figures(known, found))
    return page.make_report(introduction, claims, sections, found)


def _spec(trace: str, label: str, setting: str) -> RunSpec:
    return RunSpec(trace, None, setting, *ROWS[label])


def build_run_scenario(data: Path, spec: RunSpec) -> Scenario:
    """Build a run's scenario from its trace and setting."""
    return _scenario(data, spec.trace, spec.setting)


@cache
def _scenario(data: Path, trace: str, setting: str) -> Scenario:
    from clustergym.scenario.by_name import load_scenario

    folder = data.absolute() / "sia"
    trace_type, _, at = trace.rpartition("-")
    overrides = [
        *("cluster=sia-64", "trace=file", "oracle=sia"),
        f"oracle.path='{folder / 'profiles'}'",
        f"trace.path='{folder / 'workloads' / trace_type / f'workload-{at}.csv'}'",
        f"trace.sia_profiles='{folder / 'profiles'}'",
        *SETTINGS[setting],
    ]
    return replace(load_scenario("ares", overrides), rounds="policy")


def sia_figures(known: Sequence[tuple[str, str]], found: Found) -> dict[str, Any]:
    """Return the figures that the file of Sia's claims names, for the published rows that were run.

    `gains` has the change of Sia's mean JCT in percent.
    """
    figures = _nested()
    for trace, label in known:
        told = REFERENCE[trace][label]
        for setting, rules in ((FAIR, FAIR_RULES), (PUBLISHED, AS_PUBLISHED)):
            ours = figures[rules][trace][label] = _in_hours(found[_spec(trace, label, setting)])
            if label != "sia" and (trace, "sia") in known:
                runs = (found[_spec(trace, row, setting)] for row in ("sia", label))
                figures[rules]["gains"][trace][label] = difference(*(run["jct_mean"] for run in runs))
        figures["gains"][trace][label] = difference(REFERENCE[trace]["sia"]["jct_h"], told["jct_h"])
        figures["launches"][trace][label] = ours["restarts"] + 1
    return figures


def _nested() -> dict[str, Any]:
    """Return a mapping that makes the mappings below it as they are named."""
    return defaultdict(_nested)


def _in_hours(run: Figures) -> dict[str, float]:
    hours = {name: run[metric] / 3600 for name, metric in (("jct_h", "jct_mean"), ("makespan_h", "makespan"))}
    return {**hours, "restarts": run["restarts_mean"]}


def _reference(spec: RunSpec, label: str) -> Figures:
    """Return what the paper's own simulator gave for a run as published; nothing for others."""
    return REFERENCE.get(spec.trace, {}).get(label, {}) if spec.setting == PUBLISHED else {}


def _workload(trace: str, labels: Sequence[str]) -> page.Section:
    """Return the table of a workload: rows that were published, then all under fair rules."""
    published = [(label, PUBLISHED) for label in labels if label in PUBLISHED_ROWS]
    rows = {
        (label, NAMES[setting]): _spec(trace, label, setting)
        for label, setting in (*published, *((label, FAIR) for label in labels))
    }
    headers = ["policy", "setting", "mean JCT, h", "published", "p99, h", "makespan, h", "published"]

    def text(found: Found) -> str:
        lines = []
        for names, spec in rows.items():
            known = _reference(spec, names[0])
            jct, p99, makespan, restarts = (figure.format_figure(found[spec]) for figure in COLUMNS)
            pairs = (jct, number(known.get("jct_h"), 3), p99, makespan, number(known.get("makespan_h"), 1))
            lines.append([*names, *pairs, restarts, number(known.get("restarts"), 1)])
        return f"## {trace}\n\n{table([*headers, 'restarts a job', 'published'], lines)}"

    return page.Section(list(rows.values()), text)


JCT = page.RunColumn("mean JCT, h", "jct_mean", 3, "h")
COLUMNS = (JCT, page.RunColumn("", "jct_p99", 2, "h"), page.RunColumn("", "makespan", 1, "h"), page.RESTARTS)
