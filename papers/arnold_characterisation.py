"""The gain of placement for a model, by predicted step times, and the best alpha for the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from clustergym.cluster.cluster_files import load_cluster
from clustergym.cluster.spec import ClusterSpec, Fabric
from clustergym.common import random_streams
from clustergym.common.arrays import Ints
from clustergym.envs.placement.drawing import draw_free_nodes
from clustergym.oracle.roofline.devices import PORT_SHARE
from clustergym.results.metrics.statistics import estimate
from clustergym.scenario.placement_problem import (
    UNITS,
    Instance,
    PretrainingJob,
    Unit,
    algorithm,
    cell_spread,
    cells,
)

from .arnold_step_time import Core, PretrainingModel, Tiers, predict

JOB = PretrainingJob(96, 12, 4, 2)
FREE = (8, 6)
"""Free nodes of the two minipods, or leaves, that the job of 12 nodes is put in."""

LAYERS = (16, 32, 48, 64)
DENSE = PretrainingModel("dense", hidden=5120, layers=48, heads=40)
MOE = PretrainingModel("MoE, 8 experts", hidden=2048, layers=48, heads=16, experts=8)
LARGE_MOE = PretrainingModel("MoE, 48 experts", hidden=2048, layers=48, heads=16, experts=48)
MODELS = (DENSE, MOE, LARGE_MOE)

CORE_FACTORS = (1.0, 1.25, 1.5, 2.0, 4.0)
NETWORK_SHARES = (0.3, 0.5, PORT_SHARE, 0.8, 1.0)
SCALE_CORE_FACTORS = (1.0, 2.0, 4.0)
ALPHAS = tuple(round(0.2 * step, 1) for step in range(6))


class Scale(NamedTuple):
    """A large job and its cluster: the number of minipods (groups of nodes) and the nodes in each."""

    job: PretrainingJob
    minipods: int
    nodes: int


SCALES = (Scale(PretrainingJob(208, 26, 4, 2), 11, 16), Scale(PretrainingJob(9600, 150, 8, 8), 20, 100))
"""The larger job takes more than half of a cluster of more than 2,000 nodes (Arnold, sections 2 and 3)."""


def fabric_tiers(core_oversubscription: float, network_share: float = PORT_SHARE) -> Tiers:
    """Return the network tiers of Arnold's H800 nodes, given the core switches' oversubscription."""
    cluster: ClusterSpec = load_cluster("arnold-i")
    fabric = replace(cluster.fabric, core_oversubscription=core_oversubscription)
    return Tiers.from_cluster(ClusterSpec(cluster.name, cluster.groups, fabric), network_share)


def pack_ranks(free: Sequence[int], job: PretrainingJob) -> Ints:
    """Fill minipods (groups of nodes) with a job in rank order; return each node's minipod.

    Communication groups are ignored, and may span minipods.

    Parameters
    ----------
    free : sequence of int
        Free nodes of each minipod; the roomiest is filled first, as GPU packing does.
    job : PretrainingJob

    Returns
    -------
    ndarray of int, shape (rows, columns)
    """
    made = algorithm("gpu_packing")(Instance(job, np.array(free)), random_streams.PLACER.generator(0))
    by_minipod = made.counts.sum(axis=0)
    order = np.argsort(-np.array(free), kind="stable")
    return np.repeat(order, by_minipod[order]).reshape(job.columns, job.rows).T


def align_groups(free: Sequence[int], job: PretrainingJob, unit: Unit) -> Ints:
    """Return each node's minipod (group of nodes) such that the fewest PP or DP groups (`unit`) are split."""
    alpha = 0.0 if unit == "pp" else 1.0
    made = algorithm("arnold")(Instance(job, np.array(free), alpha, unit), random_streams.PLACER.generator(0))
    return cells(made, job, unit)


