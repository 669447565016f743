"""Errors of an oracle against measured iteration times, and of the memory model against measured memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustergym.cluster.cluster_files import canonical_gpu_type, load_gpu_types
from clustergym.cluster.spec import ClusterSpec, Fabric, GpuType, Locality, NodeGroup
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.columns import integers, numbers
from clustergym.common.errors import InputError
from clustergym.common.text_files import read_csv
from clustergym.oracle.base import Oracle
from clustergym.oracle.measured.iteration_times import Key, Measurements, read_measurements
from clustergym.oracle.models.catalog import ARENA_FAMILIES, Catalog, load_catalog
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.oracle.roofline.work import MICRO_BATCHES, UniformPlan, Work, sample_bytes, state_bytes

Figures = dict[str, Any]


class MeasuredLayout(NamedTuple):
    """The GPU type, nodes and GPUs per node on which an iteration time was measured."""

    gpu_type: str
    nodes: int
    per_node: int


SLOW_MACHINES = frozenset({MeasuredLayout("V100", 1, 4), MeasuredLayout("V100", 1, 8)})
"""Layouts whose rows most likely come from another, slower machine; see `Constants.slow_machine`."""


@dataclass(frozen=True)
class Rows:
    """Measured iteration times of each model's fastest plan on several allocations, as columns.

    Attributes
    ----------
    models : tuple of ModelClass
    layouts : tuple of MeasuredLayout
    gpu_types : tuple of GpuType
    seconds : ndarray of float, shape (n,)
        inf where the row says that the model does not fit.
    sha256 : str
        Of the file.
    """

    models: tuple[ModelClass, ...]
    layouts: tuple[MeasuredLayout, ...]
    gpu_types: tuple[GpuType, ...]
    seconds: Floats
    sha256: str

    @property
    def slow(self) -> Bools:
        """Whether each row's layout is one of `SLOW_MACHINES`, most likely measured on a slower machine."""
        return np.array([layout in SLOW_MACHINES for layout in self.layouts], dtype=bool)

    def take(self, chosen: Bools | Ints) -> Rows:
        """Return the rows that a mask or positions select."""
        kept = np.arange(len(self.models))[chosen].tolist()
        parts = (tuple(part[row] for row in kept) for part in (self.models, self.layouts, self.gpu_types))
        models, layouts, types = parts
        return Rows(models, layouts, types, self.seconds[kept], self.sha256)


def read_rows(path: str | Path, catalog: Catalog) -> Rows:
    """Read a CSV file of measured iteration times of each model's fastest plan.

    Raises
    ------
    InputError
        If the file is malformed, has no such row, or names a model or GPU type that is unknown.
    """
    measured = read_measurements(Path(path), catalog)
    keys = [key for key in measured.seconds if key.measurement == "optimal"]
    if not keys:
        remedy = "give measured (optimal) rows"
        raise InputError("has no row that was measured", file=path, field="kind", remedy=remedy)
    types = [_gpu_type(key, measured) for key in keys]
    for key in keys:
        catalog.get(key.model, file=path, line=measured.line[key], field="model_family")
    layouts = [
        MeasuredLayout(gpu.name, key.nodes, key.per_node) for key, gpu in zip(keys, types, strict=True)
    ]
    seconds = np.array([measured.seconds[key] for key in keys])
    return Rows(tuple(key.model for key in keys), tuple(layouts), tuple(types), seconds, measured.sha256)


def _gpu_type(key: Key, measured: Measurements) -> GpuType:
    try:
        return load_gpu_types()[canonical_gpu_type(key.gpu_type)]
    except InputError as error:
        line = measured.line[key]
        raise InputError(
            error.message, file=measured.path, line=line, field="gpu_type", remedy=error.remedy
        ) from None


def predict_times(rows: Rows, oracle: Oracle) -> Floats:
    """Predict the seconds per iteration of each measured row, shape (n,); inf if no plan fits in memory."""
    seconds = np.full(len(rows.models), np.inf)
    for layout in sorted(set(rows.layouts)):
        here = [row for row, other in enumerate(rows.layouts) if other == layout]
        classes = sorted({rows.models[row] for row in here})
        group = NodeGroup(rows.gpu_types[here[0]], layout.nodes, layout.per_node)
        cluster = ClusterSpec("measured", (group,), Fabric())
        count = layout.nodes * layout.per_node
        tables = oracle.tables(classes, cluster, [count])
        tier = Locality.NODE if layout.nodes == 1 else Locality.LEAF
        for row in here:
            seconds[row] = tables.execution[classes.index(rows.models[row]), 0, 0, int(tier)]
    return seconds


