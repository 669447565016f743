"""Seconds of a training step under a plan, part by part.

Sources: FLOPs by Narayanan et al. (SC '21); the pipeline's bubble ibid., section 2.2; sequence parallelism by
Korthikanti et al. (MLSys '23), section 4; fully sharded data parallelism by Zhao et al. (VLDB '23), section
3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

from clustergym.oracle.models.shape import Machine, ParallelPlan, TransformerShape
from clustergym.oracle.stacks.collectives import gather_s, link_bytes_per_s, network_bytes_per_s, ring_s
from clustergym.oracle.stacks.memory import choose_recompute

REFERENCE_TFLOPS = 312.0
REFERENCE_TFLOPS_PER_W = 312.0 / 400.0
"""bf16 rate of an A100, and over its power, at which `attention_decline` and `power_decline` change
nothing."""
CONTEXT_EXPOSED = 0.2
"""Share of the ring exchange of keys and values that is not hidden; no table of ours can tell it."""
ASYNCHRONOUS = 0.5
"""Share of the exposed tensor-parallel communication that stays so where it is pipelined with the matrix
products."""
RATES = {"bf16": "linear_rate", "fp8": "fp8_rate", "mxfp8": "mxfp8_rate", "fp4": "fp4_rate"}
"""Constant of each precision of linear layers."""
ATTENTION_BACKWARD = 2.5
"""Backward FLOPs of attention over its forward ones: flash attention computes the scores again (Dao,
2023)."""


@dataclass(frozen=True)
class StackConstants:
    """Shares of data-sheet rates that a software stack reaches, fitted to measured step times.

    Attributes
    ----------
    linear_rate, fp8_rate, mxfp8_rate, fp4_rate, attention_rate : float
        Shares of the peak that linear layers (by precision) and attention reach.
    power_decline : float
        Exponent by which these shares fall with the peak that a GPU has to sustain with a watt, over an
        A100's. This and the last two constants: see `ASSUMED`.
    attention_decline : float
        Exponent by which the share of attention falls further with the peak over an A100's: kernels that
        are not made for newer GPUs.
    traffic : float
        Bytes of elementwise traffic, forward and backward, of each number of
        `TransformerShape.elementwise_width`.
    layer_us : float
        Fixed microseconds of a layer and micro-batch, forward and backward.
    straggling : float
        Part of a step lost at each doubling of GPUs beyond 8.
    tensor_exposed, exchange_exposed : float
        Shares of tensor-parallel communication, and of the experts' all-to-all, that are not hidden.
    expert_rate : float
        Rate of large grouped expert matrices over that of linear layers.
    expert_half_tokens : float
        Tokens of a micro-batch an expert at which its matrices reach half of that rate.
    expert_layer_us : float
        Further fixed microseconds of an expert layer: routing, permutation, dispatch.
    expert_traffic : float
        Elementwise traffic of a number that goes to, through or from an expert, over that of others:
        permutation.
    uncompiled_traffic : float
        Factor on elementwise traffic where operators are not fused by a compiler.
    overlap : float
        Share of computation under which data-parallel communication hides; the first and last layers have
        nothing to hide it.
    optimizer_bytes : float
        Bytes that a step of Adam reads and writes for each parameter in mixed precision.
    sharded_exchange : float
        Time of exchanging sharded state, over that of a ring; with an `overlap` of 0, what is exposed of it.
    network_rate : float
        Rate of a GPU's network port, over that of a DGX H100 at the same line rate.
    offload_ns, offload_shard_ns : float
        Nanoseconds for each parameter of a GPU, and for each that it updates, of a step whose optimizer is on
        the host.
    loss_bytes : float
        Bytes of memory of a token and word of the vocabulary in the loss.
    usable_memory : float
        Bytes of tensors for each byte of memory by a data sheet.
    """

    linear_rate: float
    attention_rate: float
    traffic: float
    layer_us: float
    fp8_rate: float = 0.8
    mxfp8_rate: float = 0.8
    fp4_rate: float = 0.8
    power_decline: float = 0.0
    attention_decline: float = 0.0
    straggling: float = 0.0
    tensor_exposed: float = 0.5
    exchange_exposed: float = 0.3
    expert_rate: float = 0.6
    expert_half_tokens: float = 200.0
    expert_layer_us: float = 500.0
    expert_traffic: float = 2.0
    uncompiled_traffic: float = 1.0
    overlap: float = 0.9
    optimizer_bytes: float = 30.0
    sharded_exchange: float = 1.0
    network_rate: float = 1.0
    offload_ns: float = 0.0
    offload_shard_ns: float = 0.0
    loss_bytes: float = 0.0
    usable_memory: float = 0.95


ASSUMED = {"power_decline": 1 / 3, "loss_bytes": 4.0, "usable_memory": 1.055}
"""What fits assume; a frozen board's file has values of its own. Dynamic power goes with the clock and the
square of the voltage, which goes with the clock: a clock follows the cube root of its power. A fused cross
entropy holds the logits and their gradient in 16 bit (flash-attention's `CrossEntropyLoss`, which llm-foundry
uses). An H100's 80 GB are 80 x 2^30 bytes, of which 84.5e9 are free to a process (`benchmarks/measured`)."""


