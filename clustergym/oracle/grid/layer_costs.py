"""Time and memory of operators, as arrays over allocations, splits and operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from clustergym.cluster.spec import GpuType
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.oracle.grid.constants import MOST_NODES, Constants
from clustergym.oracle.grid.operators import OperatorGraph
from clustergym.oracle.models.model_spec import ELEMENT_BYTES
from clustergym.oracle.roofline.devices import PORT_SHARE, Layout, link_gbs
from clustergym.oracle.roofline.roofline_oracle import (
    GRADIENT_BYTES,
    WEIGHT_PASSES,
    all_reduce_s,
    all_to_all_s,
    groups,
)
from clustergym.oracle.roofline.work import STATE_BYTES

USABLE, USABLE_BY_EXPERTS = 0.8, 0.9
"""Share of a GPU's memory that a plan may fill: what Arena's artifact takes for usable in its own test.
Memory of mixtures of experts is predicted an eighth too high (13 % over arena_dp_memory.csv), for which they
have more."""

ALL_TO_ALL_SHARE = {"pcie": 0.84, "nvlink": 0.57}
"""What all-to-alls reach on a link inside a node, as a share of what all-reduces do: 11.1 of 13.4 GB/s on
PCIe 4, 60 to 75 of 122 on NVLink 2, 100 of 179 on NVLink 3 (arena_comm.csv)."""

SPLIT_SATURATION = 0.5
"""What an unsaturated convolution loses is divided by the GPUs it is split over, to this power."""

RECOMPUTING_PASSES, KEEPING_PASSES = 4.0, 3.0
"""Forward, backward twice as long, and once more forward where activations are recomputed."""

WAVE_CHANNELS = 900.0
"""Output channels at which both losses of a convolution are equal; see `_count_lost_flops`."""


@dataclass(frozen=True)
class GraphAllocations:
    """R models, each on an allocation of GPUs, as arrays with a row for each of them.

    Attributes
    ----------
    graphs : tuple of OperatorGraph
        One per row.
    columns : mapping of str to ndarray of float, shape (R, 1, K)
        Fields of `Layer`.
    batch : ndarray of float, shape (R,)
    gpu_types : tuple of GpuType
    layout : Layout
        Arrays of shape (R,); network rates are of the data sheet, GB/s a node.
    """

    graphs: tuple[OperatorGraph, ...]
    columns: Mapping[str, Floats]
    batch: Floats
    gpu_types: tuple[GpuType, ...]
    layout: Layout

    @staticmethod
    def from_graphs(
        graphs: Sequence[OperatorGraph],
        batches: Sequence[int],
        gpu_types: Sequence[GpuType],
        gpus: Sequence[int],
        nodes: Sequence[int],
        network_gbs: Sequence[float],
    ) -> GraphAllocations:
        """Gather models and their allocations into arrays, with a row for each."""
        names = graphs[0].columns
        columns = {name: np.stack([graph[name] for graph in graphs])[:, None, :] for name in names}
        count, hosts = np.array(gpus, dtype=np.float64), np.array(nodes, dtype=np.float64)
        # An allocation is spread evenly over its nodes.
        per_node, links = np.ceil(count / hosts), np.array([link_gbs(gpu) for gpu in gpu_types])
        # On one node the links of its GPUs take the network's place, so that rates need no case of their own.
        rate = np.where(hosts > 1, np.array(network_gbs, dtype=np.float64), per_node * links)
        layout = Layout(
            gpus=count,
            nodes=hosts,
            per_node=per_node,
            link_gbs=links,
            network_gbs=rate,
            transfer_gbs=rate,
            possible=np.ones(len(count), dtype=bool),
        )
        return GraphAllocations(
            tuple(graphs), columns, np.array(batches, dtype=np.float64), tuple(gpu_types), layout
        )

    def __len__(self) -> int:
        return len(self.graphs)

    @property
    def operators(self) -> int:
        """The number K of operators in a model's graph, equal for all rows."""
        return len(self.graphs[0])

    def take(self, rows: Ints) -> GraphAllocations:
        """Return the models and allocations with the given row numbers."""
        return GraphAllocations(
            tuple(self.graphs[row] for row in rows),
            {name: column[rows] for name, column in self.columns.items()},
            self.batch[rows],
            tuple(self.gpu_types[row] for row in rows),
            select_rows(self.layout, rows),
        )


def select_rows(layout: Layout, rows: Ints | None = None) -> Layout:
    """Return a layout's arrays at the R chosen rows, shape (R,); by default all, in shape (R, 1, 1)."""
    parts: tuple[Any, ...] = tuple(layout)
    return Layout(*(part.reshape(-1, 1, 1) if rows is None else part[rows] for part in parts))


