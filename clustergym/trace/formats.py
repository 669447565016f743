"""The table of trace formats, and the function that reads a trace of any of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clustergym.common.errors import InputError, require_known
from clustergym.common.left_out import leave_out, recording
from clustergym.common.text_files import check_path, decode, first_lines, header, read_bytes
from clustergym.trace import native
from clustergym.trace.options import ReadOptions
from clustergym.trace.readers import (
    acme,
    alibaba_2025,
    alibaba_2026,
    arena,
    arena_simulate,
    durations,
    elasticflow,
    gavel,
    helios,
    kueue,
    openb,
    pai,
    philly,
    philly_json,
    sacct,
    sia,
    slurmdbd,
    supercloud,
    swf,
)
from clustergym.trace.records import build_recorded_trace
from clustergym.trace.trace import Trace

__all__ = ["COLUMNS_HELP", "FORMATS", "Format", "ReadOptions", "find_format", "load_trace"]


@dataclass(frozen=True)
class Format:
    """A file format of traces, with the functions that recognise and read it.

    Attributes
    ----------
    name : str
    sniff : callable
        (path, first lines) -> whether a file looks like it.
    read : callable
        (path, options) -> Trace.
    columns : tuple of tuple of str
        Columns that its header must have, each by any of its names; empty for a format without a header.
    """

    name: str
    sniff: Callable[[Path, Sequence[str]], bool]
    read: Callable[[Path, ReadOptions], Trace]
    columns: tuple[tuple[str, ...], ...]


_MODULES = (
    *(sacct, slurmdbd, kueue, durations, native, arena_simulate, arena, acme, supercloud, alibaba_2025),
    *(alibaba_2026, philly, philly_json, helios, openb, pai, sia, swf, gavel, elasticflow),
)


def _reads(module: Any) -> Callable[[Path, ReadOptions], Trace]:
    """Return the reader of a format; for formats with `read_log`, models are drawn for recorded jobs."""
    return getattr(module, "read", lambda path, options: build_recorded_trace(module.read_log(path), options))


def _columns(module: Any) -> tuple[tuple[str, ...], ...]:
    if module is durations:
        return durations.SUBMIT, durations.DURATION, durations.GPUS
    return tuple((column,) for column in getattr(module, "REQUIRED", ()))


FORMATS = {
    module.NAME: Format(module.NAME, module.sniff, _reads(module), _columns(module)) for module in _MODULES
}
"""Formats by name; a file is of the first whose `sniff` says so."""

COLUMNS_HELP = f"""Columns of a trace of your own (a CSV with a header; seconds, or dates for submissions):
  what ran:    {durations.COLUMNS};
               optional: {", ".join(durations.OPTIONAL)}. Models are drawn (--rule).
  native:      {", ".join(native.REQUIRED)};
               optional: {", ".join(native.OPTIONAL)}."""


def find_format(path: Path) -> Format:
    """Detect the format of a file or folder from its name and its first 20 lines or 4 KB."""
    check_path(path)
    lines = first_lines(path)
    found = _detect_format(path, lines)
    if found is not None:
        return found
    decode(read_bytes(path), path)
    names = ", ".join(FORMATS)
    remedy = f"give columns {durations.COLUMNS}; or say which format with trace.format=NAME"
    message = f"looks like none of the formats {names}{_nearest_formats(header(lines))}"
    raise InputError(message, file=path, line=1, remedy=remedy)


def _detect_format(path: Path, lines: Sequence[str]) -> Format | None:
    return next((candidate for candidate in FORMATS.values() if candidate.sniff(path, lines)), None)


def _nearest_formats(found: set[str], most: int = 3) -> str:
    """Return a clause on the formats that a header shares most columns with, and what it lacks of them."""
    lacks = {
        form.name: [" or ".join(names) for names in form.columns if not found & set(names)]
        for form in FORMATS.values()
    }
    shared = {name: 1 - len(lacks[name]) / max(len(FORMATS[name].columns), 1) for name in lacks}
    near = sorted((name for name in lacks if 0 < shared[name] <= 1 and lacks[name]), key=lambda n: -shared[n])
    clauses = [f"not {name}: no column {', '.join(lacks[name])}" for name in near[:most]]
    return f"; {'; '.join(clauses)}" if clauses else ""


def load_trace(path: str | Path, format: str = "auto", options: ReadOptions | None = None) -> Trace:
    """Read a trace from a file in any known format.

    Parameters
    ----------
    path : str or Path
        File, or for `pai` also a folder.
    format : str
        A name of `FORMATS`; `auto`: found out.
    options : ReadOptions, optional
    """
    path = Path(path)
    require_known(format, ["auto", *FORMATS], "format", "trace.format")
    check_path(path)
    options = options or ReadOptions()
    form = find_format(path) if format == "auto" else FORMATS[format]
    try:
        with recording(str(path.absolute())) as notes:
            trace = form.read(path, options)
            not_used = notes.figures()
            # The provenance of a native trace repeats what its import left out, and that was said then.
            told = {} if form.name == native.NAME else trace.provenance.get("left_out", {})
            for reason, count in told.items():
                leave_out("job", reason, count)
    except InputError as error:
        looks = _detect_format(path, first_lines(path))
        if format == "auto" or error.file is None or looks is None or looks.name == format:
            raise
        raise InputError(
            error.message,
            file=error.file,
            line=error.line,
            field=error.field,
            remedy=f"{error.remedy or 'mend it'}; the file looks like format {looks.name}, not {format}",
        ) from error
    return replace(trace, provenance={**trace.provenance, "not_used": not_used}) if not_used else trace
