"""Read Slurm's own tables of jobs, `sacct -P` and `squeue -o` with `|` between cells."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from clustergym.cluster.slurm_text import UNKNOWN_TEXTS, gpus_of_gres, gpus_of_tres, read_gpus
from clustergym.common.columns import MAX_GPUS, number, quote_cell
from clustergym.common.errors import InputError
from clustergym.common.text_files import MOST_ROWS, read_text
from clustergym.trace.records import RecordedJobs
from clustergym.trace.slurm_fields import STATES, CellRules, span_s, waiting_tasks
from clustergym.trace.trace import COMPLETED

NAME = "sacct"
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "job_id": ("jobid", "jobidraw"),
    "submit": ("submit", "submit_time"),
    "start": ("start", "start_time"),
    "end": ("end", "end_time"),
    "seconds": ("elapsedraw",),
    "elapsed": ("elapsed", "time"),
    "state": ("state", "st"),
    "limit_minutes": ("timelimitraw",),
    "limit": ("timelimit", "time_limit"),
    "allocated": ("alloctres", "tres_alloc"),
    "asked": ("reqtres",),
    "per_node": ("allocgres", "reqgres", "tres_per_node", "gres"),
    "nodes": ("nnodes", "allocnodes", "nodes", "reqnodes"),
    "hosts": ("nodelist",),
    "partition": ("partition",),
    "qos": ("qos",),
    "account": ("account",),
    "user": ("user",),
}
"""What is read, and how sacct and squeue head it, in lower case."""
REMEDY = "print it with sacct -a -P -o JobID,User,Account,Partition,QOS,Submit,Start,End,ElapsedRaw,State,"
REMEDY += "Timelimit,AllocTRES,ReqTRES,NNodes"


_ASKED_NODES = re.compile(r"(?:^|,)node=(\d{1,6})(?:,|$)", re.ASCII)


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A row of Slurm's table of jobs; unknown times are NaN, and unknown texts empty.

    Attributes
    ----------
    line : int
    job_id, user, account, partition, qos, state, outcome : str
        State as Slurm prints it; outcome as in `clustergym.trace.outcomes`.
    submit_s, start_s, end_s : float
        Since 1970.
    duration_s, limit_s : float
    gpus : int
    gpu_type : str
    from_request : bool
        Whether the GPUs are those asked for, as the row says of none that they were allocated.
    nodes : int
        On how many nodes it is to have its GPUs, equally many on each; 0: any, or not known.
    hosts : str
        Names of the nodes that it has, as `gpu[01-03,07]`; empty: not known, or none.
    """

    line: int
    job_id: str
    user: str
    account: str
    partition: str
    qos: str
    state: str
    outcome: str
    submit_s: float
    start_s: float
    end_s: float
    duration_s: float
    limit_s: float
    gpus: int
    gpu_type: str
    from_request: bool
    nodes: int = 0
    hosts: str = ""


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file's first line is the header of a Slurm job table (sacct or squeue)."""
    return {"jobid", "state"} <= {cell.strip().lower() for cell in lines[0].split("|")} if lines else False


def read_rows(path: Path, rules: CellRules | None = None) -> tuple[list[SlurmJob], Counter[str], str]:
    """Read a Slurm job table; return its jobs, counts of rows left out by reason, and the file's digest.

    Left out are job steps, and rows with more or fewer cells than the header (a job's name may hold a `|`).

    Raises
    ------
    InputError
        At the first cell that is not what Slurm prints, and for a column that is missing.
    """
    text, sha256 = read_text(path)
    head, *lines = text.splitlines()
    names = [cell.strip().lower() for cell in head.split("|")]
    at = {key: names.index(found) for key, given in COLUMNS.items() if (found := _first(given, names))}
    for key in ("job_id", "submit", "state"):
        if key not in at:
            raise InputError("column missing", file=path, line=1, field=COLUMNS[key][0], remedy=REMEDY)
    if not at.keys() & {"allocated", "asked", "per_node"}:
        raise InputError("has no column of GPUs", file=path, line=1, field="AllocTRES", remedy=REMEDY)
    if len(lines) > MOST_ROWS:
        raise InputError(f"more than {MOST_ROWS:,} rows", file=path, remedy="give a part of it")
    left_out, jobs = Counter[str](), []
    for line, row in enumerate(lines, start=2):
        cells = row.split("|")
        if not row.strip():
            continue
        if len(cells) != len(names):
            left_out["cells do not fit the header"] += 1
        elif "." in cells[at["job_id"]]:
            left_out["job step"] += 1
        else:
            jobs.append(_job(_Row(path, line, cells, at), rules or CellRules()))
    return jobs, left_out, sha256


