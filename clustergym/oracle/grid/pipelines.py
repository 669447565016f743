"""Pipelines as arrays, and their costs stage by stage."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.oracle.grid.layer_costs import (
    KEEPING_PASSES,
    RECOMPUTING_PASSES,
    GraphAllocations,
    Machine,
    Split,
    operator_costs,
)


@dataclass(frozen=True)
class Pipelines:
    """A parallel plan for each of R models on allocations, as arrays padded to the most stages.

    Attributes
    ----------
    count : ndarray of int, shape (R,)
        Stages; 0 where nothing fits.
    first, last : ndarray of int, shape (R, S)
        Operators of a stage, both included.
    gpus, tensor, cut : ndarray of int, shape (R, S)
        Its GPUs, the GPUs that an operator is split over, and the first operator that is split: in a wide
        ResNet, the operators of the stage before that one are data-parallel.
    """

    count: Ints
    first: Ints
    last: Ints
    gpus: Ints
    tensor: Ints
    cut: Ints

    def pad_stages(self, stages: int) -> Pipelines:
        """Return a copy whose arrays are padded to a number of pipeline stages."""
        columns = np.zeros((5, len(self.first), stages), dtype=np.int64)
        given = (self.first, self.last, self.gpus, self.tensor, self.cut)
        columns[:, :, : self.first.shape[1]] = given
        first, last, gpus, tensor, cut = columns
        return Pipelines(self.count, first, last, gpus, np.maximum(tensor, 1), cut)

    def take(self, rows: Ints | Bools) -> Pipelines:
        """Return the plans with the given row numbers."""
        return Pipelines(*(getattr(self, entry.name)[rows] for entry in fields(self)))

    def replace_rows(self, rows: Ints, other: Pipelines) -> Pipelines:
        """Return a copy in which the plans with the given row numbers are those of `other`."""
        changed = {entry.name: getattr(self, entry.name).copy() for entry in fields(self)}
        for name, column in changed.items():
            column[rows] = getattr(other, name)
        return Pipelines(**changed)


@dataclass(frozen=True)
class Prices:
    """Times of each pipeline stage of R parallel plans, shape (R, S); 0 beyond a plan's last stage.

    Attributes
    ----------
    compute_s, intra_stage_s, inter_stage_s : ndarray of float
        Of one micro-batch.
    synchronise_s : ndarray of float
        Once an iteration.
    micro_batches : ndarray of float, shape (R,)
    exists : ndarray of bool, shape (R, S)
    overlaps : bool
        Whether transfers between stages hide behind computation once the pipeline is full.
    """

    compute_s: Floats
    intra_stage_s: Floats
    inter_stage_s: Floats
    synchronise_s: Floats
    micro_batches: Floats
    exists: Bools
    overlaps: bool = False

    @property
    def stage_s(self) -> Floats:
        """Seconds of each stage for a micro-batch, with its part of once-per-iteration work, shape (R, S)."""
        # Spread evenly over micro-batches, so that the slowest stage is the one that is slowest over the
        # iteration.
        once = self.synchronise_s / self.micro_batches[:, None]
        return self.compute_s + self.intra_stage_s + self.inter_stage_s + once

    @property
    def iteration_s(self) -> Floats:
        """Seconds of an iteration of each plan, shape (R,); inf for a plan without stages."""
        total = pipeline_s(self.stage_s, self.micro_batches, self.inter_stage_s if self.overlaps else 0.0)
        return np.where(self.exists.any(axis=1), total, np.inf)


def pipeline_s(stages: Floats, micro_batches: Floats | float, hidden: Floats | float = 0.0) -> Floats:
    """Return a pipeline's seconds: all stages, and per further micro-batch the slowest less `hidden` seconds.

    Parameters
    ----------
    stages : ndarray of float, shape (..., S)
        Seconds of a micro-batch; 0 where there is no such stage.
    micro_batches : float or ndarray
    hidden : float or ndarray, shape (..., S)
        The part of these seconds that is hidden once the pipeline is full.
    """
    # The first micro-batch passes all stages in full; of the others only the slowest stage's time is seen.
    slowest = (stages - hidden).max(axis=-1, initial=0.0)
    return np.asarray(stages.sum(axis=-1) + (micro_batches - 1) * slowest)


class Layouts:
    """How each plan splits its operators over GPUs; reused while constants are fitted."""

    def __init__(self, rows: GraphAllocations, plans: Pipelines) -> None:
        operator = np.arange(rows.operators)[None, None, :]
        stages = np.arange(plans.first.shape[1])[None, :]
        self.exists = stages < plans.count[:, None]
        inside = (operator >= plans.first[:, :, None]) & (operator <= plans.last[:, :, None])
        # 1 where an operator belongs to a stage: what follows are sums over stages, weighted by this.
        self.member = (inside & self.exists[:, :, None]).astype(np.float64)
        gpus = np.einsum("rsk,rs->rk", self.member, plans.gpus.astype(np.float64))
        split = self.member * (operator >= plans.cut[:, :, None])
        tensor = np.einsum("rsk,rs->rk", split, plans.tensor - 1.0) + 1.0
        self.split = Split(np.maximum(gpus, 1.0)[:, None], tensor[:, None])
        convolutional = np.array([graph.spec.architecture == "wide_resnet" for graph in rows.graphs])
        dense = np.array([graph.spec.architecture == "dense" for graph in rows.graphs])
        self.passes = np.where(
            (convolutional | dense) & (plans.count == 1), KEEPING_PASSES, RECOMPUTING_PASSES
        )
        self.receives, self.sends = crossings(rows, plans.gpus * self.exists)
        self.size = np.log2(np.maximum(plans.gpus, 1)).astype(np.int64)
        self.receiving, self.sending = slower_ends(np.where(self.exists, self.size, self.size.max(initial=0)))
        self.first = np.where(self.exists, plans.first, 0)
        self.after = np.where(self.exists, plans.last + 1, 0)


def crossings(rows: GraphAllocations, gpus: Ints) -> tuple[Ints, Ints]:
    """Return whether each pipeline stage receives, and whether it sends, across nodes (0 or 1).

    A stage is on as few nodes as can hold it, as its collectives are priced, and as Alpa's submeshes are
    (Zheng et al., OSDI '22, section 5.2). Two stages share a node where, laid one after another, both lie
    wholly in it; all other boundaries are between nodes. So stages of 2, 4 and 2 GPUs on two nodes of 4 (the
    first and the last on one node, the second on the other) hand everything on across nodes. Only estimates
    have such plans; the search lays stages so that none is out of place (`partition.best_pipelines`).

    Parameters
    ----------
    gpus : ndarray of int, shape (R, S) or (R, P, S)
        GPUs of each stage.
    """
    after, shape = np.cumsum(gpus, axis=-1), (-1, *[1] * (gpus.ndim - 1))
    several, per_node = rows.layout.nodes.reshape(shape) > 1, rows.layout.per_node.reshape(shape)
    whole = within_node(after - gpus, gpus, per_node)
    # Two neighbours share a node if each lies within one, and their boundary is not between nodes.
    shared = whole[..., :-1] & whole[..., 1:] & (after[..., :-1] % per_node != 0)
    # The first stage receives from nobody and the last sends to nobody: they share with no one there.
    alone = np.zeros_like(whole[..., :1])
    receives = several & ~np.concatenate([alone, shared], axis=-1)
    sends = several & ~np.concatenate([shared, alone], axis=-1)
    return receives.astype(np.int64), sends.astype(np.int64)


def slower_ends(size: Ints) -> tuple[Ints, Ints]:
    """Return the size of the smaller, slower stage at each stage's border with the one before, and after it.

    Fewer GPUs, on fewer nodes, send and receive more slowly, and a transfer takes as long at both ends as at
    its slower one.

    Parameters
    ----------
    size : ndarray of int, shape (..., S)
        Of each stage, in the order of stages: GPUs or their logarithm; where there is none, not less than
        any other.

    Returns
    -------
    receiving, sending : ndarray of int, shape (..., S)
    """
    boundary = np.minimum(size[..., :-1], size[..., 1:])
    receiving = np.concatenate([size[..., :1], boundary], axis=-1)
    return receiving, np.concatenate([boundary, size[..., -1:]], axis=-1)


def within_node(start: Ints, gpus: Ints, per_node: Ints | Floats) -> Bools:
    """Return whether pipeline stages that begin at GPU `start` fit in the rest of its node."""
    return np.asarray(start // per_node == (start + gpus - 1) // per_node)


def price(rows: GraphAllocations, machine: Machine, layouts: Layouts, micro_batches: Floats) -> Prices:
    """Compute the times of all pipeline stages of the given plans."""
    samples = np.ceil(rows.batch / micro_batches).reshape(-1, 1, 1)
    costs = operator_costs(rows, machine, samples, layouts.split)
    passes = layouts.passes[:, None]
    compute = (passes[:, None] * costs.pass_s + costs.weights_s)[:, 0]
    # Collectives of one forward and one backward pass; recomputing repeats the forward one.
    exchange = costs.exchange_s[:, 0] * np.where(passes == RECOMPUTING_PASSES, 1.5, 1.0)
    by_stage = [
        np.einsum("rsk,rk->rs", layouts.member, values)
        for values in (compute, exchange, costs.synchronise_s[:, 0])
    ]
    most = 1 << int(layouts.size.max(initial=0))
    transfer = transfer_s(rows, machine, samples, most)
    row = np.arange(len(rows))[:, None]
    sent = transfer[row, layouts.first, layouts.receives, layouts.receiving]
    sent = sent + transfer[row, layouts.after, layouts.sends, layouts.sending]
    return Prices(
        compute_s=by_stage[0],
        intra_stage_s=by_stage[1],
        inter_stage_s=np.where(layouts.exists, sent, 0.0),
        synchronise_s=by_stage[2],
        micro_batches=micro_batches,
        exists=layouts.exists,
        overlaps=machine.overlaps and machine.disaggregated,
    )


def transfer_s(rows: GraphAllocations, machine: Machine, samples: Floats, most: int) -> Floats:
    """Return seconds to send a stage a micro-batch and gradient, by its first operator and GPUs (to `most`).

    Shape (R, K + 1, 2, M): the third axis is inside a node and across nodes, the last the stage's GPUs in
    powers of two. 0 before the first and after the last operator.
    """
    sizes = 2.0 ** np.arange(most.bit_length())
    layout = machine.layout
    boundary = rows.columns["boundary_bytes"][:, 0]
    edge = np.zeros((len(rows), 1))
    before = np.concatenate([edge, boundary[:, :-1], edge], axis=1)
    # Activations forward, and their gradients backward.
    volume = 2 * before * samples.reshape(-1, 1)
    senders = np.minimum(sizes, layout.per_node[:, None])
    inside = 1 / (layout.link_gbs[:, None] * senders * 1e9)
    across = 1 / (layout.transfer_gbs[:, None] * np.maximum(1, sizes / layout.per_node[:, None]) * 1e9)
    # What crosses nodes passes the link inside the node as well, so that it is no faster.
    rate = np.stack([inside, np.maximum(inside, across)], axis=1)
    return np.asarray(volume[:, :, None, None] * rate[:, None])
