"""Compute FLOPs, bytes and parameters of a model from its dimensions.

The class of a job: model family, size and global batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

ELEMENT_BYTES = {"fp16": 2, "fp32": 4}
"""Bytes of one weight or activation, by data type."""

CAPACITY_FACTOR = 2
"""Slots per token in GShard's top-2 gating: 2S per group of S tokens, whatever the number of experts."""

SHAPE = "shape"
"""Architecture of the models that are public transformers by name, whose times only `oracle=stack` knows."""

FFN_FACTOR = {"transformer": 4, "moe": 8}
"""Feed-forward width over the hidden size (Alpa's benchmark suite for MoE)."""

GATE_PASSES = 8
"""Times a gating mask of S x 2S per group is written or read in a forward pass."""

BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
"""Bottleneck blocks per stage by depth (He et al. 2016, Table 1)."""


@dataclass(frozen=True)
class ModelSpec:
    """The costs per sample of one size of a model family; a multiply-add counts as 2 FLOPs.

    Attributes
    ----------
    family, size, architecture, dtype : str
        `dtype` is the type of weights and activations in computation: `fp16` or `fp32`.
    parameters : float
    forward_flops_per_sample : float
        Of one forward pass, all operators together.
    activation_bytes_per_sample : float
        Activations kept for the backward pass where none are recomputed, bytes.
    batches : tuple of int
        The global batch sizes of the published evaluation; any positive batch may be trained.
    relaunch_s : float or None
        Measured seconds to stop and restart a job; None where nobody measured it.
    layers : float
        Layers (blocks) a pipeline can cut between; the most stages there can be.
    tensor_limit : float
        The most GPUs that one layer can be split over.
    expert_parameters : float
        Parameters of experts, part of `parameters`.
    attention_flops, gate_flops : float
        Parts of the forward FLOPs: attention scores and values, MoE dispatch and combine.
    flops_per_unit : float
        Sum over operators of forward FLOPs over units of work, a unit being a token or an
        output pixel: what an operator costs more, per unit below saturation.
    traffic_bytes : float
        Bytes that elementwise operators move in a forward pass.
    boundary_bytes : float
        Activation between two layers: what a pipeline stage sends.
    layer_bytes : float
        Activations inside the largest layer, held while it is recomputed.
    head_bytes : float
        Activations of the output layer that are never recomputed (logits and their gradient).
    exchange_bytes : float
        Bytes per layer that a GPU puts into collectives when layers are split, summed over
        the forward, recomputing and backward passes.
    dimensions : tuple of (str, int)
        What the YAML file says of the size and of its family, by key; empty for the architecture `dense`.
    shape : str
        Name of a public transformer, or path of its config.json; empty for other models.
    """

    family: str
    size: str
    architecture: str
    dtype: str
    parameters: float
    forward_flops_per_sample: float
    activation_bytes_per_sample: float
    batches: tuple[int, ...]
    relaunch_s: float | None
    layers: float
    tensor_limit: float
    expert_parameters: float = 0.0
    attention_flops: float = 0.0
    gate_flops: float = 0.0
    flops_per_unit: float = 0.0
    traffic_bytes: float = 0.0
    boundary_bytes: float = 0.0
    layer_bytes: float = 0.0
    head_bytes: float = 0.0
    exchange_bytes: float = 0.0
    dimensions: tuple[tuple[str, int], ...] = ()
    shape: str = ""


Costs = dict[str, float]
"""Fields of a `ModelSpec` by name."""


def _attention(hidden: int, heads: int, tokens: int, element: int) -> tuple[float, float, float]:
    """Return FLOPs, activation bytes and projection parameters of one attention layer.

    Activation bytes follow Korthikanti et al. (2022), section 4.1: scores, softmax, dropout and
    its one-byte mask.
    """
    flops = 8.0 * tokens * hidden**2 + 4.0 * tokens**2 * hidden
    activations = (5 * element + 1) * tokens * hidden + (2 * element + 1) * heads * tokens**2
    return flops, float(activations), 4.0 * hidden**2


