"""What decides whether Ares or Pollux is faster: one change at a time, and a map of scaling and load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clustergym.benchmark.papers import ares_study
from clustergym.benchmark.papers.ares_study import FIXED, AresStudy, bend, scenario_of
from clustergym.benchmark.papers.details import column, number
from clustergym.benchmark.papers.page import Section, passage
from clustergym.benchmark.papers.plots import Draw, grid_plot
from clustergym.benchmark.papers.study import Found, Parameters, RunSpec
from clustergym.common.markdown import table

EXACT: Parameters = (("search", "exact"),)
POLLUX: Parameters = (*EXACT, *FIXED["pollux"])
"""Pollux optimises its fitness by an integer program, in a third of the time of its genetic search."""
NAMES = ("ares", "pollux", "work-conserving form")
CONSERVING: Parameters = (("work_conserving", True),)
POWERS = (1.0, 0.75, 0.5, 0.25)
LOADS = (0.5, 1.0, 1.5, 2.0)
QUICK_POWERS, QUICK_LOADS = (1.0, 0.25), (1.0, 2.0)


class OneChange(NamedTuple):
    """One change to the comparison: a variant of the setting, or parameters of a policy."""

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
    FLAT: OneChange(ares_study.ROOFLINE),
    "Ares on unrounded requests (`scenario.counts=any`)": OneChange(ares_study.UNROUNDED),
    "Ares with hysteresis 4": OneChange(ares=(("hysteresis", 4.0),), quick=False),
    "Ares deciding at arrivals and finishes": OneChange(ares=(("round_s", None),), quick=False),
    "pollux that reckons with the scenario's restarts": OneChange(
        pollux=(*POLLUX, ("restart_s", None)), quick=False
    ),
}


class Causes(NamedTuple):
    """The runs that look for causes, and what they show."""

    study: AresStudy

    @property
    def traces(self) -> list[str]:
        """The traces that changes are tried on."""
        return ["philly sia 1", "helios sia 1"][: 1 if self.study.quick else 2]

    @property
    def axes(self) -> tuple[Sequence[float], Sequence[float]]:
        """Powers of the efficiency, and offered loads, of the map."""
        return (QUICK_POWERS, QUICK_LOADS) if self.study.quick else (POWERS, LOADS)

    def three(self, trace: str, change: OneChange) -> tuple[RunSpec, RunSpec, RunSpec]:
        """Return the runs of Ares, Pollux and our own form under a change."""
        setting = f"{self.study.length} {change.variant}".rstrip()
        return (
            RunSpec(trace, None, setting, "ares", change.ares),
            RunSpec(trace, None, setting, "pollux", change.pollux),
            RunSpec(trace, None, setting, "ares", CONSERVING),
        )

    def point(self, trace: str, power: float, load: float) -> tuple[RunSpec, RunSpec, RunSpec]:
        """Return the runs of the three policies at a point of the map."""
        return self.three(trace, OneChange(bend(power, load)))

    def relative(self, found: Found, specs: tuple[RunSpec, RunSpec, RunSpec]) -> float:
        """Return by how many percent Ares's mean JCT is above Pollux's (or below: negative)."""
        ares, pollux, _ = (found[spec]["jct_mean"] for spec in specs)
        return float(100 * (ares / pollux - 1))

    def at(self, found: Found, power: float, load: float) -> list[float]:
        """Return the mean JCT of the three at a point of the map, over that of Ares, mean over traces."""
        ratios = []
        for trace in self.traces:
            seconds = [float(found[spec]["jct_mean"]) for spec in self.point(trace, power, load)]
            ratios.append(np.array(seconds) / seconds[0])
        return [float(mean) for mean in np.mean(ratios, axis=0)]

    def ladder(self) -> Section:
        """Return the table of single changes."""
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
                scenario = scenario_of(self.study.data, specs[0])
                where = [
                    number(ares_study.offered_load(scenario), 2),
                    number(ares_study.request_efficiency(scenario), 2),
                ]
                hours = [number(found[spec]["jct_mean"] / 3600, 3) for spec in specs]
                rows.append([*labels, *where, *hours, f"{self.relative(found, specs):+.0f} %"])
            return f"{passage('ares', 'ladder')}\n\n{table(headers, rows)}"

        return Section([spec for specs in runs.values() for spec in specs], text)

    def map(self) -> Section:
        """Return the table and the picture of the map."""
        points = [(power, load) for power in self.axes[0] for load in self.axes[1]]
        headers = ["efficiency to the power", "load", "pollux", "work-conserving form"]
        headers += ["first of ares and pollux", "first of the three"]

        def text(found: Found) -> str:
            rows = []
            for power, load in points:
                values = self.at(found, power, load)
                shown = [f"{power:g}", f"{load:g}", *column(values[1:], 2)]
                rows.append([*shown, _first(values[:2]), _first(values)])
            named = {"traces": " and ".join(self.traces), "plot": self.study.file("map")}
            return passage("ares", "map", table=table(headers, rows), **named)

        return Section([s for trace in self.traces for at in points for s in self.point(trace, *at)], text)

    def plot(self, found: Found) -> Draw:
        """Return the picture of the map."""
        powers, loads = self.axes
        values = [[self.at(found, power, load) for load in loads] for power in powers]
        return grid_plot(
            [f"{load:g}" for load in loads],
            [f"{power:g}" for power in powers],
            [[_first(three[:2]) for three in row] for row in values],
            [[f"{pollux:.2f}\n{own:.2f}" for _, pollux, own in row] for row in values],
            NAMES[:2],
            title="Mean JCT over Ares's:\npollux; work-conserving form",
            xlabel="offered load at the request",
            ylabel="efficiency to the power",
        )


def _first(values: Sequence[float]) -> str:
    return NAMES[int(np.argmin(values))]
