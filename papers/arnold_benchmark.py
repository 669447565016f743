"""The placement benchmark: each algorithm's weighted spread over random states of three clusters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from clustergym.cluster.cluster_files import load_cluster
from clustergym.common import random_streams
from clustergym.common.arrays import Ints
from clustergym.common.errors import InputError
from clustergym.envs.placement.drawing import SETTINGS, PlacementSetting, draw_free_nodes, minipod_sizes
from clustergym.results.metrics.statistics import Estimate, estimate
from clustergym.scenario.placement_problem import (
    Instance,
    algorithm,
    score,
)

SCHEMA = "clustergym.bench.placement/1"


BASELINES = ("best_fit_by_node", "random_fit_by_node", "gpu_packing", "topology_aware")
"""Arnold's: they assign nodes, and know neither groups nor alpha."""
WHOLE_GROUPS = ("best_fit", "random_fit", "round_robin")
"""Ours, which place a group whole where they can, as Arnold does; no baselines of the paper."""
COMPARED = ("arnold", *BASELINES, *WHOLE_GROUPS)
QUICK_ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)


def say(step: str) -> None:
    """Show on a terminal what is done."""
    if sys.stderr.isatty():
        print(f"done: {step}", file=sys.stderr)


class SolverAnswer(NamedTuple):
    """The score of a placement, whether it is proven optimal, and the relative gap to a lower bound."""

    score: float
    proven: bool
    gap: float
    nodes: int


def solve(name: str, instance: Instance, rng: np.random.Generator) -> SolverAnswer:
    """Solve a placement problem by a named algorithm, check the placement, and return its score."""
    made = algorithm(name)(instance, rng)
    made.check(instance)
    said = made.solution
    proof = (said.proven, said.gap, said.nodes) if said else (False, 0.0, 0)
    return SolverAnswer(score(made, instance), *proof)


def run_setting(setting: PlacementSetting, alphas: Sequence[float], states: int, seed: int) -> dict[str, Any]:
    """Run every algorithm for every cluster state and alpha (weight of DP spread); return their scores.

    Scores are lists by alpha of lists by state.
    """
    position = SETTINGS.index(setting)
    sizes = minipod_sizes(load_cluster(setting.cluster))
    streams = [random_streams.PLACEMENT_STATES.generator(seed, position, state) for state in range(states)]
    drawn = [draw_free_nodes(sizes, setting.job.nodes, rng) for rng in streams]
    found = {}
    for number, name in enumerate(COMPARED):
        choices = partial(random_streams.PLACEMENT_CHOICES.generator, seed, position)
        pairs = [(free, choices(state, number)) for state, free in enumerate(drawn)]
        found[name] = [
            [solve(name, Instance(setting.job, free, alpha), rng) for free, rng in pairs] for alpha in alphas
        ]
        say(f"({setting.name}) {name}")
    exact = [answer for by_state in found["arnold"] for answer in by_state]
    shape = ("gpus", "nodes", "data_parallel", "tensor_parallel", "pipeline_parallel")
    return {
        "name": setting.name,
        "cluster": setting.cluster,
        "minipods": len(sizes),
        "nodes": int(sizes.sum()),
        "job": {name: getattr(setting.job, name) for name in shape},
        "free_nodes": [free.tolist() for free in drawn],
        "scores": {
            name: [[round(answer.score, 9) for answer in by_state] for by_state in rows]
            for name, rows in found.items()
        },
        "arnold": {
            "proven": sum(answer.proven for answer in exact),
            "solved": len(exact),
            "largest_gap": max(answer.gap for answer in exact),
            "branch_and_bound_nodes": sum(answer.nodes for answer in exact),
        },
    }


def run_benchmark(alphas: Sequence[float], states: int, seed: int) -> dict[str, Any]:
    """Score every algorithm in each setting, for each alpha (weight of DP spread), on random cluster states.

    Returns the settings' scores and a summary as JSON values; `states` is the number of states.
    """
    settings = [run_setting(setting, alphas, states, seed) for setting in SETTINGS]
    given = {"schema": SCHEMA, "seed": seed, "states": states, "alphas": list(alphas)}
    return {**given, "settings": settings, "summary": summary(settings, alphas)}


