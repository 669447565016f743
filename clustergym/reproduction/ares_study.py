"""What the study of Ares runs, and the averages and gains that its parts share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clustergym.reproduction.ares_scenarios import START, WHOLE, trace_names
from clustergym.reproduction.study import Figures, Found, Parameters, RunSpec

POLICIES = ("ares", "gavel", "themis", "allox", "tiresias", "lucid", "optimus", "pollux")
ALPHAS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 1.0)
QUICK_ALPHAS = (0.5, 0.65, 0.75, 0.8, 0.85, 1.0)
OWN = "ares work_conserving=True"
"""Our own baseline on Ares's order: jobs shrink rather than wait, and leftover GPUs are given out."""
FIXED: Mapping[str, Parameters] = {"pollux": (("batch", "requested"),)}
"""Parameters of who would choose the batch: here all jobs train at the requested one (section 3.1)."""
FEWER = {("newtrace", "pollux"): 1}
"""Traces of a kind that a policy is run on, where one takes minutes (Pollux's genetic search)."""
METRICS = ("jct_mean", "jct_p99", "unfair_fraction", "ftf_worst", "preemptions_mean", "restarts_mean")


class Gain(NamedTuple):
    """How far Ares is below another policy in a metric, a share; below 0: it is above."""

    other: str
    share: float


class AresStudy(NamedTuple):
    """What is run: the policies, on the published data in a folder, in the quick form or whole."""

    data: Path
    quick: bool
    policies: Sequence[str]

    @property
    def length(self) -> str:
        """The setting of a whole trace, or of its start."""
        return START if self.quick else WHOLE

    def specs(self, kind: str, policy: str, alpha: float | None = None) -> list[RunSpec]:
        """Return the runs of a policy, or of our own variant of Ares, on a kind of trace.

        With an alpha, on every second trace.
        """
        parameters: Parameters = () if alpha is None else (("alpha", alpha),)
        names = trace_names(kind, self.quick)[: FEWER.get((kind, policy))]
        if policy == OWN:
            policy, parameters = "ares", (("work_conserving", True),)
        parameters += FIXED.get(policy, ())
        step = 1 if alpha is None else 2
        return [RunSpec(name, None, self.length, policy, parameters) for name in names[::step]]

    @property
    def rows(self) -> list[str]:
        """The policies, and our own variant where Ares is among them."""
        return [*self.policies, *([OWN] if "ares" in self.policies else [])]

    @property
    def alphas(self) -> Sequence[float]:
        """The values of alpha that are tried."""
        return QUICK_ALPHAS if self.quick else ALPHAS

    def file(self, what: str) -> str:
        """Return the name of a plot."""
        return f"ares{'-quick' * self.quick}-{what}.svg"

    def averages(self, found: Found, kind: str, policy: str) -> Figures:
        """Return the mean of each metric over the runs of a policy."""
        return averages(found, self.specs(kind, policy))

    def beside(self, found: Found, kind: str, policy: str) -> Figures:
        """Return the mean of each metric over Ares's runs on the traces that a policy was run on."""
        names = {spec.trace for spec in self.specs(kind, policy)}
        return averages(found, [spec for spec in self.specs(kind, "ares") if spec.trace in names])

    def gains(self, found: Found, kind: str, metric: str) -> list[Gain]:
        """Return how far Ares is below each other policy, the closest first."""
        compared = []
        for policy in self.policies:
            if policy != "ares":
                ours = self.beside(found, kind, policy)[metric]
                theirs = self.averages(found, kind, policy)[metric]
                compared.append(Gain(policy, 1 - ours / theirs if theirs else 0.0))
        return sorted(compared, key=lambda gain: gain.share)


def averages(found: Found, specs: Sequence[RunSpec]) -> Figures:
    """Return the mean of each metric over runs."""
    return {name: float(np.mean([found[spec][name] for spec in specs])) for name in METRICS}
