"""CSV files of a result, read with a line number for whatever is wrong."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from clustergym.errors import InputError
from clustergym.report.series import Floats

REMEDY = "run it again, or leave it out"


def read_table(path: Path, needed: tuple[str, ...]) -> list[dict[str, str]]:
    """Return the rows of a CSV file of a result.

    Raises
    ------
    InputError
        If it cannot be read, lacks a column, or has a row of another length.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, restkey="", restval=None, strict=True)
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
    except OSError as error:
        raise InputError(error.strerror or "cannot be read", file=path, remedy=REMEDY) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"is no CSV text: {error}", file=path, remedy=REMEDY) from None


def column(path: Path, rows: list[dict[str, str]], name: str) -> Floats:
    """Return a column as numbers, NaN where a field is empty.

    Raises
    ------
    InputError
        Names the first field that is no finite number.
    """
    values = np.full(len(rows), np.nan)
    for place, row in enumerate(rows):
        try:
            values[place] = float(row[name]) if row[name] else np.nan
        except ValueError:
            values[place] = np.inf
        if np.isinf(values[place]) or (row[name] and np.isnan(values[place])):
            message = f"{row[name][:40]!r} is no finite number"
            raise InputError(message, file=path, line=place + 2, field=name, remedy=REMEDY)
    return values
