"""The queue of a cluster now: running and waiting jobs, as Slurm and Kueue print them."""

import calendar
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clustergym.cluster.slurm_text import host_names, is_array, waiting_tasks
from clustergym.common.errors import InputError
from clustergym.common.left_out import leave_out, not_modelled
from clustergym.common.text_files import check_path, first_lines
from clustergym.trace.readers import kueue, sacct
from clustergym.trace.readers.sacct import SlurmJob
from clustergym.trace.slurm_fields import CellRules
from clustergym.trace.trace import Trace

RUNNING = ("RUNNING", "R", "COMPLETING", "CG", "CONFIGURING", "CF", "SUSPENDED", "S", "STOPPED")
WAITING = ("PENDING", "PD")
MOST_TASKS = 10_000
"""Most waiting tasks of all arrays together; those behind them are left out."""
ORDINARY = ("", "Resources", "Priority", "BeginTime", "JobArrayTaskLimit", "Cleaning")
"""Slurm's reasons for waiting that a simulation follows; it takes those in `ENDLESS` as waiting for ever."""
ENDLESS = ("held", "dependency", "badconstraints", "invalid", "inactive", "partitiondown", "deadline")


@dataclass(frozen=True)
class Present:
    """The running and waiting jobs of a cluster at one moment.

    Attributes
    ----------
    now_s : float
        Since 1970, on the clock of the jobs' times.
    running, waiting : tuple of SlurmJob
        A waiting job whose submission is later than now may not start before.
    at_once : mapping of str to int
        How many tasks of an array may run at once, by its number, for those that have such a limit.
    path : Path
        File of the jobs.
    """

    now_s: float
    running: tuple[SlurmJob, ...]
    waiting: tuple[SlurmJob, ...]
    at_once: Mapping[str, int] = field(default_factory=dict)
    path: Path = Path("now")


def read_queue(path: Path, now: str | None = None) -> Present:
    """Read a cluster's running and waiting GPU jobs from the output of squeue, sacct or Kueue.

    Parameters
    ----------
    path : Path
    now : str, optional
        When it was printed, as `2026-03-01T12:00:00`; None: when the file was last changed, in local time as
        Slurm prints, in UTC for Kueue.
    """
    check_path(path)
    lines = first_lines(path)
    of_kueue = kueue.sniff(path, lines)
    rows, left_out, _ = kueue.read_rows(path) if of_kueue else sacct.read_rows(path)
    for reason, count in left_out.items():
        if reason != "job step":
            leave_out("row", reason, count)
    changed_s = path.stat().st_mtime
    now_s = changed_s if of_kueue else float(calendar.timegm(time.localtime(changed_s)))
    if now is not None:
        try:
            now_s = CellRules().moment(now)
        except ValueError as problem:
            raise InputError(str(problem), field="--now", remedy="give 2026-03-01T12:00:00") from problem
    columns = {cell.strip().lower() for cell in lines[0].split("|")} if lines else set()
    if "eligible" in columns and "reason" not in columns:
        # Tasks beyond those that may run at once are not eligible either.
        rows = [
            job if job.eligible_s == job.eligible_s or "%" in job.job_id else replace(job, reason="held")
            for job in rows
        ]
    elif not of_kueue and "reason" not in columns and any(job.state in WAITING for job in rows):
        not_modelled(["held, dependent and delayed jobs, as there is no column REASON (print %r)"])
    return find_present(rows, now_s, path)


def find_present(rows: Sequence[SlurmJob], now_s: float, path: Path) -> Present:
    """Return the jobs of a table that ran or waited at a moment; a waiting job array becomes its tasks.

    Jobs of other states, and those that wait for ever or for other jobs, are left out.
    """
    running, waiting, at_once = list[SlurmJob](), list[SlurmJob](), dict[str, int]()
    tasks_left = MOST_TASKS
    for job in rows:
        if reason := _why_not(job, now_s):
            leave_out("job", reason)
            continue
        try:
            host_names(job.hosts)
            tasks = waiting_tasks(job.job_id) if is_array(job.job_id) else None
        except ValueError as problem:
            remedy = "print it with squeue -a -r"
            raise InputError(str(problem), file=path, line=job.line, remedy=remedy) from problem
        if job.state in RUNNING:
            running.append(job)
        elif tasks is None:
            waiting.append(_delayed(job, now_s))
        else:
            names = tasks.job_ids(tasks_left)
            leave_out("task", f"more than {MOST_TASKS:,} tasks of arrays wait", len(tasks) - len(names))
            waiting += [replace(_delayed(job, now_s), job_id=name) for name in names]
            tasks_left -= len(names)
            at_once |= {tasks.array: tasks.at_once} if tasks.at_once else {}
    if any("+" in job.job_id for job in waiting):
        not_modelled(["heterogeneous jobs, whose parts start together"])
    return Present(now_s, tuple(running), tuple(waiting), at_once, path)


def _why_not(job: SlurmJob, now_s: float) -> str:
    """Return why a job counts neither as running nor as waiting."""
    if not job.gpus:
        return job.no_gpus
    if not job.submit_s <= now_s:
        return "submitted later than the present (--now)"
    if job.state in RUNNING:
        return "" if job.start_s <= now_s else "started later than the present (--now)"
    if job.state not in WAITING:
        return f"its state is {job.state}"
    if any(word in job.reason.lower() for word in ENDLESS):
        return f"waits for more than GPUs ({job.reason})"
    if job.reason not in ORDINARY:
        not_modelled([f"reason {job.reason}"])
    return ""


def _delayed(job: SlurmJob, now_s: float) -> SlurmJob:
    """Return a waiting job as submitted when it may start, from when Slurm counts its age, too."""
    begin_s = job.start_s if job.reason == "BeginTime" else job.eligible_s
    return replace(job, submit_s=begin_s) if begin_s > now_s else job


def waiting_job(**known: Any) -> SlurmJob:
    """Return a job that waits, of which no table of Slurm says more than its request."""
    known |= dict.fromkeys(("start_s", "end_s", "duration_s"), float("nan"))
    return SlurmJob(line=0, state="PENDING", outcome="", from_request=True, **known)


def log_job(log: Trace, row: int) -> SlurmJob:
    """Return a job of a log as one that waits, with its submission on the log's clock."""
    return waiting_job(
        job_id=log.job_id[row],
        user=log.user[row],
        account=log.virtual_cluster[row],
        partition="" if log.partition is None else log.partition[row],
        qos=str(int(log.priority[row])),
        submit_s=float(log.submit_s[row]),
        limit_s=float("nan") if log.time_limit_s is None else float(log.time_limit_s[row]),
        gpus=int(log.gpus[row]),
        gpu_type=log.gpu_type[row],
        nodes=0 if log.nodes is None else int(log.nodes[row]),
    )
