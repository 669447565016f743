"""The placement benchmark: each algorithm's weighted spread over random states of three clusters."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from clustergym.cluster.cluster_files import load_cluster
from clustergym.common import random_streams
from clustergym.envs.placement.drawing import (
    ALPHAS,
    SETTINGS,
    PlacementSetting,
    draw_free_nodes,
    minipod_sizes,
)
from clustergym.scenario.placement_problem import Instance, algorithm, score

from .arnold_characterisation import characterise

BASELINES = ("best_fit_by_node", "random_fit_by_node", "gpu_packing", "topology_aware")
"""Arnold's: they assign nodes, and know neither groups nor alpha."""
COMPARED = ("arnold", *BASELINES)
QUICK_ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)


class SolverAnswer(NamedTuple):
    """The score of a placement, whether it is proven optimal, and the relative gap to a lower bound."""

    score: float
    proven: bool
    gap: float


def solve(name: str, instance: Instance, rng: np.random.Generator) -> SolverAnswer:
    """Solve a placement problem by a named algorithm, check the placement, and return its score."""
    made = algorithm(name)(instance, rng)
    made.check(instance)
    said = made.solution
    proof = (said.proven, said.gap) if said else (False, 0.0)
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
    exact = [answer for by_state in found["arnold"] for answer in by_state]
    return {
        "name": setting.name,
        "minipods": len(sizes),
        "nodes": int(sizes.sum()),
        "scores": {
            name: [[round(answer.score, 9) for answer in by_state] for by_state in rows]
            for name, rows in found.items()
        },
        "arnold": {
            "proven": sum(answer.proven for answer in exact),
            "solved": len(exact),
            "largest_gap": max(answer.gap for answer in exact),
        },
    }


def placement_figures(quick: bool, states: int, seed: int) -> dict[str, Any]:
    """Return all results of the placement benchmark on random cluster states; fewer alphas if `quick`."""
    alphas = QUICK_ALPHAS if quick else ALPHAS
    settings = [run_setting(setting, alphas, states, seed) for setting in SETTINGS]
    return {
        **{"seed": seed, "states": states, "alphas": list(alphas), "settings": settings},
        "summary": summary(settings, alphas),
        "characterisation": characterise(states, seed),
    }


def summary(settings: Sequence[dict[str, Any]], alphas: Sequence[float]) -> dict[str, Any]:
    """Return, by setting, the best baseline's score divided by Arnold's, and the share of ties.

    The best baseline of a setting and alpha is the baseline of least mean score over states.
    `greatest_ratio` and `mean_ratio` are over alphas above 0 and below 1, where both types of group count.
    """
    inner = [k for k, alpha in enumerate(alphas) if 0.0 < alpha < 1.0]
    ratios = {setting["name"]: _ratios(setting["scores"]) for setting in settings}
    return {
        "ratio_to_best_baseline": ratios,
        **_greatest_and_mean(ratios, inner),
        "by_setting": {name: _greatest_and_mean({name: row}, inner) for name, row in ratios.items()},
        "ties": {setting["name"]: _ties(setting["scores"]) for setting in settings},
    }


def _ratios(scores: dict[str, list[list[float]]]) -> list[float]:
    """Return, for each alpha, the least mean score of the baselines / Arnold's mean score."""
    best = np.min([np.mean(scores[name], axis=1) for name in BASELINES], axis=0)
    return [float(ratio) for ratio in best / np.mean(scores["arnold"], axis=1)]


def _greatest_and_mean(ratios: dict[str, list[float]], positions: Sequence[int]) -> dict[str, float]:
    every = [row[k] for row in ratios.values() for k in positions]
    return {"greatest_ratio": max(every), "mean_ratio": float(np.mean(every))}


def _ties(scores: dict[str, list[list[float]]]) -> dict[str, float]:
    """Return, for each baseline, the share of states and alphas in which it scores as Arnold does."""
    arnold = np.array(scores["arnold"])
    return {name: float(np.mean(np.array(scores[name]) < arnold + 1e-9)) for name in BASELINES}