def _language_model(
    architecture: str, size: Mapping[str, int], tokens: int, vocabulary: int, element: int
) -> Costs:
    """Return the costs of the layers that transformers and mixtures of experts share."""
    hidden, layers, heads = size["hidden"], size["layers"], size["heads"]
    attention_flops, attention_bytes, attention_parameters = _attention(hidden, heads, tokens, element)
    width = FFN_FACTOR[architecture] * hidden
    # Attention, then the feed-forward network's two inner activations, and inputs, norms and a dropout mask.
    layer_bytes = attention_bytes + tokens * ((2 * element * width) + (3 * element + 1) * hidden)
    dense = layers * (attention_parameters + 2.0 * hidden * width)
    # The output layer shares its weights with the embedding, which multiplies nothing.
    head_flops = 2.0 * tokens * hidden * vocabulary
    flops = layers * (attention_flops + 4.0 * tokens * hidden * width) + head_flops
    logits = float(tokens * vocabulary)
    return {
        "parameters": dense + vocabulary * hidden,
        "forward_flops_per_sample": flops,
        "attention_flops": layers * 4.0 * tokens**2 * hidden,
        "activation_bytes_per_sample": layers * layer_bytes + 10 * element * logits,
        "traffic_bytes": 2 * layers * layer_bytes + 8 * element * logits,
        "boundary_bytes": float(element * tokens * hidden),
        "layer_bytes": layer_bytes,
        "head_bytes": 10.0 * element * logits,
        "exchange_bytes": 6.0 * element * tokens * hidden,
        "layers": layers,
        "tensor_limit": heads,
    }


def transformer(size: Mapping[str, int], tokens: int, vocabulary: int, element: int) -> Costs:
    """Compute the costs of a decoder-only transformer (GPT-3) of the given dimensions."""
    costs = _language_model("transformer", size, tokens, vocabulary, element)
    costs["parameters"] += float(tokens * size["hidden"])
    matmul = costs["forward_flops_per_sample"] - costs["attention_flops"]
    return costs | {"flops_per_unit": matmul / tokens}


def mixture_of_experts(
    size: Mapping[str, int], tokens: int, vocabulary: int, element: int, group: int
) -> Costs:
    """Compute the costs of a GShard mixture of experts, in which every second layer has experts.

    With 2S slots per group of S tokens, an expert layer runs its feed-forward on two slots per
    token, and the einsums that dispatch to the slots and combine them cost 8 S h FLOPs a token.
    """
    costs = _language_model("moe", size, tokens, vocabulary, element)
    hidden, layers, experts = size["hidden"], size["layers"] // 2, size["experts"]
    width = FFN_FACTOR["moe"] * hidden
    slots = CAPACITY_FACTOR * group
    expert_parameters = 2.0 * layers * experts * hidden * width
    # Experts replace the feed-forward network of every second layer; a router comes on top.
    costs["parameters"] += expert_parameters - 2.0 * layers * hidden * width + layers * hidden * experts
    # Each token has CAPACITY_FACTOR slots, of which the shared count has one already.
    extra = layers * 4.0 * tokens * hidden * width * (CAPACITY_FACTOR - 1)
    gate = layers * 2 * 2.0 * tokens * slots * hidden
    matmul = costs["forward_flops_per_sample"] - costs["attention_flops"] + extra
    mask = GATE_PASSES * element * tokens * slots
    costs["layer_bytes"] += mask / 2
    costs["activation_bytes_per_sample"] += layers * mask / 2
    return costs | {
        "forward_flops_per_sample": costs["forward_flops_per_sample"] + extra + gate,
        "gate_flops": gate,
        "flops_per_unit": matmul / tokens,
        "expert_parameters": expert_parameters,
        "traffic_bytes": costs["traffic_bytes"] + layers * mask,
        "exchange_bytes": CAPACITY_FACTOR * 6.0 * element * tokens * hidden / 2,
        "tensor_limit": experts,
    }


