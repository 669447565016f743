"""Computes the figures that Arena's and Crius's claims are held against: runs against each other."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import arena_sections as parts
from .arena_scenarios import make_run
from .claims import PUBLISHED, difference
from .page import Section
from .reproduction import Found, RunSpec, compute_padded_jct

BASELINES = ("fcfs", "elasticflow-ls", "gavel", "sia")
PLACES = ("testbed-a", "testbed-b", "venus-day", "pai-day", "h100")
METRICS = (
    *("jct_mean", "jct_padded", "jct_mean_censored", "queue_mean"),
    *("throughput_mean", "throughput_peak", "jobs_finished", "deadline_satisfaction"),
)


def arena_figures(found: Found, rounds: int) -> dict[str, Any]:
    """Return the figures that the file of Arena's claims names; the main runs last `rounds` rounds."""
    figures: dict[str, Any] = {"rounds": rounds, "draws": len(parts.JITTER_RUNS)}
    for setting in parts.SETTINGS:
        figures[setting] = compare_policies(found, setting, ("arena", *BASELINES), PLACES) | {
            "deadlines": compare_labelled(found, parts.deadlines(), setting, "arena", "elasticflow"),
            "ablations": compare_labelled(found, parts.ablations(rounds), setting),
            "depths": compare_labelled(found, parts.depths(rounds), setting),
        }
    late = [figure_or_none(lambda: float(found[spec]["jct_mean"])) for spec in parts.JITTER_RUNS]  # noqa: B023
    figures[PUBLISHED] |= {
        "jct_s_of_late_submissions": figure_or_none(lambda: sum(late) / len(late)),
        "precise": compare_labelled(found, parts.PRECISE),
        "testbed_error": figure_or_none(lambda: _testbed_error(found)),
        "gpu_time": {"sia": figure_or_none(lambda: parts.gpu_time(found, "sia")["all"])},
        "lifespans": figure_or_none(lambda: _lifespans(found)),
    }
    return figures


def compare_policies(
    found: Found, setting: str, names: Sequence[str], places: Sequence[str]
) -> dict[str, Any]:
    """Return the comparisons of policies on places, and on the Philly trace for each number of rounds."""

    def on(place: str, rounds: int | None = None) -> dict[str, Any]:
        return compare(found, {name: make_run(place, rounds, setting, name) for name in names})

    philly = {rounds: on("philly", rounds) for rounds in (664, 2000)}
    return {"philly": philly, **{place: on(place) for place in places}}


def compare_labelled(found: Found, section: Section, setting: str = "", *names: str) -> dict[str, Any]:
    """Return the comparison of the runs of a section's table in a setting: those labelled `names`, or all."""
    runs = {labels[0]: spec for labels, spec in section.runs.items() if setting in ("", *labels[1:])}
    return compare(found, {name: runs[name] for name in names} or runs)


def compare(found: Found, specs: Mapping[str, RunSpec]) -> dict[str, Any]:
    """Return runs by name, and each against each; `greatest` is the gain of the first over any other.

    `change` is in percent, `times` a ratio. A gain is in percent where less is better, else a ratio.
    Unfinished jobs count in `jct_padded` with the greatest JCT; the first run says how many count.
    Figures are None where a run is missing.
    """
    runs, (first, *others) = {name: found.get(spec, {}) for name, spec in specs.items()}, specs
    padded = figure_or_none(lambda: compute_padded_jct(runs, first)) or {}
    of = {name: {**run, "jct_padded": padded.get(name)} for name, run in runs.items()}

    def against(compute: Callable[[float, float], float]) -> dict[str, Any]:
        def each(ours: str, theirs: str) -> dict[str, Any]:
            a, b = of[ours], of[theirs]
            return {metric: figure_or_none(lambda: compute(a[metric], b[metric])) for metric in METRICS}  # noqa: B023

        return {ours: {theirs: each(ours, theirs) for theirs in specs} for ours in specs}

    times, change, greatest = against(lambda ours, theirs: ours / theirs), against(difference), {}
    for metric in METRICS:
        less = metric.startswith(("jct", "queue"))
        gains = [(change if less else times)[first][other][metric] for other in others]
        greatest[metric] = figure_or_none(lambda: (min if less else max)(gains))  # noqa: B023
    return {"of": of, "times": times, "change": change, "greatest": greatest}


def figure_or_none(of: Callable[[], Any]) -> Any:
    """Return a figure; None where its run is missing or has no such figure, or its divisor is zero."""
    try:
        return of()
    except (KeyError, ZeroDivisionError, ValueError, TypeError):
        return None


def _testbed_error(found: Found) -> float:
    """Return the mean error of the JCT on the testbed against the logs that the artifact keeps, percent."""
    errors = [
        abs(found[parts.TESTBED[policy]]["jct_mean"] / stored["jct_mean"] - 1)
        for policy, stored in parts.STORED.items()
    ]
    return float(100 * sum(errors) / len(errors))


def _lifespans(found: Found) -> dict[str, dict[str, float]]:
    """Return Arena's throughput over each baseline's by lifespan, and its growth over the lifespans."""
    gains: dict[str, dict[str, float]] = {}
    for factor in parts.FACTORS:
        ours, *others = (float(found[spec]["throughput_mean"]) for spec in parts.lifespan_runs(factor))
        rows = zip(parts.LIFESPAN_BASELINES, others, strict=True)
        gains[f"{factor:g}"] = {policy: ours / theirs for policy, theirs in rows}
    few, *_, many = gains
    growth = {policy: gains[many][policy] / gain for policy, gain in gains[few].items()}
    return gains | {f"{many} over {few}": growth}