def placements(free: Sequence[int], job: PretrainingJob) -> dict[str, Ints]:
    """Return nodes' minipods (groups of nodes) by placement: packed, PP groups whole, or DP groups whole."""
    return {
        "packed": pack_ranks(free, job),
        "pp_aligned": align_groups(free, job, "pp"),
        "dp_aligned": align_groups(free, job, "dp"),
    }


def two_minipods(
    models: Sequence[PretrainingModel], layers: Sequence[int], tiers: Tiers, core: Core | None = None
) -> list[dict[str, Any]]:
    """Return models' step times on two minipods (groups of nodes) by placement, and gains over packing."""
    rows, made = [], placements(FREE, JOB)
    for model in (replace(m, layers=count) for m in models for count in layers):
        times = {name: predict(matrix, JOB, model, tiers, core=core) for name, matrix in made.items()}
        step_s, packed = {name: time.total_s for name, time in times.items()}, times["packed"]
        row = {"model": model.name, "layers": model.layers, "step_s": step_s}
        row["communication_share"] = packed.communication_share
        row["gain"] = {name: packed.total_s / s - 1 for name, s in step_s.items() if name != "packed"}
        rows.append(row)
    return rows


def inside_a_minipod(models: Sequence[PretrainingModel]) -> dict[str, float]:
    """Return by what share steps are slower in the worst placement on two leaf switches than in the best."""
    tiers, variation = fabric_tiers(Fabric().core_oversubscription), {}
    for model in models:
        minipod = np.zeros((JOB.rows, JOB.columns), dtype=np.int64)
        made = placements(FREE, JOB).values()
        times = [predict(minipod, JOB, model, tiers, leaves=leaves).total_s for leaves in made]
        variation[model.name] = max(times) / min(times) - 1
    return variation


class Candidate(NamedTuple):
    """Arnold's placements of a job on each cluster state, for PP or DP groups and one weight of DP spread."""

    unit: Unit
    alpha: float
    matrices: list[Ints]
    proven: int = 0


def candidates(job: PretrainingJob, states: Sequence[Ints]) -> list[Candidate]:
    """Run Arnold's algorithm for a job on each cluster state, with PP or DP groups and each DP-spread weight.

    Parameters
    ----------
    job : PretrainingJob
    states : sequence of ndarray of int, shape (M,)
        Free nodes of each minipod; each must hold the job.
    """
    solve, rng, found = algorithm("arnold"), random_streams.PLACER.generator(0), []
    for unit in UNITS:
        for alpha in ALPHAS:
            made = [solve(Instance(job, free, alpha, unit), rng) for free in states]
            proven = sum(answer.solution is not None and answer.solution.proven for answer in made)
            found.append(Candidate(unit, alpha, [cells(answer, job, unit) for answer in made], proven))
    return found


def choose_alpha(
    model: PretrainingModel,
    job: PretrainingJob,
    offered: Sequence[Candidate],
    tiers: Tiers,
    core: Core | None = None,
) -> Candidate:
    """Return the candidate placements with the least mean step time of the model.

    Ties: the least spread of both types, then PP groups before DP groups, then the lowest alpha.
    """

    def rank(candidate: Candidate) -> tuple[float, int]:
        times = [predict(matrix, job, model, tiers, core=core).total_s for matrix in candidate.matrices]
        return round(float(np.mean(times)), 9), sum(sum(cell_spread(m)) for m in candidate.matrices)

    return min(offered, key=rank)


def free_nodes(scale: Scale, states: int, seed: int) -> list[Ints]:
    """Sample random cluster states with room for the job; return free nodes by minipod (group of nodes)."""
    job, minipods, nodes = scale
    draw = random_streams.PLACEMENT_SCALE_STATES.generator
    streams = [draw(seed, job.gpus, minipods, state) for state in range(states)]
    return [draw_free_nodes(np.full(minipods, nodes), job.nodes, rng) for rng in streams]


