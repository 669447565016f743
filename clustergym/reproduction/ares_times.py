"""How long Ares's decisions take as the cluster and its load grow (section 5.6, Fig. 11)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clustergym.reproduction.ares_scenarios import DECISIONS, JOBS_PER_HOUR_A_GPU, timed_scenario
from clustergym.reproduction.ares_study import kept
from clustergym.reproduction.line_plots import Panel
from clustergym.reproduction.study import Cell, Options, make_preset, number, table

GPUS = (64, 128, 256, 512, 1024, 2048)
QUICK_GPUS = (64, 512, 2048)
LIMIT_S = 0.06
"""Ares reports less at 2,048 GPUs and 640 jobs an hour."""


def decision_times(options: Options, gpus: int) -> dict[str, Any]:
    """Return how long Ares's decisions take on a cluster of that many GPUs, measured once and kept."""
    return kept(options, f"{timed_scenario(gpus).sha256} decisions {LIMIT_S}", lambda: _measured(gpus))


def _measured(gpus: int) -> dict[str, Any]:
    from clustergym.registry import make_placer
    from clustergym.sim.run import simulate

    policy, taken = make_preset(Cell(str(gpus), None, DECISIONS, "ares")), []
    decide = policy.schedule

    def timed(view: Any) -> Any:
        started = time.perf_counter()
        decision = decide(view)
        taken.append((time.perf_counter() - started, len(view)))
        return decision

    policy.schedule = timed  # type: ignore[method-assign]
    simulate(timed_scenario(gpus), policy, make_placer({"name": "buddy"}))
    seconds, jobs = np.array(taken).T
    return {
        "gpus": gpus,
        "jobs_per_hour": JOBS_PER_HOUR_A_GPU * gpus,
        "decisions": len(seconds),
        "jobs_most": int(jobs.max()),
        "decision_s_mean": float(seconds.mean()),
        "decision_s_p99": float(np.quantile(seconds, 0.99)),
        "decision_s_max": float(seconds.max()),
        "under_limit": float(np.mean(seconds < LIMIT_S)),
    }


def times_text(timed: Sequence[Mapping[str, Any]], plot: str) -> str:
    """Return the section on decision times."""
    headers = ["GPUs", "jobs an hour", "decisions", "most jobs at once", "mean, ms", "p99, ms", "longest, ms"]
    rows = [
        [
            number(one["gpus"]),
            number(one["jobs_per_hour"]),
            number(one["decisions"]),
            number(one["jobs_most"]),
            *(number(1000 * one[f"decision_s_{name}"], 2) for name in ("mean", "p99", "max")),
        ]
        for one in timed
    ]
    first, last = timed[0], timed[-1]
    return (
        "## Decision time (Fig. 11)\n\nTwo hours of generated Philly-like jobs at a rate that grows with the "
        "cluster, one process; wall-clock times of the machine that this page was made on, so they differ "
        f"from run to run.\n\n{table(headers, rows)}\n\n![Decision time]({plot})\n\n"
        f"From {first['gpus']:,} GPUs on, {last['gpus'] // first['gpus']} times as many take "
        f"{growth(timed):.1f} times as long ({logarithmic(timed):.1f} times would be logarithmic)."
    )


def growth(timed: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean decision time on the largest cluster over that on the smallest."""
    return float(timed[-1]["decision_s_mean"] / timed[0]["decision_s_mean"])


def logarithmic(timed: Sequence[Mapping[str, Any]]) -> float:
    """Return what `growth` would be if decisions took as the logarithm of the GPUs."""
    return float(np.log(timed[-1]["gpus"]) / np.log(timed[0]["gpus"]))


def time_panel(timed: Sequence[Mapping[str, Any]]) -> Panel:
    """Return the plot of decision times."""
    lines = {name: [1000 * one[f"decision_s_{name}"] for one in timed] for name in ("mean", "p99")}
    return Panel("Ares's decisions", "GPUs", "ms", [one["gpus"] for one in timed], lines, log_x=True)
