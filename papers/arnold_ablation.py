"""An ablation of the gain of placement at scale: one assumption changed at a time, beside Arnold's Fig. 7."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from clustergym.common import random_streams
from clustergym.common.arrays import Ints
from clustergym.scenario.placement_problem import PretrainingJob

from .arnold_characterisation import (
    DENSE,
    LAYERS,
    MOE,
    SCALES,
    Candidate,
    Scale,
    candidates,
    choose_placements,
    fabric_tiers,
    free_nodes,
    pack_ranks,
    two_minipods,
)
from .arnold_step_time import (
    PORTS,
    Core,
    PretrainingModel,
    constant,
    predict,
    rising,
    share_uplinks,
    static_routes,
)

FIG_4_DENSE = 0.023
"""Gain of PP alignment over two minipods, dense, on average (Arnold, section 2): what ties `rising`."""

EXPONENT = 0.85
SHIPPED_CORE = 2.0
MINIPODS, MINIPOD_NODES = 22, 93
"""More than 2,000 nodes (section 2) in the largest minipods of Table 1: 1,019 nodes over 11."""

LARGE_DENSE = PretrainingModel("dense, 175B", hidden=12288, layers=96, heads=96)
"""GPT-3 (Brown et al., 2020, Table 2.1)."""
LARGE_MOE = PretrainingModel("MoE, 8 experts, 327B", hidden=8192, layers=64, heads=64, experts=8)
"""Large enough to spend 30 to 50 % of a step on 9,600 GPUs on communication (Arnold, Fig. 1a)."""

SPREADS = {208: ((3, 2), (1, 1)), 9600: ((21, 4), (14, 3))}
"""DP and PP spread before and after. The paper gives ratios (section 3: 3 and 2 times, 1.5 and 1.3 times).
Of 22 minipods of 93 nodes, 21 and 14 are the only numbers exactly 1.5 times apart that hold 1,200 nodes;
4 and 3 are assumed."""

Baseline = Callable[[Ints, PretrainingJob, np.random.Generator], Ints]
"""(Free nodes of each minipod, job, random numbers) -> minipod of each node, shape (rows, columns)."""
Rule = Callable[[int], Core]
"""Uplinks of a minipod -> what crosses the core is slowed by."""


def gpu_packing(free: Ints, job: PretrainingJob, rng: np.random.Generator) -> Ints:
    """Fill the minipods (groups of nodes) with most free nodes first; return the minipod of each node."""
    return pack_ranks(free.tolist(), job)


def best_fit(free: Ints, job: PretrainingJob, rng: np.random.Generator) -> Ints:
    """Fill the minipods (groups of nodes) with fewest free nodes first; return the minipod of each node."""
    order = np.argsort(free, kind="stable")
    return _by_rank(np.repeat(order, free[order]), job)


def random_fit(free: Ints, job: PretrainingJob, rng: np.random.Generator) -> Ints:
    """Place a job on randomly sampled free nodes; return the minipod (group of nodes) of each node."""
    return _by_rank(rng.permutation(np.repeat(np.arange(len(free)), free)), job)


def _by_rank(minipods: Ints, job: PretrainingJob) -> Ints:
    """Return the communication matrix in which nodes of the given minipods take the ranks in order."""
    return minipods[: job.nodes].reshape(job.columns, job.rows).T


class Variation(NamedTuple):
    """A row of the ablation of the step-time model: the assumptions that differ from the usual ones."""

    name: str
    rule: Rule = lambda uplinks: constant(SHIPPED_CORE)
    table_1: bool = False
    baseline: Baseline = gpu_packing
    large: bool = False


def rules(coefficient: float) -> dict[str, Rule]:
    """Return the tested rules for how core switches slow traffic, by name; `coefficient` sets one of them."""
    return {
        "slowest tier, core 2:1": lambda uplinks: constant(SHIPPED_CORE),
        EVEN_CORE: lambda uplinks: constant(1.0),
        f"rising as (k - 1)^{EXPONENT}": lambda uplinks: rising(coefficient, EXPONENT),
        "rising as k - 1": lambda uplinks: rising(coefficient),
        "rising as log2 k": lambda uplinks: rising(coefficient, growth="logarithm"),
        "shared uplinks, 1:1": share_uplinks,
        "shared uplinks, 2:1": lambda uplinks: share_uplinks(uplinks // 2),
        "static routes, 1:1": static_routes,
        "static routes, 1:1, 4 flows a port": lambda uplinks: static_routes(uplinks, flows=4),
    }


SHIPPED = "shipped: slowest tier, core 2:1"
TEXT = "Table 1's minipods, best-fit baseline"
EVEN_CORE = "slowest tier, core 1:1"
"""As many ports up as down in every layer (Arnold, section 2)."""
TEXT_AND_CORE = f"core 1:1, {TEXT}"
TEXT_AND_ROUTES = f"static routes, {TEXT}"


def variations(coefficient: float) -> Iterator[Variation]:
    """Yield step-time models: the usual one, several with one change, and some with the paper's assumptions.

    `coefficient` is that of the rules `rising` in `rules`.
    """
    named = rules(coefficient)
    yield Variation(SHIPPED)
    for name, rule in list(named.items())[1:]:
        yield Variation(name, rule)
    yield Variation("Table 1's minipods", table_1=True)
    yield Variation("baseline best fit", baseline=best_fit)
    yield Variation("baseline random fit", baseline=random_fit)
    yield Variation("larger models", large=True)
    yield Variation(TEXT, table_1=True, baseline=best_fit)
    yield Variation(TEXT_AND_CORE, named[EVEN_CORE], table_1=True, baseline=best_fit)
    rising_too = f"rising as (k - 1)^{EXPONENT}"
    yield Variation(f"{rising_too}, {TEXT}", named[rising_too], table_1=True, baseline=best_fit)
    yield Variation(TEXT_AND_ROUTES, static_routes, table_1=True, baseline=best_fit)
    yield Variation(f"{TEXT_AND_ROUTES}, larger models", static_routes, True, best_fit, True)


def compute_tied_coefficient() -> float:
    """Solve for the coefficient of core-switch slowdown that makes our gain equal to the paper's Fig. 4.

    The rule of the slowdown is `rising`. The gain is that of aligned placement, in which groups of pipeline
    parallelism (PP) stay whole.
    """
    return float(brentq(lambda c: _two_minipods(DENSE, rising(c))["pp_aligned"] - FIG_4_DENSE, 1e-3, 10.0))


def _two_minipods(model: PretrainingModel, core: Core) -> dict[str, float]:
    """Return the gain, a mean over layers, of each alignment of 96 GPUs over two minipods."""
    gains = [row["gain"] for row in two_minipods([model], LAYERS, fabric_tiers(1.0), core)]
    return {alignment: float(np.mean([gain[alignment] for gain in gains])) for alignment in gains[0]}


def ablate(states: int, seed: int) -> dict[str, Any]:
    """Compute placement gains by each step-time model variant over `states` random cluster states."""
    coefficient = compute_tied_coefficient()
    named = {name: rule(PORTS * MINIPOD_NODES) for name, rule in rules(coefficient).items()}
    return {
        "coefficient": coefficient,
        "two_minipods": [
            {"rule": name, "model": model.name, **_two_minipods(model, core)}
            for name, core in named.items()
            for model in (DENSE, MOE)
        ],
        "paper_spreads": [
            {"rule": name, "gpus": scale.job.gpus, "model": model.name}
            | {"gain": _at_spreads(scale, model, core)}
            for name, core in named.items()
            for scale in SCALES
            for model in (DENSE, MOE)
        ],
        "scale": _at_scale(coefficient, states, seed),
    }


def spread_matrix(job: PretrainingJob, dp: int, pp: int) -> Ints:
    """Return nodes' minipods (node groups): a DP group (column) spans `dp` of them, a PP group (row) `pp`."""
    rows = np.arange(job.rows)[:, None] * dp // job.rows
    return (rows + np.arange(job.columns) * pp // job.columns) % dp


def _at_spreads(scale: Scale, model: PretrainingModel, core: Core) -> float:
    """Return the gain in throughput at the spreads that the paper gives."""
    tiers = fabric_tiers(1.0)
    slower, faster = (
        predict(spread_matrix(scale.job, *spreads), scale.job, model, tiers, core=core).total_s
        for spreads in SPREADS[scale.job.gpus]
    )
    return slower / faster - 1


def _at_scale(coefficient: float, states: int, seed: int) -> list[dict[str, Any]]:
    of_table_1 = {scale: Scale(scale.job, MINIPODS, MINIPOD_NODES) for scale in SCALES}
    drawn = {scale: free_nodes(scale, states, seed) for scale in (*SCALES, *of_table_1.values())}
    offered = {scale: candidates(scale.job, free) for scale, free in drawn.items()}
    return [
        row
        for variation in variations(coefficient)
        for shipped in SCALES
        for scale in [of_table_1[shipped] if variation.table_1 else shipped]
        for row in _rows(variation, scale, drawn[scale], offered[scale], seed)
    ]


def _rows(
    variation: Variation, scale: Scale, drawn: list[Ints], offered: Sequence[Candidate], seed: int
) -> Iterator[dict[str, Any]]:
    """Yield Arnold's gain for each model, with the unit and alpha that are best under the variation."""
    tiers, core = fabric_tiers(1.0), variation.rule(PORTS * scale.nodes)
    streams = [random_streams.PLACEMENT_ABLATION.generator(seed, state) for state in range(len(drawn))]
    before = [variation.baseline(free, scale.job, rng) for free, rng in zip(drawn, streams, strict=True)]
    for model in (LARGE_DENSE, LARGE_MOE) if variation.large else (DENSE, MOE):
        choice, found = choose_placements(model, scale.job, offered, before, tiers, core)
        times = [predict(matrix, scale.job, model, tiers, core=core) for matrix in before]
        yield {
            **{"variation": variation.name, "gpus": scale.job.gpus, "minipods": scale.minipods},
            **{"minipod_nodes": scale.nodes, "model": model.name, "experts": model.experts},
            **{"unit": choice.unit, "alpha": choice.alpha},
            "communication_share": float(np.mean([time.communication_share for time in times])),
            **found,
        }
