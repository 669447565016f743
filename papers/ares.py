"""Ares's page (TACO 2025, section 5): 16 and 64 GPUs, three types of trace, Sia's measured profiles."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from . import ares_looks, ares_runs, page
from .ares_looks import DEEP_TRACE, growth, logarithmic, on_time
from .ares_runs import TESTBED, TRACE_TYPES, AresRuns, build_run_scenario, trace_names
from .claim_files import judge_claims, published
from .claims import FAIR, difference
from .page import RunColumn, Section
from .reproduction import Figures, Found, Options, RunSpec, change, choose, run_all

PREEMPT = ("gavel", "themis", "tiresias")
"""Policies that preempt by design; the text does not say which of them Fig. 12 shows."""


def ares_figures(
    study: AresRuns, found: Found, looked: Mapping[str, Figures], timed: Sequence[Figures]
) -> dict[str, Any]:
    """Return the figures that the file of Ares's claims names; changes are in percent, below others."""
    last, published_jct = timed[-1], published("ares")["second_best"]
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
        "alpha": study.alphas[int(np.argmin(_relative_of_all(study, found)))],
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
        **{"looked_at": DEEP_TRACE, "least_late": closest, "fewest_preemptions": fewest.other},
        "on_time_everywhere": 100 * float(np.mean([1 - run["unfair_fraction"] for run in every])),
        "decision_ms_p99": 1000 * last["decision_s_p99"],
        "growth_of_jobs": last["jobs_most"] / timed[0]["jobs_most"],
        "preemptions": float(np.mean(preemptions)),
    }


SUMMARY = "16 and 64 GPUs, Philly, Helios and newTrace, fairness and JCT (TACO 2025, section 5)"


def reproduce(options: Options) -> page.Report:
    """Simulate the runs that reproduce the paper Ares, and return its page with the results."""
    needed = [name for trace_type in TRACE_TYPES for name in trace_names(trace_type, options.quick)]
    ares_runs.check_data(options.data, needed)
    chosen, note = choose(ares_runs.POLICIES, options.policies)
    study = AresRuns(options.data, options.quick, chosen)
    names = ["introduction", *["quick"] * options.quick]
    introduction = "\n\n".join(page.passage("ares", name, jobs=ares_runs.START_JOBS) for name in names)
    sections = [_comparison(study, name) for name in TRACE_TYPES]
    whole = set(ares_runs.POLICIES) <= set(chosen)
    specs = [*page.list_specs(sections), *(_claimed_specs(study) if whole else [])]
    found = run_all(specs, build_run_scenario, options)
    claims, timed = [], []
    if whole:
        sizes = ares_looks.QUICK_GPUS if options.quick else ares_looks.GPUS
        timed = [ares_looks.decision_times(options, gpus) for gpus in sizes]
        claims = judge_claims("ares", ares_figures(study, found, ares_looks.looks(options, study), timed))
    report = page.make_report(introduction + note, claims, sections, found)
    return replace(report, figures=[*report.figures, *map(dict, timed)])


def _claimed_specs(study: AresRuns) -> list[RunSpec]:
    """Describe the runs that claims alone rest on: those on 16 GPUs, and Ares's with other alphas."""
    testbed = [study.specs(TESTBED, policy) for policy in study.policies]
    alphas = [study.specs(trace_type, "ares", alpha) for trace_type in TRACE_TYPES for alpha in study.alphas]
    return [spec for specs in (*testbed, *alphas) for spec in specs]


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
        for policy in study.policies:
            rows[(study.label(trace_type, policy),)] = study.averages(found, trace_type, policy)
            relative.append(_relative_jct(study, found, trace_type, policy))
        added = {"mean JCT, Ares relative": relative}
        return f"## {trace_type}: {counted}\n\n{page.figures_table(['policy'], rows, COLUMNS, added)}"

    return Section([spec for policy in study.policies for spec in study.specs(trace_type, policy)], text)


def _relative_jct(study: AresRuns, found: Found, trace_type: str, policy: str) -> str:
    if "ares" not in study.policies or policy == "ares":
        return "-"
    ours, theirs = (make(found, trace_type, policy) for make in (study.beside, study.averages))
    return change(ours["jct_mean"], theirs["jct_mean"])


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
