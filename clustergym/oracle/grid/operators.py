"""Operator graphs: layers of a model clustered into operators, with their costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.oracle.models.model_spec import (
    CAPACITY_FACTOR,
    ELEMENT_BYTES,
    FFN_FACTOR,
    GATE_PASSES,
    Convolution,
    ModelSpec,
    bottleneck_blocks,
)

CLUSTERS = 8
"""Operators that a graph is clustered into, at most."""

BLOCK_COPIES, BLOCK_TRAFFIC = 6, 5
"""Copies of a convolution's output that a block holds, and how often a forward pass writes or reads it;
measured data-parallel memory is 1.04 GB an image at 500M (arena_dp_memory.csv)."""


@dataclass(frozen=True)
class Layer:
    """FLOPs and bytes of one layer in the forward pass of one sample; a multiply-add is 2 FLOPs.

    Attributes
    ----------
    flops, attention_flops, gate_flops : float
        Of matrix products or convolutions with weights, of attention scores and values, and of the
        einsums that dispatch to experts and combine them.
    unit_flops : float
        Sum over kernels of FLOPs over units of work (tokens, or output pixels).
    reduction, split_reduction : float
        Sums of the lengths of convolutions' reductions (kernel area x input channels): of those that stay
        whole where the block is split, and of the one that is split.
    traffic_bytes, gate_traffic_bytes : float
        Moved by elementwise operators, and by gating masks.
    shared_parameters, expert_parameters : float
    boundary_bytes : float
        Activation handed to the next layer.
    kept_bytes : float
        Kept for the backward pass if the layer is recomputed: its input.
    activation_bytes, workspace_bytes : float
        Kept if the layer is not recomputed; held while it is being recomputed.
    head_bytes : float
        Kept in either case (logits).
    exchange_bytes, exchange_count : float
        All-reduce (experts: all-to-all) volume and number of a forward and a backward pass, where
        the layer is split over GPUs.
    """

    flops: float = 0.0
    attention_flops: float = 0.0
    gate_flops: float = 0.0
    unit_flops: float = 0.0
    reduction: float = 0.0
    split_reduction: float = 0.0
    traffic_bytes: float = 0.0
    gate_traffic_bytes: float = 0.0
    shared_parameters: float = 0.0
    expert_parameters: float = 0.0
    boundary_bytes: float = 0.0
    kept_bytes: float = 0.0
    activation_bytes: float = 0.0
    workspace_bytes: float = 0.0
    head_bytes: float = 0.0
    exchange_bytes: float = 0.0
    exchange_count: float = 0.0

    @property
    def total_flops(self) -> float:
        """FLOPs of the layer's forward pass for one sample."""
        return self.flops + self.attention_flops + self.gate_flops


SUMMED = tuple(
    column.name for column in fields(Layer) if column.name not in ("boundary_bytes", "workspace_bytes")
)
"""Fields that add up when layers are clustered."""


@dataclass(frozen=True)
class OperatorGraph:
    """A model as a chain of K operators, each of consecutive layers, with arrays of their costs.

    Attributes
    ----------
    spec : ModelSpec
    names : tuple of str
        Of the operators, by the layers in them.
    tensor_limit : int
        GPUs a layer can be split over.
    """

    spec: ModelSpec
    names: tuple[str, ...]
    tensor_limit: int
    columns: Mapping[str, Floats] = field(repr=False)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, name: str) -> Floats:
        return self.columns[name]


def operator_graph(spec: ModelSpec, clusters: int = CLUSTERS) -> OperatorGraph:
    """Divide a model's layers into at most `clusters` operators of similar cost, which plans do not split up.

    Parameters
    ----------
    spec : ModelSpec
    clusters : int
        Operators to cluster layers or bottleneck blocks into. A model of fewer layers has as many
        operators as layers.
    """
    layers, names = LAYERS[spec.architecture](spec)
    count = min(clusters, len(layers))
    first = balance_cuts([layer.total_flops for layer in layers], count)
    columns = {
        name: np.add.reduceat(np.array([getattr(layer, name) for layer in layers], dtype=np.float64), first)
        for name in SUMMED
    }
    # What a cluster hands on is what its last layer hands on, so this column does not add up.
    last = [*(start - 1 for start in first[1:]), len(layers) - 1]
    columns["boundary_bytes"] = np.array([layers[index].boundary_bytes for index in last])
    workspace = np.array([layer.workspace_bytes for layer in layers])
    # Layers are recomputed one after another: the largest workspace counts, not their sum.
    columns["workspace_bytes"] = np.maximum.reduceat(workspace, first)
    titles = tuple(names[a] if a == b else f"{names[a]}-{names[b]}" for a, b in zip(first, last, strict=True))
    return OperatorGraph(spec, titles, int(spec.tensor_limit), columns)