@dataclass(frozen=True)
class StepParts:
    """Seconds of a training step by part, such as attention and communication."""

    linear_s: float
    attention_s: float
    output_s: float
    elementwise_s: float
    fixed_s: float
    tensor_exposed_s: float
    context_exposed_s: float
    expert_exchange_s: float
    data_exposed_s: float
    bubble_s: float
    optimizer_s: float
    straggling_s: float

    @property
    def total_s(self) -> float:
        """Seconds of the whole step."""
        return float(sum(getattr(self, one.name) for one in fields(self)))


def step_parts(
    shape: TransformerShape,
    machine: Machine,
    plan: ParallelPlan,
    constants: StackConstants,
    *,
    global_batch: int,
    sequence_length: int,
) -> StepParts:
    """Compute the seconds of a training step under a plan, part by part.

    Parameters
    ----------
    global_batch : int
        Sequences.
    sequence_length : int
        Tokens.
    """
    recompute = plan.recompute
    if recompute is None:
        recompute = choose_recompute(shape, machine, plan, constants, global_batch, sequence_length)
    rounds = plan.micro_batches(global_batch)
    # The last micro-batch may not be full; time follows the tokens, not the slots.
    filled = global_batch / (plan.data * plan.micro_batch * rounds)
    tokens = plan.micro_batch * filled * sequence_length / (plan.tensor * plan.context)
    # One pass forward and two backward (gradients of inputs and of weights; frozen weights have none), and
    # what is computed again (Narayanan et al., SC '21).
    passes = (2.0 if plan.adapters else 3.0) + recompute
    one = _micro_batch(shape, machine, plan, constants, tokens, passes, sequence_length, recompute)
    busy = sum(one.values())
    machine = replace(machine, nic_gbps=machine.nic_gbps * constants.network_rate)
    hidden = constants.overlap * busy
    exposed = _time_sharded_exchange(shape, machine, plan, constants, hidden)
    per_round = busy + exposed
    bubble = _idle_rounds(plan, rounds) * per_round
    # Gradients are exchanged once a step, behind the last micro-batch, and only that one can hide them.
    once = optimizer = 0.0
    if not plan.adapters:
        once = _gradient_exchange(shape, machine, plan, hidden)
        optimizer = _time_optimizer(shape, machine, plan, constants)
    subtotal = rounds * per_round + bubble + once + optimizer
    straggling = subtotal * constants.straggling * math.log2(max(1.0, plan.gpus / 8))
    return StepParts(
        **{name: rounds * seconds for name, seconds in one.items()},
        data_exposed_s=rounds * exposed + once,
        bubble_s=bubble,
        optimizer_s=optimizer,
        straggling_s=straggling,
    )


def _idle_rounds(plan: ParallelPlan, rounds: int) -> float:
    """Return the pipeline's bubble in micro-batches of a stage (Narayanan et al., SC '21, section 2.2).

    With fewer micro-batches than stages each must come back from the last stage before its next part starts:
    virtual stages then hide only what the micro-batches cover.
    """
    stages, virtual = plan.pipeline, plan.virtual_stages
    if rounds >= stages:
        return (stages - 1) / virtual
    return stages - rounds + (rounds - 1) / virtual


