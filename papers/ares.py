"""Ares's page (TACO 2025, section 5): 16 and 64 GPUs, three types of trace, Sia's measured profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from clustergym.common.tables import table

from . import ares_causes, ares_runs, page
from .ares_causes import BASE, BELOW, CHANGES, CHOOSES, DEEP_TRACE, FLAT, Causes, growth, logarithmic, on_time
from .ares_runs import OWN, TESTBED, TRACE_TYPES, AresRuns, build_run_scenario, trace_names
from .claim_files import judge_claims, published
from .claims import FAIR, difference
from .page import Panel, RunColumn, Section, panel_plot
from .reproduction import Figures, Found, Options, change, choose, column, number, run_all

PREEMPT = ("gavel", "themis", "tiresias")
"""Policies that preempt by design; the text does not say which of them Fig. 12 shows."""


def ares_figures(
    causes: Causes, found: Found, looked: Mapping[str, Figures], timed: Sequence[Figures], alpha: float
) -> dict[str, Any]:
    """Return the figures that the file of Ares's claims names; changes are in percent, below others."""
    study, last, published_jct = causes.study, timed[-1], published("ares")["second_best"]
    best = {
        metric: {trace_type: study.gains(found, trace_type, metric)[0] for trace_type in TRACE_TYPES}
        for metric in ("jct_mean", "jct_p99", "unfair_fraction", "ftf_worst")
    }
    testbed = {metric: study.gains(found, TESTBED, metric) for metric in published("ares")["testbed"]}
    every = [found[spec] for trace_type in TRACE_TYPES for spec in study.specs(trace_type, "ares")]
    late = {policy: 1 - on_time(run) for policy, run in looked.items()}
    closest = min((policy for policy in looked if policy != "ares"), key=late.__getitem__)
    preemptions = np.array([found[spec]["preemptions_mean"] for spec in study.specs("newtrace", "ares")])
    fewest = next(
        gain for gain in study.gains(found, "newtrace", "preemptions_mean") if gain.other in PREEMPT
    )
    (power, *_), (least_load, *_, load) = causes.axes
    map_ends = {"least": least_load, "most": load}
    fair = {
        "testbed": {
            metric: {"closest": -100 * gains[0].share, "furthest": -100 * gains[-1].share}
            for metric, gains in testbed.items()
        },
        "best": {
            metric: {trace_type: -100 * gain.share for trace_type, gain in gains.items()}
            for metric, gains in best.items()
        },
        "best_less_on_newtrace": 100
        * (best["jct_mean"]["philly"].share - best["jct_mean"]["newtrace"].share),
        "makespan_over_pollux": looked["ares"]["makespan_s"] / looked["pollux"]["makespan_s"],
        "on_time": 100 * on_time(looked["ares"]),
        "late_against_the_best_other": difference(late["ares"], late[closest]) if late[closest] else None,
        "alpha": alpha,
        "decisions_under_limit": 100 * last["under_limit"],
        "growth": growth(timed),
        "seldom_preempted": 100 * float(np.mean(preemptions < 2)),
        "preemptions_against_the_fewest": -100 * fewest.share,
    }
    return {
        FAIR: fair,
        "second_best_less_on_newtrace": published_jct["newtrace"] - published_jct["philly"],
        "logarithmic_growth": logarithmic(timed),
        "others": {
            metric: {name: gain.other for name, gain in gains.items()} for metric, gains in best.items()
        },
        "changes": {name.split()[0]: _single_changes(causes, found, name) for name in causes.traces},
        "conserving": {name: _conserving(study, found, name) for name in TRACE_TYPES},
        "map": {end: causes.compute_ratios(found, power, at)[1] for end, at in map_ends.items()},
        **{"power": causes.axes[0][-1], "least_load": least_load, "load": load},
        **{"looked_at": DEEP_TRACE, "least_late": closest, "fewest_preemptions": fewest.other},
        "on_time_everywhere": 100 * float(np.mean([1 - run["unfair_fraction"] for run in every])),
        "decision_ms_p99": 1000 * last["decision_s_p99"],
        "growth_of_jobs": last["jobs_most"] / timed[0]["jobs_most"],
        "preemptions": float(np.mean(preemptions)),
    }