def summary(settings: Sequence[dict[str, Any]], alphas: Sequence[float]) -> dict[str, Any]:
    """Return, by setting, the best baseline's score divided by Arnold's, and the share of ties.

    The best baseline of a setting and alpha is the baseline of least mean score over states.
    `greatest_ratio` and `mean_ratio` are over alphas above 0 and below 1, where both types of group count;
    `with_ends` over all. `whole_groups` is what they would be with `WHOLE_GROUPS` among the baselines.
    """
    inner = [k for k, alpha in enumerate(alphas) if 0.0 < alpha < 1.0]
    ratios = {s["name"]: _ratios(s["scores"], BASELINES) for s in settings}
    others = {s["name"]: _ratios(s["scores"], (*BASELINES, *WHOLE_GROUPS)) for s in settings}
    return {
        "ratio_to_best_baseline": ratios,
        **_greatest_and_mean(ratios, inner),
        "with_ends": _greatest_and_mean(ratios, range(len(alphas))),
        "whole_groups": _greatest_and_mean(others, inner),
        "by_setting": {name: _greatest_and_mean({name: row}, inner) for name, row in ratios.items()},
        "greatest_ratio_in_a_state": {s["name"]: _greatest_in_a_state(s["scores"], inner) for s in settings},
        "ties": {setting["name"]: _ties(setting["scores"]) for setting in settings},
    }


def _ratios(scores: dict[str, list[list[float]]], baselines: Sequence[str]) -> list[float]:
    """Return, for each alpha, the least mean score of the baselines / Arnold's mean score."""
    best = np.min([np.mean(scores[name], axis=1) for name in baselines], axis=0)
    return [float(ratio) for ratio in best / np.mean(scores["arnold"], axis=1)]


def _greatest_and_mean(ratios: dict[str, list[float]], positions: Sequence[int]) -> dict[str, float]:
    every = [row[k] for row in ratios.values() for k in positions]
    return {"greatest_ratio": max(every), "mean_ratio": float(np.mean(every))}


def _greatest_in_a_state(scores: dict[str, list[list[float]]], positions: Sequence[int]) -> float:
    """Return the greatest ratio over all states and alphas; each state has its own best baseline."""
    ratios = np.min([scores[name] for name in BASELINES], axis=0) / np.array(scores["arnold"])
    return float(np.max(ratios[list(positions)]))


def _ties(scores: dict[str, list[list[float]]]) -> dict[str, float]:
    """Return, for each baseline, the share of states and alphas in which it scores as Arnold does."""
    arnold = np.array(scores["arnold"])
    return {name: float(np.mean(np.array(scores[name]) < arnold + 1e-9)) for name in COMPARED[1:]}


def estimates(scores: Sequence[Sequence[float]]) -> list[Estimate]:
    """Return the mean and 95 % interval of each list in `scores`; a list has one score per cluster state."""
    return [estimate(row) for row in scores]


RANGES = ((0.0, 0.6), (0.0, 0.8), (0.0, 1.0), (0.25, 1.0), (0.5, 1.0), (0.75, 1.0), (1.0, 1.0))
"""Shares of a minipod's nodes between which the free ones are uniform; (0, 1) is the benchmark's, (1, 1) an
empty cluster."""


FULLNESS_ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)
QUICK_FULLNESS_ALPHAS = (0.3, 0.5)


def by_fullness(states: int, seed: int, quick: bool) -> list[dict[str, Any]]:
    """Return the best baseline's score divided by Arnold's, by setting and by share of nodes that are free.

    Scores are means over `states` random cluster states; of their ratio, the greatest and the mean over the
    weights alpha are returned, None if no state has room for the job.
    """
    rows, alphas = [], QUICK_FULLNESS_ALPHAS if quick else FULLNESS_ALPHAS
    for position, setting in enumerate(SETTINGS):
        sizes = minipod_sizes(load_cluster(setting.cluster))
        for number, (least, most) in enumerate(RANGES):
            low, high = (np.round(share * sizes).astype(np.int64) for share in (least, most))
            stream = partial(random_streams.FULLNESS_STATES.generator, seed, position, number)
            drawn = _draw_states(low, high, setting.job.nodes, [stream(state) for state in range(states)])
            choices = partial(random_streams.FULLNESS_CHOICES.generator, seed, position, number)
            ratios = [_ratio(setting, drawn, alpha, choices) for alpha in alphas] if drawn else None
            greatest, mean = (max(ratios), float(np.mean(ratios))) if ratios else (None, None)
            row = {"name": setting.name, "least": least, "most": most}
            rows.append({**row, "greatest_ratio": greatest, "mean_ratio": mean})
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
