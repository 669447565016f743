"""Read Microsoft Philly as published (ATC '19): `cluster_job_log`, a JSON list of jobs with attempts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustergym.common.columns import parse_seconds, quote_cell
from clustergym.common.errors import InputError
from clustergym.common.left_out import not_read
from clustergym.common.text_files import read_text
from clustergym.trace.outcomes import UNKNOWN
from clustergym.trace.records import RecordedJobs
from clustergym.trace.trace import COMPLETED, FAILED, KILLED

NAME = "philly-json"
STATUSES = {"PASS": COMPLETED, "KILLED": KILLED, "FAILED": FAILED}
"""Statuses of jobs after all their attempts, in upper case."""
_BLANK = re.compile(r"[ \t\r\n]*")
_JSON_TYPES = {"dict": "object", "list": "list", "str": "string"}
_CUT = "check that the file is whole"


class Job(NamedTuple):
    """A job of Philly's JSON log, with the fields that become part of a trace."""

    row: int
    line: int
    job_id: str
    submit_s: float
    duration_s: float
    gpus: int
    user: str
    virtual_cluster: str
    outcome: str


class LeftOutError(Exception):
    """Raised for a job that is left out as it did not run on GPUs; the message says why."""


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file's first lines look like a JSON list, as Philly's log is."""
    return "".join(lines).lstrip().startswith("[")


def entries(text: str, path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the items of a JSON list one by one, as (line number, value)."""
    decoder = json.JSONDecoder()
    position, line, counted = _blank(text, 0), 1, 0
    if text[position : position + 1] != "[":
        raise InputError(
            "is not a JSON list of jobs", file=path, line=1, remedy="give Philly's cluster_job_log"
        )
    position = _blank(text, position + 1)
    while text[position : position + 1] != "]":
        line += text.count("\n", counted, position)
        counted = position
        try:
            # One job at a time: so each has a line for errors, and the file's JSON is never in memory as a
            # whole.
            value, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise InputError(
                f"broken JSON: {error.msg}", file=path, line=error.lineno, remedy=_CUT
            ) from error
        except (RecursionError, ValueError) as error:
            raise InputError(f"broken JSON: {error}", file=path, line=line, remedy=_CUT) from error
        yield line, value
        position = _blank(text, position)
        if text[position : position + 1] == ",":
            position = _blank(text, position + 1)
        elif text[position : position + 1] != "]":
            where = line + text.count("\n", counted, position)
            raise InputError("broken JSON: expected ',' or ']'", file=path, line=where, remedy=_CUT)
    if text[position + 1 :].strip():
        where = line + text.count("\n", counted, position)
        raise InputError("broken JSON: text after the list", file=path, line=where, remedy=_CUT)


