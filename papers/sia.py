"""Sia's page (SOSP '23): 64 GPUs of three types, its own simulator's workloads and profiles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.common import random_streams
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
    change,
    check_published,
    choose,
    column,
    number,
    run_all,
)

SUMMARY = "64 GPUs of three types, its workloads and profiles (SOSP '23)"
POLICIES = ("sia", "gavel", "pollux", "ares", "fcfs")
WORKLOADS = (("philly", 1), ("saturn", 1))
"""Those of which its own simulator's figures are published."""
JITTER_S, JITTERS = 60.0, 6
SLOW = ("pollux",)
"""The quick form leaves these policies out."""

_FIRST_LAUNCH = ("costs=sia", "scenario.counts=any", "costs.first_launch=true")
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "Ares's restarts": ("costs=ares-profiled-free",),
    "Sia's restarts": ("costs=sia",),
    "exact counts": ("costs=sia", "scenario.counts=any"),
    "first launch charged": _FIRST_LAUNCH,
    "its job lengths": (*_FIRST_LAUNCH, "trace.sia_lengths=noise"),
}
"""Steps from other rules towards those of its simulator; each step keeps all before it."""
FAIR, PUBLISHED = "exact counts", "its job lengths"
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

_OURS: Parameters = (("solve_interval_s", 0.0), ("second_stage", True), ("hold_ties", True))
GAVEL_STEPS: Mapping[str, Parameters] = {
    "one program": (*_OURS[:1], *_OURS[2:]),
    "ties to the first type": _OURS[:1],
    "a solution each 1,920 s": (),
}
"""Further steps from our rules for Gavel, `_OURS`, towards its own."""
SIA_CHANGES: Mapping[str, Parameters] = {
    "none": (),
    "requested batch": (("batch", "requested"),),
    "no hold through a restart": (("hold", False),),
    "no restart factor of waiting jobs": (("waiting_factor", False),),
}
"""Changes of its published policy, tried one at a time."""


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
        if not options.quick and name in REFERENCE:
            sections.append(_ladder(name, [label for trace, label in known if trace == name]))
            sections += [_changes(name)] if "sia" in chosen else []
    late = [] if options.quick else [spec for row in known for spec in _make_jittered_specs(*row)]
    found = run_all([*page.list_specs(sections), *late], build_run_scenario, options)
    introduction = page.passage("sia", "introduction") + note
    claims = judge_claims("sia", sia_figures(known, found))
    return page.make_report(introduction, claims, sections, found, plain=_plain)


def _spec(trace: str, label: str, setting: str, more: Parameters = ()) -> RunSpec:
    policy, parameters = ROWS[label]
    return RunSpec(trace, None, setting, policy, (*parameters, *more))


def _make_jittered_specs(trace: str, label: str) -> list[RunSpec]:
    return [_spec(f"{trace} jitter {at}", label, PUBLISHED) for at in range(JITTERS)]


def build_run_scenario(data: Path, spec: RunSpec) -> Scenario:
    """Build a run's scenario; a trace named `... jitter N` has each job delayed at random by seed N."""
    trace, _, jitter = spec.trace.partition(" jitter ")
    scenario = _scenario(data, trace, spec.setting)
    if not jitter:
        return scenario
    late_s = random_streams.SUBMISSION_JITTER.generator(int(jitter)).uniform(0, JITTER_S, len(scenario.trace))
    submit_s = np.maximum.accumulate(scenario.trace.submit_s + np.round(late_s, 6))
    return replace(scenario, trace=replace(scenario.trace, submit_s=submit_s))


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

    `late` has the runs whose submissions are late at random, `gains` the change of Sia's mean JCT in percent.
    """
    figures = _nested()
    figures["jitter_s"] = JITTER_S
    for trace, label in known:
        told = REFERENCE[trace][label]
        for setting, rules in ((FAIR, FAIR_RULES), (PUBLISHED, AS_PUBLISHED)):
            ours = figures[rules][trace][label] = _in_hours(found[_spec(trace, label, setting)])
            if label != "sia" and (trace, "sia") in known:
                runs = (found[_spec(trace, row, setting)] for row in ("sia", label))
                figures[rules]["gains"][trace][label] = difference(*(run["jct_mean"] for run in runs))
        figures["gains"][trace][label] = difference(REFERENCE[trace]["sia"]["jct_h"], told["jct_h"])
        figures["launches"][trace][label] = ours["restarts"] + 1
        late = [_in_hours(found[spec]) for spec in _make_jittered_specs(trace, label) if spec in found]
        for metric in told if late else ():
            hours = [run[metric] for run in late]
            inside = min(hours) <= told[metric] <= max(hours)
            figures["late"][trace][label][metric] = {
                "runs": len(late),
                "least": min(hours),
                "most": max(hours),
                "mean": sum(hours) / len(hours),
                "where": "inside" if inside else "outside",
            }
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


def _ladder(trace: str, labels: Sequence[str]) -> page.Section:
    """Return a workload's published rows, step by step towards the rules of its simulator."""
    steps: dict[str, list[RunSpec | None]] = {
        setting: [_spec(trace, label, setting, () if label == "sia" else _OURS) for label in labels]
        for setting in SETTINGS
    }
    for step, rule in GAVEL_STEPS.items():
        row = [None if label == "sia" else _spec(trace, label, PUBLISHED, rule) for label in labels]
        steps[f"{step} (Gavel)"] = row

    def text(found: Found) -> str:
        hours = [[found[spec]["jct_mean"] / 3600 if spec else None for spec in row] for row in steps.values()]
        rows = [[step, *column(row, 3)] for step, row in zip(steps, hours, strict=True)]
        known = [REFERENCE[trace][label]["jct_h"] for label in labels]
        last = [next(filter(None, reversed(steps))) for steps in zip(*hours, strict=True)]
        rows.append(["*published*", *column(known, 3)])
        rows.append(["the last against it", *map(change, last, known)])
        return f"{page.passage('sia', 'ladder')}\n\n{table(['rule', *labels], rows)}"

    return page.Section([spec for row in steps.values() for spec in row if spec], text)


def _changes(trace: str) -> page.Section:
    rows = {(name,): _spec(trace, "sia", PUBLISHED, more) for name, more in SIA_CHANGES.items()}
    return page.runs_table(page.passage("sia", "changes"), ["change"], rows, [JCT, page.RESTARTS])


def _plain(spec: RunSpec, figures: Figures) -> dict[str, Any]:
    own = {(spec.policy, (parameter,)) for parameter in spec.parameters} | {(spec.policy, ())}
    label = next(name for name, row in ROWS.items() if row in own)
    known = _reference(spec, label).get("jct_h")
    named = {"policy": label, "setting": NAMES.get(spec.setting, spec.setting)}
    return {**spec.plain(figures), **named, "published_jct_s": known and known * 3600}
