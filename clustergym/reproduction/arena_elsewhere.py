"""Arena (EuroSys '26), sections 5.2, 5.3 and 5.7: its testbeds, its other traces, and our oracle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from clustergym.reproduction.study import Cell, Figures, number, table
from clustergym.scenario import Scenario

FAIR, PUBLISHED = "fair", "as published"
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

    @property
    def measured(self) -> bool:
        """Whether its iteration times are the artifact's measurements."""
        return any(one.startswith("oracle=table") for one in self.overrides)


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
    "h100": Place(
        "128 H100, the revision's trace on one type, our oracle (section 5.7)",
        "testbed",
        (
            "cluster=arena-b",
            "cluster.nodes=[{gpu_type: H100, count: 16, gpus_per_node: 8}]",
            "trace=file",
            "trace.path='{data}/runtime_trace_revision.csv'",
            "oracle=grid",
            "scenario.other_types=any",
        ),
        "The paper's throughput against each baseline is lost in the text at hand.",
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


def settings(place: Place) -> tuple[str, ...]:
    """Return the settings a place is run in; what was never published has one."""
    return (FAIR, PUBLISHED) if place.measured else (FAIR,)


def run_of(name: str, setting: str, policy: str) -> Cell:
    """Return a run in a place, to its last job or to the horizon that the place sets."""
    return Cell(name, None, setting, policy)


def cells(policies: Sequence[str], quick: bool) -> Iterator[Cell]:
    """Yield the runs of all places."""
    for name, place in PLACES.items():
        if place.quick or not quick:
            for setting in settings(place):
                yield from (run_of(name, setting, policy) for policy in policies)


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
            yield section(name, found, policies)


def section(
    name: str, found: Mapping[Cell, Figures], policies: Sequence[str], reference: str = "arena"
) -> str:
    """Return the table of a place, and what the reference gains over the other policies."""
    place = PLACES[name]
    headers = [
        "policy",
        "setting",
        "finished",
        "dropped",
        "JCT, s",
        "queue, s",
        "samples/s",
        "peak samples/s",
    ]
    rows, gains = [], []
    for setting in settings(place):
        runs = {policy: found[run_of(name, setting, policy)] for policy in policies}
        for policy, figures in runs.items():
            cols = [number(figures[key]) for key in ("jobs_finished", "jobs_dropped")]
            cols += [number(figures[key], 1 if "through" in key else 0) for key in METRICS]
            rows.append([policy, setting, *cols, number(figures["restarts_mean"], 1)])
        gains.append(_gain(setting, runs, reference))
    text = f"## {place.title}\n\n{place.claim}\n\n{table([*headers, 'restarts a job'], rows)}"
    return "\n\n".join([text, *(gain for gain in gains if gain)])


def _gain(setting: str, runs: Mapping[str, Figures], reference: str) -> str:
    """Return a sentence on the greatest and least gain over the others."""
    others = {policy: figures for policy, figures in runs.items() if policy != reference}
    if reference not in runs or not others:
        return ""
    ours, parts = runs[reference], []
    for metric, what in zip(METRICS, ("JCT", "queueing", "throughput", "peak throughput"), strict=True):
        ratios = {name: _ratio(ours[metric], figures[metric]) for name, figures in others.items()}
        low, high = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
        parts.append(f"{what} {ratios[low]:.2f} ({low}) to {ratios[high]:.2f} ({high})")
    return f"Figures of {reference} divided by the others', {setting}, least to greatest: {'; '.join(parts)}."


def _ratio(ours: float, theirs: float) -> float:
    return ours / theirs if theirs else float("inf")
