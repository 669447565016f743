"""Read Microsoft Philly as condensed in Sia's artifact: `philly.csv`, one row per job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clustergym.inputs.columns import MAX_GPUS, dates, integers, numbers, texts
from clustergym.inputs.text_files import header, read_csv
from clustergym.workload.records import RecordedJobs, leave_out, pick

NAME = "philly"
REQUIRED = ("timestamp", "duration", "num_gpus")


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Whether the first lines look like `philly.csv`."""
    found = header(lines)
    return "gpu_time" in found or {"timestamp", "num_gpus"} <= found or {"duration", "num_gpus"} <= found


def read_log(path: Path) -> RecordedJobs:
    """Read the log without drawing models: submission (dated), duration in seconds, GPUs, virtual cluster.

    The jobs have no id; their number in the file stands for it. Jobs of 0 s are left out.
    """
    table = read_csv(path, REQUIRED)
    submit_s = dates(table, "timestamp")
    duration_s = numbers(table, "duration", low=0)
    gpus = integers(table, "num_gpus", low=1, high=MAX_GPUS)
    kept, left_out = leave_out({"ran 0 s": duration_s == 0}, len(table))
    take = pick(kept)
    return RecordedJobs(
        path=path,
        format=NAME,
        sha256=table.sha256,
        row=kept,
        line=take(table.line),
        job_id=[f"philly-{row}" for row in kept.tolist()],
        submit_s=np.asarray(submit_s[kept]),
        duration_s=np.asarray(duration_s[kept]),
        gpus=np.asarray(gpus[kept]),
        left_out=left_out,
        virtual_cluster=take(texts(table, "cluster")),
        source_names={"submit_s": "timestamp", "gpus": "num_gpus", "virtual_cluster": "cluster"},
    )
