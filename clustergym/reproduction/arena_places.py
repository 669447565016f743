"""The clusters and traces on which Arena (EuroSys '26) is compared: sections 5.2, 5.3 and 5.7."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MEASUREMENTS, PHILLY, VENUS = "arena_profile.csv", "simulate_trace_philly.csv", "simulate_trace_venus.csv"
TESTBED, REVISION = "runtime_trace.csv", "runtime_trace_revision.csv"
TRACES = (PHILLY, VENUS, TESTBED, REVISION)
ROUND_S = 300.0


@dataclass(frozen=True)
class Place:
    """A cluster and a trace that Arena is compared on.

    Attributes
    ----------
    scenario : str
        File of conf/scenario.
    overrides : tuple of str
        `{data}` stands for the folder of Arena's published files.
    title, claim : str
        Heading of its table, and what the paper reports.
    quick : bool
        Whether it is part of the quick form.
    """

    scenario: str
    overrides: tuple[str, ...]
    title: str = ""
    claim: str = ""
    quick: bool = False

    @property
    def measured(self) -> bool:
        """Whether its iteration times are the artifact's measurements."""
        return any(one.startswith("oracle=table") for one in self.overrides)


def _trace(file: str) -> tuple[str, str]:
    return "trace=file", f"trace.path='{{data}}/{file}'"


MEASURED = ("oracle=table", f"oracle.path='{{data}}/{MEASUREMENTS}'", "oracle.missing=estimate")
SIMULATED = ("cluster=arena-sim", f"scenario.rounds={ROUND_S:.0f}")
PLACES: Mapping[str, Place] = {
    "philly": Place("large", (*_trace(PHILLY), *MEASURED, *SIMULATED)),
    "venus": Place("large", (*_trace(VENUS), *MEASURED, *SIMULATED)),
    "testbed-a": Place(
        "testbed",
        (*_trace(TESTBED), *MEASURED),
        "64 GPUs (A40, A10), the testbed's trace of 244 jobs, measured iteration times",
        "Arena reports, on this testbed, JCT lower by up to 48.9 %, queueing by up to 71.0 %, throughput up "
        "to 1.49 times on average and 1.36 times at its peak.",
        quick=True,
    ),
    "testbed-b": Place(
        "testbed",
        ("cluster=arena-b", *_trace(REVISION), "oracle=grid"),
        "384 GPUs (H100, L20), the revision's trace of 244 jobs, our oracle",
        "Nothing was published of this testbed's iteration times, so its GPUs have the constants of "
        "their family.",
        quick=True,
    ),
    "h100": Place(
        "testbed",
        (
            *("cluster=arena-b", "cluster.nodes=[{gpu_type: H100, count: 16, gpus_per_node: 8}]"),
            *(*_trace(REVISION), "oracle=grid", "scenario.other_types=any"),
        ),
        "128 H100, the revision's trace on one type, our oracle (section 5.7)",
        "The paper's throughput against each baseline is lost in the text at hand.",
    ),
    "venus-day": Place(
        "large",
        (*_trace(VENUS), *MEASURED, *SIMULATED),
        "1,280 GPUs, the published Helios Venus day, measured iteration times",
        "Arena reports JCT lower by 64.7 %, throughput 1.48 times on average and 1.92 times at its peak.",
    ),
    "pai-day": Place(
        "large",
        (
            *("trace=pai-like", "trace.jobs=400", "trace.span_s=86400", "trace.load=0.5"),
            *("trace.requests=arena", *MEASURED, *SIMULATED),
        ),
        "1,280 GPUs, a day of 400 PAI-like jobs at low load, measured iteration times",
        "Arena's own PAI day is not published. It reports JCT lower by 66.3 %, throughput 1.29 times on "
        "average and 2.63 times at its peak.",
    ),
    "venus-our-oracle": Place(
        "large",
        (*_trace(VENUS), "oracle=grid", *SIMULATED),
        "1,280 GPUs, the published Helios Venus day, our oracle",
        "The same day as measured, with iteration times of `oracle=grid` instead: whether the order of the "
        "policies depends on whose iteration times are used.",
    ),
    "philly-our-oracle": Place(
        "large",
        (*_trace(PHILLY), "oracle=grid", *SIMULATED, "horizon_s=199200"),
        "1,280 GPUs, 664 rounds of the published Philly trace, our oracle",
        "Beside the same rounds with measured iteration times above.",
    ),
}
OTHER_PLACES = [name for name, place in PLACES.items() if place.title]
"""Places that each have a section of their own."""
