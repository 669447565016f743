"""Ares's page (TACO 2025, section 5): 16 and 64 GPUs, three types of trace, Sia's measured profiles.

Also the claims of the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from clustergym.common.tables import table

from . import ares_causes, ares_runs, page
from .ares_causes import (
    BASE,
    BELOW,
    CHANGES,
    CHOOSES,
    DEEP_TRACE,
    FLAT,
    Causes,
    growth,
    logarithmic,
    on_time,
)
from .ares_runs import (
    OWN,
    TESTBED,
    TRACE_TYPES,
    AresRuns,
    build_run_scenario,
    trace_names,
)
from .claims import PaperClaim, difference, following, not_simulated, quantity
from .page import Panel, RunColumn, Section, panel_plot
from .reproduction import (
    Figures,
    Found,
    Options,
    change,
    choose,
    column,
    number,
    run_all,
)

SECOND_BEST: Mapping[str, Mapping[str, float]] = {
    "jct_mean": {"philly": -30.3, "helios": -31.3, "newtrace": -21.4},
    "unfair_fraction": {"philly": -41.32},
    "ftf_worst": {"philly": -44.17},
}
"""Section 5.3: by how much Ares was below the second best (in JCT Pollux), percent."""
ON_TESTBED = {
    "jct_mean": ("mean JCT", -12.2, -74.5),
    "unfair_fraction": ("unfair fraction", -23.1, -86.5),
    "ftf_worst": ("worst FTF", -11.5, -93.6),
}
"""Section 5.2: the least and the most that Ares was below another scheduler, percent."""

PREEMPT = ("gavel", "themis", "tiresias")
"""Policies that preempt by design; the text does not say which of them Fig. 12 shows."""
IN_TEXT = "the paper's text gives no figure"


class AresFigures(NamedTuple):
    """The measured results from which the claims of Ares's paper are judged."""

    study: AresRuns
    found: Found
    causes: Causes
    looked: Mapping[str, Figures]
    timed: Sequence[Figures]
    alpha: float


def make_claims(parts: AresFigures) -> list[PaperClaim]:
    """Return the claims of Ares's paper, by figure and table of its evaluation, each beside our results."""
    rows = (_claim_testbed(parts), _claim_simulated(parts), _claim_looks(parts), _sensitivity(parts))
    return [claim for part in (*rows, not_simulated("ares")) for claim in part]


def _claim_testbed(parts: AresFigures) -> Iterator[PaperClaim]:
    why = "not known; which 40 jobs were taken is not published"
    for metric, (label, least, most) in ON_TESTBED.items():
        lower = parts.study.gains(parts.found, TESTBED, metric)
        for what, paper, gain in (("closest", least, lower[0]), ("furthest", most, lower[-1])):
            claim = f"16 GPUs, {label} against the {what} other"
            yield PaperClaim(claim, "section 5.2, Fig. 6", paper, -100 * gain.share, why=why)


def _claim_simulated(parts: AresFigures) -> Iterator[PaperClaim]:
    gains = {
        metric: {
            trace_type: parts.study.gains(parts.found, trace_type, metric)[0] for trace_type in TRACE_TYPES
        }
        for metric in ("jct_mean", "jct_p99", "unfair_fraction", "ftf_worst")
    }
    best, published = gains["jct_mean"], SECOND_BEST["jct_mean"]
    against = []
    for trace_type, gain in best.items():
        claim, why = (
            f"{trace_type}, mean JCT against the best other",
            f"{gain.other} here. {_why(parts, trace_type)}",
        )
        row = PaperClaim(claim, "section 5.3, Fig. 7a", published[trace_type], -100 * gain.share, why=why)
        against.append(row)
    yield from against
    spread = 100 * (best["philly"].share - best["newtrace"].share)
    points = published["newtrace"] - published["philly"]
    claim = "gain in mean JCT on philly less that on newtrace"
    row = PaperClaim(claim, "section 5.3", points, spread, unit="points", why=_why_load(parts))
    yield following(row, (part for part in against if not part.claim.startswith("helios")))
    for metric, label, source in (
        ("jct_p99", "p99 JCT", "Fig. 7b"),
        ("unfair_fraction", "unfair fraction", "section 5.3, Fig. 7c"),
        ("ftf_worst", "worst FTF", "section 5.3, Fig. 7d"),
    ):
        for trace_type, gain in gains[metric].items():
            paper = SECOND_BEST.get(metric, {}).get(trace_type)
            why = f"{gain.other} here" + ("" if paper is not None else f"; {IN_TEXT}")
            claim = f"{trace_type}, {label} against the best other"
            # The text calls Ares's fairness the best of all, and gives figures for Philly alone.
            said = -1 if paper is None and metric != "jct_p99" else 0
            yield PaperClaim(claim, source, paper, -100 * gain.share, why=why, direction=said)