def validate(path: str | Path, oracle: Oracle | None = None) -> Figures:
    """Return the errors of an oracle against a CSV file of measured iteration times.

    Parameters
    ----------
    path : str or Path
        CSV with the columns of Arena's arena_profile.csv; `optimal` rows count.
    oracle : Oracle, optional
        The oracle by software stack by default.

    Returns
    -------
    dict
        `rows`, `mape`, `median_ape`, `p90`, `spearman`, `regret`, `regret_within_type`,
        `feasibility_agreement`, `infeasible_measured`, `failure_recall`; then the
        errors `by_family`, `by_gpu_type`, `by_gpus` and `by_nodes`. Errors and shares are fractions.

    Raises
    ------
    InputError
        As `read_rows`.
    """
    return figures(*predict_measured(path, oracle))


def predict_measured(path: str | Path, oracle: Oracle | None = None) -> tuple[Rows, Floats]:
    """Read a file's measured iteration times; return them and an oracle's predictions in seconds."""
    from clustergym.oracle.stacks.stack_oracle import StackOracle

    known = oracle or StackOracle()
    rows = read_rows(path, known.catalog)
    seconds = predict_times(rows, known)
    if isinstance(known, StackOracle):
        seconds = np.where(rows.slow, seconds * known.operators.constants.slow_machine, seconds)
    return rows, seconds


def rows_as_plain(rows: Rows, seconds: Floats) -> list[Figures]:
    """Return each row as a dict with its measured and predicted seconds, None where it does not fit."""
    return [
        {
            "model": model.model,
            "global_batch": model.global_batch,
            "gpu_type": layout.gpu_type,
            "nodes": layout.nodes,
            "gpus_per_node": layout.per_node,
            "measured": one if np.isfinite(one) else None,
            "predicted": other if np.isfinite(other) else None,
        }
        for model, layout, one, other in zip(
            rows.models, rows.layouts, rows.seconds.tolist(), seconds.tolist(), strict=True
        )
    ]


def figures(rows: Rows, seconds: Floats) -> Figures:
    """Return the errors of predicted against measured seconds, by name as `validate` lists them."""
    fits = np.isfinite(rows.seconds)
    both = fits & np.isfinite(seconds)
    ape = np.full(len(seconds), np.nan)
    ape[both] = np.abs(seconds[both] / rows.seconds[both] - 1)
    failed = ~fits
    return {
        **summary(ape),
        **_ranks(rows, seconds),
        # Errors are over rows that ran and are predicted to fit; the other disagreements are counted here.
        "feasibility_agreement": float((np.isfinite(seconds) == fits).mean()),
        "infeasible_measured": int((fits & ~np.isfinite(seconds)).sum()),
        "failures": int(failed.sum()),
        "failure_recall": float((~np.isfinite(seconds[failed])).mean()) if failed.any() else None,
        "by_family": summarise_groups(ape, [model.family for model in rows.models]),
        "by_gpu_type": summarise_groups(ape, [layout.gpu_type for layout in rows.layouts]),
        "by_gpus": summarise_groups(ape, [layout.nodes * layout.per_node for layout in rows.layouts]),
        "by_nodes": summarise_groups(
            ape, ["single" if layout.nodes == 1 else "multi" for layout in rows.layouts]
        ),
    }


def _ranks(rows: Rows, seconds: Floats) -> Figures:
    return {
        "spearman": spearman(rows, seconds),
        "regret": regret(rows, seconds, within_type=False),
        "regret_within_type": regret(rows, seconds, within_type=True),
    }


def summary(ape: Floats) -> Figures:
    """Return the number, mean, median and 90th percentile of absolute percentage errors, NaN left out."""
    known = ape[np.isfinite(ape)]
    if not len(known):
        return {"rows": 0, "mape": None, "median_ape": None, "p90": None}
    return {
        "rows": len(known),
        "mape": float(known.mean()),
        "median_ape": float(np.median(known)),
        "p90": float(np.quantile(known, 0.9)),
    }