@dataclass(frozen=True)
class Convolution:
    """A convolution on a square output of `side` pixels."""

    side: int
    kernel: int
    inputs: int
    outputs: int

    @property
    def parameters(self) -> float:
        """Number of weights of the convolution."""
        return float(self.kernel**2 * self.inputs * self.outputs)

    @property
    def flops(self) -> float:
        """FLOPs of the convolution's forward pass on one image."""
        return 2.0 * self.parameters * self.side**2


def bottleneck_blocks(depth: int, channels: int, width_factor: int, image: int) -> list[list[Convolution]]:
    """List the convolutions of each bottleneck block of a ResNet."""
    blocks, inputs = [], channels
    for stage, count in enumerate(BLOCKS[depth]):
        filters, side = channels * 2**stage, image // 4 // 2**stage
        inner = filters * width_factor
        for first in range(count):
            # The first convolution of a stage still has the side of the stage before; the second one halves
            # it.
            before = side if first or not stage else side * 2
            block = [
                Convolution(before, 1, inputs, filters),
                Convolution(side, 3, filters, inner),
                Convolution(side, 1, inner, 4 * filters),
            ]
            if not first:
                block.append(Convolution(side, 1, inputs, 4 * filters))
            blocks.append(block)
            inputs = 4 * filters
    return blocks


def wide_resnet(size: Mapping[str, int], image: int, classes: int, element: int) -> Costs:
    """Compute the costs of a wide bottleneck ResNet (Zagoruyko and Komodakis 2016).

    Width grows in the 3x3 convolution: 1x1 to f = channels x 2^stage, 3x3 to f x width_factor,
    1x1 to 4 f, and a 1x1 projection in the first block of a stage. A convolution's output, its
    normalised value and its rectified value are kept, and as much again for their gradients and
    copies (measured: 1.04 GB an image at 500M). Of those, five are written or read in a forward pass.
    """
    blocks = bottleneck_blocks(size["depth"], size["channels"], size["width_factor"], image)
    stem = Convolution(image // 2, 7, 3, size["channels"])
    every = [stem] + [conv for block in blocks for conv in block]
    head = 4.0 * size["channels"] * 2 ** (len(BLOCKS[size["depth"]]) - 1) * classes
    outputs = [[conv.side**2 * conv.outputs for conv in block] for block in blocks]
    written = float(element * (stem.side**2 * stem.outputs + sum(map(sum, outputs))))
    ends = [max(block) for block in outputs]
    return {
        "parameters": sum(conv.parameters for conv in every) + head,
        "forward_flops_per_sample": sum(conv.flops for conv in every) + 2 * head,
        "flops_per_unit": sum(conv.flops / conv.side**2 for conv in every),
        "activation_bytes_per_sample": 6 * written,
        "traffic_bytes": 5 * written,
        "boundary_bytes": float(element * sum(block[2].side ** 2 * block[2].outputs for block in blocks))
        / len(blocks),
        "layer_bytes": 6.0 * element * max(map(sum, outputs)),
        "head_bytes": 0.0,
        "exchange_bytes": 3.0 * element * sum(ends) / len(blocks),
        "layers": len(blocks),
        "tensor_limit": size["channels"],
    }


def dense(size: Mapping[str, float]) -> Costs:
    """Compute the costs of a model that trains only data-parallel, given its total parameters and FLOPs.

    An activation is written and read in the forward pass; it is never recomputed.
    """
    return {
        "parameters": size["parameters"],
        "forward_flops_per_sample": size["forward_flops_per_sample"],
        "activation_bytes_per_sample": size["activation_bytes_per_sample"],
        "traffic_bytes": 2 * size["activation_bytes_per_sample"],
        "layer_bytes": size["activation_bytes_per_sample"],
        "layers": size["layers"],
        "tensor_limit": 1,
    }


class ModelClass(NamedTuple):
    """Model family, size and global batch of a job, which is all that oracles know of the job."""

    family: str
    size: str
    global_batch: int

    @property
    def model(self) -> str:
        """Name of the model: `family-size`, or the family alone if it has a single size."""
        return f"{self.family}-{self.size}" if self.size else self.family