@dataclass(frozen=True)
class Machine:
    """Rates that kernels and links reach on each of R allocations, as arrays of shape (R, 1, 1).

    Attributes
    ----------
    rate_flops, peak_flops : ndarray of float
        Of large kernels with weights, and of the arithmetic units at most.
    memory_bytes_per_s, memory_bytes : ndarray of float
        Of a GPU; what a plan may use of its memory.
    half_units, all_to_all_share : ndarray of float
        Units of work at which a kernel reaches half its rate; see `ALL_TO_ALL_SHARE`.
    element_bytes, state_bytes, sharded_state_bytes : ndarray of float
        Of a weight; of a parameter on every rank, and divided among data-parallel ranks.
    tensor_limit : ndarray of float
    layout : Layout
        Shape (R,), with the rates that collectives and transfers reach.
    constants : Constants
    convolutional, experts, planned, recomputes : ndarray of bool
        Is a wide ResNet; a mixture of experts; may be split and pipelined; recomputes even in one stage.
    disaggregated : bool
        Whether each operator and collective is timed alone, as a profiler does (see `as_profiled`).
    holds_all : bool
        Whether a pipeline holds the activations of all micro-batches (GPipe), not of those in flight (1F1B).
    overlaps : bool
        Whether the profiler takes transfers between stages as hidden behind computation.
    """

    rate_flops: Floats
    peak_flops: Floats
    memory_bytes_per_s: Floats
    memory_bytes: Floats
    half_units: Floats
    all_to_all_share: Floats
    element_bytes: Floats
    state_bytes: Floats
    sharded_state_bytes: Floats
    tensor_limit: Floats
    layout: Layout
    constants: Constants
    convolutional: Bools
    experts: Bools
    planned: Bools
    recomputes: Bools
    disaggregated: bool = False
    holds_all: bool = False
    overlaps: bool = False

    @staticmethod
    def from_rows(rows: GraphAllocations, constants: Constants, schedule: str = "1f1b") -> Machine:
        """Compute the rates that kernels and links reach on each allocation (row: a model on some GPUs).

        Parameters
        ----------
        rows : GraphAllocations
        constants : Constants
        schedule : str
            Of pipelines: `1f1b` or `gpipe`.
        """
        architectures = [graph.spec.architecture for graph in rows.graphs]
        half = _flags(graph.spec.dtype == "fp16" for graph in rows.graphs)
        convolutional = _flags(architecture == "wide_resnet" for architecture in architectures)
        experts = _flags(architecture == "moe" for architecture in architectures)
        peak = _column(gpu.fp16_tflops * 1e12 for gpu in rows.gpu_types)
        single = _column(gpu.fp32_tflops * 1e12 for gpu in rows.gpu_types)
        products = _column(map(constants.matmul_flops, rows.gpu_types))
        convolutions = _column(map(constants.convolution_flops, rows.gpu_types))
        return Machine(
            # Language models are measured in fp16 and wide ResNets in fp32, which decides between the two
            # rates.
            rate_flops=np.where(half, products, convolutions),
            peak_flops=np.where(half, peak, single),
            memory_bytes_per_s=_column(gpu.memory_gbs * 1e9 for gpu in rows.gpu_types),
            memory_bytes=_column(gpu.memory_gb * 1e9 for gpu in rows.gpu_types)
            * np.where(experts, USABLE_BY_EXPERTS, USABLE),
            half_units=np.where(convolutional, constants.half_pixels, constants.half_tokens),
            all_to_all_share=_column(map(_all_to_all_share, rows.gpu_types)),
            element_bytes=_column(ELEMENT_BYTES[graph.spec.dtype] for graph in rows.graphs),
            state_bytes=_column(STATE_BYTES[architecture][0] for architecture in architectures),
            sharded_state_bytes=_column(STATE_BYTES[architecture][1] for architecture in architectures),
            tensor_limit=_column(graph.tensor_limit for graph in rows.graphs),
            layout=_apply_reached_rates(rows.layout, constants, rows.gpu_types),
            constants=constants,
            convolutional=convolutional,
            experts=experts,
            planned=_flags(architecture != "dense" for architecture in architectures),
            recomputes=_flags(architecture in ("transformer", "moe") for architecture in architectures),
            holds_all=schedule == "gpipe",
        )

    def take(self, rows: Ints) -> Machine:
        """Return a copy with the rates of the allocations with the given row numbers."""
        parts: dict[str, Any] = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        kept: dict[str, Any] = {
            name: part[rows] if isinstance(part, np.ndarray) else part for name, part in parts.items()
        }
        return Machine(**(kept | {"layout": select_rows(self.layout, rows)}))

    def as_profiled(self) -> Machine:
        """Return a copy with the rates that a profiler sees, which runs one operator at a time.

        A GPU's share of every operator runs alone, so gradient accumulation and the optimizer step are not
        seen; each collective has the network to itself.
        """
        return replace(self, disaggregated=True)


