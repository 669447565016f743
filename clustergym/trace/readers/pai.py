"""Read Alibaba PAI 2020 (NSDI '22): `pai_job_table` and `pai_task_table`, CSV without a header."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.common.columns import MAX_GPUS, from_first, numbers
from clustergym.common.errors import InputError
from clustergym.common.text_files import TextTable, read_csv
from clustergym.trace.options import ReadOptions
from clustergym.trace.outcomes import UNKNOWN, read_outcomes
from clustergym.trace.records import RecordedJobs, build_recorded_trace, provenance
from clustergym.trace.trace import COMPLETED, FAILED, Trace
from clustergym.trace.trace_checks import RECORDED, WHOLE, PartColumns, build_trace

NAME = "pai"
JOB_TABLE, TASK_TABLE = "pai_job_table", "pai_task_table"
JOB_COLUMNS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
TASK_COLUMNS = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem"),
    *("plan_gpu", "gpu_type"),
)
GPU_TYPES = {"V100": "V100", "V100M32": "V100", "P100": "P100", "T4": "T4"}
"""PAI's GPU types -> GPU types of the catalogue; jobs on others (MISC) may run on any type."""

STATUSES = {"TERMINATED": COMPLETED, "FAILED": FAILED, "RUNNING": UNKNOWN, "WAITING": UNKNOWN}
"""Statuses of the job table, in upper case; only Terminated is success."""


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a path is one of PAI's two tables, or a folder that contains them."""
    if path.is_dir():
        return any((path / f"{table}.csv").is_file() for table in (JOB_TABLE, TASK_TABLE))
    return path.name.startswith((JOB_TABLE, TASK_TABLE))


def both_tables(path: Path) -> tuple[Path, Path]:
    """Return the paths of PAI's job table and task table, given their folder or one of them."""
    if path.is_dir():
        return path / f"{JOB_TABLE}.csv", path / f"{TASK_TABLE}.csv"
    if not path.name.startswith((JOB_TABLE, TASK_TABLE)):
        remedy = f"name it {JOB_TABLE}.csv or {TASK_TABLE}.csv, with the other beside it"
        raise InputError("is neither of PAI's two tables by its name", file=path, remedy=remedy)
    return (
        path.with_name(path.name.replace(TASK_TABLE, JOB_TABLE)),
        path.with_name(path.name.replace(JOB_TABLE, TASK_TABLE)),
    )


class Need(NamedTuple):
    """The GPUs and the time that all GPU tasks of a job use together."""

    gpu_percent: float
    gpu_types: frozenset[str]
    start_s: float
    end_s: float


def needs(tasks: TextTable) -> dict[str, Need]:
    """Return the GPUs and time that each job's GPU tasks use, by job name; other jobs are left out."""
    percent = numbers(tasks, "plan_gpu", low=0, default=0.0)
    gpu_percent = (percent * numbers(tasks, "inst_num", low=0, default=0.0)).tolist()
    start_s = numbers(tasks, "start_time", low=0, default=math.nan).tolist()
    end_s = numbers(tasks, "end_time", low=0, default=math.nan).tolist()
    rows = defaultdict(list)
    for row in (row for row, taken in enumerate(gpu_percent) if taken > 0):
        rows[tasks.columns["job_name"][row]].append(row)
    return {
        job: Need(
            sum(gpu_percent[row] for row in mine),
            frozenset(GPU_TYPES.get(tasks.columns["gpu_type"][row].upper(), "") for row in mine),
            _extreme(min, start_s, mine),
            _extreme(max, end_s, mine),
        )
        for job, mine in rows.items()
    }


def _extreme(choose: Callable[[Iterable[float]], float], values: list[float], rows: list[int]) -> float:
    """Return the least or greatest value of some rows, ignoring missing ones; NaN if all are missing."""
    there = [values[row] for row in rows if not math.isnan(values[row])]
    return choose(there) if there else math.nan


def _select_jobs(jobs: TextTable, submit_s: Floats, need: dict[str, Need]) -> tuple[list[int], Counter[str]]:
    kept, left_out = [], Counter[str]()
    for row, job in enumerate(jobs.columns["job_name"]):
        mine = need.get(job)
        if mine is None:
            left_out["CPU job"] += 1
        elif math.isnan(submit_s[row] + mine.start_s + mine.end_s):
            left_out["without start or end"] += 1
        elif mine.end_s <= mine.start_s:
            left_out["ran 0 s"] += 1
        else:
            kept.append(row)
    return kept, left_out


