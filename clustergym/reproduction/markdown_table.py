"""Tables in Markdown and the figures in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], words: Sequence[int] = (0,)) -> str:
    """Return a Markdown table: columns of `words`, by position, to the left, the others to the right."""
    lines = [headers, ["---" if at in words else "---:" for at in range(len(headers))], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float | int | None, decimals: int = 0) -> str:
    """Return a figure for a table; `-` where there is none."""
    return "-" if value is None else f"{value:,.{decimals}f}"


def change(value: float | None, reference: float | None) -> str:
    """Return a relative difference in percent, signed; `-` where it has no meaning."""
    return "-" if value is None or not reference else f"{100 * (value / reference - 1):+.0f} %"
