"""Sia's page (SOSP '23): 64 GPUs of three types, its own simulator's workloads and profiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustergym.common import random_streams
from clustergym.common.tables import table
from clustergym.scenario.scenario import Scenario

from . import page, reproduction
from .claims import PaperClaim, difference, quantity
from .reproduction import change, column, number

SUMMARY = "64 GPUs of three types, its workloads and profiles (SOSP '23)"
POLICIES = ("sia", "gavel", "pollux", "ares", "fcfs")
TRACE_TYPES = ("philly", "saturn", "newtrace")
QUICK = (("philly", 1), ("saturn", 1))
JITTER_S, JITTERS = 60.0, 6
SLOW = ("pollux",)
"""The quick form and the workloads of 960 jobs leave these policies out."""

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

ROWS: Mapping[str, tuple[str, reproduction.Parameters]] = {
    "sia": ("sia", ()),
    "gavel max-sum": ("gavel", (("objective", "max_total_throughput"),)),
    "gavel max-min": ("gavel", (("objective", "max_min_fairness"),)),
    "pollux": ("pollux", ()),
    "ares": ("ares", ()),
    "fcfs": ("fcfs", ()),
}
"""Policy and parameters of each row."""

_OURS: reproduction.Parameters = (("solve_interval_s", 0.0), ("second_stage", True), ("hold_ties", True))
GAVEL_STEPS: Mapping[str, reproduction.Parameters] = {
    "one program": (*_OURS[:1], *_OURS[2:]),
    "ties to the first type": _OURS[:1],
    "a solution each 1,920 s": (),
}
"""Further steps from our rules for Gavel, `_OURS`, towards its own."""
SIA_CHANGES: Mapping[str, reproduction.Parameters] = {
    "none": (),
    "requested batch": (("batch", "requested"),),
    "no hold through a restart": (("hold", False),),
    "no restart factor of waiting jobs": (("waiting_factor", False),),
}
"""Changes of its published policy, tried one at a time."""


class SiaFigures(NamedTuple):
    """Results of the paper's own simulator: mean JCT and makespan in hours, and restarts per job."""

    jct_h: float | None = None
    makespan_h: float | None = None
    restarts: float | None = None


REFERENCE: Mapping[tuple[str, str], SiaFigures] = {
    ("philly-1", "sia"): SiaFigures(0.542, 15.5, 4.3),
    ("philly-1", "gavel max-sum"): SiaFigures(1.671, 35.6),
    ("philly-1", "gavel max-min"): SiaFigures(1.904, 39.0),
    ("saturn-1", "sia"): SiaFigures(0.581),
    ("saturn-1", "gavel max-sum"): SiaFigures(1.798),
}
PUBLISHED_ROWS = {label for _, label in REFERENCE}


def reproduce(options: reproduction.Options) -> page.Report:
    """Simulate the runs that reproduce the paper Sia, and return its page with the results."""
    workloads = (
        QUICK
        if options.quick
        else tuple((trace_type, at) for trace_type in TRACE_TYPES for at in (1, 2, 3, 4))
    )
    folder = options.data / "sia" / "workloads"
    reproduction.check_published(folder / trace_type / f"workload-{at}.csv" for trace_type, at in workloads)
    chosen, note = reproduction.choose(POLICIES, options.policies)
    traces = [f"{trace_type}-{at}" for trace_type, at in workloads]
    known = [(name, label) for name, label in REFERENCE if name in traces and ROWS[label][0] in chosen]
    sections = [page.words(page.passage("sia", "settings"))]
    for name in traces:
        slow = () if options.policies or not (options.quick or "newtrace" in name) else SLOW
        labels = [label for label, (policy, _) in ROWS.items() if policy in chosen and policy not in slow]
        sections.append(_workload(name, labels))
        if not options.quick and any(trace == name for trace, _ in REFERENCE):
            sections.append(_ladder(name, [label for trace, label in known if trace == name]))
            sections += [_changes(name)] if "sia" in chosen else []
    late = [] if options.quick else [spec for row in known for spec in _make_jittered_specs(*row)]
    found = reproduction.run_all([*page.list_specs(sections), *late], build_run_scenario, options)
    introduction = page.passage("sia", "introduction") + note
    return page.make_report(introduction, list(_claims(known, found)), sections, found, plain=_plain)


def _spec(trace: str, label: str, setting: str, more: reproduction.Parameters = ()) -> reproduction.RunSpec:
    policy, parameters = ROWS[label]
    return reproduction.RunSpec(trace, None, setting, policy, (*parameters, *more))


def _make_jittered_specs(trace: str, label: str) -> list[reproduction.RunSpec]:
    return [_spec(f"{trace} jitter {at}", label, PUBLISHED) for at in range(JITTERS)]


def build_run_scenario(data: Path, spec: reproduction.RunSpec) -> Scenario:
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