def _column(values: Iterable[float]) -> Floats:
    return np.fromiter(values, dtype=np.float64).reshape(-1, 1, 1)


def _flags(values: Iterable[bool]) -> Bools:
    return np.fromiter(values, dtype=np.bool_).reshape(-1, 1, 1)


def _all_to_all_share(gpu: GpuType) -> float:
    shares = (share for link, share in ALL_TO_ALL_SHARE.items() if gpu.links_by(link))
    return next(shares, min(ALL_TO_ALL_SHARE.values()))


def _apply_reached_rates(layout: Layout, constants: Constants, gpu_types: Sequence[GpuType]) -> Layout:
    """Return the layout with the rates that are reached; none exceeds the sum of a node's GPU links."""
    most = layout.per_node * layout.link_gbs
    own_ports = np.array([gpu.nic_per_gpu for gpu in gpu_types], dtype=bool)
    shared = np.array([constants.network_share(gpu) for gpu in gpu_types])
    decline = (2 / np.clip(layout.nodes, 2, MOST_NODES)) ** constants.node_decline
    network = layout.network_gbs * np.where(own_ports, PORT_SHARE, shared * decline)
    transfer = layout.transfer_gbs * np.where(own_ports, PORT_SHARE, shared * constants.transfer)
    return layout._replace(network_gbs=np.minimum(network, most), transfer_gbs=np.minimum(transfer, most))


class Split(NamedTuple):
    """How operators are split over the GPUs of their pipeline stage, as arrays.

    Attributes
    ----------
    gpus : ndarray of float
        Of the stage.
    tensor : ndarray of float
        GPUs that the operator is split over; the stage has GPUs / tensor copies of it. In a mixture of
        experts only the experts are split; its other layers are whole on every GPU, each with its own
        samples.
    """

    gpus: Floats
    tensor: Floats


class OperatorCosts(NamedTuple):
    """Times and memory of operators for one micro-batch, as arrays; bytes are per GPU.

    Attributes
    ----------
    pass_s, weights_s : ndarray of float
        One forward pass; all passes over the weights.
    exchange_s : ndarray of float
        Collectives of a forward and a backward pass; recomputing adds half as much.
    synchronise_s : ndarray of float
        Gradient all-reduce and optimizer step, once an iteration.
    state_bytes, kept_bytes, activation_bytes, workspace_bytes, head_bytes : ndarray of float
        Weights, gradients and optimizer; activations as in `Layer`.
    """

    pass_s: Floats
    weights_s: Floats
    exchange_s: Floats
    synchronise_s: Floats
    state_bytes: Floats
    kept_bytes: Floats
    activation_bytes: Floats
    workspace_bytes: Floats
    head_bytes: Floats


def operator_costs(rows: GraphAllocations, machine: Machine, samples: Floats, split: Split) -> OperatorCosts:
    """Compute operators' times and memory for a micro-batch of `samples` (of all ranks) under a split.

    Parameters
    ----------
    samples : ndarray of float, shape (R, 1, 1)
        Of the whole micro-batch, over all data-parallel ranks.
    split : Split
    """
    columns = rows.columns
    data = split.gpus / split.tensor
    held = np.where(machine.experts, 1.0, split.tensor)
    # `share` is a GPU's part of the work, `local` the samples that it sees: ranks that split an operator see
    # the same samples.
    local, share = samples * held / split.gpus, samples / split.gpus
    shared, experts = columns["shared_parameters"] / held, columns["expert_parameters"] / split.tensor
    sharded = machine.sharded_state_bytes
    # Sharded states are divided among the data-parallel ranks, of which there are GPUs / held for a layer
    # that all of them hold.
    state = (machine.state_bytes + sharded * held / split.gpus) * shared
    state = state + (machine.state_bytes + sharded / data) * experts
    bandwidth = machine.memory_bytes_per_s
    alone = machine.disaggregated
    weights = WEIGHT_PASSES * machine.element_bytes * (shared + experts) / bandwidth
    reduced = _synchronise_s(machine, shared, experts, split)
    return OperatorCosts(
        pass_s=_pass_s(columns, machine, share, split),
        # A profiler that runs single operators sees neither gradient accumulation nor the optimizer step.
        weights_s=np.zeros_like(weights) if alone else weights,
        exchange_s=_exchange_s(columns, machine, local, split),
        synchronise_s=reduced if alone else reduced + 2 * state / bandwidth,
        state_bytes=state,
        kept_bytes=columns["kept_bytes"] * np.where(machine.convolutional, share, local),
        activation_bytes=columns["activation_bytes"] * share,
        workspace_bytes=columns["workspace_bytes"] * share,
        head_bytes=columns["head_bytes"] * share,
    )


