"""Predicted seconds of a training step, from the minipods of its nodes and a rule for the core switches."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

import numpy as np

from clustergym.cluster.spec import ClusterSpec, Locality
from clustergym.common import random_streams
from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import InputError
from clustergym.common.parameter_types import NonNegativeInt, PositiveInt
from clustergym.oracle.models.model_spec import ELEMENT_BYTES, Costs, mixture_of_experts, transformer
from clustergym.oracle.roofline.devices import Devices, Layout, link_gbs, network_shares
from clustergym.oracle.roofline.roofline_oracle import GRADIENT_BYTES, NETWORK_STEP_S, all_reduce_s
from clustergym.scenario.placement_problem import PretrainingJob, cell_spread


class Across(NamedTuple):
    """Factors by which bandwidth is lower between minipods (groups of nodes) than inside one.

    Attributes
    ----------
    hop : float
        Factor for transfers between neighbouring stages.
    reduction : float
        Factor for the reduction of gradients over a column.
    """

    hop: float
    reduction: float


Core = Callable[[Ints, bool], Across]
"""(Minipod of each node, shape (rows, columns); whether the last stage hands on to the first) -> factors."""

Growth = Literal["power", "logarithm"]

PORTS = 8
"""Network ports of a node, one per GPU."""


def constant(factor: float) -> Core:
    """Return a rule that slows traffic between minipods by the same factor in every placement."""
    return lambda matrix, wraps: Across(factor, factor)


def rising(coefficient: float, exponent: float = 1.0, growth: Growth = "power") -> Core:
    """Return a rule that slows traffic the more, the more minipods a communication group spans.

    1 + coefficient (k - 1)^exponent, or 1 + coefficient log2 k: 1 where k is 1, 1 + coefficient where it is
    2. No source gives the shape; the coefficient is what a measurement with k = 2 ties.
    """

    def factor(k: int) -> float:
        return 1.0 + coefficient * (math.log2(k) if growth == "logarithm" else (k - 1) ** exponent)

    def rule(matrix: Ints, wraps: bool) -> Across:
        found = cell_spread(matrix)
        return Across(factor(found.pp), factor(found.dp))

    return rule


def share_uplinks(uplinks: int) -> Core:
    """Return a rule that slows traffic as the job's own flows share each minipod's uplinks equally.

    Each of the `PORTS` ports of a node that sends to another minipod is a flow at line rate. All uplinks of a
    minipod count as one link, in each direction; under max-min fairness the slowest flow, which all
    wait for, gets the least over links of capacity over flows.

    Parameters
    ----------
    uplinks : int
        Links of a minipod to the core at a port's rate; with as many as ports below, none is oversubscribed.
    """

    def rule(matrix: Ints, wraps: bool) -> Across:
        return Across(*(max(1.0, _busiest(*sends) / uplinks) for sends in _crossings(matrix, wraps)))

    return rule


def static_routes(uplinks: int, flows: int = 1, draws: int = 20, seed: int = 0) -> Core:
    """Return a rule that slows traffic as the job's flows, on fixed routes drawn at random, collide on links.

    The core is not blocking, but flows that meet on a link share it, max-min fair, and all wait for the
    slowest. The factor is the mean over draws of the load of the fullest link; other jobs send nothing.
    Inside a minipod routes are taken to be perfect, as the paper measures at most 0.3 % there.

    Parameters
    ----------
    uplinks : int
        Links of a minipod to the core, as in `share_uplinks`.
    flows : int
        Flows per port, each with its own route and an equal part of the traffic.
    draws, seed : int
        Number of draws of the routes, and their seed.
    """

    def rule(matrix: Ints, wraps: bool) -> Across:
        return _collisions(matrix.tobytes(), matrix.shape, wraps, uplinks, flows, draws, seed)

    return rule


def _crossings(matrix: Ints, wraps: bool) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    """Return the minipods that each node sends from and to: to the next stage, and round its column's ring.

    Shape (nodes,); the source is -1 where the message stays in its minipod.
    """
    stages, ring = np.roll(matrix, -1, axis=1), np.roll(matrix, -1, axis=0)
    if not wraps:
        stages[:, -1] = matrix[:, -1]
    hop, reduction = (
        (np.where(after == matrix, -1, matrix).ravel(), after.ravel()) for after in (stages, ring)
    )
    return hop, reduction


def _busiest(source: Ints, destination: Ints) -> int:
    """Return the greatest number of flows out of, or into, any minipod."""
    crosses = source >= 0
    if not crosses.any():
        return 0
    return PORTS * max(int(np.bincount(ends[crosses]).max()) for ends in (source, destination))


@lru_cache(maxsize=1024)
def _collisions(
    content: bytes, shape: tuple[int, int], wraps: bool, uplinks: int, flows: int, draws: int, seed: int
) -> Across:
    matrix = np.frombuffer(content, dtype=np.int64).reshape(shape)
    rng = random_streams.LINK_ROUTES.generator(seed)
    return Across(*(_mean_load(*sends, uplinks, flows, draws, rng) for sends in _crossings(matrix, wraps)))


def _mean_load(
    source: Ints, destination: Ints, uplinks: int, flows: int, draws: int, rng: np.random.Generator
) -> float:
    """Return the load of the fullest link, in ports, averaged over random routes; at least 1."""
    # Links are numbered on from minipod to minipod: one bincount finds the fullest of all.
    crosses = source >= 0
    ends = [where[crosses] * uplinks for where in (source, destination)]
    most = np.full(draws, flows)
    for draw in range(draws):
        routes = rng.integers(0, uplinks, size=(2, PORTS * flows, len(source)))[..., crosses]
        for first, links in zip(ends, routes, strict=True):
            most[draw] = max(most[draw], np.bincount((first + links).ravel(), minlength=1).max())
    return float(most.mean()) / flows


SWITCH_S = 1e-6
"""Latency a switch adds to a message (assumed); it crosses 1 inside a leaf, 3 inside a minipod, 5 across."""

SWITCHES = {Locality.NODE: 0, Locality.LEAF: 1, Locality.MINIPOD: 3, Locality.CROSS: 5}

RECOMPUTED_PASSES = 4.0
"""Forward passes a step is worth: one forward, one to recompute, two backward."""

TOKENS, VOCABULARY, EXPERT_GROUP = 2048, 51200, 2048


@dataclass(frozen=True)
class PretrainingModel:
    """A language model's dimensions, its micro-batches per step, and its layers per virtual pipeline stage.

    Attributes
    ----------
    name : str
    hidden, layers, heads : int
    experts : int
        0: dense; otherwise every second layer has so many, sharded over the GPUs of a node, so that their
        all-to-all stays inside.
    micro_batches : int
        Micro-batches of one sequence that each pipeline runs in a step.
    chunk_layers : int or None
        Layers of a virtual stage of the interleaved 1F1B schedule; gradients of a chunk are reduced
        while the others compute, and only one chunk's reduction is exposed (MegaScale, NSDI '24,
        section 3.2). None: one chunk per stage, and all of the reduction is exposed.
    """

    name: str
    hidden: PositiveInt
    layers: PositiveInt
    heads: PositiveInt
    experts: NonNegativeInt = 0
    micro_batches: PositiveInt = 32
    chunk_layers: PositiveInt | None = 2

    @cached_property
    def costs(self) -> Costs:
        """FLOPs and bytes of training the model on one sequence, by name."""
        element = ELEMENT_BYTES["fp16"]
        size = {"hidden": self.hidden, "layers": self.layers, "heads": self.heads}
        if not self.experts:
            return transformer(size, TOKENS, VOCABULARY, element)
        return mixture_of_experts(size | {"experts": self.experts}, TOKENS, VOCABULARY, element, EXPERT_GROUP)

    def chunks(self, stages: int) -> int:
        """Return how many chunks of layers each of `stages` pipeline stages holds."""
        unit = stages * (self.chunk_layers or 1)
        if self.layers % unit:
            raise InputError(
                f"{self.layers} layers do not divide into {stages} stages of whole chunks",
                field="layers",
                remedy=f"give a multiple of {unit}",
            )
        return 1 if self.chunk_layers is None else self.layers // unit


class StepTime(NamedTuple):
    """Seconds of a training step, by cause; communication that overlaps computation is left out.

    Attributes
    ----------
    compute_s, tensor_s, pipeline_s, data_s : float
        Computation with the pipeline's bubble; collectives of tensor parallelism and experts inside
        nodes; transfers between stages; reduction of gradients.
    """

    compute_s: float
    tensor_s: float
    pipeline_s: float
    data_s: float

    @property
    def total_s(self) -> float:
        """Seconds of a training step in total."""
        return sum(self)

    @property
    def communication_share(self) -> float:
        """Share of a training step's time that goes to communication, from 0 to 1."""
        return 1.0 - self.compute_s / self.total_s