def _single_changes(causes: Causes, found: Found, trace: str) -> dict[str, float]:
    """Return by how many percent Ares's mean JCT is above Pollux's on a trace, under single changes."""
    changes = {"base": BASE, "below": BELOW, "chooses": CHOOSES, "flat": FLAT}
    specs = {name: causes.three(trace, CHANGES[label]) for name, label in changes.items()}
    specs["linear"] = causes.point(trace, causes.axes[0][-1], causes.axes[1][-1])
    return {name: causes.relative(found, three) for name, three in specs.items()}


def _conserving(study: AresRuns, found: Found, trace_type: str) -> float:
    """Return by how many percent the mean JCT of our work-conserving form is above Ares's."""
    ares, own = (study.averages(found, trace_type, name)["jct_mean"] for name in ("ares", OWN))
    return difference(own, ares)


SUMMARY = "16 and 64 GPUs, Philly, Helios and newTrace, fairness and JCT (TACO 2025, section 5)"
BEST_ALPHAS = (0.75, 0.8)


def reproduce(options: Options) -> page.Report:
    """Simulate the runs that reproduce the paper Ares, and return its page with the results."""
    needed = [name for trace_type in TRACE_TYPES for name in trace_names(trace_type, options.quick)]
    ares_runs.check_data(options.data, needed)
    chosen, note = choose(ares_runs.POLICIES, options.policies)
    study = AresRuns(options.data, options.quick, chosen)
    names = ["introduction", *["quick"] * options.quick]
    introduction = "\n\n".join(page.passage("ares", name, jobs=ares_runs.START_JOBS) for name in names)
    opening = page.words(page.passage("ares", "opening", plot=study.file("jct")))
    sections, causes = [opening, *(_comparison(study, name) for name in TRACE_TYPES)], Causes(study)
    whole = set(ares_runs.POLICIES) <= set(chosen)
    if whole:
        sections += [causes.ladder(), causes.map(), _alphas(study), _testbed(study)]
    found = run_all(page.list_specs(sections), build_run_scenario, options)
    plots = {"jct": panel_plot([_bars(study, found, trace_type) for trace_type in TRACE_TYPES])}
    claims, timed = [], []
    if whole:
        looked = ares_causes.looks(options, study)
        sizes = ares_causes.QUICK_GPUS if options.quick else ares_causes.GPUS
        timed = [ares_causes.decision_times(options, gpus) for gpus in sizes]
        sections.append(page.words(ares_causes.look_text(looked, study.file("deep"))))
        sections.append(page.words(ares_causes.times_text(timed, study.file("time"))))
        alpha = study.alphas[int(np.argmin(_relative_of_all(study, found)))]
        claims = judge_claims("ares", ares_figures(causes, found, looked, timed, alpha))
        lines = {trace_type: _relative(study, found, trace_type) for trace_type in TRACE_TYPES}
        labels = ("Ares by alpha", "alpha", "mean JCT over that at 0.75")
        plots |= {
            "alpha": panel_plot([Panel(*labels, study.alphas, lines, band=BEST_ALPHAS)]),
            "deep": panel_plot(ares_causes.look_panels(looked)),
            "time": panel_plot([ares_causes.time_panel(timed)]),
        }
    files = {study.file(name): plot for name, plot in plots.items()}
    report = page.make_report(introduction + note, claims, sections, found, files)
    return replace(report, figures=[*report.figures, *map(dict, timed)])


JCT = RunColumn("mean JCT, h", "jct_mean", 2, "h")
UNFAIR = RunColumn("unfair", "unfair_fraction", 0, "%")
WORST = RunColumn("worst FTF", "ftf_worst", 2)
PREEMPTIONS = RunColumn("preemptions a job", "preemptions_mean", 2)
P99 = RunColumn("p99 JCT, h", "jct_p99", 1, "h")
COLUMNS = (JCT, P99, UNFAIR, WORST, PREEMPTIONS, page.RESTARTS._replace(decimals=2))


