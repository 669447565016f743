"""Read the Standard Workload Format, version 2.2, of the Parallel Workloads Archive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.common.columns import MAX_GPUS, integers, numbers
from clustergym.common.errors import InputError
from clustergym.common.text_files import TextTable, read_text
from clustergym.trace.outcomes import UNKNOWN, read_outcomes
from clustergym.trace.records import RecordedJobs, make_recorded_jobs
from clustergym.trace.trace import COMPLETED, FAILED, KILLED

NAME = "swf"
FIELDS = (
    *("job number", "submit time", "wait time", "run time", "allocated processors", "mean CPU time"),
    *("used memory", "requested processors", "requested time", "requested memory", "status", "user"),
    *("group", "executable", "queue", "partition", "preceding job", "think time"),
)
"""The 18 fields of a line, in order; -1: not known."""
PARTS = ("2", "3", "4")
"""Statuses of the parts of a job that was checkpointed; the job has a line of its own as well."""
STATUSES = {"1": COMPLETED, "0": FAILED, "5": KILLED, "-1": UNKNOWN, **dict.fromkeys(PARTS, UNKNOWN)}
_NAMES = {
    "job_id": "job number",
    "submit_s": "submit time",
    "gpus": "requested processors",
    "user": "user",
    "virtual_cluster": "queue",
}


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file is in the Standard Workload Format (SWF), by its name or its first lines."""
    if path.name.endswith((".swf", ".swf.gz")):
        return True
    jobs = [line.split() for line in lines if line.strip() and not line.startswith(";")]
    return (
        bool(jobs) and all(len(cells) == len(FIELDS) for cells in jobs[:-1] or jobs) and _all_digits(jobs[0])
    )


def _all_digits(cells: Sequence[str]) -> bool:
    return all(cell.lstrip("-").replace(".", "", 1).isdigit() for cell in cells)


def read_log(path: Path) -> RecordedJobs:
    """Read a log in the Standard Workload Format; one processor counts as one GPU, models are not named.

    It gives submission in seconds, run time, requested processors (allocated ones where those are not
    known), user, queue (as the virtual cluster), requested time (as the time limit) and outcome. Left out:
    parts of checkpointed jobs, jobs that never ran (run time -1), jobs of 0 s, and jobs without
    processors.
    """
    table, header = _table(path)
    submit_s = numbers(table, "submit time", low=0)
    run_s = _read_known(table, "run time")
    asked, allocated = _read_known(table, "requested processors"), _read_known(table, "allocated processors")
    processors = np.where(np.nan_to_num(asked) > 0, asked, allocated)
    gpus = np.nan_to_num(processors).astype(np.int64)
    limit_s = _read_known(table, "requested time")
    outcome = read_outcomes(table, "status", STATUSES)
    part = np.array([status in PARTS for status in table.columns["status"]])
    for column in ("user", "queue"):
        table.columns[column] = ["" if cell == "-1" else cell for cell in table.columns[column]]
    return make_recorded_jobs(
        table,
        NAME,
        _NAMES,
        submit_s=submit_s,
        duration_s=run_s,
        gpus=gpus,
        outcome=outcome,
        time_limit_s=np.where(limit_s > 0, limit_s, np.nan),
        left_out={
            "part of a checkpointed job": part,
            "never ran": np.isnan(run_s),
            "ran 0 s": run_s == 0,
            "without processors": gpus == 0,
        },
        dated=False,
        facts={"header": header, "processors_per_gpu": 1},
    )


def _read_known(table: TextTable, column: str) -> Floats:
    """Return a field of numbers, shape (n,); NaN where it is -1."""
    whole = column.endswith("processors")
    values = integers(table, column, low=-1, high=MAX_GPUS) if whole else numbers(table, column, low=-1)
    return np.where(values == -1, np.nan, values)


def _table(path: Path) -> tuple[TextTable, dict[str, str]]:
    """Return the jobs as a table of `FIELDS`, and the entries of the header's comments."""
    text, sha256 = read_text(path)
    rows: list[list[str]] = []
    lines, header = [], {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(";"):
            name, colon, value = line.lstrip("; \t").partition(":")
            if colon and not rows:
                header[name.strip()] = value.strip()
        elif cells := line.split():
            if len(cells) != len(FIELDS):
                message = f"the line has {len(cells)} fields, not {len(FIELDS)}"
                raise InputError(message, file=path, line=number, remedy="give -1 for what is not known")
            rows.append(cells)
            lines.append(number)
    if not rows:
        raise InputError("there are comments but no jobs", file=path, remedy="give at least one job")
    columns = {name: list(cells) for name, cells in zip(FIELDS, zip(*rows, strict=True), strict=True)}
    return TextTable(path, columns, lines, sha256), header
