"""The table oracle: measured iteration times, and estimates where there is no measurement.

Estimates missing iteration times from measured ones.

The roofline oracle's time is multiplied by a correction: the weighted geometric mean of measured over
roofline times. A measured row weighs exp(-distance), where the distance is a sum over what differs. So the
correction comes from the same model on the same device if that was measured, else mostly from neighbouring
sizes of the family, and further away it becomes one of the device or of all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clustergym.cluster.cluster_files import canonical_gpu_type, load_gpu_types
from clustergym.cluster.spec import ClusterSpec, GpuType, Locality
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError, nearest
from clustergym.oracle.base import Oracle, OracleTables, check_choice
from clustergym.oracle.measured.iteration_times import Key, read_measurements
from clustergym.oracle.models.catalog import Catalog, load_catalog
from clustergym.oracle.models.model_spec import ModelClass, ModelSpec
from clustergym.oracle.roofline.devices import Devices, Layout
from clustergym.oracle.roofline.roofline_oracle import RooflineOracle, best_times
from clustergym.oracle.roofline.work import Work

MISSING = ("infeasible", "estimate")
"""What a cell without a measured row counts as."""

Layouts = dict[tuple[int, int], float]
"""Seconds by (nodes, GPUs per node)."""


class TableOracle(Oracle):
    """An oracle that reads measured iteration times from a CSV file.

    `execution` holds the `optimal` rows (all rows if the file does not name them), `data_parallel` the rows
    `estimated_dp` and `profiled` those of `estimated_best`; where that row is missing, `profiled` equals
    `execution`. In a file that names none all three are equal. Inside a node a count has the time of the row
    on one node. Across nodes, whatever the tier, it has the time of the row of that count on several nodes;
    of several such rows, the one with the most GPUs per node that the cluster's nodes can hold.

    Parameters
    ----------
    path : str or Path
    missing : str
        What a cell without a row counts as. `infeasible`, or `estimate`: the roofline's time corrected by
        measured rows (see `estimate`), and infeasible only where the roofline's memory model says so, or
        where a row of `estimated_best` says that no plan fits. This holds for counts below the least measured
        one too: of 28 such cells of Arena's artifact that have an estimate, 21 have a plan that fits and was
        not run, so that a missing row does not mean infeasible.
    catalog : Catalog, optional
        `conf/model` by default.
    """

    name = "table"

    def __init__(self, path: str | Path, missing: str = "infeasible", catalog: Catalog | None = None) -> None:
        check_choice(missing, MISSING, "oracle.missing")
        self.catalog, self.missing = catalog or load_catalog(), missing
        self.measured = read_measurements(Path(path), self.catalog)
        if missing == "infeasible":
            self.lacks = f"have no row of their model, batch, GPU type and count in {path}"
            self.remedy = "measure them, or give oracle.missing=estimate"

    def tables(
        self, classes: Sequence[ModelClass], cluster: ClusterSpec, counts: Sequence[int]
    ) -> OracleTables:
        """Return the iteration times of the classes, measured or, where the options allow, estimated.

        A class that is estimated must be in the catalogue, and the file's GPU types there or in the cluster.
        """
        self._check(classes)
        types = self._gpu_types(cluster)
        execution, profiled, data_parallel = (
            self._fill(measurement, types, classes, cluster, counts)
            for measurement in ("optimal", "estimated_best", "estimated_dp")
        )
        if self.missing == "estimate":
            # A planner that found no plan is evidence; a row that nobody measured is none.
            execution[np.isnan(execution) & np.isinf(profiled)] = np.inf
            self._estimate(execution, data_parallel, types, classes, cluster, counts)
        execution = np.where(np.isnan(execution), np.inf, execution)
        fits = np.isfinite(execution)
        # A class that runs must have an estimate, or a policy could never start it.
        profiled = np.where(np.isfinite(profiled), profiled, execution)
        data_parallel = np.where(np.isnan(data_parallel), np.inf, data_parallel)
        if not self.measured.names_measurements:
            data_parallel = execution
        seen = (np.where(fits, table, np.inf) for table in (profiled, data_parallel))
        return OracleTables.from_oracle(classes, cluster, counts, (execution, *seen))

    def _check(self, classes: Sequence[ModelClass]) -> None:
        measured = self.measured.models
        self._check_rows({(model.family, model.size) for model in classes})
        for model in classes:
            if self.catalog.knows(model):
                self.catalog.get(model)
                continue
            reason = f"is neither in {self.measured.path} nor in the model catalogue"
            if (model.family, model.size) in measured:
                if self.missing == "infeasible":
                    continue
                reason = "is not in the model catalogue, which oracle.missing=estimate needs"
            known = {ModelClass(*pair, 1).model for pair in measured} | self._list_catalogued()
            remedy = f"{nearest(model.model, known)} or add a YAML file of its dimensions to the catalogue"
            raise InputError(f"model {model.model} {reason}", remedy=remedy)

    def _check_rows(self, asked: set[tuple[str, str]]) -> None:
        """Raise an `InputError` at the first row whose model is neither in the catalogue nor asked for."""
        for key, line in self.measured.line.items():
            if (key.model.family, key.model.size) in asked or self.catalog.knows(key.model):
                continue
            near = nearest(key.model.model, self._list_catalogued())
            raise InputError(
                f"model {key.model.model} is not in the model catalogue",
                file=self.measured.path,
                line=line,
                field="model_family",
                remedy=f"{near} or name its YAML file in oracle.models",
            )

    def _list_catalogued(self) -> set[str]:
        sizes = ((family, size) for family in self.catalog.families for size in self.catalog.sizes(family))
        return {ModelClass(family, size, 1).model for family, size in sizes}

    def _gpu_types(self, cluster: ClusterSpec) -> dict[str, GpuType]:
        """Return the GPU type of each spelling in the file: the cluster's own or the catalogue's."""
        own = {group.gpu_type.name.lower(): group.gpu_type for group in cluster.groups}
        found: dict[str, GpuType] = {}
        for key, line in self.measured.line.items():
            name = key.gpu_type
            if name in found:
                continue
            if name.lower() in own:
                found[name] = own[name.lower()]
                continue
            try:
                found[name] = load_gpu_types()[canonical_gpu_type(name)]
            except InputError as error:
                file = self.measured.path
                raise InputError(
                    error.message, file=file, line=line, field="gpu_type", remedy=error.remedy
                ) from None
        return found

    def _rows(self, measurement: str) -> dict[Key, float]:
        return {
            key: seconds for key, seconds in self.measured.seconds.items() if key.measurement == measurement
        }

    def _fill(
        self,
        measurement: str,
        types: Mapping[str, GpuType],
        classes: Sequence[ModelClass],
        cluster: ClusterSpec,
        counts: Sequence[int],
    ) -> Floats:
        """Return measured seconds, shape (C, T, K, 4); NaN: no row; inf: does not fit."""
        cells: dict[tuple[ModelClass, str], Layouts] = {}
        for key, seconds in self._rows(measurement).items():
            layouts = cells.setdefault((key.model, types[key.gpu_type].name), {})
            where = (key.nodes, key.per_node)
            # Of rows that measure the same cell, the faster plan is the one that would run.
            layouts[where] = min(seconds, layouts.get(where, np.inf))
        filled = np.full((len(classes), len(cluster.gpu_types), len(counts), len(Locality)), np.nan)
        for c, model in enumerate(classes):
            for t, gpu in enumerate(cluster.gpu_types):
                layouts = cells.get((model, gpu), {})
                for k, count in enumerate(counts) if layouts else ():
                    filled[c, t, k] = _by_locality(layouts, int(count), int(cluster.gpus_per_node[t]))
        return filled

    def _estimate(
        self,
        execution: Floats,
        data_parallel: Floats,
        types: Mapping[str, GpuType],
        classes: Sequence[ModelClass],
        cluster: ClusterSpec,
        counts: Sequence[int],
    ) -> None:
        """Estimate in place the times that have no measured row."""
        roofline = RooflineOracle(self.catalog).tables(classes, cluster, counts)
        specs = [self.catalog.get(model) for model in classes]
        for table, measurement, base in (
            (execution, "optimal", roofline.execution),
            (data_parallel, "estimated_dp", roofline.data_parallel),
        ):
            corrections = Corrections.from_measurements(
                self._rows(measurement), types, self.catalog, measurement == "estimated_dp"
            )
            estimate = base * corrections.factors(classes, specs, cluster.gpu_types, counts)
            table[:] = np.where(np.isnan(table), estimate, table)


def _by_locality(layouts: Layouts, count: int, room: int) -> list[float]:
    """Return the times inside a node and across nodes, NaN where there is no row."""
    inside = layouts.get((1, count), np.nan) if count <= room else np.nan
    several = [
        where for where in layouts if where[0] > 1 and where[0] * where[1] == count and where[1] <= room
    ]
    across = layouts[max(several, key=lambda where: where[1])] if several else np.nan
    return [inside, across, across, across]


class Distances(NamedTuple):
    """How different a measured row is from the case whose time is estimated, by type of difference.

    A row's weight is exp(-the sum of its distances). They are chosen so that the measured rows of Arena's
    artifact are estimated well from the rows of other models.
    With half or twice any one of the distances, the mean error changes by at most a fortieth of itself.

    Attributes
    ----------
    parameters, batch, gpus : float
        Per doubling.
    nodes, family, gpu_type : float
        One node against several; another family; another GPU type.
    prior : float
        Weight of the roofline itself, the weight of a row at distance 0 being 1.
    """

    parameters: float = 1.0
    batch: float = 0.5
    gpus: float = 2.0
    nodes: float = 2.0
    family: float = 2.0
    gpu_type: float = 3.0
    prior: float = 0.5


DISTANCES = Distances()


@dataclass(frozen=True)
class Corrections:
    """Measured iteration times divided by those of the roofline oracle, for n measured rows.

    Attributes
    ----------
    keys : tuple of Key
    specs : tuple of ModelSpec
    log_ratio : ndarray of float, shape (n,)
        Natural logarithm.
    """

    keys: tuple[Key, ...]
    specs: tuple[ModelSpec, ...]
    log_ratio: Floats

    @staticmethod
    def from_measurements(
        seconds: Mapping[Key, float],
        types: Mapping[str, GpuType],
        catalog: Catalog,
        data_parallel: bool = False,
    ) -> Corrections:
        """Divide measured iteration times by those that the roofline oracle predicts.

        Parameters
        ----------
        seconds : mapping of Key to float
            Seconds of measured rows; those that do not fit, or whose model is not in the catalogue, do not
            count.
        types : mapping of str to GpuType
            GPU types by the names that the rows use; rows of other types do not count.
        catalog : Catalog
        data_parallel : bool
            Compare with pure data parallelism.
        """
        keys = [
            key
            for key, value in seconds.items()
            if np.isfinite(value) and key.gpu_type in types and catalog.knows(key.model)
        ]
        specs = [catalog.get(key.model) for key in keys]
        work = Work.from_specs(specs, [key.model.global_batch for key in keys])
        gpus = [types[key.gpu_type] for key in keys]
        layout = Layout.of_nodes(gpus, [key.nodes for key in keys], [key.per_node for key in keys])
        roofline = best_times(work, Devices.from_types(gpus), layout)[2 if data_parallel else 0]
        kept = np.flatnonzero(np.isfinite(roofline))
        measured = np.array([seconds[keys[row]] for row in kept])
        resolved = [keys[row]._replace(gpu_type=gpus[row].name) for row in kept]
        ratio = np.log(measured / roofline[kept]) if len(kept) else np.empty(0)
        return Corrections(tuple(resolved), tuple(specs[row] for row in kept), ratio)

    def factors(
        self,
        classes: Sequence[ModelClass],
        specs: Sequence[ModelSpec],
        gpu_types: Sequence[str],
        counts: Sequence[int],
    ) -> Floats:
        """Return factors on the roofline's times by class, GPU type, count and tier, (C, T, K, 4)."""
        other_type = _differs(gpu_types, [key.gpu_type for key in self.keys])
        type_weights = np.exp(-DISTANCES.gpu_type * other_type)
        # Weights are exponentials of sums of distances, so that each distance can be worked out on its own
        # axis and multiplied.
        pairs = self._class_weights(classes, specs)[:, None, :] * type_weights
        near = self._layout_weights(counts)
        sums = np.einsum("ctn,kln->ctkl", pairs * self.log_ratio, near)
        weight = np.einsum("ctn,kln->ctkl", pairs, near)
        # The prior pulls the mean of the logarithms towards 0, that is the correction towards 1, where no row
        # is near.
        factors = np.exp(sums / (weight + DISTANCES.prior))
        return np.asarray(factors[..., [int(tier != Locality.NODE) for tier in Locality]])

    def _class_weights(self, classes: Sequence[ModelClass], specs: Sequence[ModelSpec]) -> Floats:
        size = _doublings([spec.parameters for spec in specs], [spec.parameters for spec in self.specs])
        batch = _doublings([c.global_batch for c in classes], [key.model.global_batch for key in self.keys])
        family = _differs([c.family for c in classes], [key.model.family for key in self.keys])
        d = DISTANCES
        return np.asarray(np.exp(-(d.parameters * size + d.batch * batch + d.family * family)))

    def _layout_weights(self, counts: Sequence[int]) -> Floats:
        """Return weights of counts on one node and on several, shape (K, 2, n)."""
        gpus = _doublings(counts, [key.nodes * key.per_node for key in self.keys])
        several = np.array([key.nodes > 1 for key in self.keys], dtype=np.float64)
        nodes = np.stack([several, 1 - several])
        return np.asarray(np.exp(-(DISTANCES.gpus * gpus[:, None] + DISTANCES.nodes * nodes)))


def _doublings(cells: Sequence[float], rows: Sequence[float]) -> Floats:
    ours, theirs = np.array(cells, dtype=np.float64), np.array(rows, dtype=np.float64)
    return np.asarray(np.abs(np.log2(ours)[:, None] - np.log2(theirs)))


def _differs(cells: Sequence[str], rows: Sequence[str]) -> Floats:
    differ = np.array(cells, dtype=np.str_)[:, None] != np.array(rows, dtype=np.str_)
    return np.asarray(differ, dtype=np.float64)