def _comparison(study: AresRuns, trace_type: str) -> Section:
    names = trace_names(trace_type, study.quick)
    counted = f"{len(names)} traces" if len(names) > 1 else names[0]

    def text(found: Found) -> str:
        rows, relative = {}, []
        for policy in study.rows:
            rows[(study.label(trace_type, policy),)] = study.averages(found, trace_type, policy)
            relative.append(_relative_jct(study, found, trace_type, policy))
        added = {"mean JCT, Ares relative": relative}
        return f"## {trace_type}: {counted}\n\n{page.figures_table(['policy'], rows, COLUMNS, added)}"

    return Section([spec for policy in study.rows for spec in study.specs(trace_type, policy)], text)


def _relative_jct(study: AresRuns, found: Found, trace_type: str, policy: str) -> str:
    if "ares" not in study.policies or policy == "ares":
        return "-"
    ours, theirs = (make(found, trace_type, policy) for make in (study.beside, study.averages))
    return change(ours["jct_mean"], theirs["jct_mean"])


def _bars(study: AresRuns, found: Found, trace_type: str) -> Panel:
    means = {name: study.averages(found, trace_type, name)["jct_mean"] for name in study.policies}
    hours = {study.label(trace_type, name): [jct_s / 3600] for name, jct_s in means.items()}
    return Panel(trace_type, "", "mean JCT, h", (), hours)


def _relative(study: AresRuns, found: Found, trace_type: str) -> list[float]:
    """Return the mean JCT by alpha over that at 0.75, mean over traces."""
    at = {
        alpha: np.array([found[spec]["jct_mean"] for spec in study.specs(trace_type, "ares", alpha)])
        for alpha in study.alphas
    }
    return [float(np.mean(at[alpha] / at[0.75])) for alpha in study.alphas]


def _relative_of_all(study: AresRuns, found: Found) -> list[float]:
    """Return the mean over all types of traces of the mean JCT by alpha, relative to that at 0.75."""
    rows = [_relative(study, found, trace_type) for trace_type in TRACE_TYPES]
    return [float(mean) for mean in np.mean(rows, axis=0)]


def _alphas(study: AresRuns) -> Section:
    headers = ["mean JCT over that at 0.75", *(f"{alpha:g}" for alpha in study.alphas), "best alpha"]

    def text(found: Found) -> str:
        every = {}
        for trace_type in TRACE_TYPES:
            traces = ", ".join(spec.trace for spec in study.specs(trace_type, "ares", 0.75))
            every[traces] = _relative(study, found, trace_type)
        every["all"] = _relative_of_all(study, found)
        best = (f"{study.alphas[int(np.argmin(row))]:g}" for row in every.values())
        rows = [[label, *column(row, 3), next(best)] for label, row in every.items()]
        return page.passage("ares", "alphas", table=table(headers, rows), plot=study.file("alpha"))

    each = (study.specs(trace_type, "ares", alpha) for trace_type in TRACE_TYPES for alpha in study.alphas)
    return Section([spec for specs in each for spec in specs], text)


def _testbed(study: AresRuns) -> Section:
    """Return the section on the runs on 16 GPUs."""
    specs = study.specs(TESTBED, "ares")
    many = f"{len(specs)} generated traces" if len(specs) > 1 else "One generated trace"

    def text(found: Found) -> str:
        scenarios = (build_run_scenario(study.data, spec) for spec in specs)
        loads = ", ".join(number(ares_runs.compute_offered_load(scenario), 1) for scenario in scenarios)
        rows = {(policy,): study.averages(found, TESTBED, policy) for policy in study.rows}
        shown = page.figures_table(["policy"], rows, [JCT, UNFAIR, WORST, PREEMPTIONS])
        return page.passage("ares", "testbed", many=many, loads=loads, table=shown)

    return Section([spec for policy in study.rows for spec in study.specs(TESTBED, policy)], text)