def balance_cuts(weights: Sequence[float], parts: int) -> list[int]:
    """Cut a list of weights into `parts` runs so that the heaviest run is least; return each run's start.

    Among cuts whose heaviest runs are equal, the least sum of squares decides, so that the other runs are
    even too.

    Parameters
    ----------
    weights : sequence of float
        Not negative.
    parts : int
        From 1 to the number of items.
    """
    prefix = np.concatenate([[0.0], np.cumsum(weights)])
    items = len(weights)
    best = [(weight, weight**2) for weight in prefix[1:]]
    starts: list[list[int]] = [[0] * items]
    for part in range(1, parts):
        values, chosen = [(np.inf, np.inf)] * items, [0] * items
        for last in range(part, items):
            for cut in range(part, last + 1):
                run = prefix[last + 1] - prefix[cut]
                # Compared as a pair: the heaviest run, then the sum of squares.
                value = (max(best[cut - 1][0], run), best[cut - 1][1] + run**2)
                if value < values[last]:
                    values[last], chosen[last] = value, cut
        best, starts = values, [*starts, chosen]
    cuts, last = [], items - 1
    for part in range(parts - 1, -1, -1):
        cuts.append(starts[part][last])
        last = cuts[-1] - 1
    return cuts[::-1]


def _language_layers(spec: ModelSpec) -> tuple[list[Layer], list[str]]:
    """Return the layers of a transformer or a mixture of experts, and the output layer."""
    size, element = dict(spec.dimensions), ELEMENT_BYTES[spec.dtype]
    moe = spec.architecture == "moe"
    plain = _transformer_layer(size, element, FFN_FACTOR[spec.architecture])
    layers = [_moe_layer(size, element) if moe and n % 2 else plain for n in range(size["layers"])]
    names = [f"layer {n}" for n in range(size["layers"])]
    tokens, hidden, vocabulary = size["sequence_length"], size["hidden"], size["vocabulary"]
    positions = 0.0 if moe else float(tokens * hidden)
    logits = float(tokens * vocabulary)
    head = Layer(
        flops=2.0 * logits * hidden,
        unit_flops=2.0 * vocabulary * hidden,
        traffic_bytes=8 * element * logits,
        shared_parameters=float(vocabulary * hidden) + positions,
        activation_bytes=10 * element * logits,
        head_bytes=10 * element * logits,
        exchange_count=2.0,
    )
    return [*layers, head], [*names, "output"]


def _transformer_layer(size: Mapping[str, int], element: int, factor: int) -> Layer:
    """Return one layer; activation bytes follow Korthikanti et al. (2022), section 4.1."""
    tokens, hidden = size["sequence_length"], size["hidden"]
    width = factor * hidden
    # Korthikanti et al. (2022), section 4.1, in elements of `element` bytes and dropout masks of one byte:
    # attention with its scores, then the two linear layers and the norms.
    held = (5 * element + 1) * tokens * hidden + (2 * element + 1) * size["heads"] * tokens**2
    held += tokens * (2 * element * width + (3 * element + 1) * hidden)
    parameters = 4.0 * hidden**2 + 2.0 * hidden * width
    boundary = float(element * tokens * hidden)
    return Layer(
        flops=2.0 * tokens * parameters,
        attention_flops=4.0 * tokens**2 * hidden,
        unit_flops=2.0 * parameters,
        traffic_bytes=2.0 * held,
        shared_parameters=parameters,
        boundary_bytes=boundary,
        kept_bytes=boundary,
        activation_bytes=held,
        workspace_bytes=held,
        exchange_bytes=4.0 * boundary,
        exchange_count=4.0,
    )