def _claims(known: Sequence[tuple[str, str]], found: reproduction.Found) -> Iterator[PaperClaim]:
    for trace, label in known:
        figure, (fair, ours) = REFERENCE[trace, label], _both(found, trace, label)
        late = [found[spec] for spec in _make_jittered_specs(trace, label) if spec in found]
        source = f"its simulator, {trace}"
        for metric, what, paper, decimals in (
            ("jct_mean", "mean JCT", figure.jct_h, 3),
            ("makespan", "makespan", figure.makespan_h, 1),
        ):
            if paper is not None:
                why = _spread([run[metric] / 3600 for run in late], paper, decimals)
                pair, claim = (fair[metric] / 3600, ours[metric] / 3600), f"{what}, {label}, {trace}"
                yield quantity(claim, source, paper, *pair, "h", decimals, why)
        if figure.restarts is not None:
            pair, claim = (fair["restarts_mean"], ours["restarts_mean"]), f"restarts a job, {label}, {trace}"
            why = f"not known; with first launches counted too ours are {pair[1] + 1:.1f} as published"
            yield quantity(claim, source, figure.restarts, *pair, "", 1, why)
    for trace, label in known:
        theirs, own = REFERENCE[trace, label].jct_h, REFERENCE[trace, "sia"].jct_h
        if label != "sia" and (trace, "sia") in known and theirs and own:
            runs = zip(_both(found, trace, "sia"), _both(found, trace, label), strict=True)
            gains = [difference(sia["jct_mean"], other["jct_mean"]) for sia, other in runs]
            claim = f"mean JCT, sia against {label}, {trace}"
            yield PaperClaim(claim, f"its simulator, {trace}", difference(own, theirs), gains[0], gains[1])


def _both(found: reproduction.Found, trace: str, label: str) -> list[reproduction.Figures]:
    """Return the fair run and the published one."""
    return [found[_spec(trace, label, setting)] for setting in (FAIR, PUBLISHED)]


def _spread(hours: list[float], paper: float, decimals: int) -> str:
    if not hours:
        return ""
    figures = (min(hours), max(hours), sum(hours) / len(hours))
    low, high, mean = (number(hour, decimals) for hour in figures)
    where = "inside" if min(hours) <= paper <= max(hours) else "outside"
    return (
        f"with submissions up to {JITTER_S:.0f} s later, {len(hours)} runs: {low} to {high}, mean {mean}; "
        f"the published figure is {where}"
    )


def _workload(trace: str, labels: Sequence[str]) -> page.Section:
    """Return the table of a workload: rows that were published, then all under fair rules."""
    published = [(label, PUBLISHED) for label in labels if label in PUBLISHED_ROWS]
    rows = {
        (label, NAMES[setting]): _spec(trace, label, setting)
        for label, setting in (*published, *((label, FAIR) for label in labels))
    }
    headers = ["policy", "setting", "mean JCT, h", "published", "p99, h", "makespan, h", "published"]

    def text(found: reproduction.Found) -> str:
        lines = []
        for names, spec in rows.items():
            known = REFERENCE.get((trace, names[0]), NONE) if spec.setting == PUBLISHED else NONE
            jct, p99, makespan, restarts = (figure.format_figure(found[spec]) for figure in COLUMNS)
            pairs = (jct, number(known.jct_h, 3), p99, makespan, number(known.makespan_h, 1))
            lines.append([*names, *pairs, restarts, number(known.restarts, 1)])
        return f"## {trace}\n\n{table([*headers, 'restarts a job', 'published'], lines)}"

    return page.Section(list(rows.values()), text)


NONE = SiaFigures()
JCT = page.RunColumn("mean JCT, h", "jct_mean", 3, "h")
COLUMNS = (JCT, page.RunColumn("", "jct_p99", 2, "h"), page.RunColumn("", "makespan", 1, "h"), page.RESTARTS)


def _ladder(trace: str, labels: Sequence[str]) -> page.Section:
    """Return a workload's published rows, step by step towards the rules of its simulator."""
    steps: dict[str, list[reproduction.RunSpec | None]] = {
        setting: [_spec(trace, label, setting, () if label == "sia" else _OURS) for label in labels]
        for setting in SETTINGS
    }
    for step, rule in GAVEL_STEPS.items():
        row = [None if label == "sia" else _spec(trace, label, PUBLISHED, rule) for label in labels]
        steps[f"{step} (Gavel)"] = row

    def text(found: reproduction.Found) -> str:
        hours = {
            step: [found[spec]["jct_mean"] / 3600 if spec else None for spec in row]
            for step, row in steps.items()
        }
        rows = [[step, *column(row, 3)] for step, row in hours.items()]
        known = [REFERENCE[trace, label].jct_h for label in labels]
        last = [next(filter(None, reversed(steps))) for steps in zip(*hours.values(), strict=True)]
        rows.append(["*published*", *column(known, 3)])
        rows.append(["the last against it", *map(change, last, known)])
        return f"{page.passage('sia', 'ladder')}\n\n{table(['rule', *labels], rows)}"

    return page.Section([spec for row in steps.values() for spec in row if spec], text)


def _changes(trace: str) -> page.Section:
    rows = {(name,): _spec(trace, "sia", PUBLISHED, more) for name, more in SIA_CHANGES.items()}
    return page.runs_table(page.passage("sia", "changes"), ["change"], rows, [JCT, page.RESTARTS])


def _plain(spec: reproduction.RunSpec, figures: reproduction.Figures) -> dict[str, Any]:
    own = set(spec.parameters)
    rows = (
        name
        for name, (trace_type, given) in ROWS.items()
        if trace_type == spec.policy and own.issuperset(given)
    )
    label = next(rows)
    known = REFERENCE.get((spec.trace, label), NONE).jct_h if spec.setting == PUBLISHED else None
    named = {"policy": label, "setting": NAMES.get(spec.setting, spec.setting)}
    return {**spec.plain(figures), **named, "published_jct_s": known and known * 3600}
