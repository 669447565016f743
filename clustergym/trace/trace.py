"""The trace: a validated table of jobs, one row per job, in order of submission.

A part of a trace.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.common.columns import parse_seconds
from clustergym.common.errors import InputError
from clustergym.oracle.models.model_spec import ModelClass

COLUMNS = (
    *("job_id", "submit_s", "model_family", "model_size", "global_batch", "iterations", "gpu_type", "gpus"),
    *("deadline_s", "priority", "user", "virtual_cluster"),
)
"""Columns of the native CSV format, in order."""

OUTCOME_COLUMNS = ("outcome", "end_iterations")
"""Further columns of a trace that keeps the outcomes of its jobs."""

COMPLETED, FAILED, KILLED = OUTCOMES = ("completed", "failed", "killed")
"""Outcomes of jobs; an empty text is one that the log does not say."""
LIMIT_COLUMNS = ("time_limit_s",)
"""Further column of a trace that keeps the time limits of its jobs."""
NODE_COLUMNS = ("nodes",)
"""Further column of a trace in which jobs ask for numbers of nodes."""
PART_COLUMNS = ("gpu_milli", "cpu_milli", "memory_mib", "gpu_models")
"""Further columns where jobs ask for parts of GPUs, CPU or memory."""


@dataclass(frozen=True, eq=False)
class Trace:
    """A list of n jobs in order of submission (ties in the file's order), as columns of length n.

    Attributes
    ----------
    name : str
        Name of the trace.
    job_id : tuple of str
        Unique, not empty.
    submit_s : ndarray of float
        Seconds since the trace's origin, not negative, ascending.
    model_family, model_size : tuple of str
        Keys of the model catalogue; the size is empty for a family of one size.
    global_batch : ndarray of int
        Samples an iteration processes; it never changes while a job runs.
    iterations : ndarray of int
        Iterations to completion, at least 1.
    gpu_type : tuple of str
        Requested GPU type, canonical name; empty: any.
    gpus : ndarray of int
        Requested GPU count, at least 1; 1 also for a job without GPUs, of which `gpu_milli` is 0.
    deadline_s : ndarray of float
        Absolute, on the clock of `submit_s`; NaN: none.
    priority : ndarray of int
        Higher is more urgent; 0 by default.
    user, virtual_cluster : tuple of str
        Empty where unknown.
    line : ndarray of int
        Line of the source file a row was read from; 0 where there is none.
    outcome : tuple of str, optional
        Of `OUTCOMES`, or empty: how the job ended in the log. None: the trace does not keep outcomes.
    end_iterations : ndarray of int, optional
        Iterations after which a job ends, of the `iterations` it asks for: fewer for one that failed or was
        killed. Only a clairvoyant policy knows them. None with `outcome`.
    time_limit_s : ndarray of float, optional
        Seconds that a job asks to run for at most, once started; NaN: it does not say. None: the trace does
        not keep time limits.
    nodes : ndarray of int, optional
        Nodes that a job asks for, with equally many of its GPUs on each; 0: any. None: no job asks for any.
    start_s : ndarray of float, optional
        When each job started in its log, on the clock of `submit_s`; NaN: not known. No run depends on it.
    partition : tuple of str, optional
        Slurm's partition, or another name of where a job asked to run; empty where unknown.
    path : str
        File the rows were read from; empty where there is none.
    provenance : dict
        Plain JSON values: source, format, sha256 of the source, rule, seed, origin.
    gpu_milli, cpu_milli, memory_mib : ndarray of int, or None
        Thousandths of each requested GPU, below 1,000 only where one is requested and 0 for a job
        without GPUs; thousandths of cores; MiB. None: all jobs ask for whole GPUs and nothing else.
    gpu_models : tuple of str, or None
        Models of GPUs that a job accepts, joined by `|`; empty: any.
    asked_gpus : ndarray of int, or None
        GPU counts in the file, of which `gpus` were rounded up; None: no count was. It is not in the native
        format.
    """

    name: str
    job_id: tuple[str, ...]
    submit_s: Floats
    model_family: tuple[str, ...]
    model_size: tuple[str, ...]
    global_batch: Ints
    iterations: Ints
    gpu_type: tuple[str, ...]
    gpus: Ints
    deadline_s: Floats
    priority: Ints
    user: tuple[str, ...]
    virtual_cluster: tuple[str, ...]
    line: Ints
    outcome: tuple[str, ...] | None = None
    end_iterations: Ints | None = None
    time_limit_s: Floats | None = None
    nodes: Ints | None = None
    start_s: Floats | None = None
    partition: tuple[str, ...] | None = None
    path: str = ""
    provenance: dict[str, Any] = field(default_factory=dict)
    gpu_milli: Ints | None = None
    cpu_milli: Ints | None = None
    memory_mib: Ints | None = None
    gpu_models: tuple[str, ...] | None = None
    asked_gpus: Ints | None = None

    @classmethod
    def from_columns(cls, name: str, submit_s: Floats, iterations: Ints, gpus: Ints, **columns: Any) -> Trace:
        """Build a trace from columns; those that are not given are empty.

        Batches are 1 then, ids are row numbers, priorities and lines 0, and no job has a deadline.
        """
        n = len(gpus)
        empty: dict[str, Any] = {
            "job_id": tuple(str(row) for row in range(n)),
            "global_batch": np.ones(n, dtype=np.int64),
            "deadline_s": np.full(n, np.nan),
            **{column: np.zeros(n, dtype=np.int64) for column in ("priority", "line")},
        }
        for column in ("model_family", "model_size", "gpu_type", "user", "virtual_cluster"):
            empty[column] = ("",) * n
        return cls(name=name, submit_s=submit_s, iterations=iterations, gpus=gpus, **{**empty, **columns})

    def __len__(self) -> int:
        return len(self.job_id)

    @property
    def span_s(self) -> float:
        """Seconds from the first to the last submission."""
        return float(self.submit_s[-1] - self.submit_s[0]) if len(self) else 0.0

    @property
    def origin_s(self) -> float | None:
        """Time at which the trace's clock starts, seconds since 1970; None if its log has no dates."""
        origin = self.provenance.get("origin")
        return parse_seconds(origin) if isinstance(origin, str) else None

    @property
    def clock_start_s(self) -> float:
        """The same time for a sum with the trace's times, which stay as they are if its log has no dates."""
        return self.origin_s or 0.0

    @property
    def work_iterations(self) -> Ints:
        """Iterations that each job does before it completes, fails or is killed, shape (n,)."""
        return self.iterations if self.end_iterations is None else self.end_iterations

    def as_asked(self) -> Trace:
        """Return a copy in which all jobs complete, with all the work that users requested."""
        return replace(self, outcome=None, end_iterations=None)

    def as_ran(self) -> Trace:
        """Return a copy in which all jobs complete, with the work that each did in the log."""
        return replace(self.as_asked(), iterations=self.work_iterations)

    @cached_property
    def model_classes(self) -> list[ModelClass]:
        """Model class (family, size and global batch) of each job."""
        columns = self.model_family, self.model_size, self.global_batch.tolist()
        known = {key: ModelClass(*key) for key in set(zip(*columns, strict=True))}
        return [known[key] for key in zip(*columns, strict=True)]

    def model_class(self, row: int) -> ModelClass:
        """Return the model class (family, size and global batch) of the job in a row."""
        return self.model_classes[row]

    def take(self, rows: Sequence[int] | Ints, name: str | None = None) -> Trace:
        """Return a trace of the jobs in the given rows, which must be in order of submission."""
        index = np.asarray(rows, dtype=np.int64)
        columns: dict[str, Any] = {}
        for column in fields(self):
            # By the type of each value, so that a further column of jobs needs no line here.
            value = getattr(self, column.name)
            if isinstance(value, np.ndarray):
                columns[column.name] = value[index]
            elif isinstance(value, tuple):
                columns[column.name] = tuple(value[row] for row in index)
        return replace(self, name=name or self.name, **columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that the trace has in this project's file format."""
        outcomes = () if self.outcome is None else OUTCOME_COLUMNS
        limits = () if self.time_limit_s is None else LIMIT_COLUMNS
        nodes = () if self.nodes is None else NODE_COLUMNS
        return COLUMNS + outcomes + limits + nodes + (() if self.gpu_milli is None else PART_COLUMNS)

    def csv_text(self) -> str:
        """Return the trace as CSV text in this project's format; equal traces give equal text."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.columns)
        gpus = self.gpus.tolist()
        if self.gpu_milli is not None:
            # A job without GPUs counts as one of 1.
            gpus = [whole if milli else 0 for whole, milli in zip(gpus, self.gpu_milli.tolist(), strict=True)]
        columns: list[Iterable[Any]] = [
            self.job_id,
            map(_number, self.submit_s.tolist()),
            self.model_family,
            self.model_size,
            self.global_batch.tolist(),
            self.iterations.tolist(),
            self.gpu_type,
            gpus,
            map(_or_empty, self.deadline_s.tolist()),
            self.priority.tolist(),
            self.user,
            self.virtual_cluster,
        ]
        if self.outcome is not None:
            columns += self.outcome, self.work_iterations.tolist()
        if self.time_limit_s is not None:
            columns.append(map(_or_empty, self.time_limit_s.tolist()))
        if self.nodes is not None:
            columns.append(self.nodes.tolist())
        if self.gpu_milli is not None:
            columns += (list(getattr(self, name)) for name in PART_COLUMNS)
        writer.writerows(zip(*columns, strict=True))
        return buffer.getvalue()

    @property
    def sha256(self) -> str:
        """SHA-256 of the trace's jobs as CSV text; its name, path and provenance do not count."""
        return hashlib.sha256(self.csv_text().encode()).hexdigest()


def _or_empty(seconds: float) -> str:
    return "" if math.isnan(seconds) else _number(seconds)


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def cut_trace(
    trace: Trace,
    *,
    start_s: float | None = None,
    end_s: float | None = None,
    skip: int = 0,
    first: int | None = None,
    rebase: bool = False,
) -> Trace:
    """Return a trace of jobs submitted in [start_s, end_s): skip `skip` of them, keep `first` of the rest.

    Parameters
    ----------
    trace : Trace
    start_s, end_s : float, optional
    skip : int
    first : int, optional
    rebase : bool
        Whether to start the clock at the first submission kept; deadlines move with it.
    """
    for name, value in {"--start-s": start_s, "--end-s": end_s, "--skip": skip, "--first": first}.items():
        if value is not None and not value >= 0:
            raise InputError(f"{value} is negative or no number", field=name, remedy="give 0 or more")
    low = -np.inf if start_s is None else start_s
    high = np.inf if end_s is None else end_s
    # Skipped and counted among the jobs submitted in the span, not among all of the trace.
    rows = np.flatnonzero((trace.submit_s >= low) & (trace.submit_s < high))[skip:][:first]
    if not len(rows):
        raise InputError(
            "no job lies in that part",
            file=trace.path or None,
            remedy=f"it has {len(trace)} jobs in {trace.span_s:g} s",
        )
    part = trace.take(rows)
    origin = float(part.submit_s[0]) if rebase else 0.0
    chosen = {"start_s": start_s, "end_s": end_s, "skip": skip, "first": first, "rebased_by_s": origin}
    return replace(
        part,
        submit_s=np.round(part.submit_s - origin, 6) if rebase else part.submit_s,
        deadline_s=np.round(part.deadline_s - origin, 6) if rebase else part.deadline_s,
        provenance={
            **trace.provenance,
            "slices": [*trace.provenance.get("slices", []), {"of": trace.sha256, **chosen}],
        },
    )
