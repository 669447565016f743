"""Convert columns of text cells to numbers, dates and names; errors name line and column of a bad cell."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import InputError
from clustergym.common.text_files import TextTable

LARGEST = 2.0**53
"""Numbers of a trace must be smaller: from here on, a float cannot represent every integer."""
MAX_GPUS = 1_000_000
DAY_S = 86_400.0

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_EPOCH = datetime(1970, 1, 1)


def quote_cell(cell: str) -> str:
    """Return a cell's text in quotes, shortened if it is long, for an error message."""
    return repr(cell if len(cell) <= 40 else cell[:37] + "…")


def number(cell: str) -> float:
    """Parse the text of a table's cell as a finite number.

    Raises
    ------
    ValueError
        The message says what is wrong with the cell.
    """
    if not cell:
        raise ValueError("is empty")
    if not _NUMBER.fullmatch(cell):
        raise ValueError(f"{quote_cell(cell)} is not a finite number")
    value = float(cell)
    if abs(value) >= LARGEST:
        raise ValueError(f"{quote_cell(cell)} is too large (limit 2^53)")
    return value


def parse_seconds(cell: str) -> float:
    """Parse a date and time as seconds since 1970, in UTC unless a time zone is given.

    Raises
    ------
    ValueError
        The message says what is wrong with the cell.
    """
    if not _DATE.fullmatch(cell):
        raise ValueError(f"{quote_cell(cell)} is not a time" if cell else "is empty")
    try:
        moment = datetime.fromisoformat(cell)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{quote_cell(cell)} is not a time: {error}") from error
    return (moment - _EPOCH).total_seconds()


def _convert(table: TextTable, column: str, convert: Callable[[str], Any], remedy: str) -> list[Any]:
    cells = table.columns[column]
    try:
        return [convert(cell) for cell in cells]
    except ValueError:
        for cell, line in zip(cells, table.line, strict=True):
            try:
                convert(cell)
            except ValueError as error:
                raise InputError(
                    str(error), file=table.path, line=line, field=column, remedy=remedy
                ) from error
        raise


def check_bounds(
    values: Floats,
    file: str | Path,
    line: Sequence[int] | Ints,
    field: str,
    low: float | None = None,
    high: float | None = None,
) -> None:
    """Raise an `InputError` at the first value outside [low, high]; NaN is allowed."""
    least, most = -np.inf if low is None else low, np.inf if high is None else high
    for bad, word, remedy in (
        (values < least, "below", f"give at least {least:.17g}"),
        (values > most, "above", f"give at most {most:.17g}"),
    ):
        if bad.any():
            row = int(np.argmax(bad))
            message = f"{values[row]:.17g} is {word} {least if word == 'below' else most:.17g}"
            raise InputError(message, file=file, line=int(line[row]) or None, field=field, remedy=remedy)


def numbers(
    table: TextTable,
    column: str,
    *,
    low: float | None = None,
    high: float | None = None,
    default: float | None = None,
) -> Floats:
    """Return a column of a table as finite numbers, shape (n,).

    Parameters
    ----------
    table : TextTable
    column : str
    low, high : float, optional
        Least and greatest value allowed.
    default : float, optional
        Value of empty cells and of a missing column; without a default both are errors.
    """
    if default is None:
        values = _convert(table, column, number, "give a number")
    elif column not in table.columns:
        return np.full(len(table), default)
    else:
        values = _convert(table, column, lambda cell: number(cell) if cell else default, "give a number")
    column_values = np.array(values, dtype=np.float64)
    check_bounds(column_values, table.path, table.line, column, low, high)
    return column_values


def integers(
    table: TextTable,
    column: str,
    *,
    low: float | None = None,
    high: float | None = None,
    default: int | None = None,
) -> Ints:
    """Return a column of a table as whole numbers, shape (n,)."""
    values = numbers(table, column, low=low, high=high, default=default)
    broken = values != np.floor(values)
    if broken.any():
        row = int(np.argmax(broken))
        message = f"{quote_cell(table.columns[column][row])} is not a whole number"
        raise InputError(
            message, file=table.path, line=table.line[row], field=column, remedy="give a whole number"
        )
    return values.astype(np.int64)


def dates(table: TextTable, column: str, missing: Collection[str] = ()) -> Floats:
    """Return a column of dates and times as seconds since 1970, shape (n,).

    Parameters
    ----------
    table : TextTable
    column : str
    missing : collection of str, optional
        Texts, in lower case, that stand for no time: NaN.
    """

    def convert(cell: str) -> float:
        return np.nan if cell.lower() in missing else parse_seconds(cell)

    return np.array(_convert(table, column, convert, "give YYYY-MM-DD HH:MM:SS"), dtype=np.float64)


def durations(table: TextTable, start_s: Floats, end_s: Floats, start: str, end: str) -> Floats:
    """Return the seconds from start to end times, shape (n,); NaN where either is missing.

    Raises
    ------
    InputError
        At the first row of a table that ends before it starts; `start` and `end` are its columns.
    """
    early = end_s < start_s
    if early.any():
        row = int(np.argmax(early))
        cells = table.columns[start][row], table.columns[end][row]
        message = f"{quote_cell(cells[1])} lies before {start} {quote_cell(cells[0])}"
        remedy = f"mend {end} or {start}, or leave the row out"
        raise InputError(message, file=table.path, line=table.line[row], field=end, remedy=remedy)
    return end_s - start_s


def texts(table: TextTable, column: str) -> list[str]:
    """Return a column of a table as texts; a missing column gives empty ones."""
    return table.columns.get(column, [""] * len(table))


def round_up_counts(gpus: Ints) -> Ints:
    """Round each count of GPUs up to a power of two."""
    bits = np.frexp(gpus - 1)[1]
    return np.int64(1) << bits.astype(np.int64)


def from_first(submit_s: Floats) -> tuple[Floats, float]:
    """Return times relative to the first, rounded to microseconds, and the first time itself."""
    origin = float(submit_s.min())
    return np.round(submit_s - origin, 6), origin


def relative_origin(submit_s: Floats) -> float:
    """Return the first submission time, to be subtracted from all, or 0 if it is less than a day.

    Later first times are of a trace that was cut from a longer one, or counts from 1970.
    """
    first = float(submit_s.min())
    return first if first > DAY_S else 0.0


def iso(seconds: float) -> str:
    """Format seconds since 1970 as `YYYY-MM-DDTHH:MM:SS`."""
    return datetime.fromtimestamp(seconds, tz=UTC).replace(tzinfo=None).isoformat()
