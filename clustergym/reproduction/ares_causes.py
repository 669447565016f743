"""Why the order of Ares and Pollux turns: one change at a time, and a map of scaling and load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustergym.reproduction.ares_scenarios import (
    ROOFLINE,
    START,
    UNROUNDED,
    WHOLE,
    bend,
    offered_load,
    request_efficiency,
    scenario_of,
)
from clustergym.reproduction.ares_study import FIXED, Found
from clustergym.reproduction.grid_plot import Grid, GridPlot
from clustergym.reproduction.study import Cell, number, table

Parameters = tuple[tuple[str, Any], ...]

POLLUX: Parameters = (("search", "exact"), *FIXED["pollux"])
"""Pollux's fitness by an integer program, in a third of the time of its genetic search."""
NAMES = ("ares", "pollux", "work-conserving form")
CONSERVING: Parameters = (("work_conserving", True),)
POWERS = (1.0, 0.75, 0.5, 0.25)
LOADS = (0.5, 1.0, 1.5, 2.0)
QUICK_POWERS, QUICK_LOADS = (1.0, 0.25), (1.0, 2.0)


class Change(NamedTuple):
    """One change to the comparison; parameters are added to those of the policy."""

    label: str
    variant: str = ""
    ares: Parameters = ()
    pollux: Parameters = POLLUX
    quick: bool = True


BELOW = "pollux never below the request"
CHOOSES = "pollux that chooses the batch too"
NEARLY_LINEAR = "measured efficiency to the power 0.25, same load"
CHANGES = (
    Change("Sia's profiles, as above"),
    Change("pollux by its genetic search, as in Fig. 7", pollux=FIXED["pollux"]),
    Change(CHOOSES, pollux=(("search", "exact"),)),
    Change(BELOW, pollux=(*POLLUX, ("at_least_request", True))),
    Change("the roofline instead of Sia's profiles", ROOFLINE),
    Change("Ares on unrounded requests (`scenario.counts=any`)", UNROUNDED),
    Change("Ares with hysteresis 4", ares=(("hysteresis", 4.0),), quick=False),
    Change("Ares deciding at arrivals and finishes", ares=(("round_s", None),), quick=False),
    Change(
        "pollux that reckons with the scenario's restarts", pollux=(*POLLUX, ("restart_s", None)), quick=False
    ),
)


