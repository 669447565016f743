"""Print tables on the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def print_table(table: Table) -> None:
    """Print a table on stdout, at full width if stdout is not a terminal, so that nothing is cut."""
    from rich.console import Console

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    Console(width=None if sys.stdout.isatty() else 1000, highlight=False).print(table)
