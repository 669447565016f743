"""Tables on the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def print_table(table: Table) -> None:
    """Print on stdout; where that is no terminal, as wide as the table is, so that nothing is cut."""
    from rich.console import Console

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    Console(width=None if sys.stdout.isatty() else 1000, highlight=False).print(table)
