"""Read Gavel's `.trace` files (OSDI '20): tab-separated, without a header, in two layouts.

By default `total_steps` are the job's iterations and the batch in its job type is its global batch. With
`ReadOptions.gavel_steps="worker"` the batch is each worker's and `total_steps` counts the steps of all
workers, so the global batch is the batch times the workers and an iteration one step of every worker: the
same samples in fewer, larger iterations. Gavel's published rates speak for that reading (LM at batch 5
makes 109 steps/s on one V100 and 699 on eight, where no batch is left to split).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.common.columns import (
    MAX_GPUS,
    integers,
    numbers,
    quote_cell,
    relative_origin,
    round_up_counts,
)
from clustergym.common.errors import InputError, require_known
from clustergym.common.text_files import TextTable, decode, read_bytes
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.trace.draw import choose_reference
from clustergym.trace.options import ReadOptions
from clustergym.trace.records import FAMILIES, families, provenance
from clustergym.trace.trace import Trace
from clustergym.trace.trace_checks import build_trace

NAME = "gavel"
LAYOUTS = {
    10: (
        *("job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps"),
        *("scale_factor", "priority_weight", "SLO", "arrival_time"),
    ),
    7: (
        *("job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps", "arrival_time"),
        "scale_factor",
    ),
}
"""Names of the fields by their number: the layout of the physical traces, and the older one of MSR's."""
NO_BATCH = {"a3c": 4, "cyclegan": 1}
"""Batch of job types whose names do not say it: A3C has four workers, CycleGAN trains on single images."""
_JOB_TYPE = re.compile(r"(?P<model>.+?)\s*(\(batch size (?P<batch>\d{1,9})\))?", re.ASCII)
_NAMES = {
    "submit_s": "arrival_time",
    "gpus": "scale_factor",
    "iterations": "total_steps",
    "deadline_s": "SLO",
}


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file's first lines look like a trace of Gavel."""
    if path.suffix == ".trace":
        return True
    return bool(lines) and lines[0].count("\t") + 1 in LAYOUTS


def read_table(path: Path) -> TextTable:
    """Read the fields of a trace file of Gavel, all of whose rows must have the same layout."""
    content = read_bytes(path)
    rows = [
        (number, [cell.strip() for cell in line.split("\t")])
        for number, line in enumerate(decode(content, path).replace("\r\n", "\n").split("\n"), 1)
        if line.strip()
    ]
    names = LAYOUTS.get(len(rows[0][1]), LAYOUTS[10])
    for number, cells in rows:
        if len(cells) != len(names):
            message = f"the row has {len(cells)} fields, not {len(names)}"
            raise InputError(message, file=path, line=number, remedy="separate 10 (or 7) fields by tabs")
    columns = {name: [cells[index] for _, cells in rows] for index, name in enumerate(names)}
    return TextTable(path, columns, [number for number, _ in rows], hashlib.sha256(content).hexdigest())


def parse_models(job_types: Sequence[str], path: Path, line: Sequence[int] = ()) -> list[tuple[str, int]]:
    """Parse Gavel's job types into (model family, batch per worker); `line` is for error messages."""
    lines: Sequence[int | None] = line or [None] * len(job_types)
    matches = [_JOB_TYPE.fullmatch(cell) for cell in job_types]
    names = [match["model"] if match else cell for match, cell in zip(matches, job_types, strict=True)]
    family = families(names, FAMILIES, path, lines, "job_type")
    batches = []
    for name, match, cell, at in zip(family, matches, job_types, lines, strict=True):
        batch = int(match["batch"]) if match and match["batch"] else NO_BATCH.get(name, 0)
        if batch < 1:
            remedy = "give it as in ResNet-18 (batch size 64)"
            raise InputError(
                f"{quote_cell(cell)} names no batch", file=path, line=at, field="job_type", remedy=remedy
            )
        batches.append(batch)
    return list(zip(family, batches, strict=True))


def _deadlines(
    table: TextTable,
    submit_s: Floats,
    classes: list[ModelClass],
    steps: Ints,
    gpus: Ints,
    options: ReadOptions,
) -> Floats:
    """Return the deadlines: arrival + SLO x run time on the reference GPU; NaN if the SLO is not positive."""
    slo = numbers(table, "SLO", default=-1.0)
    deadline_s = np.full(len(table), np.nan)
    # Gavel's deadline is a multiple of the run time on its reference GPU, so that a trace does not say it in
    # seconds.
    for row in np.flatnonzero(slo > 0).tolist():
        time_s = choose_reference(options)(classes[row], options.reference_gpu, int(gpus[row]))
        if not np.isfinite(time_s):
            where = options.reference_gpu or f"GPUs of {options.reference_cluster}"
            message = f"{classes[row].model} does not fit on {gpus[row]} {where}"
            remedy = "choose another reference GPU: an SLO is a multiple of the run time there"
            raise InputError(message, file=table.path, line=table.line[row], field="SLO", remedy=remedy)
        deadline_s[row] = submit_s[row] + slo[row] * steps[row] * time_s
    return deadline_s


def _factor(options: ReadOptions, gpus: Ints) -> Ints:
    """Return how many times larger the whole job's batch is than the batch in the trace, shape (n,)."""
    choices = {"job": np.ones_like(gpus), "worker": gpus}
    require_known(options.gavel_steps, choices, "value", "gavel_steps")
    return choices[options.gavel_steps]


def read(path: Path, options: ReadOptions) -> Trace:
    """Read a trace of Gavel.

    A positive SLO is a multiple of the job's run time alone: its deadline is arrival + SLO x iterations
    x the reference iteration time at `options.reference_gpu`. `priority_weight` becomes the priority.
    """
    table = read_table(path)
    arrival_s = numbers(table, "arrival_time", low=0)
    origin = relative_origin(arrival_s)
    submit_s = np.round(arrival_s - origin, 6)
    workers = integers(table, "scale_factor", low=1, high=MAX_GPUS)
    gpus = round_up_counts(workers) if options.power_of_two else workers
    models = parse_models(table.columns["job_type"], path, table.line)
    family, batch = [name for name, _ in models], np.array([size for _, size in models], dtype=np.int64)
    steps = integers(table, "total_steps", low=1)
    factor = _factor(options, gpus)
    iterations, batch = -(-steps // factor), batch * factor
    classes = [ModelClass(name, "", int(size)) for name, size in zip(family, batch, strict=True)]
    return build_trace(
        path=path,
        line=table.line,
        job_id=[f"gavel-{row}" for row in range(len(table))],
        submit_s=submit_s,
        model_family=family,
        global_batch=batch,
        iterations=iterations,
        gpus=gpus,
        asked_gpus=workers,
        deadline_s=_deadlines(table, submit_s, classes, iterations, gpus, options),
        priority=integers(table, "priority_weight", low=0, default=0),
        source_names=_NAMES,
        provenance=provenance(
            path, NAME, table.sha256, origin, fields=len(table.columns), steps_of=options.gavel_steps
        ),
    )
