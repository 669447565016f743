"""Bytes of a GPU under a plan, and how much of the activations must be computed again to fit.

Sources: activations by Korthikanti et al. (MLSys '23), table 2, without the scores that flash attention never
stores; state by Rajbhandari et al. (ZeRO, SC '20), section 3.
"""

from __future__ import annotations

from clustergym.oracle.models.shape import Machine, ParallelPlan, TransformerShape

LAYER_BYTES = 34.0
"""Bytes of a token and layer over the hidden width, in 16 bit."""
KEPT_BYTES = 2.0
"""The same of a layer that is computed again: its input."""
USABLE = 0.95
"""Part of a GPU's memory that tensors may have; the rest is the runtime's."""


def state_bytes(shape: TransformerShape, plan: ParallelPlan) -> float:
    """Return the bytes of weights, gradients and optimizer state on each GPU.

    2 for the weight and 2 for the gradient in 16 bit, 12 for the fp32 copy and Adam's moments. With full
    sharding two layers at a time are gathered.
    """
    embeddings = shape.output_parameters * (1 if shape.tied else 2)
    plain = (shape.shared_parameters + embeddings) / plan.tensor / plan.pipeline
    experts = shape.expert_layers * shape.experts * shape.expert_parameters / plan.expert / plan.pipeline
    if plan.adapters:
        return 2 * (plain + experts)
    shards = plan.data * plan.context
    # Ranks that hold the same expert: the data-parallel group of experts.
    expert_shards = max(1.0, shards * plan.tensor / plan.expert)
    if plan.sharding == "full":
        # Weight and gradient in 16 bit of two layers: the one that computes, and the next, fetched ahead.
        gathered = 2 * 4 * (plain + experts) / max(1.0, shape.all_layers / plan.pipeline)
        return 16 * (plain / shards + experts / expert_shards) + gathered
    if plan.sharding == "gradients":
        # SHARD_GRAD_OP: weights stay whole; gradients, fp32 copy and moments are divided.
        return 2 * (plain + experts) + 14 * (plain / shards + experts / expert_shards)
    # ZeRO-1: weights and gradients stay whole; fp32 copy and moments are divided.
    return 4 * (plain + experts) + 12 * (plain / shards + experts / expert_shards)


def activation_bytes(
    shape: TransformerShape, plan: ParallelPlan, recompute: float, global_batch: int, sequence_length: int
) -> float:
    """Return the bytes of activations on the first stage, which holds the most micro-batches at a time.

    Parameters
    ----------
    recompute : float
        Share of layers that keep their input alone.
    """
    tokens = plan.micro_batch * sequence_length / (plan.tensor * plan.context)
    layers = shape.all_layers / plan.pipeline
    stages = plan.pipeline
    # 1F1B: the first stage has as many micro-batches under way as there are stages.
    in_flight = min(float(plan.micro_batches(global_batch)), float(stages))
    if plan.virtual_stages > 1:
        # Interleaving starts further micro-batches before the first comes back (Narayanan et al., SC '21).
        in_flight *= 1 + (stages - 1) / (stages * plan.virtual_stages)
    kept = layers * ((1 - recompute) * LAYER_BYTES + recompute * KEPT_BYTES)
    # The layer that is being computed again stands there in full.
    working = LAYER_BYTES if recompute else 0.0
    return tokens * shape.hidden * (in_flight * kept + working) * activation_width(shape)


def activation_width(shape: TransformerShape) -> float:
    """Return a layer's activation bytes, relative to those at a feed-forward width of 4 x hidden width."""
    inner = shape.feed_forward if not shape.experts else shape.experts_per_token * shape.expert_feed_forward
    inner += shape.shared_expert_width if shape.experts else 0
    # Of 34 bytes 16 are the feed-forward network's inner width (twice 4h, in 16 bit), 18 the rest.
    matrices = 3 if shape.gated else 2
    return (18 + 2 * (matrices - 1) * 2 * inner / shape.hidden) / 34


def compute_needed_bytes(
    shape: TransformerShape, plan: ParallelPlan, recompute: float, global_batch: int, sequence_length: int
) -> float:
    """Return the bytes of memory that a plan needs on each GPU."""
    return state_bytes(shape, plan) + activation_bytes(shape, plan, recompute, global_batch, sequence_length)


def usable_bytes(machine: Machine) -> float:
    """Return the bytes of a GPU's memory that tensors may have."""
    return USABLE * machine.memory_gb * 1e9


def fits(
    shape: TransformerShape, machine: Machine, plan: ParallelPlan, global_batch: int, sequence_length: int
) -> bool:
    """Return whether a plan fits in memory, with the recomputation it states, or else with a full one."""
    recompute = 1.0 if plan.recompute is None else plan.recompute
    needed = compute_needed_bytes(shape, plan, recompute, global_batch, sequence_length)
    return needed <= usable_bytes(machine)


def choose_recompute(
    shape: TransformerShape, machine: Machine, plan: ParallelPlan, global_batch: int, sequence_length: int
) -> float:
    """Return the least share of layers (in eighths) to recompute so that a plan fits in memory; else 1."""
    for eighths in range(8):
        needed = compute_needed_bytes(shape, plan, eighths / 8, global_batch, sequence_length)
        if needed <= usable_bytes(machine):
            return eighths / 8
    return 1.0
