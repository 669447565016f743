"""Read SenseTime Helios (SC '21): `cluster_log.csv`, one row per job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clustergym.common.columns import MAX_GPUS, dates, integers, numbers
from clustergym.common.text_files import header, read_csv
from clustergym.trace.outcomes import SLURM_STATES, read_outcomes
from clustergym.trace.records import RecordedJobs, make_recorded_jobs

NAME = "helios"
REQUIRED = ("job_id", "user", "vc", "gpu_num", "submit_time", "start_time", "duration")
OPTIONAL = ("cpu_num", "node_num", "state", "start_time", "end_time", "queue", "user", "vc")
"""Further columns of the format; not all of them are read."""
_NAMES = {
    "job_id": "job_id",
    "submit_s": "submit_time",
    "gpus": "gpu_num",
    "user": "user",
    "virtual_cluster": "vc",
}
NEVER = ("", "none", "null", "nan")
"""Texts, in lower case, that mean that a job never started."""


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file's first lines look like Helios's `cluster_log.csv`."""
    found = header(lines)
    return "gpu_num" in found or {"node_num", "submit_time"} <= found


def read_log(path: Path) -> RecordedJobs:
    """Read Helios's job log, which does not name the jobs' models.

    It gives submission (dated), duration in seconds, GPUs, user and virtual cluster. Jobs without
    GPUs, jobs that never started and jobs of 0 s are left out. The outcome is that
    of `state`, if it is there.
    """
    table = read_csv(path, REQUIRED, optional=OPTIONAL)
    gpus = integers(table, "gpu_num", low=0, high=MAX_GPUS)
    submit_s = dates(table, "submit_time")
    duration_s = numbers(table, "duration", low=0, default=0.0)
    never = np.array([cell.lower() in NEVER for cell in table.columns["start_time"]])
    return make_recorded_jobs(
        table,
        NAME,
        _NAMES,
        submit_s=submit_s,
        duration_s=duration_s,
        gpus=gpus,
        outcome=read_outcomes(table, "state", SLURM_STATES),
        left_out={"CPU job": gpus == 0, "never ran": never, "ran 0 s": duration_s == 0},
    )
