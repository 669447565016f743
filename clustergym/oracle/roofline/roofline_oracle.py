"""The roofline oracle: memory limits and the best of simple adaptive plans.

Iteration time of one parallel plan by the roofline model.

Compute, memory traffic and communication are added up: kernels of a training step run one after another.

Duration of collectives, from the latency of a step and the bandwidth of links and networks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from clustergym.cluster.spec import ClusterSpec, Locality
from clustergym.common.arrays import Floats
from clustergym.oracle.base import Oracle, OracleTables, check_counts, refuse_shapes, six_digits
from clustergym.oracle.models.catalog import Catalog, load_catalog
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.oracle.roofline.devices import UNIFORM, Devices, Layout
from clustergym.oracle.roofline.work import UniformPlan, Work, micro_batch, recomputes, state_bytes

VERSION = 2
"""Raised whenever the tables of equal input change."""

MOST_TENSOR, MOST_STAGES = 16, 64
"""GPUs a layer is split over, and pipeline stages, at most."""


class RooflineOracle(Oracle):
    """An oracle that predicts times from data sheets, model dimensions and a few measured efficiencies.

    A plan splits every layer over `tensor` GPUs that lie next to each other, cuts the model into `stages` and
    replicates that `data` times; tensor and stages are powers of two, and data is what is left: count //
    (tensor x stages). Where that does not divide, the rest of the GPUs idle. `execution` is the fastest plan
    that fits, `profiled` the estimate of that plan, `data_parallel` the plan without splitting. Whether a
    class fits does not depend on locality. See `latency` and `memory` for the model and its sources.

    Parameters
    ----------
    catalog : Catalog, optional
        `conf/model` by default.
    """

    name = "roofline"
    sees_fabric = True

    def __init__(self, catalog: Catalog | None = None) -> None:
        self.catalog = catalog or load_catalog()
        self._built: dict[tuple[ClusterSpec, tuple[int, ...]], _BuiltRows] = {}

    def tables(
        self, classes: Sequence[ModelClass], cluster: ClusterSpec, counts: Sequence[int]
    ) -> OracleTables:
        """Predict the iteration times of the classes; raise an `InputError` for an unknown class."""
        check_counts(counts)
        key = cluster, tuple(counts)
        if key not in self._built:
            self._built[key] = _BuiltRows(self.catalog, cluster, counts)
        return self._built[key].tables(classes)

    def fingerprint(self) -> dict[str, object]:
        """Return the oracle's version and the digests of the catalogue's files."""
        return {"name": self.name, "version": VERSION, "catalog": self.catalog.fingerprint()}


class _BuiltRows:
    """The tables of a cluster and counts, in which each model class is built once."""

    def __init__(self, catalog: Catalog, cluster: ClusterSpec, counts: Sequence[int]) -> None:
        self._catalog, self._cluster, self._counts = catalog, cluster, counts
        self._row: dict[ModelClass, int] = {}
        self._times = np.empty((3, 0, len(cluster.groups), len(counts), len(Locality)))

    def tables(self, classes: Sequence[ModelClass]) -> OracleTables:
        """Return the iteration times of the classes; build those that are not there yet."""
        missing = [model for model in dict.fromkeys(classes) if model not in self._row]
        if missing:
            self._times = np.concatenate([self._times, self._build(missing)], axis=1)
            self._row |= {model: len(self._row) + row for row, model in enumerate(missing)}
        times = self._times[:, [self._row[model] for model in classes]]
        counts = np.array(self._counts, dtype=np.int64)
        return OracleTables(tuple(classes), self._cluster.gpu_types, counts, *times)

    def _build(self, classes: Sequence[ModelClass]) -> Floats:
        """Return the three tables of the classes, shape (3, C, T, K, 4)."""
        specs = [self._catalog.get(model) for model in classes]
        refuse_shapes(RooflineOracle.name, specs)
        work = Work.from_specs(specs, [model.global_batch for model in classes]).reshape(-1, 1, 1, 1)
        layout = Layout.of_cluster(self._cluster, self._counts)
        devices = Devices.from_types([group.gpu_type for group in self._cluster.groups]).reshape(1, -1, 1, 1)
        shape = len(classes), *self._times.shape[2:]
        times = [np.broadcast_to(table, shape) for table in best_times(work, devices, layout)]
        return np.stack([six_digits(table) for table in times])


def best_times(work: Work, devices: Devices, layout: Layout) -> tuple[Floats, Floats, Floats]:
    """Return the fastest plan's iteration time, a profiler's estimate of it, and data parallelism's (s).

    All arguments broadcast against each other; inf where nothing fits.
    """
    every = plans(layout.gpus)
    execution, profiled = iteration_times(work, devices, layout, next(every))
    data_parallel = execution
    for plan in every:
        executed, estimated = iteration_times(work, devices, layout, plan)
        faster = executed < execution
        execution = np.where(faster, executed, execution)
        profiled = np.where(faster, estimated, profiled)
    return execution, profiled, data_parallel


def plans(gpus: Floats) -> Iterator[UniformPlan]:
    """Yield every parallel plan to try on the largest GPU count, pure data parallelism first."""
    most, tensor = (int(gpus.max()) if gpus.size else 1), 1
    while tensor <= min(MOST_TENSOR, most):
        stages = 1
        while stages <= min(MOST_STAGES, most // tensor):
            yield UniformPlan(tensor, stages, gpus // (tensor * stages))
            stages *= 2
        tensor *= 2


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
    """Return a plan's iteration time and a profiler's estimate of it (s); inf if it does not fit in memory.

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
    # The optimizer reads and writes its states once an iteration.
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
    # There and back: the activation, and its gradient.
    volume_gb = 2 * samples * work.boundary_bytes / 1e9
    # Replicas on one node send at the same time and share its port.
    senders = np.minimum(ranks, np.maximum(1, layout.per_node // plan.tensor))
    most = layout.link_gbs * np.minimum(layout.per_node, ranks * plan.tensor)
    across = volume_gb * senders / np.minimum(layout.transfer_gbs, most)
    return np.where(layout.nodes > 1, across, volume_gb / (plan.tensor * layout.link_gbs))


def _synchronise_s(work: Work, layout: Layout, plan: UniformPlan) -> Floats:
    """Return the time to all-reduce gradients over data-parallel ranks, once an iteration."""
    ranks = np.maximum(plan.data, 1)
    # A mixture of experts splits its experts alone: other layers are whole on each GPU.
    split = np.where(work.splits_experts, 1.0, plan.tensor)
    ring = groups(ranks * plan.tensor / split, split, layout.per_node)
    shared = all_reduce_s(GRADIENT_BYTES * work.shared_parameters / split / plan.stages, *ring, layout)
    volume = GRADIENT_BYTES * work.expert_parameters / plan.tensor / plan.stages
    experts = all_reduce_s(volume, *groups(ranks, plan.tensor, layout.per_node), layout)
    return shared + np.where(work.expert_parameters > 0, experts, 0.0)


LINK_STEP_S, NETWORK_STEP_S = 10e-6, 25e-6
"""Latency of a ring step inside a node and between nodes: an all-reduce of a few bytes on 2 to 16 GPUs takes
35 to 230 us inside a node and 90 to 390 us across (arena_comm.csv of Arena's artifact)."""


def groups(size: Floats | float, stride: Floats | float, per_node: Floats) -> tuple[Floats, Floats]:
    """Return ranks per node, and nodes, of groups of `size` ranks that are `stride` GPUs apart."""
    inside = np.minimum(size, np.maximum(1.0, per_node // stride))
    return inside, np.ceil(size / inside)


def all_reduce_s(volume_bytes: Floats, inside: Floats, across: Floats, layout: Layout) -> Floats:
    """Return the seconds of a hierarchical ring all-reduce of `inside` ranks on each of `across` nodes.

    Its latency is that of a ring through all members.

    Parameters
    ----------
    volume_bytes : ndarray of float
        Buffer of a rank.
    inside, across : ndarray of float
        Members of a group on a node, and nodes it spans.
    layout : Layout
        Its network rate is that of a node, which all groups on the node share.
    """
    link = volume_bytes / inside / (layout.link_gbs * 1e9)
    shared = layout.network_gbs * 1e9 * inside / layout.per_node
    network = volume_bytes / across / shared
    steps = (inside * across - 1) * LINK_STEP_S + (across - 1) * (NETWORK_STEP_S - LINK_STEP_S)
    return 2 * ((inside - 1) * link + (across - 1) * network + steps)


def all_to_all_s(volume_bytes: Floats, inside: Floats, across: Floats, layout: Layout) -> Floats:
    """Return seconds of an all-to-all of `volume_bytes` a rank, `inside` ranks on each of `across` nodes."""
    part = volume_bytes / (inside * across)
    link = part / (layout.link_gbs * 1e9) + LINK_STEP_S
    network = part * layout.per_node / (layout.network_gbs * 1e9) + NETWORK_STEP_S
    return (inside - 1) * link + inside * (across - 1) * network
