"""The queue of a cluster now: running and waiting jobs, as Slurm and Kueue print them."""

from __future__ import annotations

import calendar
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from clustergym.common.errors import InputError
from clustergym.common.text_files import check_path, first_lines
from clustergym.trace.readers import kueue, sacct
from clustergym.trace.readers.sacct import SlurmJob
from clustergym.trace.slurm_fields import CellRules, waiting_tasks
from clustergym.trace.trace import Trace

RUNNING = ("RUNNING", "R", "COMPLETING", "CG", "CONFIGURING", "CF", "SUSPENDED", "S", "STOPPED")
WAITING = ("PENDING", "PD")


@dataclass(frozen=True)
class Present:
    """The running and waiting jobs of a cluster at one moment.

    Attributes
    ----------
    now_s : float
        Since 1970, on the clock of the jobs' times.
    running, waiting : tuple of SlurmJob
    """

    now_s: float
    running: tuple[SlurmJob, ...]
    waiting: tuple[SlurmJob, ...]


def read_queue(path: Path, now: str | None = None) -> Present:
    """Read a cluster's running and waiting GPU jobs from the output of squeue, sacct or Kueue.

    Parameters
    ----------
    path : Path
    now : str, optional
        When it was printed, as `2026-03-01T12:00:00`; None: when the file was last changed, in local time as
        Slurm prints, in UTC for Kueue.

    Raises
    ------
    InputError
        If the file is none of these, or the time is none.
    """
    check_path(path)
    of_kueue = kueue.sniff(path, first_lines(path))
    rows = kueue.read_rows(path)[0] if of_kueue else sacct.read_rows(path)[0]
    changed_s = path.stat().st_mtime
    now_s = changed_s if of_kueue else float(calendar.timegm(time.localtime(changed_s)))
    if now is not None:
        try:
            now_s = CellRules().moment(now)
        except ValueError as problem:
            raise InputError(str(problem), field="--now", remedy="give 2026-03-01T12:00:00") from problem
    return find_present(rows, now_s, path)


def find_present(rows: list[SlurmJob], now_s: float, path: Path) -> Present:
    """Return the jobs of a table that ran or waited at a moment; a waiting job array becomes its tasks.

    Raises
    ------
    InputError
        If an array has too many tasks.
    """
    running, waiting = list[SlurmJob](), list[SlurmJob]()
    for job in rows:
        if not job.gpus or not job.submit_s <= now_s:
            continue
        if job.state in WAITING:
            try:
                tasks = waiting_tasks(job.job_id)
            except ValueError as problem:
                remedy = "leave it out"
                raise InputError(str(problem), file=path, line=job.line, remedy=remedy) from problem
            waiting += [job] if tasks is None else [replace(job, job_id=task) for task in tasks]
        elif job.state in RUNNING and job.start_s <= now_s:
            running.append(job)
    return Present(now_s, tuple(running), tuple(waiting))


def snapshot(trace: Trace, now_s: float) -> Present:
    """Return the jobs of a log that ran or waited at a moment, in seconds on the log's clock."""
    assert trace.start_s is not None
    end_s = trace.start_s + trace.work_iterations
    limits = np.full(len(trace), np.nan) if trace.time_limit_s is None else trace.time_limit_s
    running, waiting = list[SlurmJob](), list[SlurmJob]()
    for row in np.flatnonzero((trace.submit_s <= now_s) & (end_s > now_s)).tolist():
        runs = bool(trace.start_s[row] <= now_s)
        job = SlurmJob(
            line=0,
            job_id=trace.job_id[row],
            user=trace.user[row],
            account=trace.virtual_cluster[row],
            partition="" if trace.partition is None else trace.partition[row],
            qos=str(int(trace.priority[row])),
            state="RUNNING" if runs else "PENDING",
            outcome="",
            submit_s=float(trace.submit_s[row]),
            start_s=float(trace.start_s[row]) if runs else float("nan"),
            end_s=float("nan"),
            duration_s=float("nan"),
            limit_s=float(limits[row]),
            gpus=int(trace.gpus[row]),
            gpu_type=trace.gpu_type[row],
            from_request=False,
            nodes=0 if trace.nodes is None else int(trace.nodes[row]),
        )
        (running if runs else waiting).append(job)
    return Present(now_s, tuple(running), tuple(waiting))
