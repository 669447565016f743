"""Tables in Markdown, and figures in them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[int] = (0,)) -> str:
    """Return a Markdown table: columns of `words`, by position, to the left, the others to the right."""
    lines = [headers, ["---" if at in words else "---:" for at in range(len(headers))], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def percent(value: float) -> str:
    """Return a share as signed percent."""
    return f"{100 * value:+.2f} %"
