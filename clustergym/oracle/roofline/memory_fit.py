"""Decides whether a parallel plan fits in GPU memory, and with which micro-batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats
from clustergym.oracle.roofline.work import Work

USABLE = 0.9
"""Share of a GPU's memory that a plan may fill; the framework and fragmentation take the rest."""

MICRO_BATCHES, MOST_MICRO_BATCHES = 16, 32
"""Micro-batches of an iteration, and the most where 16 do not fit (as Arena's evaluation ran)."""


class UniformPlan(NamedTuple):
    """A parallel plan: GPUs a layer is split over, pipeline stages, data-parallel ranks.

    `data` may be an array; a plan for which it is 0 needs more GPUs than there are.
    """

    tensor: int
    stages: int
    data: Floats


def state_bytes(work: Work, plan: UniformPlan) -> Floats:
    """Return bytes of weights, gradients and optimizer state on a GPU.

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
    """Return activation bytes on a GPU per sample of a micro-batch.

    A model that recomputes (every pipelined model does) keeps the activations between layers, and those
    inside one layer at a time. In the first stage, the former are kept for as many micro-batches as there are
    stages; in the last, for one micro-batch, but with the output layer. The larger of the two counts.
    """
    between = work.layers * work.boundary_bytes / np.where(work.splits_experts, plan.tensor, 1)
    last = between / plan.stages + work.head_bytes / plan.tensor
    recomputed = np.maximum(between, last) + work.layer_bytes / plan.tensor
    kept = work.activation_bytes_per_sample / plan.tensor
    return np.where(recomputes(work, plan), recomputed, kept)


def recomputes(work: Work, plan: UniformPlan) -> Bools:
    """Whether activations are recomputed in the backward pass."""
    return work.recomputes | (plan.stages > 1)


def micro_batch(work: Work, plan: UniformPlan, memory_bytes: Floats) -> tuple[Floats, Bools]:
    """Return samples of a micro-batch, and whether the plan fits.

    Models that are only data-parallel accumulate gradients over as many micro-batches as memory requires; the
    others run 16 micro-batches, or up to 32 where the plan does not fit otherwise.
    """
    local = np.ceil(work.global_batch / np.maximum(plan.data, 1))
    floor = np.where(work.splits_experts, plan.tensor, 1)
    wanted = np.maximum(np.where(work.planned, np.ceil(local / MICRO_BATCHES), local), floor)
    least = np.maximum(np.where(work.planned, np.ceil(local / MOST_MICRO_BATCHES), 1), floor)
    room = USABLE * memory_bytes - state_bytes(work, plan)
    most = np.floor(room / sample_bytes(work, plan))
    return np.minimum(wanted, np.maximum(most, 1)), (most >= least) & (plan.data >= 1)
