"""Read an operator's own log: a CSV with submission, duration in seconds and GPUs of each job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clustergym.arrays import Floats
from clustergym.inputs.columns import MAX_GPUS, dates, integers, number, numbers, texts
from clustergym.inputs.errors import InputError
from clustergym.inputs.text_files import TextTable, header, read_csv
from clustergym.workload.records import RecordedJobs, leave_out, pick

NAME = "durations"
SUBMIT, DURATION, GPUS = ("submit_time", "submit_s"), ("duration", "duration_s"), ("gpus", "num_gpus")
OPTIONAL = ("job_id", "gpu_type", "user", "virtual_cluster")
COLUMNS = f"{' or '.join(SUBMIT)}, {' or '.join(DURATION)}, {' or '.join(GPUS)}"


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Whether the header has columns for submission, duration and GPUs, but not for the model."""
    found = header(lines)
    return all(found & set(names) for names in (SUBMIT, DURATION, GPUS)) and "model_family" not in found


def read_log(path: Path) -> RecordedJobs:
    """Read the log without drawing models: submission in seconds or as dates, duration in seconds, GPUs.

    Jobs without GPUs and jobs of 0 s are left out. Columns of `OPTIONAL` are used where they are there.
    """
    table = read_csv(path, ())
    submit, duration, gpus_name = (_column(table, names) for names in (SUBMIT, DURATION, GPUS))
    submit_s, dated = _submissions(table, submit)
    duration_s = numbers(table, duration, low=0)
    gpus = integers(table, gpus_name, low=0, high=MAX_GPUS)
    kept, left_out = leave_out({"CPU job": gpus == 0, "ran 0 s": duration_s == 0}, len(table))
    take = pick(kept)
    optional = {name: take(texts(table, name)) for name in OPTIONAL if name in table.columns}
    return RecordedJobs(
        path=path,
        format=NAME,
        sha256=table.sha256,
        row=kept,
        line=take(table.line),
        job_id=optional.get("job_id") or [f"job-{row}" for row in kept.tolist()],
        submit_s=np.asarray(submit_s[kept]),
        duration_s=np.asarray(duration_s[kept]),
        gpus=np.asarray(gpus[kept]),
        left_out=left_out,
        gpu_type=optional.get("gpu_type"),
        user=optional.get("user"),
        virtual_cluster=optional.get("virtual_cluster"),
        dated=dated,
        source_names={"submit_s": submit, "gpus": gpus_name},
    )


def _column(table: TextTable, names: Sequence[str]) -> str:
    """Return the name under which the table has a column."""
    for name in names:
        if name in table.columns:
            return name
    raise InputError(f"has no column {' or '.join(names)}", file=table.path, line=1, remedy=f"give {COLUMNS}")


def _submissions(table: TextTable, column: str) -> tuple[Floats, bool]:
    """Return the submissions in seconds, and whether the log gives them as dates."""
    try:
        number(table.columns[column][0])
    except ValueError:
        return dates(table, column), True
    return numbers(table, column), False
