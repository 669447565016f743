"""Bytes of a GPU under a plan, and how much of the activations must be computed again to fit.

Sources: activations by Korthikanti et al. (MLSys '23), table 2, without the scores that flash attention never
stores; state by Rajbhandari et al. (ZeRO, SC '20), section 3.
"""

from __future__ import annotations

from typing import Protocol

from clustergym.oracle.models.shape import Machine, ParallelPlan, TransformerShape

KEPT_BYTES = 2.0
"""Bytes of a number that is kept."""
UNCOMPILED_LOSS_BYTES = 12.0
"""Bytes of a token and word of the vocabulary in `cross_entropy` of fp32 logits by plain PyTorch: logarithms
of probabilities, and the gradients of these and of the logits (`benchmarks/measured`: 12.0 to 12.1)."""


class MemoryRule(Protocol):
    """What a stack assumes of memory; `StackConstants` says what each is."""

    @property
    def loss_bytes(self) -> float: ...  # noqa: D102
    @property
    def usable_memory(self) -> float: ...  # noqa: D102


def state_bytes(shape: TransformerShape, plan: ParallelPlan) -> float:
    """Return the bytes of weights, gradients and optimizer state on each GPU.

    2 for the weight and 2 for the gradient in 16 bit, 12 for the fp32 copy and Adam's moments. With full
    sharding two layers at a time are gathered. Where adapters are trained, the model has its weights alone;
    the adapters' own state, of less than a hundredth of the parameters, is left out.
    """
    embeddings = shape.output_parameters * (1 if shape.tied else 2)
    plain = (shape.shared_parameters + embeddings) / plan.tensor / plan.pipeline
    experts = shape.expert_layers * shape.experts * shape.expert_parameters / plan.expert / plan.pipeline
    shards = plan.shards
    # Ranks that hold the same expert: the data-parallel group of experts.
    expert_shards = max(1.0, shards * plan.tensor / plan.expert)
    if plan.sharding == "full":
        # Of two layers, the one that computes and the next, fetched ahead, the weight in 16 bit, and the
        # gradient, which frozen weights have not.
        held, whole = (2, 2) if plan.adapters else (16, 4)
        gathered = 2 * whole * (plain + experts) / max(1.0, shape.all_layers / plan.pipeline)
        return held * (plain / shards + experts / expert_shards) + gathered
    if plan.adapters:
        return 2 * (plain + experts)
    if plan.offload:
        # ZeRO-Offload (Ren et al., USENIX ATC '21, section 4): weights alone; the rest is on the host.
        return 2 * (plain + experts)
    if plan.sharding == "gradients":
        # SHARD_GRAD_OP: weights stay whole; gradients, fp32 copy and moments are divided.
        return 2 * (plain + experts) + 14 * (plain / shards + experts / expert_shards)
    # ZeRO-1: weights and gradients stay whole; fp32 copy and moments are divided.
    return 4 * (plain + experts) + 12 * (plain / shards + experts / expert_shards)


def activation_bytes(
    shape: TransformerShape,
    plan: ParallelPlan,
    loss: float,
    recompute: float,
    global_batch: int,
    sequence_length: int,
) -> float:
    """Return the bytes of activations on the first or the last stage, whichever needs more.

    The first holds the most micro-batches at a time, the last has the loss.

    Parameters
    ----------
    loss : float
        Bytes of a token and word of the vocabulary; 0: the rule of a former fit.
    recompute : float
        Share of layers that keep their input alone.
    """
    tokens = plan.micro_batch * sequence_length / (plan.tensor * plan.context)
    layers = shape.all_layers / plan.pipeline
    stages, more = plan.pipeline, 0.0
    if plan.virtual_stages > 1:
        # Interleaving starts further micro-batches before the first comes back (Narayanan et al., SC '21).
        more = (stages - 1) / plan.virtual_stages
    rounds = float(plan.micro_batches(global_batch))
    # 1F1B: the first stage has as many micro-batches under way as there are stages, the last has one; with
    # virtual stages, it waits for all of them but the parts of the first that are still to come.
    in_flight = min(rounds, float(stages)) * (1 + more / stages)
    at_last = min(rounds, stages - more) if plan.virtual_stages > 1 else 1.0
    full = KEPT_BYTES * kept_width(shape, plan) / shape.all_layers
    # Of a layer that is computed again its input is kept.
    input_ = KEPT_BYTES * shape.hidden
    if not loss:
        full, input_ = 34.0 * _former_width(shape), KEPT_BYTES * _former_width(shape)
    kept = layers * ((1 - recompute) * full + recompute * input_)
    # The layer that is being computed again stands there in full, after the loss is gone.
    working = full if recompute else 0.0
    # With tensor parallelism each rank has its part of the vocabulary; a layer that predicts a later token
    # has a loss of its own.
    words = shape.vocabulary * (1 + shape.predicted_ahead)
    # Beside it stands what the output layer and the last norm take in.
    output = loss * words + 2 * KEPT_BYTES * shape.hidden if loss else 0.0
    return tokens * max(in_flight * kept + working, at_last * kept + max(working, output))


