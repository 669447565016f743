"""Read an operator's own log: a CSV with submission, duration in seconds and GPUs of each job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clustergym.common.arrays import Floats
from clustergym.common.columns import MAX_GPUS, dates, integers, number, numbers
from clustergym.common.errors import InputError
from clustergym.common.text_files import TextTable, header, read_csv
from clustergym.trace.outcomes import read_outcomes
from clustergym.trace.records import RecordedJobs, make_recorded_jobs
from clustergym.trace.trace import OUTCOMES

NAME = "durations"
SUBMIT, DURATION, GPUS = ("submit_time", "submit_s"), ("duration", "duration_s"), ("gpus", "num_gpus")
OPTIONAL = (
    *("job_id", "gpu_type", "user", "virtual_cluster", "partition", "outcome", "time_limit_s", "priority"),
    "nodes",
)
START = ("start_time", "start_s")
COLUMNS = f"{' or '.join(SUBMIT)}, {' or '.join(DURATION)}, {' or '.join(GPUS)}"


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file's header has columns for submission, duration and GPUs, but not the model."""
    found = header(lines)
    return all(found & set(names) for names in (SUBMIT, DURATION, GPUS)) and "model_family" not in found


def read_log(path: Path) -> RecordedJobs:
    """Read each job's submission (seconds or dates), duration in seconds and GPUs; models are not named.

    Jobs without GPUs and jobs of 0 s are left out. Columns of `OPTIONAL` are used where they are there.
    """
    table = read_csv(path, (), optional=(*SUBMIT, *DURATION, *GPUS, *START, *OPTIONAL))
    # Columns have one of two names each: with a unit in it, as here, or as other tools write it.
    submit, duration, gpus_name = (_column(table, names) for names in (SUBMIT, DURATION, GPUS))
    submit_s, dated = _submissions(table, submit)
    duration_s = numbers(table, duration, low=0)
    gpus = integers(table, gpus_name, low=0, high=MAX_GPUS)
    return make_recorded_jobs(
        table,
        NAME,
        {"submit_s": submit, "gpus": gpus_name} | {name: name for name in OPTIONAL},
        submit_s=submit_s,
        duration_s=duration_s,
        gpus=gpus,
        outcome=read_outcomes(table, "outcome", {name.upper(): name for name in OUTCOMES}),
        time_limit_s=numbers(table, "time_limit_s", default=float("nan")),
        priority=integers(table, "priority", default=0) if "priority" in table.columns else None,
        start_s=_starts(table),
        nodes=integers(table, "nodes", low=0, default=0) if "nodes" in table.columns else None,
        left_out={"CPU job": gpus == 0, "ran 0 s": duration_s == 0},
        dated=dated,
    )


def _column(table: TextTable, names: Sequence[str]) -> str:
    """Return the name under which the table has a column."""
    for name in names:
        if name in table.columns:
            return name
    raise InputError(f"has no column {' or '.join(names)}", file=table.path, line=1, remedy=f"give {COLUMNS}")


def _starts(table: TextTable) -> Floats | None:
    """Return when jobs started, NaN where that is not known; None if the table has no column of `START`."""
    dated, seconds = START
    if dated in table.columns:
        return dates(table, dated, missing=("",))
    return numbers(table, seconds, default=float("nan")) if seconds in table.columns else None


def _submissions(table: TextTable, column: str) -> tuple[Floats, bool]:
    """Return the submissions in seconds, and whether the log gives them as dates."""
    try:
        number(table.columns[column][0])
    except ValueError:
        return dates(table, column), True
    return numbers(table, column), False
