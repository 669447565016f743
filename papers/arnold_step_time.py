"""Predicted seconds of a training step, from the minipods of its nodes."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from clustergym.cluster.spec import ClusterSpec, Locality
from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import InputError
from clustergym.common.parameter_types import NonNegativeInt, PositiveInt
from clustergym.oracle.models.model_spec import ELEMENT_BYTES, Costs, mixture_of_experts, transformer
from clustergym.oracle.roofline.devices import Devices, Layout, link_gbs, network_shares
from clustergym.oracle.roofline.roofline_oracle import GRADIENT_BYTES, NETWORK_STEP_S, all_reduce_s
from clustergym.scenario.placement_problem import PretrainingJob

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
    chunk_layers : int
        Layers of a virtual stage of the interleaved 1F1B schedule; gradients of a chunk are reduced
        while the others compute, and only one chunk's reduction is exposed (MegaScale, NSDI '24,
        section 3.2).
    """

    name: str
    hidden: PositiveInt
    layers: PositiveInt
    heads: PositiveInt
    experts: NonNegativeInt = 0
    micro_batches: PositiveInt = 32
    chunk_layers: PositiveInt = 2

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
        unit = stages * self.chunk_layers
        if self.layers % unit:
            raise InputError(
                f"{self.layers} layers do not divide into {stages} stages of whole chunks",
                field="layers",
                remedy=f"give a multiple of {unit}",
            )
        return self.layers // unit


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


def network_tiers(cluster: ClusterSpec) -> Tiers:
    """Return a cluster's network tiers for its first GPU type, at the oracles' share of a port."""
    group = cluster.groups[0]
    shares = network_shares(group.gpu_type)
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
    hop_tier, column_tier = _hop_tier(place, chunks > 1), _column_tier(place)
    return StepTime(
        slots * _compute_s(model, job, tiers) / chunks,
        slots * _tensor_s(model, job, tiers) / chunks,
        slots * 2 * _hop_s(model, job, tiers.layouts[hop_tier], float(tiers.latency_s[hop_tier])),
        _reduction_s(model, job, tiers.layouts[column_tier], float(tiers.latency_s[column_tier])) / chunks,
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