def _first(given: Sequence[str], names: Sequence[str]) -> str | None:
    return next((name for name in given if name in names), None)


class _Row:
    """The cells of one row by what they are; an error names the row's line and the column."""

    def __init__(self, path: Path, line: int, cells: Sequence[str], at: Mapping[str, int]) -> None:
        self.path, self.line, self._cells, self._at = path, line, cells, at

    def text(self, key: str) -> str:
        return self._cells[self._at[key]].strip() if key in self._at else ""

    def error(self, key: str, message: str) -> InputError:
        return InputError(message, file=self.path, line=self.line, field=COLUMNS[key][0], remedy=REMEDY)

    def value(self, key: str, convert: Callable[[str], float]) -> float:
        try:
            return convert(self.text(key))
        except ValueError as problem:
            raise self.error(key, str(problem)) from problem

    def count(self, key: str) -> float:
        return self.value(key, lambda cell: number(cell) if cell[:1].isdigit() else float("nan"))


def _job(row: _Row, rules: CellRules) -> SlurmJob:
    state = row.text("state").partition(" ")[0].rstrip("+").upper()
    if state not in STATES:
        raise row.error("state", f"{quote_cell(state)} is no state of Slurm")
    start_s, end_s = row.value("start", rules.moment), row.value("end", rules.moment)
    seconds = row.count("seconds")
    if np.isnan(seconds):
        seconds = row.value("elapsed", span_s)
    if np.isnan(seconds):
        seconds = end_s - start_s
    if seconds < 0:
        raise row.error(
            "end", f"{quote_cell(row.text('end'))} lies before the start {quote_cell(row.text('start'))}"
        )
    minutes = row.count("limit_minutes")
    limit_s = row.value("limit", span_s) if np.isnan(minutes) else 60.0 * minutes
    gpus, gpu_type, from_request = _gpus(row)
    if gpus > MAX_GPUS:
        raise row.error("allocated", f"{gpus} GPUs are more than {MAX_GPUS}")
    return SlurmJob(
        line=row.line,
        job_id=row.text("job_id"),
        user=rules.name(row.text("user")),
        account=row.text("account"),
        partition=row.text("partition").partition(",")[0],
        qos=row.text("qos"),
        state=state,
        outcome=STATES[state],
        submit_s=row.value("submit", rules.moment),
        start_s=start_s,
        end_s=end_s,
        duration_s=seconds,
        limit_s=limit_s if limit_s > 0 else float("nan"),
        gpus=gpus,
        gpu_type=gpu_type,
        from_request=from_request,
        nodes=_nodes(row, gpus),
        hosts="" if row.text("hosts").lower() in UNKNOWN_TEXTS else row.text("hosts"),
    )


def _gpus(row: _Row) -> tuple[int, str, bool]:
    """Return GPUs, their type, and whether they are those that were asked for."""
    allocated, gpu_type = read_gpus(row.text("allocated"))
    if allocated:
        return allocated, gpu_type, False
    asked, gpu_type = gpus_of_tres(row.text("asked"))
    if asked:
        return asked, gpu_type, True
    each, gpu_type = gpus_of_gres(row.text("per_node"))
    nodes = row.count("nodes")
    return each * max(int(nodes) if nodes < MAX_GPUS else 1, 1), gpu_type, bool(each)


def _nodes(row: _Row, gpus: int) -> int:
    """Return the number of nodes that a job asks for; 0: any."""
    nodes, asked = row.count("nodes"), _ASKED_NODES.search(row.text("asked"))
    if not 0 < nodes <= gpus or gpus % nodes or (asked is not None and int(asked[1]) != nodes):
        return 0
    return int(nodes)


def read_log(
    path: Path, rules: CellRules | None = None, type_of_partition: Mapping[str, str] | None = None
) -> RecordedJobs:
    """Read from a Slurm job table the jobs that ran; their models are not named."""
    rows, left_out, sha256 = read_rows(path, rules)
    return build_log(path, NAME, sha256, rows, left_out, type_of_partition or {})


