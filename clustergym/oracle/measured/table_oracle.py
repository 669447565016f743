"""The table oracle: measured iteration times, and estimates where there is no measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from clustergym.cluster.cluster_files import canonical_gpu_type, load_gpu_types
from clustergym.cluster.spec import ClusterSpec, GpuType, Locality
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError, nearest
from clustergym.oracle.base import Oracle, OracleTables, check_choice
from clustergym.oracle.measured.iteration_times import Key, read_measurements
from clustergym.oracle.models.catalog import Catalog, load_catalog
from clustergym.oracle.models.model_class import ModelClass
from clustergym.oracle.roofline.roofline_oracle import RooflineOracle

MISSING = ("infeasible", "estimate")
"""What a cell without a measured row counts as."""

Layouts = dict[tuple[int, int], float]
"""Seconds by (nodes, GPUs per node)."""


class TableOracle(Oracle):
    """Measured iteration times from a CSV; see `measured.COLUMNS`.

    `execution` holds the rows of kind `optimal` (all rows if the file has no kinds), `data_parallel` those of
    kind `estimated_dp` and `profiled` those of `estimated_best`; where that row is missing, `profiled` equals
    `execution`. In a file without kinds all three are equal. Inside a node a count has the time of the row on
    one node. Across nodes, whatever the tier, it has the time of the row of that count on several nodes; of
    several such rows, the one with the most GPUs per node that the cluster's nodes can hold.

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

    Raises
    ------
    InputError
        For an unknown value of `missing`, or a malformed file: names line and column.
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
        """Return the dense tables of the classes, from the file and, where asked for, from estimates.

        A class that is estimated must be in the catalogue, and the file's GPU types there or in the cluster.
        """
        self._check(classes)
        types = self._gpu_types(cluster)
        execution, profiled, data_parallel = (
            self._fill(kind, types, classes, cluster, counts)
            for kind in ("optimal", "estimated_best", "estimated_dp")
        )
        if self.missing == "estimate":
            execution[np.isnan(execution) & np.isinf(profiled)] = np.inf
            self._estimate(execution, data_parallel, types, classes, cluster, counts)
        execution = np.where(np.isnan(execution), np.inf, execution)
        fits = np.isfinite(execution)
        profiled = np.where(np.isfinite(profiled), profiled, execution)
        data_parallel = np.where(np.isnan(data_parallel), np.inf, data_parallel)
        if not self.measured.has_kinds:
            data_parallel = execution
        seen = (np.where(fits, table, np.inf) for table in (profiled, data_parallel))
        return OracleTables.of(classes, cluster, counts, (execution, *seen))

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
            known = {ModelClass(*pair, 1).model for pair in measured} | self._catalogued()
            remedy = f"{nearest(model.model, known)} or add a YAML file of its dimensions to the catalogue"
            raise InputError(f"model {model.model} {reason}", remedy=remedy)

    def _check_rows(self, asked: set[tuple[str, str]]) -> None:
        """Raise an `InputError` for the first row of a model that nobody knows and that is not asked for."""
        for key, line in self.measured.line.items():
            if (key.model.family, key.model.size) in asked or self.catalog.knows(key.model):
                continue
            near = nearest(key.model.model, self._catalogued())
            raise InputError(
                f"model {key.model.model} is not in the model catalogue",
                file=self.measured.path,
                line=line,
                field="model_family",
                remedy=f"{near} or name its YAML file in oracle.models",
            )

    def _catalogued(self) -> set[str]:
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

    def _rows(self, kind: str) -> dict[Key, float]:
        return {key: seconds for key, seconds in self.measured.seconds.items() if key.kind == kind}

    def _fill(
        self,
        kind: str,
        types: Mapping[str, GpuType],
        classes: Sequence[ModelClass],
        cluster: ClusterSpec,
        counts: Sequence[int],
    ) -> Floats:
        """Return measured seconds, shape (C, T, K, 4); NaN: no row; inf: does not fit."""
        cells: dict[tuple[ModelClass, str], Layouts] = {}
        for key, seconds in self._rows(kind).items():
            layouts = cells.setdefault((key.model, types[key.gpu_type].name), {})
            where = (key.nodes, key.per_node)
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
        """Fill the cells without a row in place."""
        from clustergym.oracle.measured.estimate import Corrections

        roofline = RooflineOracle(self.catalog).tables(classes, cluster, counts)
        specs = [self.catalog.get(model) for model in classes]
        for table, kind, base in (
            (execution, "optimal", roofline.execution),
            (data_parallel, "estimated_dp", roofline.data_parallel),
        ):
            corrections = Corrections.of(self._rows(kind), types, self.catalog, kind == "estimated_dp")
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