def _pass_s(columns: Mapping[str, Floats], machine: Machine, share: Floats, split: Split) -> Floats:
    """Return the time of a forward pass: kernels with weights, einsums and elementwise traffic."""
    constants = machine.constants
    einsums = columns["attention_flops"] / constants.attention + columns["gate_flops"] / constants.gate
    moved = constants.traffic * (columns["traffic_bytes"] + columns["gate_traffic_bytes"])
    flops = columns["flops"] * share + np.where(
        machine.planned, _count_lost_flops(columns, machine, split), 0.0
    )
    rest = einsums / machine.peak_flops + moved / machine.memory_bytes_per_s
    return flops / machine.rate_flops + share * rest


def _count_lost_flops(columns: Mapping[str, Floats], machine: Machine, split: Split) -> Floats:
    """Return the FLOPs that kernels too small for the GPU leave unused.

    A kernel runs at half its rate at `half_units` units of work, which is the same as a fixed loss of FLOPs.
    A matrix product's loss is proportional to its weights. Of a convolution's loss, half is proportional to
    its weights and half to the length of its reduction (a wave of output tiles costs the same however many
    channels it has). Where a block is split over GPUs, only the last convolution's reduction is split.
    """
    exponent = np.where(machine.convolutional, SPLIT_SATURATION, 1.0)
    # A split matrix product loses in proportion to its own weights; a convolution's loss shrinks less.
    whole = columns["unit_flops"] / split.tensor**exponent
    tail = columns["reduction"] + columns["split_reduction"] / split.tensor
    mixed = 0.5 * whole + 0.5 * 2 * WAVE_CHANNELS * tail
    return machine.half_units * np.where(machine.convolutional, mixed, whole)


def _ring(machine: Machine, size: Floats, stride: Floats, gpus: Floats) -> tuple[Floats, Floats, Layout]:
    """Return ranks per node, nodes, and the layout of a stage's groups."""
    wide = select_rows(machine.layout)
    per_node = np.minimum(wide.per_node, gpus)
    inside, across = groups(size, stride, per_node)
    # A profiler times one group alone: its ranks on a node have the whole network rate of the node, which
    # groups that run together share.
    return inside, across, wide._replace(per_node=inside if machine.disaggregated else per_node)


def _exchange_s(columns: Mapping[str, Floats], machine: Machine, local: Floats, split: Split) -> Floats:
    """Return the time of split operators' collectives: all-to-all for experts, else all-reduce."""
    ring = _ring(machine, split.tensor, np.ones(1), split.gpus)
    count = columns["exchange_count"]
    volume = local * columns["exchange_bytes"] / np.maximum(count, 1.0)
    factor = np.where(machine.convolutional, machine.constants.block_exchange, 1.0)
    reduced = all_reduce_s(volume * factor, *ring)
    if machine.experts.any():
        # Experts exchange tokens, other layers sums.
        inside, across, layout = ring
        slower = layout._replace(link_gbs=layout.link_gbs * machine.all_to_all_share)
        reduced = np.where(machine.experts, all_to_all_s(volume, inside, across, slower), reduced)
    return np.where(split.tensor > 1, count * reduced, 0.0)


def _synchronise_s(machine: Machine, shared: Floats, experts: Floats, split: Split) -> Floats:
    held = np.where(machine.experts, 1.0, split.tensor)
    ring = _ring(machine, split.gpus / held, held, split.gpus)
    seconds = all_reduce_s(GRADIENT_BYTES * shared, *ring)
    if not machine.experts.any():
        return seconds
    # An expert has as many copies as there are data-parallel ranks, so its gradients take a ring of their
    # own.
    ring = _ring(machine, split.gpus / split.tensor, split.tensor, split.gpus)
    return seconds + np.where(experts > 0, all_reduce_s(GRADIENT_BYTES * experts, *ring), 0.0)