@dataclass(frozen=True)
class Causes:
    """The runs of this part and what they show."""

    data: Path
    quick: bool

    @property
    def traces(self) -> list[str]:
        """The traces that changes are tried on."""
        return ["philly sia 1"] if self.quick else ["philly sia 1", "helios sia 1"]

    @property
    def length(self) -> str:
        """The setting of a trace without a variant."""
        return START if self.quick else WHOLE

    @property
    def changes(self) -> list[Change]:
        """The changes that are tried."""
        return [change for change in CHANGES if change.quick or not self.quick]

    @property
    def axes(self) -> tuple[Sequence[float], Sequence[float]]:
        """Powers of the efficiency, and offered loads, of the map."""
        return (QUICK_POWERS, QUICK_LOADS) if self.quick else (POWERS, LOADS)

    def three(self, trace: str, change: Change) -> tuple[Cell, Cell, Cell]:
        """Return the runs of Ares, Pollux and our own form under a change."""
        setting = f"{self.length} {change.variant}".rstrip()
        return (
            Cell(trace, None, setting, "ares", change.ares),
            Cell(trace, None, setting, "pollux", change.pollux),
            Cell(trace, None, setting, "ares", CONSERVING),
        )

    def point(self, trace: str, power: float, load: float) -> tuple[Cell, Cell, Cell]:
        """Return the same three at a point of the map."""
        return self.three(trace, Change("", bend(power, load)))

    def cells(self) -> list[Cell]:
        """Return all runs."""
        found = [
            cell for trace in self.traces for change in self.changes for cell in self.three(trace, change)
        ]
        powers, loads = self.axes
        for trace in self.traces:
            for power in powers:
                for load in loads:
                    found += self.point(trace, power, load)
        return found

    def hours(self, found: Found, trace: str, change: Change) -> list[float]:
        """Return the mean JCT of the three under a change, hours."""
        return [float(found[cell]["jct_mean"]) / 3600 for cell in self.three(trace, change)]

    def relative(self, found: Found, label: str, trace: str = "philly sia 1") -> float:
        """Return Ares's mean JCT against Pollux's under a change, a share of it above (or below) 0."""
        change = next(one for one in CHANGES if one.label == label)
        ares, pollux, _ = self.hours(found, trace, change)
        return ares / pollux - 1

    def at(self, found: Found, power: float, load: float) -> list[float]:
        """Return the mean JCT of the three at a point of the map, over that of Ares, mean over traces."""
        ratios = []
        for trace in self.traces:
            seconds = [float(found[cell]["jct_mean"]) for cell in self.point(trace, power, load)]
            ratios.append([one / seconds[0] for one in seconds])
        return [float(mean) for mean in np.mean(ratios, axis=0)]

    def text(self, found: Found, plot: str) -> str:
        """Return the section."""
        return f"{self._ladder(found)}\n\n{self._map(found, plot)}"

    def _ladder(self, found: Found) -> str:
        headers = ["change", "trace", "load", "efficiency at the request", "ares, h", "pollux, h"]
        headers += ["work-conserving form, h", "ares against pollux"]
        rows = []
        for change in self.changes:
            for trace in self.traces:
                scenario = scenario_of(self.data, self.three(trace, change)[0])
                ares, pollux, own = self.hours(found, trace, change)
                where = [number(offered_load(scenario), 2), number(request_efficiency(scenario), 2)]
                hours = [number(one, 3) for one in (ares, pollux, own)]
                rows.append([change.label, trace, *where, *hours, f"{100 * (ares / pollux - 1):+.0f} %"])
        return (
            "## Ares against Pollux, one change at a time\n\n"
            "Mean JCT. Load: GPU time at the requests over that of the cluster while jobs arrive. "
            "Efficiency: throughput per GPU at the request over that on the fewest GPUs, mean over jobs. "
            "Pollux searches by an integer "
            "program here, except where its genetic search is named.\n\n" + table(headers, rows)
        )

    def _map(self, found: Found, plot: str) -> str:
        powers, loads = self.axes
        headers = ["efficiency to the power", "load", "pollux", "work-conserving form"]
        headers += ["first of ares and pollux", "first of the three"]
        rows = []
        for power in powers:
            for load in loads:
                values = self.at(found, power, load)
                shown = [f"{power:g}", f"{load:g}", *(number(one, 2) for one in values[1:])]
                rows.append([*shown, _first(values[:2]), _first(values)])
        return (
            "## A map of scaling and load\n\n"
            "The measured efficiency of every job raised to a power (1: as measured; 0 would be linear "
            "scaling), at the same GPU time at the request, and submissions stretched to a load. Mean JCT "
            f"over Ares's, mean over {' and '.join(self.traces)}: above 1, Ares is better.\n\n"
            f"{table(headers, rows)}\n\n![Who is first]({plot})\n\nColours: the first of Ares and Pollux."
        )

    def plot(self, found: Found) -> GridPlot:
        """Return the picture of the map."""
        powers, loads = self.axes
        values = [[self.at(found, power, load) for load in loads] for power in powers]
        first = [[_first(one[:2]) for one in row] for row in values]
        shown = [[f"{one[1]:.2f}\n{one[2]:.2f}" for one in row] for row in values]
        return GridPlot(
            Grid(
                "Mean JCT over Ares's:\npollux; work-conserving form",
                "offered load at the request",
                "efficiency to the power",
                [f"{load:g}" for load in loads],
                [f"{power:g}" for power in powers],
                first,
                shown,
                NAMES[:2],
            )
        )


def _first(values: Sequence[float]) -> str:
    return NAMES[int(np.argmin(values))]
