"""Arena (EuroSys '26), sections 5.2 and 5.3: its testbeds, its other traces, and our oracle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from clustergym.reproduction.study import Cell, Figures, number, table
from clustergym.scenario import Scenario

SETTING = "fair"
METRICS = ("jct_mean", "queue_mean", "throughput_mean", "throughput_peak")


@dataclass(frozen=True)
class Place:
    """A cluster and a trace that Arena is compared on.

    Attributes
    ----------
    title : str
    scenario : str
        File of conf/scenario.
    overrides : tuple of str
        `{data}` stands for the folder of Arena's published files.
    claim : str
        What the paper reports.
    quick : bool
        Whether it is part of the quick form.
    """

    title: str
    scenario: str
    overrides: tuple[str, ...]
    claim: str
    quick: bool = False


MEASURED = ("oracle=table", "oracle.path='{data}/arena_profile.csv'", "oracle.missing=estimate")
SIMULATED = ("cluster=arena-sim", "scenario.rounds=300")
PLACES: Mapping[str, Place] = {
    "testbed-a": Place(
        "64 GPUs (A40, A10), the testbed's trace of 244 jobs, measured iteration times",
        "testbed",
        ("trace=file", "trace.path='{data}/runtime_trace.csv'", *MEASURED),
        "Arena reports, on this testbed, JCT lower by up to 48.9 %, queueing by up to 71.0 %, throughput up "
        "to 1.49 times on average and 1.36 times at its peak.",
        quick=True,
    ),
    "testbed-b": Place(
        "384 GPUs (H100, L20), the revision's trace of 244 jobs, our oracle",
        "testbed",
        ("cluster=arena-b", "trace=file", "trace.path='{data}/runtime_trace_revision.csv'", "oracle=grid"),
        "Nothing was published of this testbed's iteration times, so its GPUs have the constants of "
        "their family.",
        quick=True,
    ),
    "venus-day": Place(
        "1,280 GPUs, the published Helios Venus day, measured iteration times",
        "large",
        ("trace=file", "trace.path='{data}/simulate_trace_venus.csv'", *MEASURED, *SIMULATED),
        "Arena reports JCT lower by 64.7 %, throughput 1.48 times on average and 1.92 times at its peak.",
    ),
    "pai-day": Place(
        "1,280 GPUs, a day of 400 PAI-like jobs at low load, measured iteration times",
        "large",
        (
            "trace=pai-like",
            "trace.jobs=400",
            "trace.span_s=86400",
            "trace.load=0.5",
            "trace.requests=arena",
            *MEASURED,
            *SIMULATED,
        ),
        "Arena's own PAI day is not published. It reports JCT lower by 66.3 %, throughput 1.29 times on "
        "average and 2.63 times at its peak.",
    ),
    "venus-our-oracle": Place(
        "1,280 GPUs, the published Helios Venus day, our oracle",
        "large",
        ("trace=file", "trace.path='{data}/simulate_trace_venus.csv'", "oracle=grid", *SIMULATED),
        "The same day as measured, with iteration times of `oracle=grid` instead: whether the order of the "
        "policies depends on whose iteration times are used.",
    ),
    "philly-our-oracle": Place(
        "1,280 GPUs, 664 rounds of the published Philly trace, our oracle",
        "large",
        (
            "trace=file",
            "trace.path='{data}/simulate_trace_philly.csv'",
            "oracle=grid",
            *SIMULATED,
            "horizon_s=199200",
        ),
        "Beside the same rounds with measured iteration times above.",
    ),
}


def cells(policies: Sequence[str], quick: bool) -> Iterator[Cell]:
    """Yield the runs; each goes on to its last job, or to the horizon that its place sets."""
    for name, place in PLACES.items():
        if place.quick or not quick:
            yield from (Cell(name, None, SETTING, policy) for policy in policies)


@cache
def scenario_of(data: Path, name: str) -> Scenario:
    """Return the scenario of a place."""
    from clustergym.api import load_scenario

    folder = data.absolute() / "arena"
    place = PLACES[name]
    return load_scenario(place.scenario, [one.replace("{data}", str(folder)) for one in place.overrides])


def sections(found: Mapping[Cell, Figures], policies: Sequence[str], quick: bool) -> Iterator[str]:
    """Yield a section for each place."""
    for name, place in PLACES.items():
        if place.quick or not quick:
            runs = {policy: found[Cell(name, None, SETTING, policy)] for policy in policies}
            yield _section(place, runs)


def _section(place: Place, runs: Mapping[str, Figures]) -> str:
    headers = ["policy", "finished", "JCT, s", "queue, s", "samples/s", "peak samples/s", "restarts a job"]
    rows = [
        [
            policy,
            number(figures["jobs_finished"]),
            *(number(figures[metric], 1 if "through" in metric else 0) for metric in METRICS),
            number(figures["restarts_mean"], 1),
        ]
        for policy, figures in runs.items()
    ]
    return (
        f"## {place.title}\n\nIn the fair setting. {place.claim}\n\n{table(headers, rows)}\n\n{_gain(runs)}"
    )


def _gain(runs: Mapping[str, Figures]) -> str:
    """Return a sentence on Arena's greatest and least gain over the others."""
    others = {policy: figures for policy, figures in runs.items() if policy != "arena"}
    if "arena" not in runs or not others:
        return ""
    ours, parts = runs["arena"], []
    for metric, what in zip(METRICS, ("JCT", "queueing", "throughput", "peak throughput"), strict=True):
        ratios = {name: _ratio(ours[metric], figures[metric]) for name, figures in others.items()}
        low, high = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
        parts.append(f"{what} {ratios[low]:.2f} ({low}) to {ratios[high]:.2f} ({high})")
    return f"Arena's figures divided by the others', least to greatest: {'; '.join(parts)}."


def _ratio(ours: float, theirs: float) -> float:
    return ours / theirs if theirs else float("inf")
