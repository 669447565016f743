"""Turn a log of jobs that ran (time, duration, GPUs) into a trace of jobs to schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.arrays import Bools, Floats, Ints
from clustergym.inputs.columns import from_first, iso
from clustergym.inputs.errors import InputError
from clustergym.workload.draw import Records, draw
from clustergym.workload.options import ReadOptions
from clustergym.workload.trace import Trace
from clustergym.workload.trace_checks import build_trace


@dataclass(frozen=True)
class RecordedJobs:
    """The jobs in a cluster's log, as columns of length n, in the order of the source.

    Attributes
    ----------
    path : Path
        File named in errors and in the trace.
    format, sha256 : str
        Format and SHA-256 of the source, for the provenance.
    row : ndarray of int
        Number of the row in the source, counting those that were left out.
    line, job_id, gpu_type, user, virtual_cluster : list
    submit_s : ndarray of float
        Seconds on the source's clock: since 1970 if `dated`.
    duration_s : ndarray of float
    gpus : ndarray of int
    left_out : Counter
        Rows left out, by reason.
    dated : bool
    source_names : mapping
        The source's names of our columns, for error messages.
    facts : dict
        Further entries of the provenance.
    """

    path: Path
    format: str
    sha256: str
    row: Ints
    line: Sequence[int]
    job_id: Sequence[str]
    submit_s: Floats
    duration_s: Floats
    gpus: Ints
    left_out: Counter[str]
    gpu_type: Sequence[str] | None = None
    user: Sequence[str] | None = None
    virtual_cluster: Sequence[str] | None = None
    dated: bool = True
    source_names: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def leave_out(table: dict[str, Bools], rows: int) -> tuple[Ints, Counter[str]]:
    """Return the rows to keep, and how many rows are left out for each reason (a row's first one).

    Parameters
    ----------
    table : dict
        Reason -> which rows to leave out for it, shape (rows,).
    rows : int
    """
    kept = np.ones(rows, dtype=np.bool_)
    counts: Counter[str] = Counter()
    for reason, out in table.items():
        counts[reason] = int((out & kept).sum())
        kept &= ~out
    return np.flatnonzero(kept).astype(np.int64), Counter({k: v for k, v in counts.items() if v})


def provenance(source: Path, name: str, sha256: str, origin: Any, **more: Any) -> dict[str, Any]:
    """Return the provenance that every imported trace has."""
    return {"source": source.name, "format": name, "sha256": sha256, "origin": origin, **more}


def trace_of(log: RecordedJobs, options: ReadOptions) -> Trace:
    """Build a trace from a log: draw models, and let time start at the first submission.

    Raises
    ------
    InputError
        If no job is left, or a job is not valid (names the first such job).
    """
    if not len(log.row):
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(log.left_out.items()))
        raise InputError(
            f"no job is left ({why})", file=log.path, remedy="give a trace with GPU jobs that ran"
        )
    gpu_type = log.gpu_type or [""] * len(log.row)
    drawn = draw(Records(log.path, log.row, log.line, log.duration_s, log.gpus, gpu_type), options)
    submit_s, origin = from_first(log.submit_s)
    return build_trace(
        path=log.path,
        line=log.line,
        job_id=log.job_id,
        submit_s=submit_s,
        model_family=drawn.model_family,
        model_size=drawn.model_size,
        global_batch=drawn.global_batch,
        iterations=drawn.iterations,
        gpu_type=drawn.gpu_type,
        gpus=drawn.gpus,
        user=log.user,
        virtual_cluster=log.virtual_cluster,
        source_names=log.source_names,
        provenance=provenance(
            log.path,
            log.format,
            log.sha256,
            iso(origin) if log.dated else origin,
            left_out=dict(sorted(log.left_out.items())),
            draw=drawn.facts,
            **log.facts,
        ),
    )


def pick(rows: Ints) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function that picks the given rows of a list."""
    index = rows.tolist()
    return lambda cells: [cells[row] for row in index]
