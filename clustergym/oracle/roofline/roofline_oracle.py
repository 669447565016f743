"""The roofline oracle: memory limits and the best of simple adaptive plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from clustergym.cluster.spec import ClusterSpec, Locality
from clustergym.common.arrays import Floats
from clustergym.oracle.base import Oracle, OracleTables, check_counts, six_digits
from clustergym.oracle.models.catalog import Catalog, load_catalog
from clustergym.oracle.models.model_class import ModelClass
from clustergym.oracle.roofline.devices import Devices, Layout
from clustergym.oracle.roofline.latency import iteration_times
from clustergym.oracle.roofline.memory_fit import UniformPlan
from clustergym.oracle.roofline.work import Work

VERSION = 2
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
        self._built: dict[tuple[ClusterSpec, tuple[int, ...]], _BuiltRows] = {}

    def tables(
        self, classes: Sequence[ModelClass], cluster: ClusterSpec, counts: Sequence[int]
    ) -> OracleTables:
        """Return the dense tables; raise an `InputError` for an unknown class or a count below 1."""
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
        """Return the tables of the classes."""
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
        work = Work.of(specs, [model.global_batch for model in classes]).reshaped(-1, 1, 1, 1)
        layout = Layout.of_cluster(self._cluster, self._counts)
        devices = Devices.of([group.gpu_type for group in self._cluster.groups]).reshaped(1, -1, 1, 1)
        shape = len(classes), *self._times.shape[2:]
        times = [np.broadcast_to(table, shape) for table in best_times(work, devices, layout)]
        return np.stack([six_digits(table) for table in times])


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
