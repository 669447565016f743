"""The columns of traces whose jobs ask for parts of GPUs, CPU and memory, and the columns' checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Ints
from clustergym.common.columns import check_bounds, integers, numbers, texts
from clustergym.common.errors import InputError
from clustergym.common.text_files import TextTable
from clustergym.trace.trace import PART_COLUMNS

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

    Raises
    ------
    InputError
        At the first request that is not possible.
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
    models = ["|".join(sorted({part for part in cell.split("|") if part})) for cell in parts.gpu_models]
    return {
        "gpus": np.maximum(gpus, 1),
        "gpu_milli": milli,
        "cpu_milli": parts.cpu_milli,
        "memory_mib": parts.memory_mib,
        "gpu_models": models,
    }