def _moe_layer(size: Mapping[str, int], element: int) -> Layer:
    """Return a layer with experts: two slots a token, filled and emptied by einsums of 8 S h FLOPs."""
    tokens, hidden, experts = size["sequence_length"], size["hidden"], size["experts"]
    plain = _transformer_layer(size, element, FFN_FACTOR["moe"])
    width, slots = FFN_FACTOR["moe"] * hidden, CAPACITY_FACTOR * size["expert_group_size"]
    mask = float(GATE_PASSES * element * tokens * slots)
    expert = 2.0 * hidden * width
    return Layer(
        # Each token has as many slots as the capacity factor, and a slot is worked through, full or empty.
        flops=plain.flops + (CAPACITY_FACTOR - 1) * 2.0 * tokens * expert,
        attention_flops=plain.attention_flops,
        gate_flops=2 * 2.0 * tokens * slots * hidden,
        unit_flops=plain.unit_flops + (CAPACITY_FACTOR - 1) * 2.0 * expert,
        traffic_bytes=plain.traffic_bytes,
        gate_traffic_bytes=mask,
        shared_parameters=4.0 * hidden**2 + hidden * experts,
        expert_parameters=experts * expert,
        boundary_bytes=plain.boundary_bytes,
        kept_bytes=plain.kept_bytes,
        activation_bytes=plain.activation_bytes + mask / 2,
        workspace_bytes=plain.workspace_bytes + mask / 2,
        exchange_bytes=CAPACITY_FACTOR * 4.0 * plain.boundary_bytes,
        exchange_count=4.0,
    )


def _convolution_layers(spec: ModelSpec) -> tuple[list[Layer], list[str]]:
    """Return the bottleneck blocks of a wide ResNet; the stem and the classifier join the outermost."""
    size, element = dict(spec.dimensions), ELEMENT_BYTES[spec.dtype]
    blocks = bottleneck_blocks(size["depth"], size["channels"], size["width_factor"], size["image_size"])
    stem = Convolution(size["image_size"] // 2, 7, 3, size["channels"])
    head = 4.0 * size["channels"] * 8 * size["classes"]
    layers = []
    for index, block in enumerate(blocks):
        convolutions = [stem, *block] if index == 0 else block
        extra = head if index == len(blocks) - 1 else 0.0
        layers.append(_block_layer(convolutions, block, extra, element))
    return layers, [f"block {index}" for index in range(len(blocks))]


def _block_layer(
    convolutions: Sequence[Convolution], block: Sequence[Convolution], head: float, element: int
) -> Layer:
    """Return a block. Split over channels, its first output is gathered and its last one reduced."""
    written = float(element * sum(conv.side**2 * conv.outputs for conv in convolutions))
    first, last = block[0], block[2]
    end = float(element * last.side**2 * last.outputs)
    start = float(element * first.side**2 * first.inputs)
    middle = float(element * first.side**2 * first.outputs)
    return Layer(
        flops=sum(conv.flops for conv in convolutions) + 2 * head,
        unit_flops=sum(conv.flops / conv.side**2 for conv in convolutions),
        reduction=sum(float(conv.kernel**2 * conv.inputs) for conv in convolutions if conv is not last),
        split_reduction=float(last.inputs),
        traffic_bytes=BLOCK_TRAFFIC * written,
        shared_parameters=sum(conv.parameters for conv in convolutions) + head,
        boundary_bytes=end,
        kept_bytes=start,
        activation_bytes=BLOCK_COPIES * written,
        workspace_bytes=BLOCK_COPIES * written,
        exchange_bytes=end + start + middle,
        exchange_count=4.0,
    )


def _dense_layers(spec: ModelSpec) -> tuple[list[Layer], list[str]]:
    """Return equal slices of a model given by its totals; it is not split and never recomputed."""
    count = int(spec.layers)
    layer = Layer(
        flops=spec.forward_flops_per_sample / count,
        traffic_bytes=spec.traffic_bytes / count,
        shared_parameters=spec.parameters / count,
        kept_bytes=spec.activation_bytes_per_sample / count,
        activation_bytes=spec.activation_bytes_per_sample / count,
        workspace_bytes=spec.activation_bytes_per_sample / count,
    )
    return [layer] * count, [f"layer {index}" for index in range(count)]


LAYERS: Mapping[str, Callable[[ModelSpec], tuple[list[Layer], list[str]]]] = {
    "transformer": _language_layers,
    "moe": _language_layers,
    "wide_resnet": _convolution_layers,
    "dense": _dense_layers,
}
"""Layers and their names by architecture."""
