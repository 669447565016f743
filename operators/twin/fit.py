"""Replay the past of a cluster under its own rules, and set the logged waits beside the simulated ones."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clustergym.common.errors import InputError
from clustergym.common.tables import markdown_text, table
from clustergym.results.measured_run import simulate
from clustergym.scenario.by_name import compose
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.scenario.scenario_config import build_scenario

from .folder import TwinFolder
from .waits import BY, CLOSE_S, QUANTILES, compare

UNKNOWN = "dependencies (give the column Eligible), reservations, maintenance, nodes that were down, "
UNKNOWN += "jobs cancelled while they waited, jobs that need whole nodes, priorities changed by hand"
"""What a replay of a log cannot know."""


def fit(twin: TwinFolder, policy: str | None = None, more: Sequence[str] = ()) -> dict[str, Any]:
    """Simulate a cluster's log; return how the simulated waits fit the logged ones, as plain values.

    Parameters
    ----------
    twin : TwinFolder
    policy : str, optional
        `NAME KEY=VALUE …` or a YAML file; None: the rules of the folder.
    more : sequence of str
        Further overrides of the run.
    """
    if twin.log.start_s is None or not np.isfinite(twin.log.start_s).any():
        remedy = "give start_time or start_s, as clustergym trace import --format sacct writes them"
        raise InputError("says of no job when it started", file=twin.log.path, remedy=remedy)
    config = compose(["scenario=own-log", *twin.policy_words(policy), *twin.words(more=more)])
    scenario = build_scenario(config)
    result = simulate(scenario, make_policy(config["policy"]), make_placer(config["placer"]))
    trace = result.run.simulation.scenario.trace
    return {
        "schema": "clustergym.twin-fit/1",
        "policy": config["policy"],
        "jobs": len(trace),
        "left_out": trace.provenance.get("left_out", {}),
        "close_s": CLOSE_S,
        **compare(trace, result.jobs.first_start_s),
        "unknown": UNKNOWN,
        "digest": result.digest,
    }


def fit_text(found: Mapping[str, Any]) -> str:
    """Return the comparison of logged and simulated waits as Markdown tables, in minutes."""
    parts = []
    for by, rows in found["waits"].items():
        headers = [BY[by], "jobs", "logged mean", *(f"{name[:3]}" for name in QUANTILES)]
        headers += ["simulated mean", *(f"{name[:3]}" for name in QUANTILES)]
        headers += ["slowdown logged", "simulated", f"starts within {CLOSE_S:.0f} s"]
        lines = []
        for name, row in rows.items():
            logged, simulated = row["logged"], row["simulated"]
            cells = [name, f"{logged['jobs']:,}"]
            for side in (logged, simulated):
                cells += [minutes(side[key]) for key in ("mean_s", *QUANTILES)]
            slowdowns = (side["slowdown"] for side in (logged, simulated))
            cells += ["-" if value is None else f"{value:.2f}" for value in slowdowns]
            lines.append([*cells, share(row["close"])])
        parts.append(table(headers, lines))
    return "\n\n".join(["Waits in minutes.", *parts, unexplained_text(found["unexplained"])])


def unexplained_text(left: Mapping[str, Any]) -> str:
    """Describe in words the logged starts that the simulation does not explain."""
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
