"""Arnold's advantage over the best baseline by how full the cluster is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from clustergym.benchmark.papers.arnold_benchmark import BASELINES, solve
from clustergym.cluster.cluster_files import load_cluster
from clustergym.common import random_streams
from clustergym.common.arrays import Ints
from clustergym.common.errors import InputError
from clustergym.envs.placement.drawing import SETTINGS, PlacementSetting
from clustergym.envs.placement.free_nodes import draw_free_nodes, minipod_sizes
from clustergym.scenario.placement_problem import Instance

RANGES = ((0.0, 0.6), (0.0, 0.8), (0.0, 1.0), (0.25, 1.0), (0.5, 1.0), (0.75, 1.0), (1.0, 1.0))
"""Shares of a minipod's nodes between which the free ones are uniform; (0, 1) is the benchmark's, (1, 1) an
empty cluster."""


ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)
QUICK_ALPHAS = (0.3, 0.5)


def by_fullness(states: int, seed: int, quick: bool) -> list[dict[str, Any]]:
    """Return the best baseline's score divided by Arnold's, by setting and by share of nodes that are free.

    Scores are means over `states` random cluster states; of their ratio, the greatest and the mean over the
    weights alpha are returned, None if no state has room for the job.
    """
    rows, alphas = [], QUICK_ALPHAS if quick else ALPHAS
    for position, setting in enumerate(SETTINGS):
        sizes = minipod_sizes(load_cluster(setting.cluster))
        for number, (least, most) in enumerate(RANGES):
            low, high = (np.round(share * sizes).astype(np.int64) for share in (least, most))
            streams = [
                random_streams.FULLNESS_STATES.generator(seed, position, number, state)
                for state in range(states)
            ]
            drawn = _draw_states(low, high, setting.job.nodes, streams)
            choices = partial(random_streams.FULLNESS_CHOICES.generator, seed, position, number)
            ratios = [_ratio(setting, drawn, alpha, choices) for alpha in alphas] if drawn else None
            rows.append(
                {"name": setting.name, "least": least, "most": most}
                | {"greatest_ratio": max(ratios) if ratios else None}
                | {"mean_ratio": float(np.mean(ratios)) if ratios else None}
            )
    return rows


def _draw_states(low: Ints, high: Ints, needed: int, streams: Sequence[np.random.Generator]) -> list[Ints]:
    """Sample the free nodes of each cluster state; return none if the job hardly ever fits."""
    missing = max(0, needed - int(low.sum()))
    try:
        return [low + draw_free_nodes(high - low, missing, rng) for rng in streams]
    except InputError:
        return []


def _ratio(
    setting: PlacementSetting, drawn: list[Ints], alpha: float, choices: Callable[[], np.random.Generator]
) -> float:
    means = {}
    for name in ("arnold", *BASELINES):
        rng = choices()
        means[name] = np.mean([solve(name, Instance(setting.job, free, alpha), rng).score for free in drawn])
    return float(min(means[name] for name in BASELINES) / means["arnold"])
