"""Read Alibaba's spot trace of 2026 (cluster-trace-v2026-spot-gpu; ASPLOS '26): `job_info_df.csv`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clustergym.common.columns import MAX_GPUS, check_bounds, integers, numbers, quote_cell
from clustergym.common.errors import InputError
from clustergym.common.text_files import TextTable, header, read_csv
from clustergym.trace.records import RecordedJobs, make_recorded_jobs

NAME = "alibaba-2026"
REQUIRED = (
    *("job_name", "organization", "gpu_model", "gpu_request", "worker_num", "submit_time", "duration"),
    "job_type",
)
OPTIONAL = ("cpu_request",)
"""Further columns of the format; not all of them are read."""
GPU_TYPES = {"A10": "A10", "A100-SXM4-80GB": "A100", "H800": "H800"}
"""The trace's GPU models -> GPU types of the catalogue, whose A100 has 40 GB; other jobs may run on any."""
PRIORITIES = {"HP": 1, "Spot": 0}
"""Types of jobs -> priority."""
_NAMES = {
    "job_id": "job_name",
    "submit_s": "submit_time",
    "gpus": "worker_num",
    "virtual_cluster": "organization",
    "gpu_type": "gpu_model",
    "priority": "job_type",
}


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file's first lines look like Alibaba's job log of 2026."""
    return {"worker_num", "job_type"} <= header(lines)


def read_log(path: Path) -> RecordedJobs:
    """Read Alibaba's job log of 2026, which does not name the jobs' models.

    It gives submission in seconds, duration in seconds (of running; waiting is not known), the GPUs of all
    workers, rounded up, GPU type, organization (as the virtual cluster) and priority: 1 for high priority,
    0 for spot; no outcome. Jobs without GPUs and jobs of 0 s are left out.
    """
    table = read_csv(path, REQUIRED, optional=OPTIONAL)
    duration_s = numbers(table, "duration", low=0)
    workers = integers(table, "worker_num", low=1, high=MAX_GPUS)
    # Less a hair before rounding up, as 1.1 x 10 lies above 11 in floats.
    gpus = np.ceil(numbers(table, "gpu_request", low=0, high=MAX_GPUS) * workers - 1e-9)
    check_bounds(gpus, table.path, table.line, "worker_num", high=MAX_GPUS)
    priority = [_priority(table, row) for row in range(len(table))]
    models = [GPU_TYPES.get(name, "") for name in table.columns["gpu_model"]]
    return make_recorded_jobs(
        TextTable(table.path, {**table.columns, "gpu_model": models}, table.line, table.sha256),
        NAME,
        _NAMES,
        submit_s=numbers(table, "submit_time", low=0),
        duration_s=duration_s,
        gpus=gpus.astype(np.int64),
        left_out={"CPU job": gpus == 0, "ran 0 s": duration_s == 0},
        priority=np.array(priority, dtype=np.int64),
        dated=False,
    )


def _priority(table: TextTable, row: int) -> int:
    cell = table.columns["job_type"][row]
    if cell not in PRIORITIES:
        message, remedy = f"{quote_cell(cell)} is no type of job", f"give {' or '.join(PRIORITIES)}"
        raise InputError(message, file=table.path, line=table.line[row], field="job_type", remedy=remedy)
    return PRIORITIES[cell]
