"""Ares's look at one Helios trace (section 5.4), and how long its decisions take (section 5.6)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from clustergym.benchmark.papers import ares_study
from clustergym.benchmark.papers.ares_study import AresStudy, scenario_of, timed_scenario
from clustergym.benchmark.papers.page import RunColumn, figures_table, passage
from clustergym.benchmark.papers.plots import Panel
from clustergym.benchmark.papers.study import Figures, Options, RunSpec, kept
from clustergym.common.arrays import Floats

LOOKED_AT = ("ares", "pollux", "optimus", "themis", "tiresias")
"""Section 5.4 names Themis in its text and Optimus in its captions."""
DEEP_TRACE = "helios sia 1"
POINTS = 49
GPUS = (64, 128, 256, 512, 1024, 2048)
QUICK_GPUS = (64, 512, 2048)
LIMIT_S = 0.06
"""Ares reports that its decisions at 2,048 GPUs and 640 jobs an hour take less than this."""


def looks(options: Options, study: AresStudy) -> dict[str, Figures]:
    """Return runs on one trace, job by job and over time, by policy; each is made once and kept."""
    runs = {}
    for policy in (name for name in LOOKED_AT if name in study.policies):
        spec = RunSpec(DEEP_TRACE, None, study.length, policy, ares_study.FIXED.get(policy, ()))
        what = f"{scenario_of(options.data, spec).sha256} {spec.label} job by job"
        runs[policy] = kept(options.work, what, partial(_looked_at, options, spec))
    return runs


def _looked_at(options: Options, spec: RunSpec) -> Figures:
    from clustergym.results.measured_run import simulate

    scenario = scenario_of(options.data, spec)
    result = simulate(scenario, spec.make_policy())
    time_s, held = result.timeline.time_s, result.timeline.held_gpus.sum(axis=1)
    arriving = time_s[:-1] < scenario.trace.submit_s.max()
    return {
        "jct_s": result.jobs.jct_s.tolist(),
        "fairness": result.fairness.tolist(),
        "makespan_s": float(time_s[-1]),
        "held_mean": float(np.average(held[:-1][arriving], weights=np.diff(time_s)[arriving])),
        "time_s": time_s.tolist(),
        "held": held.tolist(),
    }


def on_time(run: Figures) -> float:
    """Return the share of jobs that end no later than under fluid fair sharing."""
    return float(np.mean(np.array(run["fairness"]) <= 1 + 1e-9))


def look_text(runs: Mapping[str, Figures], plot: str) -> str:
    """Return the section on one trace."""
    columns = (
        RunColumn("mean JCT, h", "jct_mean", 2, "h"),
        RunColumn("makespan, h", "makespan_s", 1, "h"),
        RunColumn("GPUs held while jobs arrive", "held_mean", 1),
        RunColumn("no later than fair", "on_time", 0, "%"),
    )
    rows = {
        (policy,): {**run, "jct_mean": float(np.mean(run["jct_s"])), "on_time": on_time(run)}
        for policy, run in runs.items()
    }
    shown = figures_table(["policy"], rows, columns)
    return passage("ares", "look", trace=DEEP_TRACE, table=shown, plot=plot)


def look_panels(runs: Mapping[str, Figures]) -> list[Panel]:
    """Return the plots of Figs. 8 and 9."""
    hours = np.linspace(0, max(run["time_s"][-1] for run in runs.values()) / 3600, POINTS)
    jct_h, ratio = np.logspace(-3, 6, POINTS, base=2.0), np.linspace(0, 3, POINTS)
    held, jct, fair = {}, {}, {}
    for policy, run in runs.items():
        at = np.searchsorted(run["time_s"], 3600 * hours, side="right") - 1
        held[policy] = [float(run["held"][k]) for k in at]
        jct[policy] = _below(np.array(run["jct_s"]) / 3600, jct_h)
        fair[policy] = _below(np.array(run["fairness"]), ratio)
    return [
        Panel("GPUs held", "hours", "GPUs", hours.tolist(), held),
        Panel("JCT", "hours", "share of jobs", jct_h.tolist(), jct, log_x=True),
        Panel("Finish-time fairness", "over fair sharing", "share of jobs", ratio.tolist(), fair),
    ]


def _below(values: Floats, at: Floats) -> list[float]:
    """Return the share of values up to each point."""
    return [float(share) for share in np.searchsorted(np.sort(values), at, side="right") / len(values)]


def decision_times(options: Options, gpus: int) -> Figures:
    """Return how long Ares's decisions take on a cluster of that many GPUs, measured once and kept."""
    what = f"{timed_scenario(gpus).sha256} decisions {LIMIT_S}"
    return kept(options.work, what, partial(_decision_times, gpus))


def _decision_times(gpus: int) -> Figures:
    from clustergym.results.measured_run import simulate

    policy, taken = RunSpec("", None, "", "ares").make_policy(), []
    decide = policy.schedule

    def timed(view: Any) -> Any:
        started = time.perf_counter()
        decision = decide(view)
        taken.append((time.perf_counter() - started, len(view)))
        return decision

    policy.schedule = timed  # type: ignore[method-assign]
    simulate(timed_scenario(gpus), policy)
    seconds, jobs = np.array(taken).T
    return {
        "gpus": gpus,
        "jobs_per_hour": ares_study.JOBS_PER_HOUR_A_GPU * gpus,
        "decisions": len(seconds),
        "jobs_most": int(jobs.max()),
        "decision_s_mean": float(seconds.mean()),
        "decision_s_p99": float(np.quantile(seconds, 0.99)),
        "decision_s_max": float(seconds.max()),
        "under_limit": float(np.mean(seconds < LIMIT_S)),
    }


def times_text(timed: Sequence[Figures], plot: str) -> str:
    """Return the section on decision times."""
    columns = (
        RunColumn("jobs an hour", "jobs_per_hour"),
        RunColumn("decisions", "decisions"),
        RunColumn("most jobs at once", "jobs_most"),
        RunColumn("mean, ms", "decision_s_mean", 2, "ms"),
        RunColumn("p99, ms", "decision_s_p99", 2, "ms"),
        RunColumn("longest, ms", "decision_s_max", 2, "ms"),
    )
    shown = figures_table(["GPUs"], {(f"{figures['gpus']:,}",): figures for figures in timed}, columns)
    first, last = timed[0]["gpus"], timed[-1]["gpus"]
    times = {"times": last // first, "growth": growth(timed), "logarithmic": logarithmic(timed)}
    return passage("ares", "decision times", table=shown, plot=plot, first=first, **times)


def growth(timed: Sequence[Figures]) -> float:
    """Return the mean decision time on the largest cluster over that on the smallest."""
    return float(timed[-1]["decision_s_mean"] / timed[0]["decision_s_mean"])


def logarithmic(timed: Sequence[Figures]) -> float:
    """Return what `growth` would be if decision times rose as the logarithm of the GPU count."""
    return float(np.log(timed[-1]["gpus"]) / np.log(timed[0]["gpus"]))


def time_panel(timed: Sequence[Figures]) -> Panel:
    """Return the plot of decision times."""
    lines = {name: [1000 * row[f"decision_s_{name}"] for row in timed] for name in ("mean", "p99")}
    return Panel("Ares's decisions", "GPUs", "ms", [row["gpus"] for row in timed], lines, log_x=True)
