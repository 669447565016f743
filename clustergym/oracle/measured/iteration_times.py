"""Reads measured iteration times from a CSV file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clustergym.common.columns import MAX_GPUS, integers, number, quote_cell, texts
from clustergym.common.errors import InputError, nearest
from clustergym.common.text_files import TextTable, read_csv
from clustergym.oracle.models.catalog import ARENA_FAMILIES, Catalog
from clustergym.oracle.models.model_spec import ModelClass

COLUMNS = (
    "model_family",
    "params",
    "batch_size",
    "gpu_type",
    "num_nodes",
    "gpus_per_node",
    "iteration_time_s",
)
OPTIONAL = ("total_gpus", "kind", "feasible", "raw_key")

MEASUREMENTS = ("optimal", "estimated_best", "estimated_dp")
"""Values of the column `kind`: measured; the file's own estimates of the best plan and data parallelism."""


class Key(NamedTuple):
    """What identifies an iteration time: model, GPU type, placement, and whether measured or estimated."""

    model: ModelClass
    gpu_type: str
    nodes: int
    per_node: int
    measurement: str


@dataclass(frozen=True)
class Measurements:
    """A file of measured seconds per iteration, by model, batch and placement.

    Attributes
    ----------
    path : Path
    sha256 : str
        Of the file.
    seconds : dict of Key to float
        inf where the row says that the model does not fit.
    line : dict of Key to int
        Where the row stands.
    names_measurements : bool
        Whether the file has the column `kind`; if not, all rows are `optimal`.
    """

    path: Path
    sha256: str
    seconds: dict[Key, float]
    line: dict[Key, int]
    names_measurements: bool

    @property
    def models(self) -> set[tuple[str, str]]:
        """The (family, size) of every measured model."""
        return {(key.model.family, key.model.size) for key in self.seconds}


def read_measurements(path: Path, catalog: Catalog) -> Measurements:
    """Read a CSV file of measured iteration times.

    Arena's name of a family becomes the catalogue's, unless the catalogue has a model of Arena's name and
    size. Of a placement that was measured in several ways (rows of equal key but another `raw_key`) the least
    time counts.
    """
    table = read_csv(path, COLUMNS, optional=OPTIONAL)
    keys = _keys(table, catalog)
    seconds = _seconds(table)
    first: dict[tuple[Key, str], int] = {}
    kept: dict[Key, float] = {}
    line: dict[Key, int] = {}
    for row, (key, raw) in enumerate(zip(keys, texts(table, "raw_key"), strict=True)):
        # Rows of one raw key are the same measurement, so two times are a mistake; another raw key is
        # another measurement.
        earlier = first.setdefault((key, raw), row)
        if seconds[earlier] != seconds[row]:
            message = f"the same placement as line {table.line[earlier]}, with another time"
            raise InputError(
                message, file=path, line=table.line[row], field="iteration_time_s", remedy="keep one"
            )
        line.setdefault(key, table.line[row])
        kept[key] = min(kept.get(key, np.inf), seconds[row])
    return Measurements(path, table.sha256, kept, line, "kind" in table.columns)


def _keys(table: TextTable, catalog: Catalog) -> list[Key]:
    for column in ("model_family", "gpu_type"):
        for cell, line in zip(table.columns[column], table.line, strict=True):
            if not cell:
                raise InputError("is empty", file=table.path, line=line, field=column, remedy="give a name")
    batch = integers(table, "batch_size", low=1)
    nodes = integers(table, "num_nodes", low=1, high=MAX_GPUS)
    per_node = integers(table, "gpus_per_node", low=1, high=MAX_GPUS)
    _check_totals(table, (nodes * per_node).tolist())
    models = map(ModelClass, table.columns["model_family"], table.columns["params"], batch.tolist())
    named = [
        model
        if catalog.knows(model)
        else model._replace(family=ARENA_FAMILIES.get(model.family, model.family))
        for model in models
    ]
    rest = (table.columns["gpu_type"], nodes.tolist(), per_node.tolist(), _read_measurements(table))
    return [Key(*cells) for cells in zip(named, *rest, strict=True)]


def _check_totals(table: TextTable, products: list[int]) -> None:
    if "total_gpus" not in table.columns:
        return
    for total, product, line in zip(
        integers(table, "total_gpus").tolist(), products, table.line, strict=True
    ):
        if total != product:
            message = f"{total} is not num_nodes x gpus_per_node = {product}"
            raise InputError(
                message, file=table.path, line=line, field="total_gpus", remedy="correct one of them"
            )


def _read_measurements(table: TextTable) -> list[str]:
    if "kind" not in table.columns:
        return [MEASUREMENTS[0]] * len(table)
    for measurement, line in zip(table.columns["kind"], table.line, strict=True):
        if measurement not in MEASUREMENTS:
            message = f"unknown kind {quote_cell(measurement)}"
            raise InputError(
                message, file=table.path, line=line, field="kind", remedy=nearest(measurement, MEASUREMENTS)
            )
    return table.columns["kind"]


def _seconds(table: TextTable) -> list[float]:
    feasible = integers(table, "feasible", low=0, high=1, default=1).tolist()
    cells = zip(table.columns["iteration_time_s"], feasible, table.line, strict=True)
    return [_time(cell, line, table.path) if fits else np.inf for cell, fits, line in cells]


def _time(cell: str, line: int, path: Path) -> float:
    try:
        seconds = number(cell)
        if seconds > 0:
            return seconds
        problem = f"{quote_cell(cell)} is not positive"
    except ValueError as error:
        problem = str(error)
    remedy = "give seconds above 0, or a column `feasible` that is 0 where the model does not fit"
    raise InputError(problem, file=path, line=line, field="iteration_time_s", remedy=remedy)
