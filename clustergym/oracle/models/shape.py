"""Shapes of transformers with their parameters and FLOPs, plans of parallelism, and machines that train."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal


@dataclass(frozen=True)
class LatentAttention:
    """Widths of the projections of multi-head latent attention (DeepSeek-V3, section 2.1.1).

    A `query_rank` of 0 means that queries are projected at once, as in DeepSeek-V2-Lite.
    """

    query_rank: int
    key_value_rank: int
    query_key_plain: int
    query_key_rotary: int
    value: int


@dataclass(frozen=True)
class Mamba:
    """Mamba-2 layers (Dao and Gu, ICML '24, section 7) in a hybrid model: their number and widths."""

    layers: int
    heads: int
    head_dim: int
    state: int
    groups: int


@dataclass(frozen=True)
class TransformerShape:
    """The dimensions of a decoder-only transformer, or of a hybrid with Mamba-2 or expert layers.

    Attributes
    ----------
    name : str
    hidden, layers, heads, vocabulary : int
    feed_forward : int
        Inner width of a dense layer's feed-forward network.
    key_value_heads, head_dim : int or None
        None: as many as there are heads; hidden / heads.
    gated : bool
        Whether the feed-forward network has three matrices (SwiGLU) instead of two.
    tied : bool
        Whether the embedding is the output layer, too.
    experts, experts_per_token, expert_feed_forward, shared_experts : int
        Of each expert layer; 0 experts: all layers are dense.
    shared_expert_feed_forward, expert_hidden : int or None
        Width of shared experts, and of what experts take in; None: as experts, as `hidden`.
    dense_layers : int
        Layers without experts, in a model that has some; of a hybrid, those with a dense network alone.
    latent : LatentAttention or None
    window : int
    window_every : float
        One layer in `window_every` sees only the last `window` tokens; 0: none does.
    predicted_ahead : int
        Further layers that predict later tokens (DeepSeek-V3, section 2.2).
    attention_layers : int or None
        Of a hybrid; None: every layer attends.
    mamba : Mamba or None
        Of a hybrid; layers that are none of these, not dense and not attention have experts.
    """

    name: str
    hidden: int
    layers: int
    heads: int
    vocabulary: int
    feed_forward: int = 0
    key_value_heads: int | None = None
    head_dim: int | None = None
    gated: bool = True
    tied: bool = False
    experts: int = 0
    experts_per_token: int = 0
    expert_feed_forward: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    latent: LatentAttention | None = None
    window: int = 0
    window_every: float = 1
    predicted_ahead: int = 0
    shared_expert_feed_forward: int | None = None
    expert_hidden: int | None = None
    attention_layers: int | None = None
    mamba: Mamba | None = None

    @property
    def attending_layers(self) -> int:
        """Number of attention layers, including extra layers that predict tokens after the next one."""
        return (
            self.all_layers if self.attention_layers is None else self.attention_layers + self.predicted_ahead
        )

    @property
    def expert_layers(self) -> int:
        """Number of layers with experts, including extra layers that predict tokens after the next one."""
        if not self.experts:
            return 0
        other = 0 if self.mamba is None else self.mamba.layers + (self.attention_layers or 0)
        return self.all_layers - self.dense_layers - other

    @property
    def plain_layers(self) -> int:
        """Number of layers whose feed-forward network has no experts."""
        return self.dense_layers if self.experts or self.mamba else self.all_layers

    @property
    def all_layers(self) -> int:
        """Number of layers, including extra layers that predict tokens after the next one."""
        return self.layers + self.predicted_ahead

    @cached_property
    def attention_parameters(self) -> int:
        """Number of parameters of one layer's attention."""
        if self.latent is not None:
            one = self.latent
            # DeepSeek-V3, section 2.1.1: down and up projections of queries, one of keys and values with the
            # rotary key apart, and the output.
            query_key = one.query_key_plain + one.query_key_rotary
            queries = self.hidden * self.heads * query_key
            if one.query_rank:
                queries = one.query_rank * (self.hidden + self.heads * query_key)
            return (
                queries
                + self.hidden * (one.key_value_rank + one.query_key_rotary)
                + one.key_value_rank * self.heads * (one.query_key_plain + one.value)
                + self.heads * one.value * self.hidden
            )
        width = self.head_dim or self.hidden // self.heads
        # Queries and output have all heads, keys and values only theirs (grouped-query attention).
        return 2 * self.hidden * width * (self.heads + (self.key_value_heads or self.heads))

    @cached_property
    def attention_width(self) -> float:
        """Half of the sum of query-key width and value width over all attention heads of a layer."""
        if self.latent is not None:
            one = self.latent
            return self.heads * (one.query_key_plain + one.query_key_rotary + one.value) / 2
        return float(self.heads * (self.head_dim or self.hidden // self.heads))

    @property
    def key_value_width(self) -> int:
        """Width of one token's keys and values in a layer, which context parallelism exchanges."""
        if self.latent is not None:
            return self.latent.key_value_rank + self.latent.query_key_rotary
        return 2 * (self.key_value_heads or self.heads) * (self.head_dim or self.hidden // self.heads)

    @property
    def _matrices(self) -> int:
        return 3 if self.gated else 2

    @property
    def feed_forward_parameters(self) -> int:
        """Number of parameters of a dense layer's feed-forward network."""
        return self._matrices * self.hidden * self.feed_forward

    @property
    def expert_parameters(self) -> int:
        """Number of parameters of one expert."""
        return self._matrices * (self.expert_hidden or self.hidden) * self.expert_feed_forward

    @property
    def shared_expert_width(self) -> int:
        """Total inner width of a layer's shared experts."""
        return self.shared_experts * (self.shared_expert_feed_forward or self.expert_feed_forward)

    @property
    def mamba_parameters(self) -> int:
        """Number of parameters of a Mamba-2 layer's projections in and out."""
        if self.mamba is None:
            return 0
        one = self.mamba
        # In: gate and input (2 x inner), B and C of each group, a step of each head; out: inner. In all 3 x
        # inner.
        inner = one.heads * one.head_dim
        return self.hidden * (3 * inner + 2 * one.groups * one.state + one.heads)

    @property
    def output_parameters(self) -> int:
        """Number of parameters of the output layer."""
        return self.hidden * self.vocabulary

    @cached_property
    def shared_parameters(self) -> int:
        """Number of parameters that every token uses in layers: no experts, embeddings or output layer."""
        router = self.hidden * (self.experts + self._matrices * self.shared_expert_width)
        # The projections to what experts take in, and back.
        latent = 2 * self.hidden * self.expert_hidden if self.expert_hidden else 0
        ahead = 2 * self.hidden * self.hidden * self.predicted_ahead
        return (
            self.attending_layers * self.attention_parameters
            + self.plain_layers * self.feed_forward_parameters
            + self.expert_layers * (router + latent)
            + (self.mamba.layers * self.mamba_parameters if self.mamba else 0)
            + ahead
        )

    @cached_property
    def elementwise_width(self) -> float:
        """Values per token that elementwise operators read and write in all layers, without experts.

        What goes into and comes out of each matrix product; of a Mamba-2 layer also its convolution, its
        gate and
        the states between chunks, which are as wide as its inner width; and the scores of the vocabulary.
        """
        inside = self.attending_layers * (4 * self.hidden + 2 * self.attention_width)
        plain = self.plain_layers * (2 * self.hidden + self._matrices * self.feed_forward)
        shared = self.expert_layers * (2 * self.hidden + self._matrices * self.shared_expert_width)
        mamba = 0
        if self.mamba is not None:
            one = self.mamba
            width = 10 * one.heads * one.head_dim + 6 * one.groups * one.state
            mamba = one.layers * (2 * self.hidden + width)
        return inside + plain + shared + mamba + self.vocabulary * (1 + self.predicted_ahead)

    @cached_property
    def visit_width(self) -> float:
        """Values that elementwise operators read and write for a token in the experts that process it."""
        one = 2 * (self.expert_hidden or self.hidden) + self._matrices * self.expert_feed_forward
        return float(self.expert_layers * self.experts_per_token * one)

    def score_flops(self, sequence_length: int) -> float:
        """Return the forward FLOPs per token of attention scores and Mamba-2 scans in all layers."""
        scan = 0
        if self.mamba is not None:
            scan = 7 * self.mamba.layers * self.mamba.heads * self.mamba.head_dim * self.mamba.state
        return 4.0 * self.attending_layers * self.attention_width * self.context(sequence_length) + scan

    @property
    def parameters(self) -> int:
        """Number of all parameters, without norms and biases."""
        embeddings = self.output_parameters * (1 if self.tied else 2)
        return (
            self.shared_parameters + self.expert_layers * self.experts * self.expert_parameters + embeddings
        )

    @property
    def active_parameters(self) -> int:
        """Number of parameters that multiply a token; the output layer counts once per predicted token."""
        active = self.expert_layers * self.experts_per_token * self.expert_parameters
        return self.shared_parameters + active + self.output_parameters * (1 + self.predicted_ahead)

    def context(self, sequence_length: int) -> float:
        """Return the mean number of tokens that a token attends to under a causal mask and windows."""
        # Causal: a token attends on average to half of the sequence.
        full = sequence_length / 2
        if not self.window:
            return full
        part = 1 / self.window_every
        return (1 - part) * full + part * min(float(self.window), full)

    def flops_per_token(self, sequence_length: int) -> float:
        """Return the FLOPs per token of a training step, without those of recomputation.

        6 for each parameter that multiplies the token (Narayanan et al., SC '21, appendix), and 3 x 4 x
        width x context a layer for attention.
        """
        return 6.0 * self.active_parameters + 3.0 * self.score_flops(sequence_length)


Precision = Literal["bf16", "fp8", "mxfp8", "fp4"]
"""fp8 is scaled by tensor, mxfp8 and fp4 by blocks of numbers."""
Sharding = Literal["optimizer", "gradients", "full"]
"""What each GPU of a data-parallel group holds a part of: ZeRO-1, SHARD_GRAD_OP, fully sharded."""


@dataclass(frozen=True)
class ParallelPlan:
    """How a transformer trains in parallel: degrees, micro-batch, sharding, recomputation, precision.

    Attributes
    ----------
    data, tensor, pipeline, context, expert : int
        Degrees; data x tensor x pipeline x context GPUs. Experts are divided among ranks of the data,
        context and tensor groups.
    virtual_stages : int
        Parts of the model that each pipeline rank holds (interleaved 1F1B; Narayanan et al., SC '21).
    micro_batch : int
        Sequences of a micro-batch.
    sharding : str
    recompute : float or None
        Share of layers whose activations are computed again in the backward pass; None: the least that fits.
    precision : str
        Of the linear layers; attention and output layer compute in bf16.
    asynchronous_tensor : bool
        Whether tensor-parallel communication is pipelined with the matrix products.
    compiled : bool
        Whether a compiler fuses elementwise operators.
    adapters : bool
        Whether only adapters are trained (LoRA): the model's weights have no gradients and no optimizer.
    offload : bool
        Whether optimizer state and the optimizer's step are on the host (ZeRO-Offload).
    shard_group : int
        Ranks among which sharded state is divided; further groups hold copies of it (hybrid sharding, Zhao et
        al., VLDB '23, section 3.2.2). 0: all ranks with the same weights.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    virtual_stages: int = 1
    micro_batch: int = 1
    sharding: Sharding = "optimizer"
    recompute: float | None = None
    precision: Precision = "bf16"
    asynchronous_tensor: bool = False
    compiled: bool = True
    adapters: bool = False
    offload: bool = False
    shard_group: int = 0

    @property
    def shards(self) -> int:
        """Number of ranks among which sharded state is divided."""
        return min(self.shard_group or self.data * self.context, self.data * self.context)

    @property
    def gpus(self) -> int:
        """Number of GPUs that the plan uses."""
        return self.data * self.tensor * self.pipeline * self.context

    def micro_batches(self, global_batch: int) -> int:
        """Return the number of micro-batches of a pipeline in a step; the last may be partly full."""
        return max(1, -(-global_batch // (self.data * self.micro_batch)))

    def __str__(self) -> str:
        """Return the degrees above 1, as in `DP 8, TP 4`."""
        degrees = {
            "DP": self.data, "TP": self.tensor, "PP": self.pipeline, "CP": self.context,
            "EP": self.expert, "VP": self.virtual_stages,
        }  # fmt: skip
        shown = ", ".join(f"{name} {degree}" for name, degree in degrees.items() if degree > 1)
        shown = shown or "one GPU"
        return f"{shown}, micro-batch {self.micro_batch}, {self.precision}, sharded: {self.sharding}"


@dataclass(frozen=True)
class Machine:
    """A GPU with its memory, links and network port, by its data sheet (dense rates).

    Attributes
    ----------
    name : str
    bf16_tflops, fp8_tflops, fp4_tflops : float or None
        TFLOP/s; None: no such arithmetic.
    memory_gb, memory_gbs : float
        GB and GB/s.
    link_gbs : float
        GB/s of a GPU in one direction to the others of its NVLink domain.
    domain : int
        GPUs of an NVLink domain.
    nic_gbps : float
        Gbit/s of network for each GPU.
    power_w : float
        Limit of a GPU's power.
    adds_in_switch : bool
        Whether the switches of a domain add up what an all-reduce sends (NVLink 4 and later).
    source : str
    uncertain : tuple of str
        Fields in which sources disagree, or of which only a secondary one is known.
    """

    name: str
    bf16_tflops: float
    memory_gb: float
    memory_gbs: float
    link_gbs: float
    nic_gbps: float
    power_w: float
    fp8_tflops: float | None = None
    fp4_tflops: float | None = None
    domain: int = 8
    adds_in_switch: bool = True
    source: str = ""
    uncertain: tuple[str, ...] = ()

    def peak_tflops(self, precision: str) -> float | None:
        """Return the dense TFLOP/s in a precision (`bf16`, `fp8`, `mxfp8` or `fp4`); None if it has none."""
        fp8 = self.fp8_tflops
        rates = {"bf16": self.bf16_tflops, "fp8": fp8, "mxfp8": fp8, "fp4": self.fp4_tflops}
        return rates[precision]
