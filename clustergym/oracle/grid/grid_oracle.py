"""Adaptive parallelism planned, estimated and searched as Arena does, operator by operator."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from clustergym.cluster.spec import ClusterSpec, Locality
from clustergym.common.arrays import Floats
from clustergym.oracle.base import Oracle, OracleTables, check_choice, check_counts, refuse_shapes
from clustergym.oracle.grid.constants import Constants
from clustergym.oracle.grid.layer_costs import GraphAllocations, Machine
from clustergym.oracle.grid.operators import OperatorGraph, operator_graph
from clustergym.oracle.grid.pipelines import Layouts, price
from clustergym.oracle.grid.profiler import STRATEGIES, estimate
from clustergym.oracle.grid.search import CHUNK, BestPlans, data_parallel_search, full_search
from clustergym.oracle.models.catalog import Catalog
from clustergym.oracle.models.model_spec import ModelClass, ModelSpec

VERSION = 4
"""Raised whenever the tables of equal input change."""

CHUNK_GPUS = 128
"""Up to this many GPUs, `CHUNK` rows are searched at once; fewer of more GPUs, to bound the arrays."""


class SearchCell(NamedTuple):
    """A model class and an allocation of GPUs, for which parallel plans are searched.

    Attributes
    ----------
    model, gpu_type : int
        Positions in the classes and in the cluster's types.
    gpus, nodes : int
        A power of two of GPUs, and the nodes they are on.
    network_gbs : float
        Line rate of a node.
    """

    model: int
    gpu_type: int
    gpus: int
    nodes: int
    network_gbs: float


class GridOracle(Oracle):
    """An oracle that searches parallel plans, and predicts the iteration times of the best ones.

    `execution` is the best plan that the full search finds (pipelines of unequal stages, each with its own
    split), with kernel efficiency by device and shape; `profiled` is the profiler's estimate of the best
    grid's proxy plan, from operators and collectives taken one by one; `data_parallel` is pure data
    parallelism, as executed. Plans use powers of two of GPUs: of any other count they use the largest power
    of two below it, and the other GPUs idle. Across nodes the GPUs fill as few nodes as they can, but at
    least two, evenly.

    Parameters
    ----------
    catalog : Catalog
    constants : Constants
    strategy : str
        How a grid is estimated: `frontier` (Arena's proxy plan, nearly equal biases taken as equal),
        `least_bias` (to the letter of its text) or `assembly` (Crius's 2^stages).
    overlap : bool
        Let the estimate hide transfers between stages behind computation, as both papers do.
    """

    name = "grid"
    sees_fabric = True
    worth_caching = True

    def __init__(
        self,
        catalog: Catalog,
        constants: Constants,
        strategy: str = "frontier",
        overlap: bool = False,
    ) -> None:
        check_choice(strategy, STRATEGIES, "oracle.strategy")
        self.catalog, self.constants = catalog, constants
        self.strategy, self.overlap = strategy, overlap

    def tables(
        self, classes: Sequence[ModelClass], cluster: ClusterSpec, counts: Sequence[int]
    ) -> OracleTables:
        """Predict the iteration times of the classes; raise an `InputError` for an unknown class."""
        values = self.fill(classes, cluster, counts, range(len(cluster.groups)))
        return OracleTables.from_oracle(classes, cluster, counts, values)  # type: ignore[arg-type]

    def fill(
        self,
        classes: Sequence[ModelClass],
        cluster: ClusterSpec,
        counts: Sequence[int],
        columns: Collection[int],
    ) -> Floats:
        """Return 3 tables (least, estimated, data-parallel seconds) for the GPU types with indices `columns`.

        Shape (3, C, T, K, 4): also by model class, GPU type, GPU count and network tier; inf where nothing
        fits, and on other GPU types than `columns`.

        Parameters
        ----------
        columns : collection of int
            GPU types, by their positions in the cluster.
        """
        check_counts(counts)
        specs = [self.catalog.get(model) for model in classes]
        refuse_shapes(self.name, specs)
        graphs = [build_graph(spec) for spec in specs]
        places = {
            cell: at for cell, at in cells(len(classes), cluster, counts).items() if cell.gpu_type in columns
        }
        shape = (3, len(classes), len(cluster.groups), len(counts), len(Locality))
        values = np.full(shape, np.inf)
        for some in batches(list(places), graphs):
            rows = allocations(some, graphs, classes, cluster)
            for cell, column in zip(some, np.stack(self.times(rows), axis=1), strict=True):
                for count, tier in places[cell]:
                    values[:, cell.model, cell.gpu_type, count, tier] = column
        return values

    def times(self, rows: GraphAllocations) -> tuple[Floats, Floats, Floats]:
        """Return the least iteration time, a profiler's estimate of it, and pure data parallelism's (s)."""
        machine = self.machine(rows)
        parallel = data_parallel_search(rows, machine)
        if not machine.planned.any():
            return parallel.iteration_s, _estimate_plans(parallel, rows, machine), parallel.iteration_s
        found = full_search(rows, machine)
        estimated = estimate(rows, machine, self.strategy).best.iteration_s
        # The search tries few limits on the slowest stage: what it finds need not be the faster of the two.
        executed = np.minimum(found.iteration_s, parallel.iteration_s)
        # What can run has an estimate: where no grid has a proxy plan, that of the plan that runs.
        estimated = np.where(np.isfinite(estimated), estimated, _estimate_plans(found, rows, machine))
        return executed, np.where(np.isfinite(executed), estimated, np.inf), parallel.iteration_s

    def machine(self, rows: GraphAllocations) -> Machine:
        """Return the rates that kernels and links reach on each allocation."""
        return replace(Machine.from_rows(rows, self.constants), overlaps=self.overlap)

    def fingerprint(self) -> dict[str, object]:
        """Return the oracle's version, parameters, constants and models, as JSON values."""
        return {
            "name": self.name,
            "version": VERSION,
            "strategy": self.strategy,
            "overlap": self.overlap,
            "constants": asdict(self.constants),
            "catalog": self.catalog.fingerprint(),
        }


def _estimate_plans(found: BestPlans, rows: GraphAllocations, machine: Machine) -> Floats:
    """Return the profiler's estimate of plans that the search found."""
    layouts = Layouts(rows, found.plans)
    return price(rows, machine.as_profiled(), layouts, found.micro_batches).iteration_s


@lru_cache(maxsize=256)
def build_graph(spec: ModelSpec) -> OperatorGraph:
    """Return a model's chain of operators, from a cache that all batch sizes share."""
    return operator_graph(spec)


def spread(gpus: int, per_node: int, locality: Locality) -> int:
    """Return the fewest nodes that hold the GPUs: one for the tier `NODE`, otherwise at least two."""
    return 1 if locality == Locality.NODE else max(2, -(-gpus // per_node))


def cells(
    classes: int, cluster: ClusterSpec, counts: Sequence[int]
) -> dict[SearchCell, list[tuple[int, int]]]:
    """List the plan searches for `classes` model classes, each with the table entries (count, tier) it fills.

    Allocations that the plans cannot tell apart are searched once.
    """
    found: dict[SearchCell, list[tuple[int, int]]] = {}
    for gpu_type, group in enumerate(cluster.groups):
        for index, count in enumerate(counts):
            # The largest power of two within the count: plans use no other, and the other GPUs idle.
            gpus = 1 << int(count).bit_length() - 1
            for tier in Locality:
                inside = tier == Locality.NODE
                # An NVLink domain counts as a node with all of its ports.
                room = group.domain_gpus
                if (inside and count > room) or (not inside and count < 2):
                    continue
                nodes = spread(gpus, room, tier)
                ports = room / group.gpus_per_node
                rate = 0.0 if inside else cluster.bandwidth_gbs(gpu_type, tier) * ports
                for model in range(classes):
                    cell = SearchCell(model, gpu_type, gpus, nodes, rate)
                    found.setdefault(cell, []).append((index, int(tier)))
    return found


def allocations(
    some: Sequence[SearchCell],
    graphs: Sequence[OperatorGraph],
    classes: Sequence[ModelClass],
    cluster: ClusterSpec,
) -> GraphAllocations:
    """Gather models and the allocations on which their plans are searched into arrays."""
    return GraphAllocations.from_graphs(
        [graphs[cell.model] for cell in some],
        [classes[cell.model].global_batch for cell in some],
        [cluster.groups[cell.gpu_type].gpu_type for cell in some],
        [cell.gpus for cell in some],
        [cell.nodes for cell in some],
        [cell.network_gbs for cell in some],
    )


def batches(every: Sequence[SearchCell], graphs: Sequence[OperatorGraph]) -> Iterator[list[SearchCell]]:
    """Divide plan searches into batches with equal GPU counts and equal numbers of operators."""
    groups: dict[tuple[int, int, bool], list[SearchCell]] = {}
    for cell in every:
        graph = graphs[cell.model]
        groups.setdefault((cell.gpus, len(graph), graph.spec.architecture == "dense"), []).append(cell)
    for (gpus, _, _), some in groups.items():
        size = max(1, CHUNK * CHUNK_GPUS // max(gpus, CHUNK_GPUS))
        for start in range(0, len(some), size):
            yield some[start : start + size]
