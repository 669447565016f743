"""Ares's page (TACO 2025, section 5): 16 and 64 GPUs, three kinds of trace, Sia's measured profiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clustergym.benchmark.papers import ares_looks, ares_study, page
from clustergym.benchmark.papers.ares_causes import Causes
from clustergym.benchmark.papers.ares_claims import AresFigures, claims_of
from clustergym.benchmark.papers.ares_study import KINDS, TESTBED, AresStudy, scenario_of, trace_names
from clustergym.benchmark.papers.details import change, column, number
from clustergym.benchmark.papers.page import RunColumn, Section
from clustergym.benchmark.papers.plots import Panel, panel_plot
from clustergym.benchmark.papers.study import Found, Options, choose, run_all
from clustergym.common.markdown import table

SUMMARY = "16 and 64 GPUs, Philly, Helios and newTrace, fairness and JCT (TACO 2025, section 5)"
BEST_ALPHAS = (0.75, 0.8)


def reproduce(options: Options) -> page.Report:
    """Run the study and write its page."""
    ares_study.check_data(options.data, [name for kind in KINDS for name in trace_names(kind, options.quick)])
    chosen, note = choose(ares_study.POLICIES, options.policies)
    study = AresStudy(options.data, options.quick, chosen)
    names = ["introduction", *["quick"] * options.quick]
    introduction = "\n\n".join(page.passage("ares", name, jobs=ares_study.START_JOBS) for name in names)
    opening = page.words(page.passage("ares", "opening", plot=study.file("jct")))
    sections, causes = [opening, *(_comparison(study, kind) for kind in KINDS)], Causes(study)
    whole = set(ares_study.POLICIES) <= set(chosen)
    if whole:
        sections += [causes.ladder(), causes.map(), _alphas(study), _testbed(study)]
    found = run_all(page.specs_of(sections), scenario_of, options)
    plots = {"jct": panel_plot([_bars(study, found, kind) for kind in KINDS])}
    claims, timed = [], []
    if whole:
        looked = ares_looks.looks(options, study)
        sizes = ares_looks.QUICK_GPUS if options.quick else ares_looks.GPUS
        timed = [ares_looks.decision_times(options, gpus) for gpus in sizes]
        sections.append(page.words(ares_looks.look_text(looked, study.file("deep"))))
        sections.append(page.words(ares_looks.times_text(timed, study.file("time"))))
        alpha = study.alphas[int(np.argmin(_relative_of_all(study, found)))]
        claims = claims_of(AresFigures(study, found, causes, looked, timed, alpha))
        lines = {kind: _relative(study, found, kind) for kind in KINDS}
        labels = ("Ares by alpha", "alpha", "mean JCT over that at 0.75")
        plots |= {
            "map": causes.plot(found),
            "alpha": panel_plot([Panel(*labels, study.alphas, lines, band=BEST_ALPHAS)]),
            "deep": panel_plot(ares_looks.look_panels(looked)),
            "time": panel_plot([ares_looks.time_panel(timed)]),
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


def _comparison(study: AresStudy, kind: str) -> Section:
    names = trace_names(kind, study.quick)
    counted = f"{len(names)} traces" if len(names) > 1 else names[0]

    def text(found: Found) -> str:
        rows = {
            (policy + _fewer(study, kind, policy),): study.averages(found, kind, policy)
            for policy in study.rows
        }
        relative = [_relative_jct(study, found, kind, policy) for policy in study.rows]
        added = {"mean JCT, Ares relative": relative}
        return f"## {kind}: {counted}\n\n{page.figures_table(['policy'], rows, COLUMNS, added)}"

    return Section([spec for policy in study.rows for spec in study.specs(kind, policy)], text)


def _fewer(study: AresStudy, kind: str, policy: str) -> str:
    run, there = len(study.specs(kind, policy)), len(trace_names(kind, study.quick))
    return f" (first {run} of {there})" if run < there else ""


def _relative_jct(study: AresStudy, found: Found, kind: str, policy: str) -> str:
    if "ares" not in study.policies or policy == "ares":
        return "-"
    ours, theirs = (make(found, kind, policy) for make in (study.beside, study.averages))
    return change(ours["jct_mean"], theirs["jct_mean"])


def _bars(study: AresStudy, found: Found, kind: str) -> Panel:
    hours = {
        policy + _fewer(study, kind, policy): [study.averages(found, kind, policy)["jct_mean"] / 3600]
        for policy in study.policies
    }
    return Panel(kind, "", "mean JCT, h", (), hours)


def _relative(study: AresStudy, found: Found, kind: str) -> list[float]:
    """Return the mean JCT by alpha over that at 0.75, mean over traces."""
    at = {
        alpha: np.array([found[spec]["jct_mean"] for spec in study.specs(kind, "ares", alpha)])
        for alpha in study.alphas
    }
    return [float(np.mean(at[alpha] / at[0.75])) for alpha in study.alphas]


def _relative_of_all(study: AresStudy, found: Found) -> list[float]:
    """Return the same, mean over kinds."""
    return [float(mean) for mean in np.mean([_relative(study, found, kind) for kind in KINDS], axis=0)]


def _alphas(study: AresStudy) -> Section:
    headers = ["mean JCT over that at 0.75", *(f"{alpha:g}" for alpha in study.alphas), "best alpha"]

    def text(found: Found) -> str:
        every = {
            ", ".join(spec.trace for spec in study.specs(kind, "ares", 0.75)): _relative(study, found, kind)
            for kind in KINDS
        }
        every["all"] = _relative_of_all(study, found)
        best = {label: study.alphas[int(np.argmin(row))] for label, row in every.items()}
        rows = [[label, *column(row, 3), f"{best[label]:g}"] for label, row in every.items()]
        return page.passage("ares", "alphas", table=table(headers, rows), plot=study.file("alpha"))

    specs = [spec for kind in KINDS for alpha in study.alphas for spec in study.specs(kind, "ares", alpha)]
    return Section(specs, text)


def _testbed(study: AresStudy) -> Section:
    """Return the section on 16 GPUs."""
    specs = study.specs(TESTBED, "ares")
    many = f"{len(specs)} generated traces" if len(specs) > 1 else "One generated trace"

    def text(found: Found) -> str:
        loads = ", ".join(number(ares_study.offered_load(scenario_of(study.data, spec)), 1) for spec in specs)
        rows = {(policy,): study.averages(found, TESTBED, policy) for policy in study.rows}
        shown = page.figures_table(["policy"], rows, [JCT, UNFAIR, WORST, PREEMPTIONS])
        return page.passage("ares", "testbed", many=many, loads=loads, table=shown)

    return Section([spec for policy in study.rows for spec in study.specs(TESTBED, policy)], text)