class Tiers(NamedTuple):
    """The bandwidth and latency of each network tier (node, leaf, minipod, core) of a cluster.

    Attributes
    ----------
    layouts : list of Layout
        Two nodes joined by the tier: bandwidths reached, for a node's GPUs together.
    latency_s : ndarray of float, shape (4,)
        Seconds of latency of one message.
    matmul_flops : float
        FLOP/s that matrix products reach on a GPU.
    """

    layouts: list[Layout]
    latency_s: Floats
    matmul_flops: float

    def layout(self, tier: Locality, across: float | None) -> Layout:
        """Return a network tier's bandwidths; the core's are a minipod's / `across`, if that is given."""
        if tier != Locality.CROSS or across is None:
            return self.layouts[tier]
        inside = self.layouts[Locality.MINIPOD]
        network, transfer = inside.network_gbs / across, inside.transfer_gbs / across
        return inside._replace(network_gbs=network, transfer_gbs=transfer)

    @staticmethod
    def from_cluster(cluster: ClusterSpec, network_share: float | None = None) -> Tiers:
        """Return a cluster's network tiers for its first GPU type, at a share of the ports' bandwidth.

        Messages reach `network_share` of a port; by default as much as in the oracles
        (`devices.network_shares`).
        """
        group = cluster.groups[0]
        shares = network_shares(group.gpu_type) if network_share is None else (network_share, network_share)
        layouts = [_layout(cluster, tier, shares) for tier in Locality]
        latency = np.array([NETWORK_STEP_S + SWITCH_S * SWITCHES[tier] for tier in Locality])
        return Tiers(layouts, latency, float(Devices.from_types([group.gpu_type]).matmul_flops[0]))


