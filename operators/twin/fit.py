"""Replay the past of a cluster under its own rules, and set the logged waits beside the simulated ones."""

from typing import Any

import numpy as np

from clustergym.common.errors import InputError
from clustergym.common.tables import markdown_text, table
from clustergym.results.measured_run import Result, simulate
from clustergym.scenario.by_name import compose
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.scenario.scenario_config import build_scenario

from .folder import TwinFolder
from .waits import BY, CLOSE_S, QUANTILES, Fit, compare

UNKNOWN = "dependencies (give the column Eligible), reservations, maintenance, nodes that were down, "
UNKNOWN += "jobs cancelled while they waited, jobs that need whole nodes, priorities changed by hand"
"""What a replay of a log cannot know."""


def replay_past(twin: TwinFolder, policy: str | None, more: list[str]) -> tuple[Result, dict[str, Any]]:
    """Simulate a cluster's log under a policy (by default today's); return result and configuration."""
    words = ["scenario=own-log", *twin.policy_words(policy), *twin.words(more=more)]
    config = compose(words)
    scenario = build_scenario(config)
    return simulate(scenario, make_policy(config["policy"]), make_placer(config["placer"])), config


def fit(
    twin: TwinFolder, policy: str | None = None, more: list[str] | None = None
) -> tuple[Fit, dict[str, Any]]:
    """Simulate a cluster's log; return how the simulated waits fit the logged ones, and all figures.

    Parameters
    ----------
    twin : TwinFolder
    policy : str, optional
        `NAME KEY=VALUE …` or a YAML file; None: the rules of the folder.
    more : list of str, optional
        Further overrides of the run.

    Returns
    -------
    Fit
    dict
        All figures as plain values.
    """
    if twin.log.start_s is None or not np.isfinite(twin.log.start_s).any():
        remedy = "give start_time or start_s, as clustergym trace import --format sacct writes them"
        raise InputError("says of no job when it started", file=twin.log.path, remedy=remedy)
    result, config = replay_past(twin, policy, more or [])
    trace = result.run.simulation.scenario.trace
    found = compare(trace, result.jobs.first_start_s)
    figures = {
        "schema": "clustergym.twin-fit/1",
        "policy": config["policy"],
        "jobs": len(trace),
        "left_out": trace.provenance.get("left_out", {}),
        "close_s": CLOSE_S,
        "waits": found.tables,
        "unexplained": found.unexplained,
        "unknown": UNKNOWN,
        "digest": result.digest,
    }
    return found, figures


def fit_text(found: Fit) -> str:
    """Return the comparison of logged and simulated waits as Markdown tables, in minutes."""
    parts = []
    for by, rows in found.tables.items():
        headers = [BY[by], "jobs", "logged mean", *(f"{name[:3]}" for name in QUANTILES)]
        headers += ["simulated mean", *(f"{name[:3]}" for name in QUANTILES)]
        headers += ["slowdown logged", "simulated", f"starts within {CLOSE_S:.0f} s"]
        lines = []
        for name, row in rows.items():
            logged, simulated = row["logged"], row["simulated"]
            cells = [name, f"{logged['jobs']:,}"]
            for side in (logged, simulated):
                cells += [minutes(side[key]) for key in ("mean_s", *QUANTILES)]
            cells += [_number(logged["slowdown"]), _number(simulated["slowdown"]), share(row["close"])]
            lines.append(cells)
        parts.append(table(headers, lines))
    return "\n\n".join(["Waits in minutes.", *parts, unexplained_text(found)])


def unexplained_text(found: Fit) -> str:
    """Describe in words the logged starts that the simulation does not explain."""
    left = found.unexplained
    lines = [
        "Not explained by the rules:",
        f"- starts are off by {minutes(left['mean_error_of_starts_s'])} min on average; "
        f"{share(left['earlier_than_logged'])} are more than {CLOSE_S:.0f} s earlier than logged, "
        f"{share(left['later_than_logged'])} later",
    ]
    if left["never_started"]:
        lines.append(f"- {left['never_started']:,} jobs of the log do not start under these rules")
    for job in left["largest"]:
        word = "later" if job["late_s"] > 0 else "earlier"
        late, name = minutes(abs(job["late_s"])), markdown_text(job["job_id"])
        lines.append(f"- job {name} ({job['gpus']} GPUs): {late} min {word}")
    return "\n".join([*lines, f"A log does not say: {UNKNOWN}."])


def minutes(seconds: float | None) -> str:
    """Return seconds as a text in minutes; `-` for none."""
    if seconds is None or not np.isfinite(seconds):
        return "-"
    value = seconds / 60
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def share(value: float | None) -> str:
    """Return a share from 0 to 1 as a text in percent; `-` for None."""
    return "-" if value is None else f"{100 * value:.1f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
