"""Read the traces of ElasticFlow's artifact (ASPLOS '23), one row per job, columns in any order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clustergym.common.columns import MAX_GPUS, integers, numbers, relative_origin, round_up_counts, texts
from clustergym.common.text_files import header, read_csv
from clustergym.trace.options import ReadOptions
from clustergym.trace.records import FAMILIES, families, provenance
from clustergym.trace.trace import Trace
from clustergym.trace.trace_checks import build_trace

NAME = "elasticflow"
REQUIRED = ("job_id", "submit_time", "iteration", "model_name", "batch_size", "num_gpu")
OPTIONAL = ("ddl", "duration", "real_duration", "real_iteration", "best_effort")
"""Further columns of the format; not all of them are read."""
_NAMES = {
    "submit_s": "submit_time",
    "iterations": "iteration",
    "model_family": "model_name",
    "deadline_s": "ddl",
    "global_batch": "batch_size",
    "gpus": "num_gpu",
}


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file's first lines look like a trace of ElasticFlow."""
    found = header(lines)
    return "ddl" in found or {"submit_time", "model_name"} <= found


def read(path: Path, options: ReadOptions) -> Trace:
    """Read a trace of ElasticFlow.

    `ddl` is absolute; a job with `best_effort` set has no deadline. `duration` and the `real_…`
    columns, which follow from its own profiles, are not used.
    """
    table = read_csv(path, REQUIRED, optional=OPTIONAL)
    submit_s = numbers(table, "submit_time", low=0)
    best_effort = integers(table, "best_effort", low=0, high=1, default=0) == 1
    deadline_s = np.where(best_effort, np.nan, numbers(table, "ddl", default=float("nan")))
    origin = relative_origin(submit_s)
    gpus = integers(table, "num_gpu", low=1, high=MAX_GPUS)
    return build_trace(
        path=path,
        line=table.line,
        job_id=texts(table, "job_id"),
        submit_s=np.round(submit_s - origin, 6),
        model_family=families(texts(table, "model_name"), FAMILIES, path, table.line, "model_name"),
        global_batch=integers(table, "batch_size", low=1),
        iterations=integers(table, "iteration", low=1),
        gpus=round_up_counts(gpus) if options.power_of_two else gpus,
        asked_gpus=gpus,
        deadline_s=np.round(deadline_s - origin, 6),
        source_names=_NAMES,
        provenance=provenance(path, NAME, table.sha256, origin),
    )