def summarise_groups(ape: Floats, names: Sequence[str | int]) -> dict[str, Figures]:
    """Return the `summary` of the errors in each group, by the group's name; empty groups are left out."""
    found = {}
    for name in sorted(set(names)):
        chosen = np.array([other == name for other in names])
        found[str(name)] = summary(ape[chosen])
    return {name: group for name, group in found.items() if group["rows"]}


def _sets(keys: Iterable[Any], usable: Bools) -> list[list[int]]:
    """Return the usable rows of equal keys, where there are at least two."""
    groups: dict[Any, list[int]] = {}
    for row, key in enumerate(keys):
        if usable[row]:
            groups.setdefault(key, []).append(row)
    return [rows for rows in groups.values() if len(rows) > 1]


def spearman(rows: Rows, seconds: Floats) -> float | None:
    """Return the rank correlation of predicted and measured times within a model class, mean over classes."""
    from scipy.stats import spearmanr

    usable = np.isfinite(rows.seconds) & np.isfinite(seconds)
    groups = [group for group in _sets(rows.models, usable) if len(group) > 2]
    if not groups:
        return None
    pairs = [(seconds[group], rows.seconds[group]) for group in groups]
    # Times that are all equal rank nothing.
    found = [float(spearmanr(*pair).statistic) if all(map(np.ptp, pair)) else 0.0 for pair in pairs]
    return float(np.mean(found))


def regret(rows: Rows, seconds: Floats, within_type: bool) -> float | None:
    """Return the mean share of throughput per GPU that is lost if predicted times choose the placement.

    Mean over classes with at least two placements; with `within_type`, over pairs of class and GPU type.
    """
    usable = np.isfinite(rows.seconds) & np.isfinite(seconds)
    gpus = np.array([layout.nodes * layout.per_node for layout in rows.layouts])
    types = [layout.gpu_type if within_type else "" for layout in rows.layouts]
    losses = []
    for group in _sets(zip(rows.models, types, strict=True), usable):
        # The class and its batch are the same in a group, so throughput per GPU is 1 / (seconds x GPUs) up
        # to a factor.
        truth = 1 / (rows.seconds[group] * gpus[group])
        guess = 1 / (seconds[group] * gpus[group])
        losses.append(1 - float(truth[int(np.argmax(guess))] / truth.max()))
    return float(np.mean(losses)) if losses else None


COLUMNS = ("model_family", "params", "batch_size", "dp_degree", "memory_gb")
"""Columns of measured memory; an optional column `recorded` is 0 for rows without a value."""


def validate_memory(path: str | Path) -> Figures:
    """Return the errors of predicted memory of data parallelism against a CSV file of measured memory.

    Rows ran with `MICRO_BATCHES` micro-batches, as Arena's did.

    Returns
    -------
    dict
        As `validation.summary`, and the same `by_family`.

    Raises
    ------
    InputError
        Names file, line and column.
    """
    table = read_csv(Path(path), COLUMNS, optional=("recorded",))
    recorded = np.flatnonzero(integers(table, "recorded", low=0, high=1, default=1)).tolist()
    if not recorded:
        raise InputError("no row has a value", file=path, field="recorded", remedy="give measured rows")
    table, catalog = table.select(recorded), load_catalog()
    batches = integers(table, "batch_size", low=1)
    ranks = integers(table, "dp_degree", low=1).astype(np.float64)
    measured_bytes = 1e9 * numbers(table, "memory_gb", low=1e-6)
    families = table.columns["model_family"]
    classes = [
        ModelClass(ARENA_FAMILIES.get(family, family), size, 1)
        for family, size in zip(families, table.columns["params"], strict=True)
    ]
    specs = [
        catalog.get(model, file=table.path, line=line, field="model_family")
        for model, line in zip(classes, table.line, strict=True)
    ]
    work, plan = Work.from_specs(specs, batches.tolist()), UniformPlan(1, 1, ranks)
    samples = np.ceil(np.ceil(work.global_batch / ranks) / MICRO_BATCHES)
    predicted_bytes = state_bytes(work, plan) + samples * sample_bytes(work, plan)
    errors = np.abs(predicted_bytes / measured_bytes - 1)
    return summary(errors) | {"by_family": summarise_groups(errors, families)}