def at_scale(scale: Scale, states: int, seed: int, core: float) -> list[dict[str, Any]]:
    """Compare Arnold's placements, tuned for each model, with packing on `states` random cluster states.

    The setting is the weight alpha and the unit (PP or DP groups); `core` is the core's oversubscription.

    `gain_by_core` has the mean gain for each of `SCALE_CORE_FACTORS`, unit and alpha chosen anew, and
    `gain_unsplit` that of a placement in which no PP group leaves its minipod and every DP group does.
    """
    job, minipods, nodes = scale
    drawn = free_nodes(scale, states, seed)
    offered, before = candidates(job, drawn), [pack_ranks(free.tolist(), job) for free in drawn]
    unsplit = np.repeat(np.arange(job.rows)[:, None], job.columns, axis=1)
    rows = []
    for model in MODELS:
        choice, found = choose_placements(model, job, offered, before, fabric_tiers(core))
        ideal = compare_placements(before, [unsplit] * states, job, model, fabric_tiers(core))
        by_core = {
            str(factor): choose_placements(model, job, offered, before, fabric_tiers(factor))[1]["gain"][0]
            for factor in SCALE_CORE_FACTORS
        }
        rows.append(
            {"gpus": job.gpus, "minipods": minipods, "minipod_nodes": nodes, "model": model.name}
            | {"unit": choice.unit, "alpha": choice.alpha, "gain_by_core": by_core}
            | {"gain_unsplit": ideal["gain"][0]}
            | {"proven": sum(c.proven for c in offered), "solved": len(offered) * states}
            | found
        )
    return rows


def choose_placements(
    model: PretrainingModel,
    job: PretrainingJob,
    offered: Sequence[Candidate],
    before: Sequence[Ints],
    tiers: Tiers,
    core: Core | None = None,
) -> tuple[Candidate, dict[str, Any]]:
    """Return the best of Arnold's placements for a model, and its gains over the placements `before`."""
    choice = choose_alpha(model, job, offered, tiers, core)
    return choice, compare_placements(before, choice.matrices, job, model, tiers, core)


def compare_placements(
    before: Sequence[Ints],
    after: Sequence[Ints],
    job: PretrainingJob,
    model: PretrainingModel,
    tiers: Tiers,
    core: Core | None = None,
) -> dict[str, Any]:
    """Return the throughput gain of placements `after` over `before`, and how much less their groups spread.

    The groups are those of DP and of PP; their spread is the number of minipods that they span.
    """
    gains, dp_ratios, pp_ratios = [], [], []
    for theirs, ours in zip(before, after, strict=True):
        slower, faster = (predict(matrix, job, model, tiers, core=core).total_s for matrix in (theirs, ours))
        gains.append(slower / faster - 1)
        wide, narrow = cell_spread(theirs), cell_spread(ours)
        dp_ratios.append(wide.dp / narrow.dp)
        pp_ratios.append(wide.pp / narrow.pp)
    return {
        "gain": list(estimate(gains)[:3]),
        "dp_spread_ratio": float(np.mean(dp_ratios)),
        "pp_spread_ratio": float(np.mean(pp_ratios)),
    }


def _gains(tiers: Tiers) -> dict[str, dict[str, float]]:
    """Return the gains of 96 GPUs in two minipods, by model."""
    return {row["model"]: row["gain"] for model in MODELS for row in two_minipods([model], [48], tiers)}


def characterise(states: int, seed: int) -> dict[str, Any]:
    """Compute how much placement speeds up jobs by size and network, on `states` random cluster states."""
    core = Fabric().core_oversubscription
    tiers = fabric_tiers(core)
    return {
        "core_oversubscription": core,
        "two_minipods": two_minipods(MODELS, LAYERS, tiers),
        "core_factors": {str(factor): _gains(fabric_tiers(factor)) for factor in CORE_FACTORS},
        "network_shares": {str(share): _gains(fabric_tiers(core, share)) for share in NETWORK_SHARES},
        "without_overlap": two_minipods([replace(m, chunk_layers=None) for m in MODELS], [48], tiers),
        "inside_a_minipod": inside_a_minipod(MODELS),
        "scale": [row for scale in SCALES for row in at_scale(scale, states, seed, core)],
    }