def build_log(
    path: Path,
    form: str,
    sha256: str,
    rows: Sequence[SlurmJob],
    left_out: Counter[str],
    type_of_partition: Mapping[str, str],
) -> RecordedJobs:
    """Keep those jobs of a table that ran; report what was read, left out and guessed.

    A run of a job that was requeued is a job of its own. A job that still ran when the table was printed is
    taken to end with the table's last event.

    Parameters
    ----------
    path, form, sha256
        Of the table.
    rows : sequence of SlurmJob
    left_out : Counter
        What its reader left out already, by reason.
    type_of_partition : mapping
        GPU types of jobs whose row names none, by partition.
    """
    facts = {"rows": len(rows) + left_out.total()}
    moments = [time for job in rows for time in (job.submit_s, job.start_s, job.end_s) if time == time]
    last_s, guessed, seen = max(moments, default=0.0), Counter[str](), Counter[str]()
    jobs, numbered = list[SlurmJob](), any(job.nodes for job in rows)
    for job in rows:
        still = not job.outcome and job.end_s != job.end_s
        if still:
            job = replace(job, duration_s=last_s - job.start_s)
        if reason := _why_not(job):
            left_out[reason] += 1
            continue
        guessed["end of a job that still ran: the log's last event"] += still
        if not job.gpu_type and job.partition in type_of_partition:
            job = replace(job, gpu_type=type_of_partition[job.partition])
            guessed["GPU type: the partition's"] += 1
        guessed["GPUs: those asked for, none are said to be allocated"] += job.from_request
        guessed["number of nodes: any, those it had are not those it asked for"] += numbered and not job.nodes
        seen[job.job_id] += 1
        if seen[job.job_id] > 1:
            job = replace(job, job_id=f"{job.job_id}-run{seen[job.job_id]}")
            guessed["a run of a requeued job, taken as a job of its own"] += 1
        jobs.append(job)
    guessed["GPU type: not named, any"] += sum(not job.gpu_type for job in jobs)
    return build_recorded(path, form, sha256, jobs, left_out, facts, guessed)


def _why_not(job: SlurmJob) -> str:
    if np.isnan(job.submit_s):
        return "without a time of submission"
    if waiting_tasks(job.job_id) is not None or np.isnan(job.start_s):
        return "never ran"
    if not job.gpus:
        return "CPU job"
    if job.start_s < job.submit_s:
        return "started before it was submitted"
    return "" if job.duration_s > 0 else "ran 0 s"


def build_recorded(
    path: Path,
    form: str,
    sha256: str,
    jobs: Sequence[SlurmJob],
    left_out: Counter[str],
    facts: Mapping[str, int],
    guessed: Counter[str],
) -> RecordedJobs:
    """Convert jobs to columns, with a report of what was read, left out and guessed."""
    limits = np.array([job.limit_s for job in jobs], dtype=np.float64)
    nodes = np.array([job.nodes for job in jobs], dtype=np.int64)
    return RecordedJobs(
        path=path,
        format=form,
        sha256=sha256,
        row=np.arange(len(jobs)),
        line=[job.line for job in jobs],
        job_id=[job.job_id for job in jobs],
        submit_s=np.array([job.submit_s for job in jobs], dtype=np.float64),
        start_s=np.array([job.start_s for job in jobs], dtype=np.float64),
        duration_s=np.array([job.duration_s for job in jobs], dtype=np.float64),
        gpus=np.array([job.gpus for job in jobs], dtype=np.int64),
        gpu_type=[job.gpu_type for job in jobs],
        user=[job.user for job in jobs],
        virtual_cluster=[job.account for job in jobs],
        partition=[job.partition for job in jobs],
        outcome=[job.outcome for job in jobs],
        time_limit_s=None if np.isnan(limits).all() else limits,
        nodes=nodes if nodes.any() else None,
        left_out=+left_out,
        source_names={"job_id": "JobID", "submit_s": "Submit", "gpus": "AllocTRES"},
        facts={**facts, "guessed": dict(+guessed), "completed": sum(j.outcome == COMPLETED for j in jobs)},
    )
