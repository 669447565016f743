"""Iteration time of one parallel plan by the roofline model.

Compute, memory traffic and communication are added up: kernels of a training step run one after another.
"""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.oracle.roofline.collectives import all_reduce_s, all_to_all_s, groups
from clustergym.oracle.roofline.devices import UNIFORM, Devices, Layout
from clustergym.oracle.roofline.memory_fit import UniformPlan, micro_batch, recomputes, state_bytes
from clustergym.oracle.roofline.work import Work

ATTENTION_SHARE, GATE_SHARE = 0.47, 0.34
"""Of the fp16 peak: what einsums of attention and of MoE gating reach (fitted as EFFICIENCY)."""

HALF_TOKENS, HALF_PIXELS = 220.0, 730.0
"""Tokens, or output pixels, of a micro-batch at which a matrix product, or a convolution, runs at half its
efficiency: a fixed cost per operator (fitted as EFFICIENCY)."""

GRADIENT_BYTES = 4.0
"""A parameter's gradient is all-reduced in fp32, once an iteration."""

WEIGHT_PASSES = 6.0
"""How often a micro-batch moves the weights: three reads, and as much again for the accumulated gradient."""


def iteration_times(work: Work, devices: Devices, layout: Layout, plan: UniformPlan) -> tuple[Floats, Floats]:
    """Return executed and estimated seconds per iteration; inf where the plan does not fit.

    The estimate has the same memory traffic and communication, but takes all kernels to be equally efficient,
    whatever their device and their shape.
    """
    samples, fits = micro_batch(work, plan, devices.memory_bytes)
    fits = fits & layout.possible & (plan.tensor <= work.tensor_limit) & (plan.stages <= work.layers)
    fits = fits & (work.planned | (plan.tensor * plan.stages == 1))
    ranks = np.maximum(plan.data, 1)
    # A pipeline of S stages takes as long as its slowest stage for (micro-batches + S - 1) micro-batches.
    slots = np.ceil(np.ceil(work.global_batch / ranks) / samples) + plan.stages - 1
    per_slot = _memory_s(work, devices, plan, samples) + _exchange_s(work, layout, plan, samples)
    per_slot = per_slot + _transfer_s(work, layout, plan, samples)
    rest = slots * per_slot + _synchronise_s(work, layout, plan)
    rest = rest + 2 * state_bytes(work, plan) / devices.memory_bytes_per_s
    compute = slots * _compute_s(work, devices, plan, samples)
    uniform = slots * _uniform_compute_s(work, devices, plan, samples)
    return np.where(fits, compute + rest, np.inf), np.where(fits, uniform + rest, np.inf)


def _share(work: Work, plan: UniformPlan) -> Floats:
    """Return a GPU's share of the model in the largest stage, times the passes over it.

    A step is one forward and two backward passes, and one more forward to recompute.
    """
    passes = np.where(recomputes(work, plan), 4.0, 3.0)
    return passes * np.ceil(work.layers / plan.stages) / work.layers / plan.tensor


def _compute_s(work: Work, devices: Devices, plan: UniformPlan, samples: Floats) -> Floats:
    plain = work.forward_flops_per_sample - work.attention_flops - work.gate_flops
    rate = np.where(work.half, devices.matmul_flops, devices.convolution_flops)
    einsums = (work.attention_flops / ATTENTION_SHARE + work.gate_flops / GATE_SHARE) / devices.peak_flops
    # A convolution split over GPUs keeps its pixels but loses channels: less is saved than its share.
    split = np.where(work.convolutional, np.sqrt(plan.tensor), 1.0)
    fixed = split * work.flops_per_unit * np.where(work.convolutional, HALF_PIXELS, HALF_TOKENS)
    fixed = np.where(work.planned, fixed, 0.0)
    return _share(work, plan) * (samples * (plain / rate + einsums) + fixed / rate)


def _uniform_compute_s(work: Work, devices: Devices, plan: UniformPlan, samples: Floats) -> Floats:
    half = UNIFORM.matmul * devices.peak_flops
    rate = np.where(work.half, half, devices.uniform_convolution_flops)
    return _share(work, plan) * samples * work.forward_flops_per_sample / rate


def _memory_s(work: Work, devices: Devices, plan: UniformPlan, samples: Floats) -> Floats:
    """Return the time of elementwise operators and of passes over the weights, per micro-batch."""
    split = np.where(work.splits_experts, 1, plan.tensor)
    parameters = (work.shared_parameters / split + work.expert_parameters / plan.tensor) / plan.stages
    moved = (
        _share(work, plan) * samples * work.traffic_bytes + WEIGHT_PASSES * work.element_bytes * parameters
    )
    return moved / devices.memory_bytes_per_s


def _exchange_s(work: Work, layout: Layout, plan: UniformPlan, samples: Floats) -> Floats | float:
    """Return the time of collectives of split layers per micro-batch: experts all-to-all, else all-reduce."""
    if plan.tensor == 1:
        return 0.0
    ring = (*groups(plan.tensor, 1, layout.per_node), layout)
    volume = samples * work.exchange_bytes
    seconds = np.where(
        work.splits_experts, all_to_all_s(volume / plan.tensor, *ring), all_reduce_s(volume, *ring)
    )
    return seconds * np.ceil(work.layers / plan.stages)


def _transfer_s(work: Work, layout: Layout, plan: UniformPlan, samples: Floats) -> Floats | float:
    """Return the time to send an activation on and its gradient back, per micro-batch."""
    if plan.stages == 1:
        return 0.0
    ranks = np.maximum(plan.data, 1)
    volume_gb = 2 * samples * work.boundary_bytes / 1e9
    senders = np.minimum(ranks, np.maximum(1, layout.per_node // plan.tensor))
    most = layout.link_gbs * np.minimum(layout.per_node, ranks * plan.tensor)
    across = volume_gb * senders / np.minimum(layout.transfer_gbs, most)
    return np.where(layout.nodes > 1, across, volume_gb / (plan.tensor * layout.link_gbs))


def _synchronise_s(work: Work, layout: Layout, plan: UniformPlan) -> Floats:
    """Return the time to all-reduce gradients over data-parallel ranks, once an iteration."""
    ranks = np.maximum(plan.data, 1)
    split = np.where(work.splits_experts, 1.0, plan.tensor)
    ring = groups(ranks * plan.tensor / split, split, layout.per_node)
    shared = all_reduce_s(GRADIENT_BYTES * work.shared_parameters / split / plan.stages, *ring, layout)
    volume = GRADIENT_BYTES * work.expert_parameters / plan.tensor / plan.stages
    experts = all_reduce_s(volume, *groups(ranks, plan.tensor, layout.per_node), layout)
    return shared + np.where(work.expert_parameters > 0, experts, 0.0)
