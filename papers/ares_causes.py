"""What decides whether Ares or Pollux is faster, a look at one trace, and how long decisions take."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.common.tables import table

from . import ares_runs
from .ares_runs import FIXED, AresRuns, bend, build_run_scenario, build_timed_scenario
from .page import Panel, RunColumn, Section, figures_table, passage
from .reproduction import Figures, Found, Options, Parameters, RunSpec, column, load_or_make

EXACT: Parameters = (("search", "exact"),)
POLLUX: Parameters = (*EXACT, *FIXED["pollux"])
"""Pollux optimises its fitness by an integer program, in a third of the time of its genetic search."""
NAMES = ("ares", "pollux", "work-conserving form")
CONSERVING: Parameters = (("work_conserving", True),)
POWERS = (1.0, 0.75, 0.5, 0.25)
LOADS = (0.5, 1.0, 1.5, 2.0)
QUICK_POWERS, QUICK_LOADS = (1.0, 0.25), (1.0, 2.0)


class OneChange(NamedTuple):
    """One change to the comparison of Ares with Pollux: another setting, or parameters of a policy."""

    variant: str = ""
    ares: Parameters = ()
    pollux: Parameters = POLLUX
    quick: bool = True


BASE = "Sia's profiles, as above"
BELOW = "pollux never below the request"
CHOOSES = "pollux that chooses the batch too"
FLAT = "the roofline instead of Sia's profiles"
CHANGES = {
    BASE: OneChange(),
    "pollux by its genetic search, as in Fig. 7": OneChange(pollux=FIXED["pollux"]),
    CHOOSES: OneChange(pollux=EXACT),
    BELOW: OneChange(pollux=(*POLLUX, ("at_least_request", True))),
    FLAT: OneChange(ares_runs.ROOFLINE),
    "Ares on unrounded requests (`scenario.counts=any`)": OneChange(ares_runs.UNROUNDED),
    "Ares deciding at arrivals and finishes": OneChange(ares=(("round_s", None),), quick=False),
    "pollux that reckons with the scenario's restarts": OneChange(
        "", (), (*POLLUX, ("restart_s", None)), False
    ),
}


class Causes(NamedTuple):
    """Runs that test why our results differ from those of Ares's paper, and tables of their results."""

    study: AresRuns

    @property
    def traces(self) -> list[str]:
        """Names of the traces on which changes are tried."""
        return ["philly sia 1", "helios sia 1"][: 1 if self.study.quick else 2]

    @property
    def axes(self) -> tuple[Sequence[float], Sequence[float]]:
        """The two axes of a grid of runs: exponents applied to scaling efficiencies, and offered loads."""
        return (QUICK_POWERS, QUICK_LOADS) if self.study.quick else (POWERS, LOADS)

    def three(self, trace: str, change: OneChange) -> tuple[RunSpec, RunSpec, RunSpec]:
        """Describe the runs of Ares, Pollux and the work-conserving variant of Ares under a change."""
        setting = f"{self.study.length} {change.variant}".rstrip()
        conserving = RunSpec(trace, None, setting, "ares", CONSERVING)
        others = (("ares", change.ares), ("pollux", change.pollux))
        ares, pollux = (RunSpec(trace, None, setting, *policy) for policy in others)
        return ares, pollux, conserving

    def point(self, trace: str, power: float, load: float) -> tuple[RunSpec, RunSpec, RunSpec]:
        """Describe the same three runs with scaling efficiencies raised to `power`, at an offered load."""
        return self.three(trace, OneChange(bend(power, load)))

    def relative(self, found: Found, specs: tuple[RunSpec, RunSpec, RunSpec]) -> float:
        """Return by how many percent Ares's mean JCT is above Pollux's; negative if below."""
        ares, pollux, _ = (found[spec]["jct_mean"] for spec in specs)
        return float(100 * (ares / pollux - 1))

    def compute_ratios(self, found: Found, power: float, load: float) -> list[float]:
        """Return mean JCTs of the runs of `point` divided by Ares's, averaged over traces."""
        ratios = []
        for trace in self.traces:
            seconds = [float(found[spec]["jct_mean"]) for spec in self.point(trace, power, load)]
            ratios.append(np.array(seconds) / seconds[0])
        return [float(mean) for mean in np.mean(ratios, axis=0)]

    def ladder(self) -> Section:
        """Return the section with a table of runs in which one thing was changed at a time."""
        headers = ["change", "trace", "load", "efficiency at the request", "ares, h", "pollux, h"]
        headers += ["work-conserving form, h", "ares against pollux"]
        runs = {
            (label, trace): self.three(trace, change)
            for label, change in CHANGES.items()
            for trace in self.traces
            if change.quick or not self.study.quick
        }

        def text(found: Found) -> str:
            rows = []
            for labels, specs in runs.items():
                scenario = build_run_scenario(self.study.data, specs[0])
                of = (ares_runs.compute_offered_load(scenario), ares_runs.request_efficiency(scenario))
                where, hours = column(of, 2), column([found[spec]["jct_mean"] / 3600 for spec in specs], 3)
                rows.append([*labels, *where, *hours, f"{self.relative(found, specs):+.0f} %"])
            return f"{passage('ares', 'ladder')}\n\n{table(headers, rows)}"

        return Section([spec for specs in runs.values() for spec in specs], text)

    def map(self) -> Section:
        """Return the section on the runs over exponents of the scaling efficiencies and offered loads."""
        points = [(power, load) for power in self.axes[0] for load in self.axes[1]]
        headers = ["efficiency to the power", "load", "pollux", "work-conserving form"]
        headers += ["first of ares and pollux", "first of the three"]

        def text(found: Found) -> str:
            rows = []
            for power, load in points:
                values = self.compute_ratios(found, power, load)
                shown = [f"{power:g}", f"{load:g}", *column(values[1:], 2)]
                rows.append([*shown, _first(values[:2]), _first(values)])
            traces = " and ".join(self.traces)
            return passage("ares", "map", table=table(headers, rows), traces=traces)

        return Section([s for trace in self.traces for at in points for s in self.point(trace, *at)], text)


