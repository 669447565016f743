"""The native trace format: a CSV file of `COLUMNS`, with a JSON file of its provenance beside it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.common.columns import MAX_GPUS, integers, numbers, texts
from clustergym.common.errors import InputError
from clustergym.common.reading import parse_json
from clustergym.common.text_files import TextTable, header, read_bytes, read_csv
from clustergym.common.writing import write_files
from clustergym.trace.options import ReadOptions, TypeNames
from clustergym.trace.trace import COLUMNS, LIMIT_COLUMNS, NODE_COLUMNS, OUTCOME_COLUMNS, PART_COLUMNS, Trace
from clustergym.trace.trace_checks import build_trace, read_parts

NAME = "native"
OPTIONAL = (
    "model_size",
    "gpu_type",
    "deadline_s",
    "priority",
    "user",
    "virtual_cluster",
    *LIMIT_COLUMNS,
    *NODE_COLUMNS,
)
"""Columns that may be missing, besides those of outcomes."""
REQUIRED = tuple(column for column in COLUMNS if column not in OPTIONAL)


def provenance_path(path: Path) -> Path:
    """Return the path of the JSON file that says where a trace file comes from."""
    return path.parent / f"{path.stem}.provenance.json"


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file's first lines look like a trace in this project's own format."""
    return bool({"submit_s", "model_family"} & header(lines))


def read(path: Path, options: ReadOptions) -> Trace:
    """Read a trace in this project's own format; of the options only `type_name` is used."""
    return read_trace(path, options.type_name)


def read_trace(path: str | Path, type_name: TypeNames | None = None) -> Trace:
    """Read a trace in this project's own format, with its provenance if that is in the same folder.

    Parameters
    ----------
    path : str or Path
        CSV with the columns of `COLUMNS`; `OPTIONAL` ones may be missing. With outcomes it has
        `OUTCOME_COLUMNS` too; an empty `end_iterations` is all that the job asks for, an empty
        `time_limit_s` no limit, empty `nodes` any number of them. With any of `PART_COLUMNS` jobs may ask for
        parts of GPUs, and for 0 of them.
    type_name : callable, optional
        Names of its GPU types; by default those of the hardware catalogue.
    """
    path = Path(path)
    further = OUTCOME_COLUMNS + LIMIT_COLUMNS + NODE_COLUMNS + PART_COLUMNS
    # Unknown columns are an error in this project's own format: a name that is misspelt would else be a
    # column that is missing.
    table = read_csv(path, REQUIRED, known=COLUMNS + further)
    iterations = integers(table, "iterations", low=1)
    stored = _read_provenance(path, table.sha256)
    divides = not set(PART_COLUMNS).isdisjoint(table.columns)
    gpus = integers(table, "gpus", low=0 if divides else 1, high=MAX_GPUS)
    return build_trace(
        path=path,
        line=table.line,
        job_id=texts(table, "job_id"),
        submit_s=numbers(table, "submit_s", low=0),
        model_family=texts(table, "model_family"),
        model_size=texts(table, "model_size"),
        global_batch=integers(table, "global_batch", low=1),
        iterations=iterations,
        gpu_type=texts(table, "gpu_type"),
        gpus=gpus,
        deadline_s=numbers(table, "deadline_s", default=float("nan")),
        priority=integers(table, "priority", default=0),
        user=texts(table, "user"),
        virtual_cluster=texts(table, "virtual_cluster"),
        **_outcomes(table, iterations),
        time_limit_s=numbers(table, "time_limit_s", default=float("nan"))
        if "time_limit_s" in table.columns
        else None,
        nodes=integers(table, "nodes", low=0, default=0) if "nodes" in table.columns else None,
        provenance=stored or {"source": path.name, "format": NAME, "sha256": table.sha256},
        parts=read_parts(table, gpus) if divides else None,
        canonical=type_name,
    )


def _outcomes(table: TextTable, iterations: Ints) -> dict[str, Any]:
    """Return the columns of outcomes; empty if the table has none."""
    there = [column for column in OUTCOME_COLUMNS if column in table.columns]
    if not there:
        return {}
    missing = next((column for column in OUTCOME_COLUMNS if column not in there), None)
    if missing is not None:
        remedy = f"add it, or leave out {there[0]}"
        raise InputError("column missing", file=table.path, line=1, field=missing, remedy=remedy)
    given = integers(table, "end_iterations", low=0, default=0)
    empty = np.array([not cell for cell in table.columns["end_iterations"]])
    return {"outcome": texts(table, "outcome"), "end_iterations": np.where(empty, iterations, given)}


def _read_provenance(path: Path, sha256: str) -> dict[str, Any]:
    beside = provenance_path(path)
    if not beside.exists():
        return {}
    stored = parse_json(read_bytes(beside), beside, "write the trace anew")
    if not isinstance(stored, dict) or not isinstance(stored.get("provenance"), dict):
        raise InputError("is missing", file=beside, field="provenance", remedy="write the trace anew")
    if stored.get("sha256") != sha256:
        remedy = f"restore the file, or delete {beside.name} if the change is meant"
        raise InputError(f"sha256 is not the one in {beside.name}", file=path, field="sha256", remedy=remedy)
    provenance: dict[str, Any] = stored["provenance"]
    for field, expected_type in (("left_out", dict), ("outcomes", dict), ("slices", list)):
        if not isinstance(provenance.get(field, expected_type()), expected_type):
            raise InputError(
                "is not as it was written", file=beside, field=field, remedy="write the trace anew"
            )
    return provenance


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace to `path` and its provenance to `<stem>.provenance.json`, or neither on failure."""
    path = Path(path)
    content = trace.csv_text().encode()
    record = {
        "sha256": hashlib.sha256(content).hexdigest(),
        "rows": len(trace),
        "columns": list(trace.columns),
        "provenance": trace.provenance,
    }
    text = json.dumps(record, indent=2, sort_keys=True, allow_nan=False) + "\n"
    write_files({path: content, provenance_path(path): text.encode()})
