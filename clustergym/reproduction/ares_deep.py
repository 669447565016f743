"""Ares's testbed comparison on 16 GPUs (section 5.2) and its look at one Helios trace (section 5.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from clustergym.reproduction.ares_scenarios import WHOLE, offered_load, scenario_of
from clustergym.reproduction.ares_study import FIXED, OWN, Found, Study, averages, kept
from clustergym.reproduction.line_plots import Panel
from clustergym.reproduction.study import Cell, Options, make_preset, number, table

SEEDS = (1, 2, 3)
LOOKED_AT = ("ares", "pollux", "optimus", "themis", "tiresias")
"""Section 5.4 names Themis in its text and Optimus in its captions."""
DEEP_TRACE = "helios sia 1"
POINTS = 49


def small_cells(study: Study, policy: str) -> list[Cell]:
    """Return the runs of a policy on 16 GPUs."""
    parameters = FIXED.get(policy, ())
    if policy == OWN:
        policy, parameters = "ares", (("work_conserving", True),)
    seeds = SEEDS[:1] if study.quick else SEEDS
    return [Cell(f"philly testbed {seed}", None, WHOLE, policy, parameters) for seed in seeds]


def lower_by(study: Study, found: Found, metric: str) -> list[float]:
    """Return by how much Ares is below each other policy on 16 GPUs, shares, the least first."""
    ours = averages(found, small_cells(study, "ares"))[metric]
    others = [averages(found, small_cells(study, p))[metric] for p in study.policies if p != "ares"]
    return sorted(1 - ours / other if other else 0.0 for other in others)


def small_text(study: Study, found: Found, options: Options) -> str:
    """Return the section on 16 GPUs."""
    headers = ["policy", "mean JCT, h", "unfair", "worst FTF", "preemptions a job"]
    rows = []
    for policy in study.rows:
        mean = averages(found, small_cells(study, policy))
        rows.append(
            [
                policy,
                number(mean["jct_mean"] / 3600, 2),
                f"{100 * mean['unfair_fraction']:.0f} %",
                number(mean["ftf_worst"], 2),
                number(mean["preemptions_mean"], 2),
            ]
        )
    cells = small_cells(study, "ares")
    loads = [offered_load(scenario_of(options.data, cell)) for cell in cells]
    many = f"{len(cells)} generated traces" if len(cells) > 1 else "One generated trace"
    return (
        "## 16 GPUs (section 5.2, Fig. 6)\n\n"
        f"{many} of 40 jobs in 4 h on `ares-16`, with the requests of the scenario `ares` and Sia's "
        f"profiles; load {', '.join(number(load, 1) for load in loads)} at the request. "
        f"Only the simulated side of the figure can be had.\n\n{table(headers, rows)}"
    )


@dataclass(frozen=True)
class Deep:
    """Runs on one trace, job by job and over time: by policy, as `_looked_at` returns."""

    runs: Mapping[str, dict[str, Any]]

    @classmethod
    def of(cls, options: Options, study: Study) -> Deep:
        """Run, or read what an earlier call has kept."""
        chosen = [policy for policy in LOOKED_AT if policy in study.policies]
        cells = {one: Cell(DEEP_TRACE, None, study.length, one, FIXED.get(one, ())) for one in chosen}
        runs = {}
        for policy, cell in cells.items():
            sha256 = scenario_of(options.data, cell).sha256
            make = partial(_looked_at, options, cell)
            runs[policy] = kept(options, f"{sha256} {cell.label} job by job", make)
        return cls(runs)

    def faster(self, policy: str) -> float:
        """Return the share of jobs that end no later than under fluid fair sharing."""
        return float(np.mean(np.array(self.runs[policy]["fairness"]) <= 1 + 1e-9))

    def text(self, plot: str) -> str:
        """Return the section."""
        headers = [
            "policy",
            "mean JCT, h",
            "makespan, h",
            "GPUs held while jobs arrive",
            "no later than fair",
        ]
        rows = [
            [
                policy,
                number(float(np.mean(run["jct_s"])) / 3600, 2),
                number(run["makespan_s"] / 3600, 1),
                number(run["held_mean"], 1),
                f"{100 * self.faster(policy):.0f} %",
            ]
            for policy, run in self.runs.items()
        ]
        return (
            "## One Helios trace (section 5.4, Figs. 8 and 9)\n\n"
            f"`{DEEP_TRACE}`: GPUs held over time, and the distributions of JCT and finish-time fairness "
            "(JCT over that under fair sharing, in which no job has more than it "
            f"asked for).\n\n{table(headers, rows)}\n\n![Allocation, JCT and fairness]({plot})"
        )

    def panels(self) -> Sequence[Panel]:
        """Return the plots of Figs. 8 and 9."""
        last_s = max(run["time_s"][-1] for run in self.runs.values())
        hours = np.linspace(0, last_s / 3600, POINTS)
        jct_h = np.logspace(-3, 6, POINTS, base=2.0)
        ratio = np.linspace(0, 3, POINTS)
        held, jct, fair = {}, {}, {}
        for policy, run in self.runs.items():
            at = np.searchsorted(run["time_s"], 3600 * hours, side="right") - 1
            held[policy] = [float(run["held"][k]) for k in at]
            jct[policy] = _below(np.array(run["jct_s"]) / 3600, jct_h)
            fair[policy] = _below(np.array(run["fairness"]), ratio)
        return [
            Panel("GPUs held", "hours", "GPUs", hours.tolist(), held),
            Panel("JCT", "hours", "share of jobs", jct_h.tolist(), jct, log_x=True),
            Panel("Finish-time fairness", "over fair sharing", "share of jobs", ratio.tolist(), fair),
        ]


def _below(
    values: np.ndarray[Any, np.dtype[np.float64]], at: np.ndarray[Any, np.dtype[np.float64]]
) -> list[float]:
    """Return the share of values up to each point."""
    return [float(share) for share in np.searchsorted(np.sort(values), at, side="right") / len(values)]


def _looked_at(options: Options, cell: Cell) -> dict[str, Any]:
    from clustergym.output import measurement_of
    from clustergym.registry import make_placer
    from clustergym.sim.run import simulate

    scenario = scenario_of(options.data, cell)
    measured = measurement_of(
        simulate(scenario, make_preset(cell), make_placer({"name": "buddy"})).simulation
    )
    timeline = measured.timeline
    held = timeline.held_gpus.sum(axis=1)
    arriving = timeline.time_s[:-1] < scenario.trace.submit_s.max()
    return {
        "jct_s": measured.records.jct_s.tolist(),
        "fairness": measured.fairness.tolist(),
        "makespan_s": float(timeline.time_s[-1]),
        "held_mean": float(np.average(held[:-1][arriving], weights=np.diff(timeline.time_s)[arriving])),
        "time_s": timeline.time_s.tolist(),
        "held": held.tolist(),
    }
