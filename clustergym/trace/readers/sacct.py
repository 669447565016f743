"""Read Slurm's own tables of jobs, `sacct -P` and `squeue -o` with `|` between cells."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from clustergym.cluster.slurm_text import UNKNOWN_TEXTS, Gres, is_array, parse_gres, span_s
from clustergym.common.columns import MAX_GPUS, number, quote_cell
from clustergym.common.errors import InputError
from clustergym.common.left_out import not_read
from clustergym.common.text_files import MOST_ROWS, read_text
from clustergym.trace.records import RecordedJobs
from clustergym.trace.slurm_fields import STATES, CellRules
from clustergym.trace.trace import COMPLETED

NAME = "sacct"
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "job_id": ("jobid", "jobidraw"),
    "submit": ("submit", "submit_time"),
    "eligible": ("eligible", "eligible_time"),
    "start": ("start", "start_time"),
    "end": ("end", "end_time"),
    "seconds": ("elapsedraw",),
    "elapsed": ("elapsed", "time"),
    "state": ("state", "st"),
    "limit_minutes": ("timelimitraw",),
    "limit": ("timelimit", "time_limit"),
    "allocated": ("alloctres", "tres_alloc"),
    "asked": ("reqtres",),
    "per_job": ("tres_per_job",),
    "per_task": ("tres_per_task",),
    "tasks": ("ntasks", "tasks"),
    "per_node": ("allocgres", "reqgres", "tres_per_node", "gres"),
    "nodes": ("nnodes", "allocnodes", "nodes", "reqnodes"),
    "hosts": ("nodelist",),
    "reason": ("reason",),
    "partition": ("partition",),
    "qos": ("qos",),
    "account": ("account",),
    "user": ("user",),
}
"""What is read, and how sacct and squeue head it, in lower case."""
REMEDY = "print it with sacct -a -D -P -o JobID,User,Account,Partition,QOS,Submit,Eligible,Start,End,"
REMEDY += "ElapsedRaw,State,Timelimit,AllocTRES,ReqTRES,NNodes"


NO_TRES = "TRES_PER_NODE is N/A (print tres-alloc, tres-per-job and tres-per-task)"
NO_TASKS = "GPUs for each task, and it is not known how many tasks (print NumTasks)"
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
    no_gpus : str
        Why it has no GPUs, where it has none.
    eligible_s : float
        When it may start at the earliest, since 1970.
    reason : str
        Why it waits, as Slurm prints it.
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
    no_gpus: str = "CPU job"
    eligible_s: float = float("nan")
    reason: str = ""


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file's first line is the header of a Slurm job table (sacct or squeue)."""
    return {"jobid", "state"} <= {cell.strip().lower() for cell in lines[0].split("|")} if lines else False


def read_rows(path: Path, rules: CellRules | None = None) -> tuple[list[SlurmJob], Counter[str], str]:
    """Read a Slurm job table; return its jobs, counts of rows left out by reason, and the file's digest.

    Left out are job steps, and rows with more or fewer cells than the header (a job's name may hold a `|`).
    """
    text, sha256 = read_text(path)
    head, *lines = text.splitlines()
    names = [cell.strip().lower() for cell in head.split("|")]
    at = {key: names.index(found) for key, given in COLUMNS.items() if (found := _first(given, names))}
    for key in ("job_id", "submit", "state"):
        if key not in at:
            raise InputError("column missing", file=path, line=1, field=COLUMNS[key][0], remedy=REMEDY)
    not_read(f"column {name}" for place, name in enumerate(names) if place not in at.values())
    if not at.keys() & {"allocated", "asked", "per_node", "per_job"}:
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
        elif "." in cells[at["job_id"]] and not is_array(cells[at["job_id"]]):
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

    def name(self, key: str) -> str:
        return "" if self.text(key).lower() in UNKNOWN_TEXTS else self.text(key)

    def gres(self, key: str) -> Gres:
        try:
            found = parse_gres(self.text(key))
        except ValueError as problem:
            raise self.error(key, str(problem)) from problem
        not_read(f"resource {name}" for name in found.others)
        return found


