"""Read Alibaba's GPU cluster trace of 2023 (openb): a list of pods with parts of GPUs, CPU and memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clustergym.common.columns import from_first, integers, numbers, texts
from clustergym.common.errors import InputError
from clustergym.common.text_files import header, read_csv
from clustergym.trace.options import ReadOptions
from clustergym.trace.records import provenance
from clustergym.trace.trace import Trace
from clustergym.trace.trace_checks import MOST_AMOUNT, RECORDED, WHOLE, PartColumns, build_trace

NAME = "openb"
REQUIRED = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time", "deletion_time")
OPTIONAL = ("name", "gpu_spec", "qos", "pod_phase", "scheduled_time")
"""Further columns of the format; not all of them are read."""
SOURCE_NAMES = {"job_id": "name", "gpus": "num_gpu", "submit_s": "creation_time", "gpu_models": "gpu_spec"}
MOST_GPUS = 32


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file's header is that of openb's list of pods."""
    return {"num_gpu", "gpu_milli", "creation_time"} <= header(lines)


def read(path: Path, options: ReadOptions) -> Trace:
    """Read openb's list of pods: requests, creation time, and the time from scheduling to deletion.

    An iteration of such a job is a second, rounded up. Pods that were never scheduled, or ran 0 s, are left
    out. The options are not used.
    """
    table = read_csv(path, REQUIRED, optional=OPTIONAL)
    created, deleted = numbers(table, "creation_time", low=0), numbers(table, "deletion_time", low=0)
    scheduled = numbers(table, "scheduled_time", low=0, default=np.nan)
    waited, ran_s = np.isnan(scheduled), deleted - scheduled
    if "scheduled_time" not in table.columns:
        waited, ran_s = np.zeros(len(table), dtype=np.bool_), deleted - created
    left_out = {"never scheduled": int(waited.sum()), "ran 0 s": int((~waited & (ran_s <= 0)).sum())}
    rows = np.flatnonzero(~waited & (ran_s > 0)).tolist()
    if not rows:
        raise InputError(
            "no pod ran", file=path, field="deletion_time", remedy="give a list of pods that ran"
        )
    kept = table.select(rows)
    submit_s, origin = from_first(created[rows])
    gpus = integers(kept, "num_gpu", low=0, high=MOST_GPUS)
    return build_trace(
        path=path,
        name=path.name.partition(".")[0],
        line=kept.line,
        job_id=kept.columns.get("name", [f"pod-{row}" for row in rows]),
        submit_s=submit_s,
        model_family=[RECORDED] * len(rows),
        global_batch=np.ones(len(rows), dtype=np.int64),
        iterations=np.ceil(ran_s[rows]).astype(np.int64),
        gpus=gpus,
        parts=PartColumns(
            gpus,
            integers(kept, "gpu_milli", low=0, high=WHOLE),
            integers(kept, "cpu_milli", low=0, high=MOST_AMOUNT),
            integers(kept, "memory_mib", low=0, high=MOST_AMOUNT),
            texts(kept, "gpu_spec"),
        ),
        source_names=SOURCE_NAMES,
        provenance=provenance(
            path, NAME, table.sha256, origin, left_out={k: v for k, v in left_out.items() if v}
        ),
    )