def _layout(cluster: ClusterSpec, tier: Locality, shares: tuple[float, float]) -> Layout:
    """Return the layout of two full nodes joined by a tier, no GPU faster than its own link."""
    group = cluster.groups[0]
    per_node, link = float(group.gpus_per_node), link_gbs(group.gpu_type)
    line, most = cluster.bandwidth_gbs(0, tier), per_node * link
    network, transfer = (np.array(min(share * line, most)) for share in shares)
    counts = np.array(2 * per_node), np.array(2.0), np.array(per_node)
    return Layout(*counts, np.array(link), network, transfer, np.array(True))


def predict(
    matrix: Ints,
    job: PretrainingJob,
    model: PretrainingModel,
    tiers: Tiers,
    leaves: Ints | None = None,
    core: Core | None = None,
) -> StepTime:
    """Predict a training step's time; `matrix` holds each node's minipod, shape (pipelines, stages).

    Parameters
    ----------
    matrix : ndarray of int, shape (rows, columns)
        Minipod of each node, as `spread.cells` returns it.
    job : PretrainingJob
    model : PretrainingModel
    tiers : Tiers
    leaves : ndarray of int, shape (rows, columns), optional
        Leaf switch of each node, to find groups inside one; by default all groups span several.
    core : Core, optional
        Rule for traffic across minipods; by default the oversubscription of `tiers`.

    Notes
    -----
    Time of a message of B bytes on a tier: latency + B / bandwidth. With m micro-batches, v chunks on each
    of PP stages and h the slowest hop between neighbouring stages (the last stage hands on to
    the first where v > 1), a step takes (m v + PP - 1) slots of 1/v of a micro-batch's computation
    and 2 h, and the exposed part of the slowest column's all-reduce.
    """
    chunks = model.chunks(job.columns)
    # Interleaved 1F1B (MegaScale, NSDI '24, section 3.2): m v slots of work and PP - 1 of the bubble.
    slots = model.micro_batches * chunks + job.columns - 1
    place = [matrix] if leaves is None else [matrix, leaves]
    hop, reduction = (None, None) if core is None else core(matrix, chunks > 1)
    hop_tier, column_tier = _hop_tier(place, chunks > 1), _column_tier(place)
    return StepTime(
        slots * _compute_s(model, job, tiers) / chunks,
        slots * _tensor_s(model, job, tiers) / chunks,
        slots * 2 * _hop_s(model, job, tiers.layout(hop_tier, hop), float(tiers.latency_s[hop_tier])),
        _reduction_s(model, job, tiers.layout(column_tier, reduction), float(tiers.latency_s[column_tier]))
        / chunks,
    )


