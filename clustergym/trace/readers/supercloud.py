"""Read MIT Supercloud (arXiv 2108.02037): `slurm-log.csv`, a dump of Slurm's job table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.common.columns import MAX_GPUS, check_bounds, durations, integers, numbers, quote_cell
from clustergym.common.errors import InputError
from clustergym.common.text_files import TextTable, header, read_csv
from clustergym.trace.outcomes import SLURM_STATES, read_outcomes
from clustergym.trace.records import RecordedJobs, make_recorded_jobs

NAME = "supercloud"
REQUIRED = ("id_job", "id_user", "state", "time_submit", "time_start", "time_end", "tres_alloc")
OPTIONAL = (
    *("timelimit", "partition", "gres_used", "id_array_job", "id_array_task", "kill_requid", "nodes_alloc"),
    *("nodelist", "cpus_req", "derived_ec", "exit_code", "array_max_tasks", "array_task_pending"),
    *("constraints", "flags", "mem_req", "priority", "time_eligible", "time_suspended", "track_steps"),
    *("tres_req", "job_type"),
)
"""Further columns of the format; not all of them are read."""
GPU_IDS = (1001, 1002)
"""Ids of GPUs (Tesla, Volta) among a job's resources in `tres_alloc`; another site has others."""
STATES = {
    str(code): SLURM_STATES[name]
    for code, name in enumerate(
        (
            *("PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED"),
            *("TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"),
        )
    )
}
"""Outcomes by the numbers that Slurm gives to states."""
NO_LIMIT = 2**32 - 2
"""Slurm's number for a time limit that is not set; the next one is for none (slurm.h)."""
_RESOURCES = re.compile(r"(\d{1,9}=\d{1,20}(,\d{1,9}=\d{1,20})*)?", re.ASCII)
_NAMES = {
    "job_id": "id_job",
    "submit_s": "time_submit",
    "gpus": "tres_alloc",
    "user": "id_user",
    "virtual_cluster": "partition",
}


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file's first lines look like SuperCloud's dump of Slurm's job table."""
    return {"id_job", "time_submit"} <= header(lines)


def read_log(path: Path) -> RecordedJobs:
    """Read SuperCloud's job log, which does not name the jobs' models.

    It gives submission (Unix time), seconds from start to end, the GPUs in `tres_alloc`, user, partition (as
    the virtual cluster), outcome, and the time limit, if `timelimit` is there. Left out: jobs whose
    `gres_used` names GPUs and whose `tres_alloc` none, jobs without GPUs, jobs that never started or had not
    ended (time 0), and jobs of 0 s.
    """
    table = read_csv(path, REQUIRED, optional=OPTIONAL)
    gpus = _gpus(table)
    submit_s = integers(table, "time_submit", low=1).astype(np.float64)
    # Slurm's tables have 0 where something has not happened yet.
    start_s, end_s = _moment(table, "time_start"), _moment(table, "time_end")
    duration_s = durations(table, start_s, end_s, "time_start", "time_end")
    minutes = numbers(table, "timelimit", low=0, default=0.0)
    used = table.columns.get("gres_used", [""] * len(table))
    uncounted = (gpus == 0) & np.array(["gpu" in cell for cell in used])
    return make_recorded_jobs(
        table,
        NAME,
        _NAMES,
        submit_s=submit_s,
        duration_s=duration_s,
        gpus=gpus,
        outcome=read_outcomes(table, "state", STATES),
        time_limit_s=np.where((minutes > 0) & (minutes < NO_LIMIT), 60.0 * minutes, np.nan),
        left_out={
            "without a count of its GPUs": uncounted,
            "CPU job": gpus == 0,
            "never ran": np.isnan(duration_s),
            "ran 0 s": duration_s == 0,
        },
    )


def _moment(table: TextTable, column: str) -> Floats:
    seconds = integers(table, column, low=0).astype(np.float64)
    return np.where(seconds == 0, np.nan, seconds)


def _gpus(table: TextTable) -> Ints:
    """Return the GPUs of each job, shape (n,)."""
    found = []
    for cell, line in zip(table.columns["tres_alloc"], table.line, strict=True):
        if not _RESOURCES.fullmatch(cell):
            message, remedy = f"{quote_cell(cell)} is not id=count,id=count", "give Slurm's tres_alloc"
            raise InputError(message, file=table.path, line=line, field="tres_alloc", remedy=remedy)
        parts = (part.split("=") for part in cell.split(",") if part)
        found.append(sum(min(int(count), 2 * MAX_GPUS) for name, count in parts if int(name) in GPU_IDS))
    gpus = np.array(found, dtype=np.int64)
    check_bounds(gpus.astype(np.float64), table.path, table.line, "tres_alloc", high=MAX_GPUS)
    return gpus
