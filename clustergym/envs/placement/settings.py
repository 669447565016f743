"""The clusters and jobs of the placement benchmark, which the environment of placement draws from too."""

from __future__ import annotations

from typing import NamedTuple

from clustergym.envs.placement.communication import PretrainingJob


class PlacementSetting(NamedTuple):
    """A cluster and a job of the benchmark."""

    name: str
    cluster: str
    job: PretrainingJob


SETTINGS = (
    PlacementSetting("i", "arnold-i", PretrainingJob(96, 12, 4, 2)),
    PlacementSetting("ii", "arnold-ii", PretrainingJob(768, 24, 4, 8)),
    PlacementSetting("iii", "arnold-iii", PretrainingJob(2944, 46, 8, 8)),
)
"""Arnold's, with PP groups as units."""

ALPHAS = tuple(round(0.1 * step, 1) for step in range(11))
"""Weights of the DP spread beside the PP spread that the benchmark compares algorithms at."""
