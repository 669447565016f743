"""Read Microsoft Philly as condensed in Sia's artifact: `philly.csv`, one row per job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clustergym.common.columns import MAX_GPUS, dates, integers, numbers
from clustergym.common.text_files import header, read_csv
from clustergym.trace.records import RecordedJobs, make_recorded_jobs

NAME = "philly"
REQUIRED = ("timestamp", "duration", "num_gpus")
OPTIONAL = ("gpu_time", "cluster")
"""Further columns of the format; not all of them are read."""


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file's first lines look like `philly.csv`, Philly's job log as condensed by Sia."""
    found = header(lines)
    return "gpu_time" in found or {"timestamp", "num_gpus"} <= found or {"duration", "num_gpus"} <= found


def read_log(path: Path) -> RecordedJobs:
    """Read each job's submission, duration (s), GPUs and team (its virtual cluster) from `philly.csv`.

    The jobs have no id; their number in the file stands for it. Jobs of 0 s are left out.
    """
    table = read_csv(path, REQUIRED, optional=OPTIONAL)
    submit_s = dates(table, "timestamp")
    duration_s = numbers(table, "duration", low=0)
    gpus = integers(table, "num_gpus", low=1, high=MAX_GPUS)
    return make_recorded_jobs(
        table,
        NAME,
        {"submit_s": "timestamp", "gpus": "num_gpus", "virtual_cluster": "cluster"},
        submit_s=submit_s,
        duration_s=duration_s,
        gpus=gpus,
        left_out={"ran 0 s": duration_s == 0},
        unnamed="philly",
    )