def _blank(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return match.end() if match else position


class _Entry:
    """The JSON of one job; its errors name the job's line."""

    def __init__(self, value: Any, path: Path, line: int) -> None:
        self.path, self.line = path, line
        self.value = self.of_type(value, dict, "job")

    def error(self, field: str, message: str) -> InputError:
        return InputError(
            message, file=self.path, line=self.line, field=field, remedy="see Philly's cluster_job_log"
        )

    def of_type(self, value: Any, expected_type: type, field: str) -> Any:
        if not isinstance(value, expected_type):
            raise self.error(field, f"is not a JSON {_JSON_TYPES[expected_type.__name__]}")
        return value

    def text(self, field: str) -> str:
        value = self.value.get(field)
        return "" if value is None else str(self.of_type(value, str, field)).strip()

    def moment(self, holder: dict[str, Any], field: str) -> float | None:
        value = holder.get(field)
        if value is None or value in ("None", ""):
            return None
        try:
            return parse_seconds(self.of_type(value, str, field))
        except ValueError as problem:
            raise self.error(field, str(problem)) from problem


JOB_KEYS = frozenset({"attempts", "jobid", "status", "submitted_time", "user", "vc"})
ATTEMPT_KEYS = frozenset({"detail", "end_time", "start_time"})


def _job(entry: _Entry, row: int) -> Job:
    not_read(entry.value.keys() - JOB_KEYS)
    for field in ("jobid", "submitted_time", "attempts"):
        if field not in entry.value:
            raise entry.error(field, "is missing")
    submit_s = entry.moment(entry.value, "submitted_time")
    if submit_s is None:
        raise entry.error("submitted_time", "is empty")
    duration_s, gpus = _ran(entry)
    return Job(
        row,
        entry.line,
        entry.text("jobid"),
        submit_s,
        duration_s,
        gpus,
        entry.text("user"),
        entry.text("vc"),
        _outcome(entry),
    )


def _outcome(entry: _Entry) -> str:
    status = entry.text("status")
    if status and status.upper() not in STATUSES:
        raise entry.error("status", f"{quote_cell(status)} is none of {', '.join(STATUSES).title()}")
    return STATUSES[status.upper()] if status else UNKNOWN


def _ran(entry: _Entry) -> tuple[float, int]:
    """Return the seconds of all attempts together, and the GPUs of the last attempt that had any."""
    duration_s, gpus, ended = 0.0, 0, False
    for attempt in entry.of_type(entry.value["attempts"], list, "attempts"):
        attempt = entry.of_type(attempt, dict, "attempts")
        not_read(attempt.keys() - ATTEMPT_KEYS)
        # The last attempt that lists GPUs counts: one that was ended before it had any says nothing of the
        # job's size.
        gpus = _gpus(entry, attempt) or gpus
        start, end = entry.moment(attempt, "start_time"), entry.moment(attempt, "end_time")
        if start is None or end is None:
            continue
        if end < start:
            raise LeftOutError("attempt ends before it starts")
        duration_s, ended = duration_s + end - start, True
    if not ended:
        raise LeftOutError("never ran")
    if not gpus:
        raise LeftOutError("CPU job")
    if not duration_s:
        raise LeftOutError("ran 0 s")
    return duration_s, gpus


def _gpus(entry: _Entry, attempt: dict[str, Any]) -> int:
    nodes = entry.of_type(attempt.get("detail") or [], list, "detail")
    return sum(
        len(entry.of_type(entry.of_type(node, dict, "detail").get("gpus") or [], list, "gpus"))
        for node in nodes
    )


def read_log(path: Path) -> RecordedJobs:
    """Read Philly's job log in JSON, which does not name the jobs' models.

    It gives submission (dated), seconds of all attempts, GPUs, user, virtual cluster and outcome.
    The GPUs are those of a job's last attempt that lists any. It leaves out jobs without GPUs, jobs of
    0 s, jobs without an attempt that has both a start and an end, and jobs with an attempt that ends
    before it starts (possible because the log is in local time).
    """
    text, sha256 = read_text(path)
    jobs, left_out, row = [], Counter[str](), -1
    for row, (line, value) in enumerate(entries(text, path)):
        try:
            jobs.append(_job(_Entry(value, path, line), row))
        except LeftOutError as reason:
            left_out[str(reason)] += 1
    if row < 0:
        raise InputError("the list is empty", file=path, remedy="give at least one job")
    return RecordedJobs(
        path=path,
        format=NAME,
        sha256=sha256,
        row=np.array([job.row for job in jobs], dtype=np.int64),
        line=[job.line for job in jobs],
        job_id=[job.job_id for job in jobs],
        submit_s=np.array([job.submit_s for job in jobs], dtype=np.float64),
        duration_s=np.array([job.duration_s for job in jobs], dtype=np.float64),
        gpus=np.array([job.gpus for job in jobs], dtype=np.int64),
        left_out=left_out,
        user=[job.user for job in jobs],
        outcome=[job.outcome for job in jobs] if any(job.outcome for job in jobs) else None,
        virtual_cluster=[job.virtual_cluster for job in jobs],
        source_names={"job_id": "jobid", "submit_s": "submitted_time", "virtual_cluster": "vc"},
    )