def kept_width(shape: TransformerShape, plan: ParallelPlan) -> float:
    """Return the numbers of a token that all layers keep for the backward pass, without dropout.

    What norms, matrix products, attention and the gate take in (Korthikanti et al., MLSys '23, section 4.1;
    `benchmarks/measured` holds it to what PyTorch keeps). Plain PyTorch keeps the gate's output beside its
    inputs, and queries and keys also as they are before they are rotated.
    """
    hidden, attended = shape.hidden, shape.attention_width
    # Queries and what comes out of attention are `attended` wide; latent keys and values stand there in full.
    given = 2 * attended if shape.latent else shape.key_value_width
    matrices = 3 if shape.gated else 2
    inner = matrices * (shape.experts_per_token * shape.expert_feed_forward + shape.shared_expert_width)
    # Tokens are copied for each expert that they visit.
    inner += shape.experts_per_token * (shape.expert_hidden or hidden)
    width = shape.attending_layers * (2 * hidden + 2 * attended + given)
    width += shape.plain_layers * (2 * hidden + matrices * shape.feed_forward)
    width += shape.expert_layers * (2 * hidden + inner)
    if shape.mamba is not None:
        one = shape.mamba
        # The gate, and what goes into the convolution, the scan, the norm and the projection out.
        width += one.layers * (2 * hidden + 5 * one.heads * one.head_dim + 4 * one.groups * one.state)
    if shape.gated and not plan.compiled:
        width += shape.attending_layers * (attended + given / 2) + shape.plain_layers * shape.feed_forward
    return width


def _former_width(shape: TransformerShape) -> float:
    """Return a layer's width as the fit counts it that version 1 of the board llm-2026 names."""
    inner = shape.feed_forward if not shape.experts else shape.experts_per_token * shape.expert_feed_forward
    inner += shape.shared_expert_width if shape.experts else 0
    matrices = 3 if shape.gated else 2
    return shape.hidden * (18 + 2 * (matrices - 1) * 2 * inner / shape.hidden) / 34


def loss_bytes(plan: ParallelPlan, constants: MemoryRule) -> float:
    """Return the bytes that the loss holds of a token and word of the vocabulary."""
    return constants.loss_bytes if plan.compiled else UNCOMPILED_LOSS_BYTES


def compute_needed_bytes(
    shape: TransformerShape,
    plan: ParallelPlan,
    loss: float,
    recompute: float,
    global_batch: int,
    sequence_length: int,
) -> float:
    """Return the bytes of memory that a plan needs on each GPU; `loss` is that of `loss_bytes`."""
    activations = activation_bytes(shape, plan, loss, recompute, global_batch, sequence_length)
    return state_bytes(shape, plan) + activations


def usable_bytes(machine: Machine, constants: MemoryRule) -> float:
    """Return the bytes of a GPU's memory that tensors may have."""
    return constants.usable_memory * machine.memory_gb * 1e9


def choose_recompute(
    shape: TransformerShape,
    machine: Machine,
    plan: ParallelPlan,
    constants: MemoryRule,
    global_batch: int,
    sequence_length: int,
) -> float:
    """Return the least share of layers (in eighths) to recompute so that a plan fits in memory; else 1."""
    loss, usable = loss_bytes(plan, constants), usable_bytes(machine, constants)
    for eighths in range(8):
        needed = compute_needed_bytes(shape, plan, loss, eighths / 8, global_batch, sequence_length)
        if needed <= usable:
            return eighths / 8
    return 1.0
