"""Tables for the terminal and in Markdown, and figures in them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from clustergym.common.errors import visible

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


def print_table(table: Table) -> None:
    """Print a table on stdout; if that is no terminal, at full width, so that nothing is cut."""
    from rich.console import Console

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    Console(width=None if sys.stdout.isatty() else 1000, highlight=False).print(table)


def text_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    caption: str = "",
    words: Collection[int] = (0,),
    **options: Any,
) -> Table:
    """Make a table for `print_table` from texts; columns numbered in `words` are aligned left.

    `options` are those of Rich's tables. Texts are shown as they are; Rich reads no markup in them.
    """
    from rich.table import Table
    from rich.text import Text

    shown = {"title_justify": "left", **options}
    made = Table(title=Text(title) if title else None, caption=Text(caption) if caption else None, **shown)
    for position, name in enumerate(columns):
        made.add_column(Text(name), justify="left" if position in words else "right", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return made


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[int] = (0,)) -> str:
    """Return a Markdown table; the columns numbered in `words` are aligned left, others right."""
    lines = [headers, ["---" if at in words else "---:" for at in range(len(headers))], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def markdown_text(text: str) -> str:
    """Return a text that Markdown shows as it is: without cells, tags and links of its own."""
    for mark, written in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("](", "]\\(")):
        text = text.replace(mark, written)
    return visible(text)


def percent(value: float) -> str:
    """Format a share from -1 to 1 as a signed percentage."""
    return f"{100 * value:+.2f} %"
