"""The roofline oracle: memory limits and the best of simple adaptive plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from clustergym.arrays import Floats
from clustergym.cluster.spec import ClusterSpec, Locality
from clustergym.models.catalog import Catalog, load_catalog
from clustergym.models.model_class import ModelClass
from clustergym.oracle.base import Oracle, OracleTables, check_counts
from clustergym.oracle.roofline.devices import Devices, Layout
from clustergym.oracle.roofline.latency import iteration_times
from clustergym.oracle.roofline.memory_fit import UniformPlan
from clustergym.oracle.roofline.work import Work

VERSION = 1
"""Raised whenever the tables of equal input change."""

MOST_TENSOR, MOST_STAGES = 16, 64
"""GPUs a layer is split over, and pipeline stages, at most."""


class RooflineOracle(Oracle):
    """Iteration times from data sheets, model dimensions and a few measured efficiencies.

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

    def tables(
        self, classes: Sequence[ModelClass], cluster: ClusterSpec, counts: Sequence[int]
    ) -> OracleTables:
        """Return the dense tables; raise an `InputError` for an unknown class or a count below 1."""
        check_counts(counts)
        specs = [self.catalog.get(model) for model in classes]
        work = Work.of(specs, [model.global_batch for model in classes]).reshaped(-1, 1, 1, 1)
        layout = Layout.of_cluster(cluster, counts)
        devices = Devices.of([group.gpu_type for group in cluster.groups]).reshaped(1, -1, 1, 1)
        shape = (len(classes), len(cluster.groups), len(counts), len(Locality))
        times = [np.broadcast_to(table, shape) for table in best_times(work, devices, layout)]
        return OracleTables.of(classes, cluster, counts, times)

    def fingerprint(self) -> dict[str, object]:
        """Return the oracle's version and the digests of the catalogue's files."""
        return {"name": self.name, "version": VERSION, "catalog": self.catalog.fingerprint()}


def best_times(work: Work, devices: Devices, layout: Layout) -> tuple[Floats, Floats, Floats]:
    """Return seconds per iteration: the fastest plan's, its estimate, and pure data parallelism's.

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
    """Yield every plan of the largest count, pure data parallelism first."""
    most, tensor = (int(gpus.max()) if gpus.size else 1), 1
    while tensor <= min(MOST_TENSOR, most):
        stages = 1
        while stages <= min(MOST_STAGES, most // tensor):
            yield UniformPlan(tensor, stages, gpus // (tensor * stages))
            stages *= 2
        tensor *= 2
