"""The table of trace formats, and the function that reads a trace of any of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clustergym.inputs.errors import InputError, nearest
from clustergym.inputs.text_files import check_path, decode, first_lines, read_bytes
from clustergym.workload import native
from clustergym.workload.options import ReadOptions
from clustergym.workload.readers import (
    arena,
    arena_simulate,
    durations,
    elasticflow,
    gavel,
    helios,
    openb,
    pai,
    philly,
    philly_json,
    sia,
)
from clustergym.workload.records import trace_of
from clustergym.workload.trace import Trace

__all__ = ["COLUMNS_HELP", "FORMATS", "Format", "ReadOptions", "find_format", "load_trace"]


@dataclass(frozen=True)
class Format:
    """A trace format and its reader.

    Attributes
    ----------
    name : str
    sniff : callable
        (path, first lines) -> whether a file looks like it.
    read : callable
        (path, options) -> Trace.
    """

    name: str
    sniff: Callable[[Path, Sequence[str]], bool]
    read: Callable[[Path, ReadOptions], Trace]


_MODULES = (
    *(durations, native, arena_simulate, arena, philly, philly_json),
    *(helios, openb, pai, sia, gavel, elasticflow),
)


def _reads(module: Any) -> Callable[[Path, ReadOptions], Trace]:
    """Return how a format is read; one of recorded jobs has a `read_log`, and models are drawn for them."""
    return getattr(module, "read", lambda path, options: trace_of(module.read_log(path), options))


FORMATS = {module.NAME: Format(module.NAME, module.sniff, _reads(module)) for module in _MODULES}
"""Formats by name; a file is of the first whose `sniff` says so."""

COLUMNS_HELP = f"""Columns of a trace of your own (a CSV with a header; seconds, or dates for submissions):
  what ran:    {durations.COLUMNS};
               optional: {", ".join(durations.OPTIONAL)}. Models are drawn (--rule).
  native:      {", ".join(native.REQUIRED)};
               optional: {", ".join(native.OPTIONAL)}."""


def find_format(path: Path) -> Format:
    """Detect the format of a file or folder from its name and its first 20 lines or 4 KB.

    Raises
    ------
    InputError
        If it cannot be read, or looks like none of the formats.
    """
    check_path(path)
    lines = first_lines(path)
    for candidate in FORMATS.values():
        if candidate.sniff(path, lines):
            return candidate
    decode(read_bytes(path), path)
    names = ", ".join(FORMATS)
    remedy = f"give columns {durations.COLUMNS}; or say which format with trace.format=NAME"
    raise InputError(f"looks like none of the formats {names}", file=path, line=1, remedy=remedy)


def load_trace(path: str | Path, format: str = "auto", options: ReadOptions | None = None) -> Trace:
    """Read a trace of any format.

    Parameters
    ----------
    path : str or Path
        File, or for `pai` also a folder.
    format : str
        A name of `FORMATS`; `auto`: found out.
    options : ReadOptions, optional

    Raises
    ------
    InputError
        For an unknown format, and at the first thing wrong with the file.
    """
    path = Path(path)
    if format != "auto" and format not in FORMATS:
        raise InputError(
            f"unknown format {format!r}", field="trace.format", remedy=nearest(format, ["auto", *FORMATS])
        )
    check_path(path)
    chosen = find_format(path) if format == "auto" else FORMATS[format]
    return chosen.read(path, options or ReadOptions())