def read(path: Path, options: ReadOptions) -> Trace:
    """Read PAI's jobs; keep requested fractions of GPUs if `options.keep_shares`, else sample models."""
    if not options.keep_shares:
        return build_recorded_trace(read_log(path), options)
    return _shares(*_log(path), options)


def _shares(log: RecordedJobs, mine: Sequence[Need], options: ReadOptions) -> Trace:
    """Return jobs that take as long as they did, an iteration a second.

    A job that plans with less than a GPU asks for that, in thousandths; one that plans with several and a
    part of another, for whole ones, rounded up. CPU and memory are left open: a job's are of several nodes.
    """
    zeros = np.zeros(len(mine), dtype=np.int64)
    planned = np.array([np.rint(10 * need.gpu_percent) for need in mine]).astype(np.int64)
    milli = np.where(log.gpus == 1, np.clip(planned, 1, WHOLE), WHOLE)
    submit_s, origin = from_first(log.submit_s)
    facts = {"rounded_up": int(((log.gpus > 1) & (planned % WHOLE > 0)).sum()), **log.facts}
    left_out = dict(sorted(log.left_out.items()))
    return build_trace(
        path=log.path,
        line=log.line,
        job_id=log.job_id,
        submit_s=submit_s,
        model_family=[RECORDED] * len(mine),
        global_batch=np.ones(len(mine), dtype=np.int64),
        iterations=np.ceil(log.duration_s).astype(np.int64),
        gpus=log.gpus,
        gpu_type=log.gpu_type,
        user=log.user,
        canonical=options.type_name,
        parts=PartColumns(log.gpus, milli, zeros, zeros, [""] * len(mine)),
        source_names=log.source_names,
        provenance=provenance(log.path, NAME, log.sha256, origin, left_out=left_out, **facts),
    )


def read_log(path: Path) -> RecordedJobs:
    """Read PAI's job log, which does not name the jobs' models.

    A job is submitted at its start in the job table, and ran from its first GPU task's start to its
    last one's end. `plan_gpu` is percent of a GPU per instance: a job has as many GPUs as hold the sum
    over its GPU tasks of instances x percent, rounded up. Its GPU type is that of its tasks; any, where
    they differ or are MISC. Its outcome is that of its status in the job table.
    Left out: jobs without GPUs, without start or end, and of 0 s.
    """
    return _log(path)[0]


def _log(path: Path) -> tuple[RecordedJobs, list[Need]]:
    job_path, task_path = both_tables(path)
    jobs = read_csv(job_path, (), names=JOB_COLUMNS)
    tasks = read_csv(task_path, (), names=TASK_COLUMNS)
    need = needs(tasks)
    outcome = read_outcomes(jobs, "status", STATUSES) or []
    submit_s = numbers(jobs, "start_time", low=0, default=math.nan)
    kept, left_out = _select_jobs(jobs, submit_s, need)
    mine = [need[jobs.columns["job_name"][row]] for row in kept]
    log = RecordedJobs(
        path=job_path,
        format=NAME,
        sha256=hashlib.sha256(f"{jobs.sha256} {tasks.sha256}".encode()).hexdigest(),
        row=np.array(kept, dtype=np.int64),
        line=[jobs.line[row] for row in kept],
        job_id=[jobs.columns["job_name"][row] for row in kept],
        submit_s=np.asarray(submit_s[kept]),
        duration_s=np.array([job_need.end_s - job_need.start_s for job_need in mine], dtype=np.float64),
        gpus=np.array(
            [_gpus(job_need, jobs, row) for job_need, row in zip(mine, kept, strict=True)], dtype=np.int64
        ),
        left_out=left_out,
        gpu_type=["".join(job_need.gpu_types) if len(job_need.gpu_types) == 1 else "" for job_need in mine],
        user=[jobs.columns["user"][row] for row in kept],
        outcome=[outcome[row] for row in kept],
        dated=False,
        source_names={"job_id": "job_name", "submit_s": "start_time", "gpus": "plan_gpu"},
        facts={"sha256_of": {job_path.name: jobs.sha256, task_path.name: tasks.sha256}},
    )
    return log, mine


def _gpus(need: Need, jobs: TextTable, row: int) -> int:
    # Less a hair: sums of percents may lie above a whole number by rounding.
    gpus = math.ceil(need.gpu_percent / 100 - 1e-9)
    if gpus > MAX_GPUS:
        message = f"the job's tasks take {gpus} GPUs, more than {MAX_GPUS}"
        raise InputError(
            message, file=jobs.path, line=jobs.line[row], field="plan_gpu", remedy="mend the task table"
        )
    return gpus
