"""The README's and the docs' tables of ratios, from the boards' tables of figures."""

from __future__ import annotations

from collections.abc import Mapping

import yaml
from committed_figures import WORLDS, load_tables, speeds_of
from figure_sentences import state_findings

from clustergym.benchmark.leaderboard.cells import BOUND, FigureTable
from clustergym.benchmark.leaderboard.pairs import BEST, Comparison, compare_with_reference, mean_hours
from clustergym.benchmark.leaderboard.table_text import (
    describe_table,
    find_title,
    format_ratio,
    list_sealed,
)
from clustergym.common.paths import conf_dir
from clustergym.common.tables import table
from clustergym.oracle.calibration.accuracy import PAPER_COUNTS

COMPARED = (
    *("learned-none", "hesrpt-guarded", "hesrpt", "optimus-guarded", "optimus", "sia", "pollux", "arena"),
    *("gandiva-guarded", "ares", "fcfs-backfill", "fcfs", "random", BEST, BOUND),
)
"""Rows of the README; a board's page has all."""
BACKFILL = "fcfs-backfill"


def world_tables() -> dict[str, FigureTable]:
    """Return the tables of the boards that are columns of the README."""
    return {name: load_tables()[name] for name in WORLDS}


def compared_table() -> str:
    """Return the README's table: ratios to the reference over families, and in parentheses by family."""
    tables = world_tables()
    first = next(iter(tables.values()))
    found = {row: [compare_with_reference(one, row) for one in tables.values()] for row in COMPARED}
    # The order of the first board; rows that it has no ratio of stand last.
    order = sorted(COMPARED, key=lambda row: getattr(found[row][0].overall, "value", 1e9))
    rows = [
        [find_title(first, row), find_rules(first, row), *(format_cell(one) for one in found[row])]
        for row in order
    ]
    heads = ["policy", "rules", *(f"{WORLDS[name]} (board `{name}`)" for name in tables)]
    families = ", ".join(first.keys.scenarios)
    parts = [
        f"{describe_table(first)} In parentheses the families {families}, then n.",
        table(heads, rows, words=(0, 1)),
        state_findings(tables, COMPARED),
        "\n".join(f"- `{name}`: {line}." for name, one in tables.items() for line in list_sealed(one)),
        compare_with_backfill(tables),
        describe_limits(first),
        speeds_of(one.board for one in tables.values()),
    ]
    return "\n\n".join(filter(None, parts))


def find_rules(one: FigureTable, row: str) -> str:
    """Return whether a row is as published, guarded, simple or learned; nothing for what is no policy."""
    return one.policies[row].rules if row in one.policies else ""


def format_cell(found: Comparison) -> str:
    """Return a ratio over families with its interval, then each family's and the number of seeds."""
    families = [one for one in found.families.values() if one]
    shown = format_ratio(found.overall)
    if found.overall is None:
        return shown
    each = f" ({' · '.join(f'{one.value:.2f}' for one in families)})" if len(families) > 1 else ""
    return f"{shown}{each} {found.overall.seeds}"


def compare_with_backfill(tables: Mapping[str, FigureTable]) -> str:
    """Return what users ask first: mean JCT in hours beside that of the backfill which they run."""
    parts = []
    for name, one in tables.items():
        hours = {row: mean_hours(one, row) for row in COMPARED if row not in (BEST, BOUND)}
        known = {row: value for row, value in hours.items() if value is not None}
        if BACKFILL not in known:
            continue
        best = sorted(known, key=lambda row: known[row])[:3]
        texts = [f"{find_title(one, row)} {known[row]:.1f} h" for row in best]
        parts.append(f"`{name}`: {known[BACKFILL]:.1f} h under backfill; {', '.join(texts)}")
    return "Mean JCT in hours: " + ". ".join(parts) + "." if parts else ""


def describe_limits(one: FigureTable) -> str:
    """Return what is extrapolated, what a search costs, and what the training of learned policies saw."""
    costs = yaml.safe_load((conf_dir() / "costs" / "default.yaml").read_text(encoding="utf-8"))
    longest_s = costs["search_s_max"][costs["search"]]
    saw = [
        f"*{policy.title}* was trained on other jobs, but with the boards' {', '.join(policy.seen)}."
        for policy in (one.policies[row] for row in COMPARED if row in one.policies)
        if policy.seen
    ]
    text = (
        f"Speeds on more than {max(PAPER_COUNTS)} GPUs are extrapolated, and on Arena's clusters a search "
        f"for a parallel plan costs at most {longest_s:.0f} s; the boards' conditions change both."
    )
    return " ".join([text, *saw])