def _first(values: Sequence[float]) -> str:
    return NAMES[int(np.argmin(values))]


LOOKED_AT = ("ares", "pollux", "optimus", "themis", "tiresias")
"""Section 5.4 names Themis in its text and Optimus in its captions."""
DEEP_TRACE = "helios sia 1"
POINTS = 49
GPUS = (64, 128, 256, 512, 1024, 2048)
QUICK_GPUS = (64, 512, 2048)
LIMIT_S = 0.06
"""Ares reports that its decisions at 2,048 GPUs and 640 jobs an hour take less than this."""


def looks(options: Options, study: AresRuns) -> dict[str, Figures]:
    """Run each policy on one trace, or read cached results; return jobs and held GPUs over time by policy."""
    runs = {}
    for policy in (name for name in LOOKED_AT if name in study.policies):
        spec = RunSpec(DEEP_TRACE, None, study.length, policy, ares_runs.FIXED.get(policy, ()))
        what = f"{build_run_scenario(options.data, spec).sha256} {spec.label} job by job"
        runs[policy] = load_or_make(options.work, what, partial(_measure_looks, options, spec))
    return runs


def _measure_looks(options: Options, spec: RunSpec) -> Figures:
    from clustergym.results.measured_run import simulate

    scenario = build_run_scenario(options.data, spec)
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
    """Return the share of a run's jobs that end no later than if jobs always shared the GPUs equally."""
    return float(np.mean(np.array(run["fairness"]) <= 1 + 1e-9))


def look_text(runs: Mapping[str, Figures], plot: str) -> str:
    """Return the section that compares the policies' runs on one trace, job by job."""
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
    """Return plots like Figs. 8 and 9 of the Ares paper from runs by policy: held GPUs, JCTs and fairness."""
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
    """Measure how long Ares's decisions take on a cluster of this many GPUs, or read the cached result."""
    what = f"{build_timed_scenario(gpus).sha256} decisions {LIMIT_S}"
    return load_or_make(options.work, what, partial(_decision_times, gpus))


def _decision_times(gpus: int) -> Figures:
    from clustergym.results.measured_run import simulate

    policy, taken = RunSpec("", None, "", "ares").make_policy(), []
    decide = policy.schedule

    def decide_and_time(view: Any) -> Any:
        started = time.perf_counter()
        decision = decide(view)
        taken.append((time.perf_counter() - started, len(view)))
        return decision

    policy.schedule = decide_and_time  # type: ignore[method-assign]
    simulate(build_timed_scenario(gpus), policy)
    seconds, jobs = np.array(taken).T
    return {
        "gpus": gpus,
        "jobs_per_hour": ares_runs.JOBS_PER_HOUR_A_GPU * gpus,
        "decisions": len(seconds),
        "jobs_most": int(jobs.max()),
        "decision_s_mean": float(seconds.mean()),
        "decision_s_p99": float(np.quantile(seconds, 0.99)),
        "decision_s_max": float(seconds.max()),
        "under_limit": float(np.mean(seconds < LIMIT_S)),
    }


def times_text(timed: Sequence[Figures], plot: str) -> str:
    """Return the section on how long Ares's decisions take by cluster size."""
    counts = {"jobs an hour": "jobs_per_hour", "decisions": "decisions", "most jobs at once": "jobs_most"}
    times_ms = {"mean": "decision_s_mean", "p99": "decision_s_p99", "longest": "decision_s_max"}
    columns = [RunColumn(header, metric) for header, metric in counts.items()]
    columns += [RunColumn(f"{header}, ms", metric, 2, "ms") for header, metric in times_ms.items()]
    shown = figures_table(["GPUs"], {(f"{figures['gpus']:,}",): figures for figures in timed}, columns)
    first, last = timed[0]["gpus"], timed[-1]["gpus"]
    times = {"times": last // first, "growth": growth(timed), "logarithmic": logarithmic(timed)}
    return passage("ares", "decision times", table=shown, plot=plot, first=first, **times)


def growth(timed: Sequence[Figures]) -> float:
    """Return the mean decision time on the largest cluster divided by that on the smallest."""
    return float(timed[-1]["decision_s_mean"] / timed[0]["decision_s_mean"])


def logarithmic(timed: Sequence[Figures]) -> float:
    """Return by what factor decision times would grow if they were logarithmic in the number of GPUs."""
    return float(np.log(timed[-1]["gpus"]) / np.log(timed[0]["gpus"]))


def time_panel(timed: Sequence[Figures]) -> Panel:
    """Return the panel that plots decision times over the cluster's number of GPUs."""
    lines = {name: [1000 * row[f"decision_s_{name}"] for row in timed] for name in ("mean", "p99")}
    return Panel("Ares's decisions", "GPUs", "ms", [row["gpus"] for row in timed], lines, log_x=True)