def _why_load(parts: AresFigures) -> str:
    powers, loads = parts.causes.axes
    ratios = {
        load: parts.causes.compute_ratios(parts.found, powers[0], load)[1] for load in (loads[0], loads[-1])
    }
    ends = " and ".join(f"{ratio:.2f} at load {load:g}" for load, ratio in ratios.items())
    return f"the map, efficiency as measured: pollux over Ares {ends}"


def _why(parts: AresFigures, trace_type: str) -> str:
    """Say how single changes alter the comparison with Pollux, or that this is not known."""
    trace, causes, found = f"{trace_type} sia 1", parts.causes, parts.found
    if trace not in causes.traces:
        ares, own = (parts.study.averages(found, trace_type, name)["jct_mean"] for name in ("ares", OWN))
        return f"Not known; our work-conserving form is {difference(own, ares):+.0f} % against Ares"
    base, below, chooses, roofline = (
        causes.relative(found, causes.three(trace, CHANGES[label])) for label in (BASE, BELOW, CHOOSES, FLAT)
    )
    power, load = causes.axes[0][-1], causes.axes[1][-1]
    linear = causes.relative(found, causes.point(trace, power, load))
    return (
        f"{trace} against pollux {base:+.0f} %; with the request as Pollux's floor {below:+.0f} %, where "
        f"Pollux chooses the batch {chooses:+.0f} %, on the roofline {roofline:+.0f} %, with efficiency to "
        f"the power {power:g} at load {load:g} {linear:+.0f} %"
    )


def _claim_looks(parts: AresFigures) -> Iterator[PaperClaim]:
    runs, source = parts.looked, "section 5.4, Fig. 9"
    makespan = runs["ares"]["makespan_s"] / runs["pollux"]["makespan_s"]
    claim = "makespan of Ares over Pollux's (comparable)"
    yield quantity(claim, "section 5.4, Fig. 8", 1.0, makespan, unit="x", decimals=2, why=DEEP_TRACE)
    every = [
        parts.found[spec] for trace_type in TRACE_TYPES for spec in parts.study.specs(trace_type, "ares")
    ]
    shares = [1 - run["unfair_fraction"] for run in every]
    claim, ours = "jobs faster than under fair sharing", 100 * on_time(runs["ares"])
    why = f"{DEEP_TRACE}; over all traces {100 * float(np.mean(shares)):.0f} %"
    yield quantity(claim, source, 90.0, ours, unit="% of jobs", why=why, comparison="at least")
    late = {policy: 1 - on_time(run) for policy, run in runs.items()}
    closest = min((policy for policy in runs if policy != "ares"), key=late.__getitem__)
    unfair = difference(late["ares"], late[closest]) if late[closest] else None
    claim, why = "unfair fraction there against the best other", f"{closest} here; {IN_TEXT}"
    yield PaperClaim(claim, source, None, unfair, why=why)


def _sensitivity(parts: AresFigures) -> Iterator[PaperClaim]:
    study, found, timed, last = parts.study, parts.found, parts.timed, parts.timed[-1]
    claim, why = "alpha of least mean JCT", "mean of the three types of trace"
    best = quantity(claim, "section 5.5, Fig. 10", 0.75, parts.alpha, unit="", decimals=2, why=why)
    yield replace(best, paper_most=0.8)
    claim, source = "decisions under 0.06 s at 2,048 GPUs", "section 5.6, Fig. 11"
    why = f"99th percentile {1000 * last['decision_s_p99']:.0f} ms on this machine"
    under = 100 * last["under_limit"]
    yield quantity(claim, source, 100.0, under, unit="% of decisions", why=why, comparison="at least")
    figures, claim = (logarithmic(timed), growth(timed)), "growth of the decision time (logarithmic)"
    why = f"of most jobs at once {last['jobs_most'] / timed[0]['jobs_most']:.0f} x"
    yield quantity(claim, source, *figures, unit="x", why=why)
    source = "section 5.6, Fig. 12"
    runs = np.array([found[spec]["preemptions_mean"] for spec in study.specs("newtrace", "ares")])
    claim, ours = "newTrace traces with fewer than 2 preemptions a job", 100 * float(np.mean(runs < 2))
    why = f"{float(np.mean(runs)):.2f} a job on average"
    yield quantity(claim, source, 100.0, ours, unit="% of traces", why=why, comparison="at least")
    few = next(gain for gain in study.gains(found, "newtrace", "preemptions_mean") if gain.other in PREEMPT)
    claim = "newTrace, preemptions a job against the fewest of the others"
    yield PaperClaim(claim, source, None, -100 * few.share, why=f"{few.other} here; {IN_TEXT}")


