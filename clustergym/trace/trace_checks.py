"""Check the columns of a trace; every reader builds its `Trace` through `build_trace`.

Traces whose jobs ask for parts of GPUs, CPU and memory have columns of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clustergym.common.arrays import Bools, Ints
from clustergym.common.columns import LARGEST, MAX_GPUS, check_bounds, integers, numbers, quote_cell, texts
from clustergym.common.errors import InputError, nearest
from clustergym.common.text_files import TextTable
from clustergym.trace.options import TypeNames
from clustergym.trace.trace import FAILED, KILLED, OUTCOMES, PART_COLUMNS, Trace

WHOLE = 1000
"""Thousandths of a GPU."""
MOST_AMOUNT = 10**9
RECORDED = "recorded"
"""Model family of jobs whose log says how long they ran, not what they trained: an iteration is a second."""


class PartColumns(NamedTuple):
    """What n jobs request in parts of GPUs, CPU and memory, as columns in the order of the file."""

    gpus: Ints
    gpu_milli: Ints
    cpu_milli: Ints
    memory_mib: Ints
    gpu_models: Sequence[str]


def read_parts(table: TextTable, gpus: Ints) -> PartColumns | None:
    """Read the columns on parts of GPUs from a trace file; None if there are none.

    Without `gpu_milli` GPUs are whole; CPU and memory default to 0, and models to any.
    """
    if not set(PART_COLUMNS) & table.columns.keys():
        return None
    given = numbers(table, "gpu_milli", low=0, high=WHOLE, default=np.nan)
    # An empty cell means the usual: whole GPUs for a job that has some, and nothing for one that has none.
    milli = np.where(np.isnan(given), np.where(gpus > 0, WHOLE, 0), given).astype(np.int64)
    broken = ~np.isnan(given) & (given != milli)
    if broken.any():
        row = int(np.argmax(broken))
        message, remedy = f"{given[row]:g} is not a whole number", "give thousandths, 1 to 1000"
        raise InputError(message, file=table.path, line=table.line[row], field="gpu_milli", remedy=remedy)
    cpu = integers(table, "cpu_milli", low=0, high=MOST_AMOUNT, default=0)
    memory = integers(table, "memory_mib", low=0, high=MOST_AMOUNT, default=0)
    return PartColumns(gpus, milli, cpu, memory, texts(table, "gpu_models"))


def check_parts(
    parts: PartColumns, path: Path, line: Sequence[int] | Ints, named: Callable[[str], str]
) -> dict[str, Any]:
    """Check requests for parts of GPUs, and return them as columns of a Trace.

    Parameters
    ----------
    parts : PartColumns
    path, line
        Where the rows stand, for error messages.
    named : callable
        Our column -> the file's name of it.
    """
    gpus, milli = parts.gpus, parts.gpu_milli
    check_bounds(milli.astype(np.float64), path, line, named("gpu_milli"), 0, WHOLE)
    for name in ("cpu_milli", "memory_mib"):
        check_bounds(getattr(parts, name).astype(np.float64), path, line, named(name), 0, MOST_AMOUNT)

    def refuse(wrong: Bools, column: str, message: str, remedy: str) -> None:
        if wrong.any():
            row = int(np.argmax(wrong))
            shown = message.format(gpus=int(gpus[row]), milli=int(milli[row]))
            where = int(line[row]) or None
            raise InputError(shown, file=path, line=where, field=named(column), remedy=remedy)

    several = "{milli} asks for a part of each of {gpus} GPUs"
    refuse((gpus > 1) & (milli < WHOLE), "gpu_milli", several, "give 1000, or ask for 1 GPU")
    refuse((gpus > 0) & (milli == 0), "gpu_milli", "0 asks for nothing of a GPU", "give 1 to 1000, or 0 GPUs")
    refuse((gpus == 0) & (milli > 0), "gpu_milli", "{milli} asks for a part of no GPU", "give 0, or 1 GPU")
    nothing = (gpus == 0) & (parts.cpu_milli == 0) & (parts.memory_mib == 0)
    refuse(nothing, "cpu_milli", "the job asks for no GPU, CPU or memory", "say what it needs")
    # In one order, so that equal requests are one class and a trace's digest does not depend on how a file
    # lists them.
    models = ["|".join(sorted({part for part in cell.split("|") if part})) for cell in parts.gpu_models]
    return {
        # A job without GPUs counts as one of 1 with nothing of it: counts of 0 are those of jobs that fit
        # nowhere.
        "gpus": np.maximum(gpus, 1),
        "gpu_milli": milli,
        "cpu_milli": parts.cpu_milli,
        "memory_mib": parts.memory_mib,
        "gpu_models": models,
    }


Column = Sequence[Any] | npt.NDArray[Any]
_TEXTS = ("model_size", "gpu_type", "user", "virtual_cluster")
"""Columns of texts that a source may lack."""
_NUMBERS: dict[str, type[np.generic]] = {
    **dict.fromkeys(("submit_s", "deadline_s", "time_limit_s", "start_s"), np.float64),
    **dict.fromkeys(("line", "gpus", "asked_gpus", "nodes", "priority"), np.int64),
    **dict.fromkeys(("global_batch", "iterations", "end_iterations"), np.int64),
}
"""Columns of numbers, and their types; all others are of texts."""
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_BOUNDS: dict[str, tuple[float | None, float]] = {
    "submit_s": (0.0, LARGEST),
    "global_batch": (1.0, LARGEST),
    "iterations": (1.0, LARGEST),
    "gpus": (1.0, float(MAX_GPUS)),
    "deadline_s": (None, LARGEST),
    "priority": (-LARGEST, LARGEST),
}


def build_trace(
    *,
    path: Path,
    name: str | None = None,
    provenance: dict[str, Any] | None = None,
    source_names: Mapping[str, str] | None = None,
    canonical: TypeNames | None = None,
    parts: PartColumns | None = None,
    **given: Column | None,
) -> Trace:
    """Build a trace from columns: check all values, and sort the jobs by submission.

    Parameters
    ----------
    path : Path
        File the rows come from; it is named in errors, and its stem names the trace.
    name : str, optional
        Name of the trace.
    provenance : dict, optional
        Plain JSON values.
    source_names : mapping, optional
        The source's names of our columns, for error messages.
    canonical : callable, optional
        GPU type name -> canonical name; by default that of the hardware catalogue.
    parts : PartColumns, optional
        What the jobs ask for where that is not whole GPUs alone; its `gpus` take the place of `gpus`.
    job_id, submit_s, model_family, global_batch, iterations, gpus, line
        Columns of length n, as in `Trace`, in the order of the file.
    model_size, gpu_type, deadline_s, priority, user, virtual_cluster : optional
        Columns a source may lack: empty, any, NaN, 0, empty and empty then.
    outcome, end_iterations : optional
        Columns of a trace that keeps outcomes; both or none.
    time_limit_s : optional
        Column of a trace that keeps time limits; NaN: none.
    nodes : optional
        Column of a trace in which jobs ask for numbers of nodes; 0: any.
    start_s, partition : optional
        Columns of a trace whose log says when and where jobs started; NaN and empty: not known.
    asked_gpus : ndarray of int, optional
        GPU counts in the file where `gpus` are rounded.
    """
    columns: dict[str, Any] = {
        column: np.asarray(cells, dtype=_NUMBERS[column]) if column in _NUMBERS else list(cells)
        for column, cells in given.items()
        if cells is not None
    }
    n = len(columns["job_id"])
    columns = dict.fromkeys(_TEXTS, [""] * n) | {"priority": np.zeros(n, dtype=np.int64)} | columns
    columns.setdefault("deadline_s", np.full(n, np.nan))
    if "asked_gpus" in columns and (columns["asked_gpus"] == columns["gpus"]).all():
        del columns["asked_gpus"]
    if parts is not None:
        line = columns["line"].tolist()
        columns |= check_parts(parts, path, line, lambda column: (source_names or {}).get(column, column))
    check = _Checker(path, columns, source_names or {})
    check.everything()
    columns["gpu_type"] = check.gpu_types(canonical or _catalogue_name)
    if (np.diff(columns["submit_s"]) < 0).any():
        order = np.argsort(columns["submit_s"], kind="stable")
        columns = {key: _in_order(column, order) for key, column in columns.items()}
    return Trace(
        name=name or path.stem,
        path=str(path),
        provenance=provenance or {},
        **{key: _freeze_column(column) for key, column in columns.items()},
    )


def _in_order(column: Any, order: npt.NDArray[np.intp]) -> Any:
    return column[order] if isinstance(column, np.ndarray) else [column[row] for row in order.tolist()]


def _freeze_column(column: Any) -> Any:
    return tuple(column) if isinstance(column, list) else column


def _catalogue_name(name: str) -> str:
    from clustergym.cluster.cluster_files import canonical_gpu_type

    return canonical_gpu_type(name)


class _Checker:
    def __init__(self, path: Path, columns: dict[str, Any], source_names: Mapping[str, str]) -> None:
        self.path, self.columns, self.source_names = path, columns, source_names

    def error(self, row: int, column: str, message: str, remedy: str) -> InputError:
        line = int(self.columns["line"][row]) or None
        field = self.source_names.get(column, column)
        return InputError(message, file=self.path, line=line, field=field, remedy=remedy)

    def everything(self) -> None:
        if not self.columns["job_id"]:
            raise InputError(
                "no job is left to simulate", file=self.path, remedy="give a trace with GPU jobs that ran"
            )
        self.texts()
        self.ids()
        self.nodes()
        for column, (low, high) in _BOUNDS.items():
            field = self.source_names.get(column, column)
            check_bounds(
                np.asarray(self.columns[column], dtype=np.float64),
                self.path,
                self.columns["line"],
                field,
                low,
                high,
            )
        self.times()
        if "outcome" in self.columns:
            self.outcomes()

    def texts(self) -> None:
        for column in (
            "job_id",
            "model_family",
            "model_size",
            "user",
            "virtual_cluster",
            "gpu_models",
            "partition",
        ):
            if column not in self.columns:
                continue
            if not UNPRINTABLE.search("".join(self.columns[column])):
                continue
            for row, text in enumerate(self.columns[column]):
                if UNPRINTABLE.search(text):
                    raise self.error(row, column, f"{quote_cell(text)} has a control character", "remove it")
        families = self.columns["model_family"]
        if "" in families:
            raise self.error(families.index(""), "model_family", "is empty", "name the job's model")

    def ids(self) -> None:
        if len(set(self.columns["job_id"]) - {""}) == len(self.columns["job_id"]):
            return
        seen: dict[str, int] = {}
        for row, job in enumerate(self.columns["job_id"]):
            if not job:
                raise self.error(row, "job_id", "is empty", "give every job an id")
            if job in seen:
                first = int(self.columns["line"][seen[job]])
                raise self.error(
                    row, "job_id", f"{quote_cell(job)} is already the job of line {first}", "make ids unique"
                )
            seen[job] = row

    def times(self) -> None:
        submit, deadline = self.columns["submit_s"], self.columns["deadline_s"]
        if np.isnan(submit).any():
            raise self.error(int(np.argmax(np.isnan(submit))), "submit_s", "is not a number", "give seconds")
        late = deadline <= submit
        if late.any():
            row = int(np.argmax(late))
            message = f"deadline {deadline[row]:.17g} is not after the submission at {submit[row]:.17g}"
            raise self.error(row, "deadline_s", message, "deadlines are absolute; leave it empty for none")
        limit = self.columns.get("time_limit_s", np.ones(1))
        if (limit <= 0).any():
            row = int(np.argmax(limit <= 0))
            message = f"{limit[row]:.17g} s is no time to run in"
            raise self.error(row, "time_limit_s", message, "give more than 0; leave it empty for no limit")

    def nodes(self) -> None:
        nodes, gpus = self.columns.get("nodes", np.zeros(1, dtype=np.int64)), self.columns["gpus"]
        uneven = gpus % np.maximum(nodes, 1) != 0
        if uneven.any():
            row = int(np.argmax(uneven))
            message = f"{gpus[row]} GPUs cannot be divided evenly among {nodes[row]} nodes"
            raise self.error(row, "nodes", message, "give a divisor of gpus; leave it empty for any number")

    def outcomes(self) -> None:
        known = ("", *OUTCOMES)
        for row, outcome in enumerate(self.columns["outcome"]):
            if outcome not in known:
                remedy = f"{nearest(outcome, OUTCOMES)}; empty where it is not known"
                raise self.error(row, "outcome", f"{quote_cell(outcome)} is no outcome", remedy)
        end, asked = self.columns["end_iterations"], self.columns["iterations"]
        early = np.array([outcome in (FAILED, KILLED) for outcome in self.columns["outcome"]])
        for wrong, rule in (
            (end < 1, "is below 1"),
            (end > asked, "is more than the job's iterations"),
            (~early & (end != asked), "is not the job's iterations, though it neither failed nor was killed"),
        ):
            if wrong.any():
                row = int(np.argmax(wrong))
                remedy = f"give 1 to {asked[row]}" if early[row] else f"give {asked[row]}, or another outcome"
                raise self.error(row, "end_iterations", f"{end[row]} {rule}", remedy)

    def gpu_types(self, canonical: TypeNames) -> list[str]:
        known = {"": ""}
        for row, name in enumerate(self.columns["gpu_type"]):
            if name not in known:
                try:
                    known[name] = canonical(name)
                except InputError as error:
                    raise self.error(row, "gpu_type", error.message, error.remedy or "") from error
        return [known[name] for name in self.columns["gpu_type"]]
