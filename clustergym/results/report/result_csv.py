"""Readers of a result's CSV files, whose errors name the line."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.common.reading import read_regular

REMEDY = "run it again, or leave it out"
LARGEST_BYTES, LARGEST_NUMBER = 2**27, 1e15


def read_table(path: Path, needed: tuple[str, ...]) -> list[dict[str, str]]:
    """Return the rows of a CSV file of a result.

    Raises
    ------
    InputError
        If it cannot be read, lacks a column, or has a row of another length.
    """
    try:
        text = read_regular(path, LARGEST_BYTES, REMEDY).decode("utf-8")
        reader = csv.DictReader(io.StringIO(text, newline=""), restkey="", restval=None, strict=True)
        missing = [name for name in needed if name not in (reader.fieldnames or ())]
        if missing:
            raise InputError("column is missing", file=path, line=1, field=missing[0], remedy=REMEDY)
        rows = []
        for row in reader:
            if "" in row or None in row.values():
                message = "has another number of fields than the header"
                raise InputError(message, file=path, line=reader.line_num, remedy=REMEDY)
            rows.append(row)
        return rows
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"is not CSV text: {error}", file=path, remedy=REMEDY) from None


def column(path: Path, rows: list[dict[str, str]], name: str) -> Floats:
    """Return a column as numbers, NaN where a field is empty.

    Raises
    ------
    InputError
        If a field is not a finite number or is below 0; the error names the first such field.
    """
    values = np.full(len(rows), np.nan)
    for place, row in enumerate(rows):
        try:
            values[place] = float(row[name]) if row[name] else np.nan
        except ValueError:
            values[place] = np.inf
        if row[name] and not 0 <= values[place] < LARGEST_NUMBER:
            what = "below 0" if values[place] < 0 else "not a finite number"
            message = f"{row[name][:40]!r} is {what}"
            raise InputError(message, file=path, line=place + 2, field=name, remedy=REMEDY)
    return values