SUMMARY = "16 and 64 GPUs, Philly, Helios and newTrace, fairness and JCT (TACO 2025, section 5)"
BEST_ALPHAS = (0.75, 0.8)


def reproduce(options: Options) -> page.Report:
    """Simulate the runs that reproduce the paper Ares, and return its page with the results."""
    ares_runs.check_data(
        options.data, [name for trace_type in TRACE_TYPES for name in trace_names(trace_type, options.quick)]
    )
    chosen, note = choose(ares_runs.POLICIES, options.policies)
    study = AresRuns(options.data, options.quick, chosen)
    names = ["introduction", *["quick"] * options.quick]
    introduction = "\n\n".join(page.passage("ares", name, jobs=ares_runs.START_JOBS) for name in names)
    opening = page.words(page.passage("ares", "opening", plot=study.file("jct")))
    sections, causes = (
        [opening, *(_comparison(study, trace_type) for trace_type in TRACE_TYPES)],
        Causes(study),
    )
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
        claims = make_claims(AresFigures(study, found, causes, looked, timed, alpha))
        lines = {trace_type: _relative(study, found, trace_type) for trace_type in TRACE_TYPES}
        labels = ("Ares by alpha", "alpha", "mean JCT over that at 0.75")
        plots |= {
            "map": causes.plot(found),
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
        rows = {
            (policy + _fewer(study, trace_type, policy),): study.averages(found, trace_type, policy)
            for policy in study.rows
        }
        relative = [_relative_jct(study, found, trace_type, policy) for policy in study.rows]
        added = {"mean JCT, Ares relative": relative}
        return f"## {trace_type}: {counted}\n\n{page.figures_table(['policy'], rows, COLUMNS, added)}"

    return Section([spec for policy in study.rows for spec in study.specs(trace_type, policy)], text)


def _fewer(study: AresRuns, trace_type: str, policy: str) -> str:
    run, there = len(study.specs(trace_type, policy)), len(trace_names(trace_type, study.quick))
    return f" (first {run} of {there})" if run < there else ""


def _relative_jct(study: AresRuns, found: Found, trace_type: str, policy: str) -> str:
    if "ares" not in study.policies or policy == "ares":
        return "-"
    ours, theirs = (make(found, trace_type, policy) for make in (study.beside, study.averages))
    return change(ours["jct_mean"], theirs["jct_mean"])


def _bars(study: AresRuns, found: Found, trace_type: str) -> Panel:
    hours = {
        policy + _fewer(study, trace_type, policy): [
            study.averages(found, trace_type, policy)["jct_mean"] / 3600
        ]
        for policy in study.policies
    }
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
    return [
        float(mean)
        for mean in np.mean([_relative(study, found, trace_type) for trace_type in TRACE_TYPES], axis=0)
    ]


def _alphas(study: AresRuns) -> Section:
    headers = ["mean JCT over that at 0.75", *(f"{alpha:g}" for alpha in study.alphas), "best alpha"]

    def text(found: Found) -> str:
        every = {
            ", ".join(spec.trace for spec in study.specs(trace_type, "ares", 0.75)): _relative(
                study, found, trace_type
            )
            for trace_type in TRACE_TYPES
        }
        every["all"] = _relative_of_all(study, found)
        best = {label: study.alphas[int(np.argmin(row))] for label, row in every.items()}
        rows = [[label, *column(row, 3), f"{best[label]:g}"] for label, row in every.items()]
        return page.passage("ares", "alphas", table=table(headers, rows), plot=study.file("alpha"))

    specs = [
        spec
        for trace_type in TRACE_TYPES
        for alpha in study.alphas
        for spec in study.specs(trace_type, "ares", alpha)
    ]
    return Section(specs, text)


def _testbed(study: AresRuns) -> Section:
    """Return the section on the runs on 16 GPUs."""
    specs = study.specs(TESTBED, "ares")
    many = f"{len(specs)} generated traces" if len(specs) > 1 else "One generated trace"

    def text(found: Found) -> str:
        loads = ", ".join(
            number(ares_runs.compute_offered_load(build_run_scenario(study.data, spec)), 1) for spec in specs
        )
        rows = {(policy,): study.averages(found, TESTBED, policy) for policy in study.rows}
        shown = page.figures_table(["policy"], rows, [JCT, UNFAIR, WORST, PREEMPTIONS])
        return page.passage("ares", "testbed", many=many, loads=loads, table=shown)

    return Section([spec for policy in study.rows for spec in study.specs(TESTBED, policy)], text)
