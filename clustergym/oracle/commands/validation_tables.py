"""Prints the figures of a validation as tables: single figures first, then one table per grouping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clustergym.oracle.commands.common import percent, text_table
from clustergym.terminal.tables import print_table

Figures = Mapping[str, Any]

SHARES = ("mape", "ape", "error", "p90", "regret", "agreement", "recall", "precision", "share", "fraction")
"""Figures whose names have such a word are shares and shown in percent."""


def human(name: str, value: Any) -> str:
    """Return a figure as text: shares in percent, times in seconds, others with four digits."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    if isinstance(value, int):
        return f"{value:,}"
    words = name.split("_")
    if any(word in SHARES for word in words):
        return percent(value, 2)
    if words[-1] == "s":
        return f"{value:.4g} s"
    return f"{value:.4g}"


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
    deep = {name: row for name, row in group.items() if isinstance(row, Mapping)}
    rows = deep or {"": group}
    if any(isinstance(value, Mapping) for row in rows.values() for value in row.values()):
        for name, inner in rows.items():
            print_figures(f"{title}: {name}", inner)
        return
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    cells = [[name, *(human(c, row.get(c)) for c in columns)] for name, row in rows.items()]
    print()
    print_table(text_table(title, ("", *columns), cells))