def _micro_batch(
    shape: TransformerShape,
    machine: Machine,
    plan: ParallelPlan,
    constants: StackConstants,
    tokens: float,
    passes: float,
    sequence_length: int,
    again: float,
) -> dict[str, float]:
    """Return seconds of a micro-batch on a stage, by part of `StepParts`; `tokens` are those of one GPU."""
    stages = plan.pipeline
    peak = machine.peak_tflops(plan.precision) or math.nan
    plain_rate = constants.linear_rate * _compute_sustained(machine, constants, machine.bf16_tflops)
    share = getattr(constants, RATES[plan.precision])
    rate = share * _compute_sustained(machine, constants, peak)
    experts = float(shape.expert_layers * shape.experts_per_token * shape.expert_parameters)
    if shape.experts:
        # Tokens that meet at an expert, from all ranks of its group.
        each = tokens * shape.experts_per_token * plan.expert / shape.experts
        # Rate of the largest matrices times n / (n + half): narrow matrices of few tokens n do not fill a
        # GPU.
        experts *= (1 + constants.expert_half_tokens / each) / constants.expert_rate
        if plan.precision == "fp4":
            # Grouped matrix products gain nothing over fp8: Nemotron 3 Super runs at 1.00 to 1.04 x.
            fp8 = constants.mxfp8_rate * _compute_sustained(
                machine, constants, machine.fp8_tflops or math.nan
            )
            experts *= max(1.0, rate / fp8)
    # 2 FLOPs for each weight, token and pass: a multiplication and an addition.
    linear = 2 * passes * tokens / stages * (shape.shared_parameters + experts)
    score = tokens / stages * shape.score_flops(sequence_length)
    # The output layer is never computed again: 2 FLOPs a weight forward, 4 backward.
    output = 6 * tokens / stages * shape.output_parameters * (1 + shape.predicted_ahead)
    layers = shape.all_layers / stages
    width = shape.elementwise_width + constants.expert_traffic * shape.visit_width
    traffic = width / stages * tokens * constants.traffic * passes / 3
    if not plan.compiled:
        traffic *= constants.uncompiled_traffic
    fixed_us = layers * constants.layer_us + shape.expert_layers / stages * constants.expert_layer_us
    # `tokens` are one rank's; a layer sees those of all tensor-parallel ranks, in 16 bit.
    gathered = tokens * plan.tensor * shape.hidden * 2
    # Sequence parallelism: four pairs of all-gather and reduce-scatter a layer, forward and backward.
    tensor = 8 * layers * gather_s(machine, gathered, plan.tensor) * passes / 3
    if plan.asynchronous_tensor:
        tensor *= ASYNCHRONOUS
    handed_on = 6 * shape.attending_layers / stages * tokens * shape.key_value_width * (plan.context - 1)
    slower = min(link_bytes_per_s(machine), network_bytes_per_s(machine))
    return {
        "linear_s": linear / rate,
        "attention_s": score
        * (1 + ATTENTION_BACKWARD + again)
        / (1e12 * machine.bf16_tflops * kernel_share(machine, constants, "attention_rate")),
        "output_s": output / plain_rate,
        "elementwise_s": traffic / (machine.memory_gbs * 1e9),
        "fixed_s": fixed_us * passes / 3 * 1e-6,
        "tensor_exposed_s": constants.tensor_exposed * tensor,
        # The ring hands keys and values on while a chunk is attended to.
        "context_exposed_s": CONTEXT_EXPOSED * handed_on / slower,
        "expert_exchange_s": _expert_exchange(shape, machine, plan, constants, tokens) / stages,
    }


def kernel_share(machine: Machine, constants: StackConstants, name: str) -> float:
    """Return the share of a GPU's bf16 peak that a rate (`linear_rate` or `attention_rate`) comes to."""
    peak = machine.bf16_tflops
    declined = (peak / REFERENCE_TFLOPS) ** -constants.attention_decline if name == "attention_rate" else 1.0
    sustained = _compute_sustained(machine, constants, peak) / (1e12 * peak)
    return float(getattr(constants, name) * declined * sustained)


def _compute_sustained(machine: Machine, constants: StackConstants, peak_tflops: float) -> float:
    """Return the FLOP/s that a GPU's power sustains of a peak."""
    load = peak_tflops / machine.power_w / REFERENCE_TFLOPS_PER_W
    return float(peak_tflops * 1e12 * load**-constants.power_decline)


