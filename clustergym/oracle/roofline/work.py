"""Model classes as arrays: the fields of `ModelSpec` along one axis.

Decides whether a parallel plan fits in GPU memory, and with which micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats
from clustergym.oracle.models.model_spec import ELEMENT_BYTES, ModelSpec

STATE_BYTES = {
    "transformer": (6.0, 12.0),
    "moe": (5.7, 6.0),
    "wide_resnet": (12.0, 4.0),
    "dense": (16.0, 0.0),
}
"""Bytes a parameter of weights, gradients and optimizer state by architecture: on every data-parallel
rank, and divided among the ranks. From Arena's measured data-parallel memory (arena_dp_memory.csv);
`dense` is Adam in fp32, replicated."""


@dataclass(frozen=True)
class Work:
    """The FLOPs, bytes and parameters of several models at their global batches, as arrays.

    Attributes
    ----------
    global_batch : ndarray of float
    element_bytes : ndarray of float
        Bytes of a weight.
    shared_parameters : ndarray of float
        Parameters outside experts.
    state_bytes, sharded_state_bytes : ndarray of float
        Bytes a parameter on every rank, and divided among data-parallel ranks.
    half, convolutional, planned, recomputes, splits_experts : ndarray of bool
        Computes in fp16; is a wide ResNet; may be split and pipelined; recomputes activations
        even in one stage; splits experts rather than every layer.
    """

    parameters: Floats
    forward_flops_per_sample: Floats
    activation_bytes_per_sample: Floats
    layers: Floats
    tensor_limit: Floats
    expert_parameters: Floats
    attention_flops: Floats
    gate_flops: Floats
    flops_per_unit: Floats
    traffic_bytes: Floats
    boundary_bytes: Floats
    layer_bytes: Floats
    head_bytes: Floats
    exchange_bytes: Floats
    global_batch: Floats
    element_bytes: Floats
    shared_parameters: Floats
    state_bytes: Floats
    sharded_state_bytes: Floats
    half: Bools
    convolutional: Bools
    planned: Bools
    recomputes: Bools
    splits_experts: Bools

    @staticmethod
    def from_specs(specs: Sequence[ModelSpec], batches: Sequence[int]) -> Work:
        """Gather n models and their global batches into arrays of shape (n,)."""
        copied = {column.name for column in fields(Work)} & {column.name for column in fields(ModelSpec)}
        columns = {
            name: np.array([getattr(spec, name) for spec in specs], dtype=np.float64) for name in copied
        }
        states = np.array([STATE_BYTES[spec.architecture] for spec in specs], dtype=np.float64).reshape(-1, 2)
        architecture = np.array([spec.architecture for spec in specs], dtype=np.str_)
        element = np.array([ELEMENT_BYTES[spec.dtype] for spec in specs], dtype=np.float64)
        return Work(
            **columns,
            global_batch=np.array(batches, dtype=np.float64),
            element_bytes=element,
            shared_parameters=columns["parameters"] - columns["expert_parameters"],
            state_bytes=states[:, 0],
            sharded_state_bytes=states[:, 1],
            half=element == ELEMENT_BYTES["fp16"],
            convolutional=architecture == "wide_resnet",
            planned=architecture != "dense",
            recomputes=np.isin(architecture, ("transformer", "moe")),
            splits_experts=architecture == "moe",
        )

    def reshape(self, *shape: int) -> Work:
        """Return a copy with all arrays reshaped."""
        return Work(**{column.name: getattr(self, column.name).reshape(shape) for column in fields(self)})


USABLE = 0.9
"""Share of a GPU's memory that a plan may fill; the framework and fragmentation take the rest."""

MICRO_BATCHES, MOST_MICRO_BATCHES = 16, 32
"""Micro-batches of an iteration, and the most where 16 do not fit (as Arena's evaluation ran)."""


class UniformPlan(NamedTuple):
    """A parallel plan that splits all layers equally: tensor-parallel GPUs, stages, data-parallel ranks.

    `data` may be an array; a plan for which it is 0 needs more GPUs than there are.
    """

    tensor: int
    stages: int
    data: Floats


def state_bytes(work: Work, plan: UniformPlan) -> Floats:
    """Return the bytes of weights, gradients and optimizer state on each GPU.

    The GPUs that split the experts of a mixture hold the other layers whole: those count as
    data-parallel ranks there.
    """
    data = np.maximum(plan.data, 1)
    split = np.where(work.splits_experts, 1, plan.tensor)
    ranks = data * plan.tensor / split
    shared = (work.state_bytes + work.sharded_state_bytes / ranks) * work.shared_parameters / split
    experts = (work.state_bytes + work.sharded_state_bytes / data) * work.expert_parameters / plan.tensor
    return (shared + experts) / plan.stages


def sample_bytes(work: Work, plan: UniformPlan) -> Floats:
    """Return the bytes of activations on each GPU for each sample of a micro-batch.

    A model that recomputes (every pipelined model does) keeps the activations between layers, and those
    inside one layer at a time. In the first stage, the former are kept for as many micro-batches as there are
    stages; in the last, for one micro-batch, but with the output layer. The larger of the two counts.
    """
    # Between layers, all stages together: the first keeps its part for as many micro-batches as there are
    # stages, which is the sum again.
    between = work.layers * work.boundary_bytes / np.where(work.splits_experts, plan.tensor, 1)
    last = between / plan.stages + work.head_bytes / plan.tensor
    recomputed = np.maximum(between, last) + work.layer_bytes / plan.tensor
    kept = work.activation_bytes_per_sample / plan.tensor
    return np.where(recomputes(work, plan), recomputed, kept)


def recomputes(work: Work, plan: UniformPlan) -> Bools:
    """Return whether the plan recomputes activations in the backward pass."""
    return work.recomputes | (plan.stages > 1)


def micro_batch(work: Work, plan: UniformPlan, memory_bytes: Floats) -> tuple[Floats, Bools]:
    """Return the samples of one data-parallel rank's micro-batch, and whether the plan fits in memory.

    Models that are only data-parallel accumulate gradients over as many micro-batches as memory requires; the
    others run 16 micro-batches, or up to 32 where the plan does not fit otherwise.
    """
    local = np.ceil(work.global_batch / np.maximum(plan.data, 1))
    floor = np.where(work.splits_experts, plan.tensor, 1)
    wanted = np.maximum(np.where(work.planned, np.ceil(local / MICRO_BATCHES), local), floor)
    least = np.maximum(np.where(work.planned, np.ceil(local / MOST_MICRO_BATCHES), 1), floor)
    # What the states leave is for activations, which grow with the micro-batch.
    room = USABLE * memory_bytes - state_bytes(work, plan)
    most = np.floor(room / sample_bytes(work, plan))
    return np.minimum(wanted, np.maximum(most, 1)), (most >= least) & (plan.data >= 1)
