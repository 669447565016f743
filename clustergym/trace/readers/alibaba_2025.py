"""Read Alibaba's trace of disaggregated inference of 2025 (cluster-trace-gpu-v2025): one row per instance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clustergym.common.columns import DAY_S, MAX_GPUS, durations, integers, numbers
from clustergym.common.text_files import header, read_csv
from clustergym.trace.records import RecordedJobs, make_recorded_jobs

NAME = "alibaba-2025"
REQUIRED = ("instance_sn", "role", "app_name", "gpu_request", "creation_time", "deletion_time")
OPTIONAL = (
    *("cpu_request", "cpu_limit", "gpu_limit", "rdma_request", "rdma_limit", "memory_request"),
    *("memory_limit", "disk_request", "disk_limit", "max_instance_per_node", "scheduled_time"),
)
"""Further columns of the format; not all of them are read."""
END_S = 31 * DAY_S
"""Length of the published trace, of which a file may be a part."""
_NAMES = {
    "job_id": "instance_sn",
    "submit_s": "creation_time",
    "gpus": "gpu_request",
    "virtual_cluster": "app_name",
}


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file's first lines look like Alibaba's log of service instances of 2025."""
    return {"instance_sn", "gpu_request"} <= header(lines)


def read_log(path: Path) -> RecordedJobs:
    """Read Alibaba's log of service instances, which run until deleted and whose models are not named.

    It gives creation in seconds, seconds from creation to deletion, GPUs, and the application (as the
    virtual cluster); no outcome. An instance is counted inside the trace's time alone: one without a
    creation time from second 0 on, one without a deletion time up to `END_S`, or the last time in the file
    (`began_before`, `ended_after` in the provenance count these). Left out: instances without GPUs and
    those of 0 s.
    """
    table = read_csv(path, REQUIRED, optional=OPTIONAL)
    gpus = integers(table, "gpu_request", low=0, high=MAX_GPUS)
    created_s = numbers(table, "creation_time", low=0, default=np.nan)
    deleted_s = numbers(table, "deletion_time", low=0, default=np.nan)
    last_s = float(np.nanmax(np.concatenate([created_s, deleted_s, [END_S]])))
    submit_s = np.where(np.isnan(created_s), 0.0, created_s)
    end_s = np.where(np.isnan(deleted_s), last_s, deleted_s)
    duration_s = durations(table, submit_s, end_s, "creation_time", "deletion_time")
    on_gpus = gpus > 0
    return make_recorded_jobs(
        table,
        NAME,
        _NAMES,
        submit_s=submit_s,
        duration_s=duration_s,
        gpus=gpus,
        left_out={"CPU instance": ~on_gpus, "ran 0 s": duration_s == 0},
        dated=False,
        facts={
            "began_before": int((np.isnan(created_s) & on_gpus).sum()),
            "ended_after": int((np.isnan(deleted_s) & on_gpus).sum()),
        },
    )