def _expert_exchange(
    shape: TransformerShape, machine: Machine, plan: ParallelPlan, constants: StackConstants, tokens: float
) -> float:
    """Return exposed seconds of a micro-batch's all-to-all, forward and backward, of all layers.

    A token is sent once to each GPU, and once to each NVLink domain, that has an expert of it (as DeepSeek-V3
    does, section 3.2.2), and experts are drawn evenly. What stays in the domain goes over NVLink.
    """
    if plan.expert == 1 or not shape.experts:
        return 0.0
    inside = min(plan.expert, machine.domain)
    domains = plan.expert / inside
    visited = _distinct(plan.expert, shape.experts_per_token)
    # Dispatch and combine, forward and backward, in 16 bit.
    sent = 4 * shape.expert_layers * tokens * (shape.expert_hidden or shape.hidden) * 2
    # Of the copies in a domain one part in `inside` is for the GPU's own experts, and is not sent.
    link = visited * (inside - 1) / inside / link_bytes_per_s(machine)
    network = _distinct(domains, shape.experts_per_token) * (1 - 1 / domains)
    port = network / network_bytes_per_s(machine)
    return constants.exchange_exposed * sent * (link + port)


def _distinct(places: float, draws: int) -> float:
    """Return the mean number of distinct places that even draws hit."""
    return places * (1 - (1 - 1 / places) ** draws) if places > 1 else 1.0


def _local_parameters(
    shape: TransformerShape, plan: ParallelPlan, ranks: int
) -> tuple[tuple[float, int], tuple[float, int]]:
    """Return a GPU's parameters, without experts and of experts, each with the `ranks` that share them."""
    embeddings = shape.output_parameters * (1 if shape.tied else 2)
    plain = (shape.shared_parameters + embeddings) / plan.tensor / plan.pipeline
    experts = shape.expert_layers * shape.experts * shape.expert_parameters / plan.expert / plan.pipeline
    return (plain, ranks), (experts, max(1, ranks * plan.tensor // plan.expert))


def _count_updated(shape: TransformerShape, plan: ParallelPlan) -> float:
    """Return the parameters that a GPU's optimizer updates."""
    return sum(parameters / ranks for parameters, ranks in _local_parameters(shape, plan, plan.shards))


def _time_optimizer(
    shape: TransformerShape, machine: Machine, plan: ParallelPlan, constants: StackConstants
) -> float:
    """Return the seconds of the optimizer's step, on the GPU or on the host."""
    updated = _count_updated(shape, plan)
    if not plan.offload:
        return constants.optimizer_bytes * updated / (machine.memory_gbs * 1e9)
    held = sum(parameters for parameters, _ in _local_parameters(shape, plan, 1))
    return 1e-9 * (constants.offload_ns * held + constants.offload_shard_ns * updated)


def _ring_s(shape: TransformerShape, machine: Machine, plan: ParallelPlan, ranks: int) -> float:
    """Return seconds of a reduce-scatter or all-gather of a GPU's 16-bit weights, layer by layer."""
    seconds, layers = 0.0, shape.all_layers / plan.pipeline
    for parameters, group in _local_parameters(shape, plan, ranks):
        # Tensor-parallel ranks fill the NVLink domain first; the rest of it is left for the ring.
        members = max(1, min(group, machine.domain // plan.tensor))
        seconds += ring_s(machine, 2 * parameters, group, members, layers) if parameters else 0.0
    return seconds


def _time_sharded_exchange(
    shape: TransformerShape, machine: Machine, plan: ParallelPlan, constants: StackConstants, hidden: float
) -> float:
    """Return the seconds per micro-batch of the collectives of sharded weights that exceed `hidden`."""
    if plan.sharding == "optimizer":
        return 0.0
    exchanges = constants.sharded_exchange * (3 if plan.sharding == "full" else 2)
    return max(0.0, exchanges * _ring_s(shape, machine, plan, plan.shards) - hidden)


def _gradient_exchange(shape: TransformerShape, machine: Machine, plan: ParallelPlan, hidden: float) -> float:
    """Return the seconds that exchanging gradients and weights adds if a step does so once.

    This is so where only the optimizer is sharded, and among the groups of hybrid sharding, where each GPU
    exchanges its shard with those that hold a copy, one in each domain.
    """
    copies = plan.data * plan.context // plan.shards
    if plan.sharding == "optimizer":
        exposed = 2 * _ring_s(shape, machine, plan, plan.data * plan.context)
    elif copies > 1:
        layers = shape.all_layers / plan.pipeline
        exposed = 2 * ring_s(machine, 2 * _count_updated(shape, plan), copies, 1, layers)
    else:
        return 0.0
    # The first layers' gradients and the last layers' weights have no computation left to hide behind.
    return max(0.1 * exposed, exposed - hidden)