def _compute_s(model: PretrainingModel, job: PretrainingJob, tiers: Tiers) -> float:
    """Return the seconds of computation for one micro-batch on one stage."""
    share = RECOMPUTED_PASSES / (job.tensor_parallel * job.columns)
    return share * model.costs["forward_flops_per_sample"] / tiers.matmul_flops


def _tensor_s(model: PretrainingModel, job: PretrainingJob, tiers: Tiers) -> float:
    """Return the seconds of all-reduces inside nodes for one micro-batch on one stage."""
    if job.tensor_parallel == 1:
        return 0.0
    inside, nodes = np.array(float(job.tensor_parallel)), np.array(1.0)
    volume = np.array(model.costs["exchange_bytes"])
    return float(all_reduce_s(volume, inside, nodes, tiers.layouts[0])) * model.layers / job.columns


def _hop_s(model: PretrainingModel, job: PretrainingJob, layout: Layout, latency_s: float) -> float:
    """Return the seconds to send one micro-batch's activations to the next stage."""
    if job.columns == 1:
        return 0.0
    senders = job.gpus_per_node / job.tensor_parallel
    rate = float(layout.transfer_gbs) * 1e9
    return latency_s + senders * model.costs["boundary_bytes"] / rate


def _reduction_s(model: PretrainingModel, job: PretrainingJob, layout: Layout, latency_s: float) -> float:
    """Return the seconds of the all-reduces of a stage's gradients; experts have one of their own."""
    inside, across = np.array(job.gpus_per_node / job.tensor_parallel), np.array(float(job.rows))
    experts = model.costs.get("expert_parameters", 0.0)
    shared = (model.costs["parameters"] - experts) / (job.tensor_parallel * job.columns)
    seconds = float(all_reduce_s(np.array(GRADIENT_BYTES * shared), inside, across, layout))
    if experts:
        part = np.array(GRADIENT_BYTES * experts / (job.gpus_per_node * job.columns))
        seconds += float(all_reduce_s(part, np.array(1.0), across, layout))
    # all_reduce_s has NETWORK_STEP_S for each of a ring's 2 (rows - 1) steps; the tier's switches add.
    return seconds + 2 * (job.rows - 1) * (latency_s - NETWORK_STEP_S)


def _hop_tier(place: list[Ints], wraps: bool) -> Locality:
    """Return the highest network tier between any two neighbours in a row of the matrix."""
    shift = 0 if wraps else 1
    same = [(np.roll(where, -1, axis=1) == where)[:, : where.shape[1] - shift].all() for where in place]
    return _tier([bool(answer) for answer in same])


def _column_tier(place: list[Ints]) -> Locality:
    """Return the highest network tier that any column of the matrix crosses."""
    return Locality.NODE if len(place[0]) == 1 else _tier([bool((w == w[0]).all()) for w in place])


def _tier(same: list[bool]) -> Locality:
    """Return the tier that joins nodes, given whether they share a minipod and a leaf."""
    if not same[0]:
        return Locality.CROSS
    return Locality.LEAF if same[1:] == [True] else Locality.MINIPOD
