"""Read the traces of Arena's artifact (EuroSys '26), one row per job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.common.columns import (
    MAX_GPUS,
    integers,
    numbers,
    quote_cell,
    relative_origin,
    round_up_counts,
    texts,
)
from clustergym.common.errors import InputError
from clustergym.common.text_files import TextTable, header, read_csv
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.trace.options import ReadOptions
from clustergym.trace.records import families, provenance
from clustergym.trace.trace import Trace
from clustergym.trace.trace_checks import build_trace

NAME = "arena"
REQUIRED = ("job_id", "submission_time", "num_iteration", "model_name", "batch_size", "num_gpu")
OPTIONAL = ("deadline", "gpu_type")
"""Further columns of the format; not all of them are read."""
_NAMES = {
    "submit_s": "submission_time",
    "iterations": "num_iteration",
    "model_family": "model_name",
    "deadline_s": "deadline",
    "global_batch": "batch_size",
    "gpus": "num_gpu",
}


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file's first lines look like a trace of Arena."""
    return bool({"submission_time", "num_iteration"} & header(lines))


def read(path: Path, options: ReadOptions) -> Trace:
    """Read a trace of Arena, with its iterations unchanged."""
    return read_divided(path, options, NAME, 1)


def read_divided(path: Path, options: ReadOptions, name: str, divisor: int) -> Trace:
    """Read a trace of Arena, with iterations divided by `divisor` (rounded down, at least 1)."""
    table = read_csv(path, REQUIRED, optional=OPTIONAL)
    submit_s = numbers(table, "submission_time", low=0)
    deadline_s = numbers(table, "deadline", default=float("nan"))
    origin = relative_origin(submit_s)
    gpus = integers(table, "num_gpu", low=1, high=MAX_GPUS)
    batch = integers(table, "batch_size", low=1)
    family, size = _models(table, batch)
    return build_trace(
        path=path,
        line=table.line,
        job_id=texts(table, "job_id"),
        submit_s=np.round(submit_s - origin, 6),
        model_family=family,
        model_size=size,
        global_batch=batch,
        iterations=np.maximum(1, integers(table, "num_iteration", low=1) // divisor),
        gpu_type=texts(table, "gpu_type"),
        gpus=round_up_counts(gpus) if options.power_of_two else gpus,
        asked_gpus=gpus,
        deadline_s=np.round(deadline_s - origin, 6),
        source_names=_NAMES,
        canonical=options.type_name,
        provenance=provenance(path, name, table.sha256, origin, iterations_divided_by=divisor),
    )


def _models(table: TextTable, batch: Ints) -> tuple[list[str], list[str]]:
    from clustergym.oracle.models.catalog import ARENA_FAMILIES, load_catalog

    catalog, field = load_catalog(), "model_name"
    parts = []
    for cell, line in zip(table.columns[field], table.line, strict=True):
        family, separator, size = cell.partition("__")
        if not separator:
            remedy = "give family__size, as in bert__1.3B"
            raise InputError(
                f"{quote_cell(cell)} names no size", file=table.path, line=line, field=field, remedy=remedy
            )
        parts.append((family, size))
    own = {family: family for family in ARENA_FAMILIES.values()}
    family_names = families(
        [family for family, _ in parts], own | ARENA_FAMILIES, table.path, table.line, field
    )
    sizes = {}
    for family, (_, size), line in zip(family_names, parts, table.line, strict=True):
        if (family, size) not in sizes:
            spellings = {known.lower(): known for known in catalog.sizes(family)}
            sizes[family, size] = spellings.get(size.lower(), size)
            catalog.get(ModelClass(family, sizes[family, size], 1), file=table.path, line=line, field=field)
    return family_names, [sizes[family, size] for family, (_, size) in zip(family_names, parts, strict=True)]
