"""The gain of placement for a model, by predicted step times, and the best alpha for the model."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from clustergym.cluster.cluster_files import load_cluster
from clustergym.cluster.spec import ClusterSpec, Fabric
from clustergym.common import random_streams
from clustergym.common.arrays import Ints
from clustergym.envs.placement.drawing import draw_free_nodes
from clustergym.scenario.placement_problem import (
    UNITS,
    Instance,
    PretrainingJob,
    Unit,
    algorithm,
    cell_spread,
    cells,
)

from .arnold_step_time import PretrainingModel, Tiers, network_tiers, predict
from .claims import FAIR, PUBLISHED

JOB = PretrainingJob(96, 12, 4, 2)
FREE = (8, 6)
"""Free nodes of the two minipods, or leaves, that the job of 12 nodes is put in."""

LAYERS = (16, 32, 48, 64)
DENSE = PretrainingModel("dense", hidden=5120, layers=48, heads=40)
MOE = PretrainingModel("MoE, 8 experts", hidden=2048, layers=48, heads=16, experts=8)
LARGE_MOE = PretrainingModel("MoE, 48 experts", hidden=2048, layers=48, heads=16, experts=48)
MODELS = (DENSE, MOE, LARGE_MOE)
ALPHAS = tuple(round(0.2 * step, 1) for step in range(6))


class Scale(NamedTuple):
    """A large job and its cluster: the number of minipods (groups of nodes) and the nodes in each."""

    job: PretrainingJob
    minipods: int
    nodes: int


LARGE_JOBS = (PretrainingJob(208, 26, 4, 2), PretrainingJob(9600, 150, 8, 8))
"""The larger job takes more than half of a cluster of more than 2,000 nodes (Arnold, sections 2 and 3)."""


def fabric_tiers(core_oversubscription: float) -> Tiers:
    """Return the network tiers of Arnold's H800 nodes, given the core switches' oversubscription."""
    cluster: ClusterSpec = load_cluster("arnold-i")
    fabric = replace(cluster.fabric, core_oversubscription=core_oversubscription)
    return network_tiers(ClusterSpec(cluster.name, cluster.groups, fabric))


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


def best_fit(free: Sequence[int], job: PretrainingJob) -> Ints:
    """Fill the minipods (groups of nodes) with fewest free nodes first; return the minipod of each node."""
    order = np.argsort(free, kind="stable")
    return np.repeat(order, np.array(free)[order])[: job.nodes].reshape(job.columns, job.rows).T


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
    models: Sequence[PretrainingModel], layers: Sequence[int], tiers: Tiers
) -> list[dict[str, Any]]:
    """Return models' gains over packing on two minipods (groups of nodes), and the communication there."""
    rows, made = [], placements(FREE, JOB)
    for model in (replace(m, layers=count) for m in models for count in layers):
        times = {name: predict(matrix, JOB, model, tiers) for name, matrix in made.items()}
        packed = times.pop("packed")
        row = {"model": model.name, "layers": model.layers, "communication_share": packed.communication_share}
        rows.append(
            {**row, "gain": {name: packed.total_s / time.total_s - 1 for name, time in times.items()}}
        )
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
            found.append(Candidate(unit, alpha, [cells(answer, job, unit) for answer in made]))
    return found


def choose_alpha(
    model: PretrainingModel, job: PretrainingJob, offered: Sequence[Candidate], tiers: Tiers
) -> Candidate:
    """Return the candidate placements with the least mean step time of the model.

    Ties: the least spread of both types, then PP groups before DP groups, then the lowest alpha.
    """

    def rank(candidate: Candidate) -> tuple[float, int]:
        times = [predict(matrix, job, model, tiers).total_s for matrix in candidate.matrices]
        return round(float(np.mean(times)), 9), sum(sum(cell_spread(m)) for m in candidate.matrices)

    return min(offered, key=rank)


def free_nodes(scale: Scale, states: int, seed: int) -> list[Ints]:
    """Sample random cluster states with room for the job; return free nodes by minipod (group of nodes)."""
    job, minipods, nodes = scale
    draw = random_streams.PLACEMENT_SCALE_STATES.generator
    streams = [draw(seed, job.gpus, minipods, state) for state in range(states)]
    return [draw_free_nodes(np.full(minipods, nodes), job.nodes, rng) for rng in streams]


class Setting(NamedTuple):
    """What the paper leaves open: minipods and nodes of each by job, the core, and the baseline."""

    minipods: Sequence[tuple[int, int]]
    core_oversubscription: float
    baseline: Callable[[Sequence[int], PretrainingJob], Ints]


SETTINGS = {
    FAIR: Setting(((11, 16), (20, 100)), Fabric().core_oversubscription, pack_ranks),
    # Table 1: 1,019 nodes over 11 minipods, and more than 2,000 nodes (section 2); as many ports up as down
    # in every layer (section 2); best fit, node by node (section 3).
    PUBLISHED: Setting(((22, 93), (22, 93)), 1.0, best_fit),
}


def at_scale(scale: Scale, states: int, seed: int, setting: Setting) -> dict[str, Any]:
    """Compare Arnold's placements, tuned for the mixture of experts, with a baseline on random states.

    What is tuned is the weight alpha and the unit (PP or DP groups). Returns the mean gain in throughput, how
    many times fewer minipods the widest DP and PP group span, and the baseline's share of communication.
    """
    job, drawn, tiers = (
        scale.job,
        free_nodes(scale, states, seed),
        fabric_tiers(setting.core_oversubscription),
    )
    choice = choose_alpha(MOE, job, candidates(job, drawn), tiers)
    gains, shares, ratios = [], [], []
    for free, ours in zip(drawn, choice.matrices, strict=True):
        theirs = setting.baseline(free.tolist(), job)
        slower, faster = (predict(matrix, job, MOE, tiers) for matrix in (theirs, ours))
        gains.append(slower.total_s / faster.total_s - 1)
        shares.append(slower.communication_share)
        ratios.append(np.array(cell_spread(theirs)) / np.array(cell_spread(ours)))
    found = {"gain": float(np.mean(gains)), "communication_share": float(np.mean(shares))}
    dp, pp = np.mean(ratios, axis=0).tolist()
    return {**found, "unit": choice.unit, "alpha": choice.alpha, "dp": dp, "pp": pp}


def characterise(states: int, seed: int) -> dict[str, Any]:
    """Compute how much placement speeds up jobs by size and network, on `states` random cluster states."""
    return {
        "two_minipods": {
            name: two_minipods(MODELS, LAYERS, fabric_tiers(setting.core_oversubscription))
            for name, setting in SETTINGS.items()
        },
        "inside_a_minipod": inside_a_minipod(MODELS),
        "scale": {
            name: {
                str(job.gpus): at_scale(Scale(job, *minipods), states, seed, setting)
                for job, minipods in zip(LARGE_JOBS, setting.minipods, strict=True)
            }
            for name, setting in SETTINGS.items()
        },
    }