def _job(row: _Row, rules: CellRules) -> SlurmJob:
    state = row.text("state").partition(" ")[0].rstrip("+").upper()
    if state not in STATES:
        raise row.error("state", f"{quote_cell(state)} is no state of Slurm")
    submit_s = row.value("submit", rules.moment)
    start_s = row.value("start", lambda cell: rules.moment(cell, submit_s))
    end_s = row.value("end", lambda cell: rules.moment(cell, start_s))
    seconds = row.count("seconds")
    if np.isnan(seconds):
        # A change of the clock can make it negative, as `-0:00:16`, unless `--timezone` says when it was.
        late = row.text("elapsed").startswith("-")
        seconds = row.value("elapsed", lambda cell: -span_s(cell[1:]) if late else span_s(cell))
    if np.isnan(seconds) or seconds < 0 <= end_s - start_s:
        seconds = end_s - start_s
    minutes = row.count("limit_minutes")
    limit_s = row.value("limit", span_s) if np.isnan(minutes) else 60.0 * minutes
    gpus, gpu_type, from_request, no_gpus = _gpus(row)
    if gpus > MAX_GPUS:
        raise row.error("allocated", f"{gpus} GPUs are more than {MAX_GPUS}")
    return SlurmJob(
        line=row.line,
        job_id=row.text("job_id"),
        user=rules.name(row.name("user")),
        account=rules.name(row.name("account")),
        partition=row.name("partition").partition(",")[0],
        qos=row.text("qos"),
        state=state,
        outcome=STATES[state],
        submit_s=submit_s,
        start_s=start_s,
        end_s=end_s,
        duration_s=seconds,
        limit_s=limit_s if limit_s > 0 else float("nan"),
        gpus=gpus,
        gpu_type=gpu_type,
        from_request=from_request,
        nodes=_nodes(row, gpus),
        hosts=row.name("hosts"),
        no_gpus=no_gpus,
        eligible_s=row.value("eligible", lambda cell: rules.moment(cell, submit_s)),
        reason=row.name("reason"),
    )


def _gpus(row: _Row) -> tuple[int, str, bool, str]:
    """Return GPUs, their type, whether they are those that were asked for, and why there are none."""
    counts = {"per_node": _count_nodes(row), "per_task": row.count("tasks")}
    for key in ("allocated", "asked", "per_job", "per_node", "per_task"):
        found, many = row.gres(key), counts.get(key, 1)
        if found.gpus:
            if key == "per_task" and not many < MAX_GPUS:
                return 0, "", False, NO_TASKS
            many = max(int(many) if many < MAX_GPUS else 1, 1)
            return found.gpus * many, found.gpu_type, key != "allocated", ""
        if found.parts:
            return 0, "", False, "MIG devices or shares, no whole GPUs"
    # Squeue's `%b` is N/A both for jobs without GPUs, and for those that ask for GPUs in all.
    known = row.name("allocated") or row.name("asked") or row.name("per_job") or row.text("per_node") == ""
    return 0, "", False, "CPU job" if known else NO_TRES


def _count_nodes(row: _Row) -> float:
    """Return the number of nodes; of a range such as `2-4` the first."""
    return row.value("nodes", lambda cell: number(cell.partition("-")[0]) if cell[:1].isdigit() else np.nan)


def _nodes(row: _Row, gpus: int) -> int:
    """Return the number of nodes that a job asks for; 0: any."""
    nodes, asked = _count_nodes(row), _ASKED_NODES.search(row.text("asked"))
    other = "-" in row.text("nodes") or (asked is not None and int(asked[1]) != nodes)
    return int(nodes) if 0 < nodes <= gpus and not gpus % nodes and not other else 0


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
            job = replace(job, duration_s=np.fmax(job.duration_s, last_s - job.start_s))
        if reason := _why_not(job):
            left_out[reason] += 1
            continue
        guessed["end of a job that still ran: the log's last event, or what it has run so far"] += still
        if job.submit_s < job.eligible_s <= job.start_s:
            job = replace(job, submit_s=job.eligible_s)
            guessed["submission: when it could start (Eligible), later than Submit"] += 1
        guessed["part of a heterogeneous job, taken as a job of its own"] += "+" in job.job_id
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
    if (
        not jobs
        and form != "kueue"
        and set(left_out) <= {"job step", "CPU job", "never ran"}
        and left_out["CPU job"]
    ):
        remedy = "track them: AccountingStorageTRES=gres/gpu in slurm.conf"
        raise InputError("no job has gres/gpu", file=path, field="AllocTRES", remedy=remedy)
    guessed["GPU type: not named, any"] += sum(not job.gpu_type for job in jobs)
    return build_recorded(path, form, sha256, jobs, left_out, facts, guessed)


def _why_not(job: SlurmJob) -> str:
    if np.isnan(job.submit_s):
        return "without a time of submission"
    if is_array(job.job_id) or np.isnan(job.start_s):
        return "never ran"
    if not job.gpus:
        return job.no_gpus
    if job.start_s < job.submit_s:
        return "started before it was submitted"
    if job.duration_s < 0:
        return "ended before it started, by a change of the clock (give --timezone)"
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
