"""Write the log of a cluster's own jobs: when each was submitted and started, and how it ended."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.common.columns import iso, quote_cell
from clustergym.common.errors import InputError
from clustergym.common.writing import write_text
from clustergym.trace.readers import kueue, sacct, slurmdbd
from clustergym.trace.records import RecordedJobs, make_empty_error
from clustergym.trace.slurm_fields import CellRules
from clustergym.trace.trace_checks import UNPRINTABLE

COLUMNS = (
    *("job_id", "submit_time", "start_time", "duration", "gpus", "gpu_type", "user", "virtual_cluster"),
    *("partition", "outcome", "time_limit_s", "priority", "nodes"),
)
"""Columns of the file, all of which the format `durations` reads."""


OPERATORS = ("sacct", "slurmdbd", "kueue")
"""Formats of an operator's own tables of jobs, which are imported as such a file."""


def read_operators_log(
    name: str, path: Path, rules: CellRules | None = None, type_of_partition: Mapping[str, str] | None = None
) -> RecordedJobs:
    """Read the jobs in a log of Slurm or Kueue, of a format named in `OPERATORS`."""
    if name == "kueue":
        log, rules = kueue.read_log(path), rules or CellRules()
        users, teams = ([rules.name(one) for one in of or ()] for of in (log.user, log.virtual_cluster))
        return replace(log, user=users, virtual_cluster=teams)
    if name == "slurmdbd":
        return slurmdbd.read_log(path, rules, type_of_partition)
    return sacct.read_log(path, rules, type_of_partition)


def write_log(log: RecordedJobs, path: Path, rows: Sequence[int] | None = None) -> None:
    """Write a log's jobs, sorted by submission, to a CSV file in the format `durations`.

    Parameters
    ----------
    log : RecordedJobs
    path : Path
    rows : sequence of int, optional
        The jobs to write, in their order; by default all.
    """
    if not len(log.row):
        raise make_empty_error(log)
    order = np.argsort(log.submit_s, kind="stable").tolist() if rows is None else rows
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    empty = [""] * len(log.job_id)
    texts = [
        list(getattr(log, name) or empty) for name in ("gpu_type", "user", "virtual_cluster", "partition")
    ]
    starts = empty if log.start_s is None else [_moment(at) for at in log.start_s.tolist()]
    limits = empty if log.time_limit_s is None else [_seconds(limit) for limit in log.time_limit_s.tolist()]
    nodes = empty if log.nodes is None else [count or "" for count in log.nodes.tolist()]
    for row in order:
        for cell in (log.job_id[row], *(column[row] for column in texts)):
            if UNPRINTABLE.search(cell):
                message = f"{quote_cell(cell)} has a control character"
                raise InputError(message, file=log.path, line=log.line[row] or None, remedy="remove it")
        writer.writerow(
            (
                log.job_id[row],
                _moment(float(log.submit_s[row])),
                starts[row],
                _seconds(float(log.duration_s[row])),
                int(log.gpus[row]),
                *(column[row] for column in texts),
                "" if log.outcome is None else log.outcome[row],
                limits[row],
                0 if log.priority is None else int(log.priority[row]),
                nodes[row],
            )
        )
    write_text(path, text.getvalue(), "--output")


def summarise_log(log: RecordedJobs) -> dict[str, Any]:
    """Return how many jobs of a log were read, left out and guessed, as plain values."""
    return {
        "source": str(log.path),
        "format": log.format,
        "sha256": log.sha256,
        "jobs": len(log.row),
        "left_out": dict(sorted(log.left_out.items())),
        **log.facts,
    }


def _moment(seconds: float) -> str:
    return "" if np.isnan(seconds) else iso(seconds)


def _seconds(seconds: float) -> str:
    if np.isnan(seconds):
        return ""
    return str(int(seconds)) if seconds.is_integer() else repr(seconds)
