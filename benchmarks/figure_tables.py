"""The README's and the docs' tables of ratios, from the boards' tables of figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.cells import BOUND, TABLE_FILE, FigureTable, load_table
from clustergym.benchmark.leaderboard.fill import drop_stale, take_fingerprints
from clustergym.benchmark.leaderboard.pairs import BEST, compare_with_reference, mean_hours
from clustergym.benchmark.leaderboard.table_text import (
    TITLES,
    describe_table,
    format_ratio,
    list_headers,
    list_stopped,
    list_table_rows,
)
from clustergym.common.tables import table

LEADERBOARDS = Path(__file__).parent.parent / "leaderboards"
CLUSTERS = {
    "testbed": "`testbed`: 64 GPUs of two types",
    "ares": "`ares`: 64 GPUs of one type",
    "scale": "`scale`: 1,280 GPUs of four types",
    "llm-2026": "`llm-2026`: 1,024 H100 and 576 GB200",
}
"""Boards with a table of figures; those without one have no column."""
COMPARED = (
    *("learned-none", "hesrpt-guarded", "hesrpt", "optimus-guarded", "optimus", "sia", "pollux", "arena"),
    *("gandiva-guarded", "ares", "fcfs-backfill", "fcfs", "random", BEST, BOUND),
)
"""Rows of the README; docs/results.md has all."""
BACKFILL = "fcfs-backfill"


@cache
def load_tables() -> dict[str, FigureTable]:
    """Return the tables of figures that there are, without stale rows."""
    found = {}
    for name in CLUSTERS:
        if (LEADERBOARDS / name / TABLE_FILE).is_file():
            whole = load_table(load_board(name, LEADERBOARDS))
            found[name] = drop_stale(whole, take_fingerprints(whole))
    return found


def compared_table() -> str:
    """Return the README's table: ratios to the reference over families, and in parentheses by family."""
    tables = load_tables()
    first = next(iter(tables.values()))
    found = {
        (row, name): compare_with_reference(one, row) for row in COMPARED for name, one in tables.items()
    }
    order = sorted(COMPARED, key=lambda row: _value(found[row, next(iter(tables))].overall))
    rows = []
    for row in order:
        cells = []
        for name in tables:
            families = [one for one in found[row, name].families.values() if one]
            shown = format_ratio(found[row, name].overall)
            each = " · ".join(f"{one.value:.2f}" for one in families)
            seeds = min((one.seeds for one in families), default=0)
            whole = found[row, name].overall is not None and len(families) > 1
            cells.append(f"{shown} ({each}) {seeds}" if whole else shown)
        rules = first.policies[row].rules if row in first.policies else ""
        rows.append([TITLES.get(row) or first.policies[row].title, rules, *cells])
    heads = ["policy", "rules", *(CLUSTERS[name] for name in tables)]
    families = ", ".join(first.keys.scenarios)
    return (
        f"{describe_table(first)} In parentheses the families {families}, then n. "
        "[?]: fewer than eight seeds.\n\n"
        + table(heads, rows, words=(0, 1))
        + "\n\n"
        + against_backfill(tables)
    )


def _value(found: object) -> float:
    return getattr(found, "value", 1e9)


def against_backfill(tables: dict[str, FigureTable]) -> str:
    """Return what users ask first: mean JCT in hours beside that of the backfill which they run."""
    parts = []
    for name, one in tables.items():
        hours = {row: mean_hours(one, row) for row in COMPARED if row not in (BEST, BOUND)}
        known = {row: value for row, value in hours.items() if value is not None}
        if BACKFILL not in known:
            continue
        best = sorted(known, key=lambda row: known[row])[:3]
        texts = [f"{one.policies[row].title} {known[row]:.1f} h" for row in best]
        parts.append(f"`{name}`: {known[BACKFILL]:.1f} h under backfill; {', '.join(texts)}")
    return "Mean JCT in hours: " + ". ".join(parts) + "." if parts else ""


def all_tables() -> str:
    """Return every row of each board's table of figures, with conditions and what does not end."""
    return "\n\n".join("\n\n".join(_whole(name, one)) for name, one in load_tables().items())


def _whole(name: str, one: FigureTable) -> Iterator[str]:
    yield f"### {CLUSTERS[name]}"
    yield describe_table(one)
    yield table(list_headers(one), list(list_table_rows(one)), words=(0, 1))
    stopped: Sequence[str] = list_stopped(one)
    if stopped:
        yield "\n".join(f"- {line}" for line in stopped)
