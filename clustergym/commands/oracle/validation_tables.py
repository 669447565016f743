"""Prints the figures of a validation as tables: single figures first, then one table per grouping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clustergym.commands.oracle.common import percent, text_table
from clustergym.common.tables import print_table

Figures = Mapping[str, Any]

SHARES = {"mape", "ape", "p90", "regret", "agreement", "recall", "share"}
"""Figures whose names have such a word are shares and shown in percent."""


def human(name: str, value: float | None) -> str:
    """Return a figure as text: shares in percent, other fractions with four digits."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return percent(value, 2) if SHARES & {*name.split("_")} else f"{value:.4g}"


def print_figures(title: str, figures: Figures) -> None:
    """Print single figures as one table, and each group of figures as another.

    A mapping of plain figures (as of a group of its own) is a table of one row.
    """
    print(title)
    single = {name: value for name, value in figures.items() if not isinstance(value, Mapping)}
    if single:
        print_table(text_table("", ("figure", "value"), [(n, human(n, v)) for n, v in single.items()]))
    for name, group in figures.items():
        if isinstance(group, Mapping) and group:
            _print_group(name.replace("_", " "), group)


def _print_group(title: str, group: Figures) -> None:
    rows = {name: row for name, row in group.items() if isinstance(row, Mapping)} or {"": group}
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    cells = [[name, *(human(c, row.get(c)) for c in columns)] for name, row in rows.items()]
    print()
    print_table(text_table(title, ("", *columns), cells))
