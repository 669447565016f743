"""Read Acme's Seren and Kalos (NSDI '24): `trace_seren.csv` and `trace_kalos.csv`, one row per job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clustergym.common.columns import MAX_GPUS, dates, durations, integers
from clustergym.common.text_files import header, read_csv
from clustergym.trace.outcomes import SLURM_STATES, read_outcomes
from clustergym.trace.readers.helios import NEVER
from clustergym.trace.records import RecordedJobs, make_recorded_jobs

NAME = "acme"
REQUIRED = ("job_id", "user", "gpu_num", "type", "state", "submit_time", "start_time", "end_time")
OPTIONAL = (
    *("node_num", "cpu_num", "mem_per_pod_GB", "shared_mem_per_pod", "fail_time", "stop_time"),
    *("duration", "queue", "gpu_time"),
)
"""Further columns of the format; not all of them are read."""
_NAMES = {"job_id": "job_id", "submit_s": "submit_time", "gpus": "gpu_num", "user": "user"}


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file's first lines look like Acme's job log, by the names of its columns."""
    found = header(lines)
    return len(found & {"gpu_num", "node_num", "type", "gpu_time"}) > 1 and "vc" not in found


def read_log(path: Path) -> RecordedJobs:
    """Read Acme's job log, which does not name the jobs' models.

    It gives submission (dated), seconds from start to end, GPUs, user and outcome. The log's own duration
    is not used: Kalos's contains the time in the queue. Left out: jobs without GPUs, jobs that never
    started or had not ended, and jobs of 0 s.
    """
    table = read_csv(path, REQUIRED, optional=OPTIONAL)
    gpus = integers(table, "gpu_num", low=0, high=MAX_GPUS)
    submit_s = dates(table, "submit_time")
    start_s, end_s = (dates(table, column, NEVER) for column in ("start_time", "end_time"))
    duration_s = durations(table, start_s, end_s, "start_time", "end_time")
    durations(table, submit_s, start_s, "submit_time", "start_time")
    return make_recorded_jobs(
        table,
        NAME,
        _NAMES,
        submit_s=submit_s,
        duration_s=duration_s,
        gpus=gpus,
        outcome=read_outcomes(table, "state", SLURM_STATES),
        left_out={"CPU job": gpus == 0, "never ran": np.isnan(duration_s), "ran 0 s": duration_s == 0},
    )
