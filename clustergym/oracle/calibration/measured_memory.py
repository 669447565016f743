"""Errors of the memory model (`memory`) against measured memory of pure data parallelism."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clustergym.common.columns import integers, numbers
from clustergym.common.errors import InputError
from clustergym.common.text_files import read_csv
from clustergym.oracle.calibration.validation import Figures, summarise_groups, summary
from clustergym.oracle.models.catalog import ARENA_FAMILIES, load_catalog
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.oracle.roofline.work import MICRO_BATCHES, UniformPlan, Work, sample_bytes, state_bytes

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
    table = read_csv(Path(path), COLUMNS)
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
