"""What the study of Ares runs, and the averages and gains that its parts share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from clustergym.paths import atomic_path
from clustergym.reproduction.ares_scenarios import START, WHOLE, trace_names
from clustergym.reproduction.study import Cell, Figures, Options, code_sha256

POLICIES = ("ares", "gavel", "themis", "allox", "tiresias", "lucid", "optimus", "pollux")
ALPHAS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 1.0)
QUICK_ALPHAS = (0.5, 0.65, 0.75, 0.8, 0.85, 1.0)
OWN = "ares work_conserving=True"
"""Our own baseline on Ares's order: jobs shrink rather than wait, and leftover GPUs are given out."""
FIXED: Mapping[str, tuple[tuple[str, Any], ...]] = {"pollux": (("batch", "requested"),)}
"""Parameters of who would choose the batch: here all jobs train at the requested one (section 3.1)."""
FEWER = {("newtrace", "pollux"): 1}
"""Traces of a kind that a policy is run on, where one takes minutes (Pollux's genetic search)."""
METRICS = ("jct_mean", "jct_p99", "unfair_fraction", "ftf_worst", "preemptions_mean", "restarts_mean")

Averages = Mapping[str, float]
Found = Mapping[Cell, Figures]


class Study(NamedTuple):
    """What is run."""

    quick: bool
    policies: Sequence[str]
    missing: Sequence[str]

    def traces(self, kind: str) -> list[str]:
        """Return the names of the traces of a kind."""
        return trace_names(kind, self.quick)

    @property
    def length(self) -> str:
        """The setting of a whole trace, or of its start."""
        return START if self.quick else WHOLE

    def cells(self, kind: str, policy: str, alpha: float | None = None) -> list[Cell]:
        """Return the runs of a policy, or of our own variant of Ares, on a kind of trace.

        With an alpha, on every second trace.
        """
        parameters: tuple[tuple[str, Any], ...] = () if alpha is None else (("alpha", alpha),)
        names = self.traces(kind)[: FEWER.get((kind, policy))]
        if alpha is not None:
            names = names[::2]
        if policy == OWN:
            policy, parameters = "ares", (("work_conserving", True),)
        parameters += FIXED.get(policy, ())
        return [Cell(name, None, self.length, policy, parameters) for name in names]

    @property
    def rows(self) -> list[str]:
        """Return the policies, and our own variant where Ares is among them."""
        return [*self.policies, *([OWN] if "ares" in self.policies else [])]

    @property
    def alphas(self) -> Sequence[float]:
        """Return the values of alpha that are tried."""
        return QUICK_ALPHAS if self.quick else ALPHAS

    def file(self, what: str) -> str:
        """Return the name of a plot."""
        return f"ares{'-quick' * self.quick}-{what}.svg"


def beside(study: Study, kind: str, policy: str) -> list[Cell]:
    """Return Ares's runs on the traces that a policy was run on."""
    names = {cell.trace for cell in study.cells(kind, policy)}
    return [cell for cell in study.cells(kind, "ares") if cell.trace in names]


def averages(found: Found, cells: Sequence[Cell]) -> Averages:
    """Return the mean of each metric over runs."""
    return {name: float(np.mean([found[cell][name] for cell in cells])) for name in METRICS}


class Gain(NamedTuple):
    """How far Ares is below another policy in a metric, a share; below 0: it is above."""

    other: str
    share: float


def gains(study: Study, found: Found, kind: str, metric: str) -> list[Gain]:
    """Return how far Ares is below each other policy, the closest first."""
    compared = []
    for policy in study.policies:
        if policy != "ares":
            cells = (beside(study, kind, policy), study.cells(kind, policy))
            ours, theirs = (averages(found, one)[metric] for one in cells)
            compared.append(Gain(policy, 1 - ours / theirs if theirs else 0.0))
    return sorted(compared, key=lambda gain: gain.share)


def kept(options: Options, what: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return figures that are not a run's metrics, made once for this code and kept in `options.work`."""
    key = hashlib.sha256(f"{code_sha256()} {what}".encode()).hexdigest()
    path = options.work / f"{key[:40]}.json"
    if path.is_file():
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    figures = make()
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return figures
