"""The README's and the docs' tables of ratios, from the boards' tables of figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import yaml
from clustergym.papers.planning import PAPER_COUNTS
from committed_figures import WORLDS, load_tables, speeds_of
from figure_sentences import find_side, state_findings

from clustergym.benchmark.leaderboard.cells import BOUND, FigureTable
from clustergym.benchmark.leaderboard.pairs import Ratio, compare_with_reference, mean_hours
from clustergym.benchmark.leaderboard.table_text import (
    describe_halves,
    describe_table,
    find_title,
    format_ratio,
    list_headers,
    list_sealed,
    list_stopped,
    list_table_rows,
)
from clustergym.common.paths import conf_dir
from clustergym.common.tables import table

COMPARED = (
    *("learned-clusters", "hesrpt-guarded", "optimus-guarded", "sia", "ares", "arena"),
    *("fcfs-backfill", "fcfs", BOUND),
)
"""Rows of the README; docs/results.md has all."""
BACKFILL = "fcfs-backfill"


def world_tables() -> dict[str, FigureTable]:
    """Return the tables of the boards that are columns of the README."""
    return {name: load_tables()[name] for name in WORLDS}


def compared_table() -> str:
    """Return the README's table: ratios to the reference over families, of boards that have any."""
    tables = filled_tables()
    first = next(iter(tables.values()))
    found = {row: [compare_with_reference(one, row).overall for one in tables.values()] for row in COMPARED}
    # The order of the first board; rows that it has no ratio of stand last.
    order = sorted(COMPARED, key=lambda row: getattr(found[row][0], "value", 1e9))
    # Rows that have an interval somewhere: docs/results.md has the others as well.
    told = [row for row in order if any(one and one.low is not None for one in found[row])]
    rows = [[find_title(first, row), *map(format_ratio, found[row])] for row in told]
    heads = ["policy", *(f"`{name}`: {WORLDS[name].partition(': ')[2]}" for name in tables)]
    return table(heads, rows, words=(0,))


@cache
def filled_tables() -> dict[str, FigureTable]:
    """Return the README's boards that have a ratio of one of its rows, beside the reference's."""

    def has_ratio(one: FigureTable) -> bool:
        rows = (row for row in COMPARED if row != one.keys.reference)
        return any(compare_with_reference(one, row).overall is not None for row in rows)

    return {name: one for name, one in world_tables().items() if has_ratio(one)}


def state_main_findings() -> str:
    """Return in two sentences how papers' schedulers, backfill and a learned auction compare with heSRPT."""
    papers, backfilled, learned = list[Ratio](), [], []
    for name, one in filled_tables().items():
        for row in COMPARED:
            ratio = compare_with_reference(one, row).overall
            if row == one.keys.reference or ratio is None or ratio.low is None:
                continue
            if row == BACKFILL:
                backfilled.append(ratio.value)
            elif find_rules(one, row) == "learned":
                learned.append(f"{format_ratio(ratio)} (`{name}`)")
            elif find_rules(one, row) in ("published", "guarded"):
                papers.append(ratio)
    sides = [find_side(ratio) for ratio in papers]
    behind = [ratio.value for ratio, side in zip(papers, sides, strict=True) if side == "behind"]
    return (
        f"Under heSRPT, which gives jobs with less work left more GPUs, the mean JCT is lower "
        f"than under other papers' schedulers in {len(behind)} of {len(papers)} comparisons "
        f"({min(behind):.2f} to {max(behind):.2f} times as long), higher in {sides.count('ahead')}; FCFS "
        f"with backfill has {min(backfilled):.2f} to {max(backfilled):.2f} times heSRPT's. One learned "
        f"auction, trained on other jobs, has {', '.join(learned)}."
    )


def find_rules(one: FigureTable, row: str) -> str:
    """Return whether a row is as published, guarded, simple or learned; nothing for what is no policy."""
    return one.policies[row].rules if row in one.policies else ""


def compare_with_backfill(tables: Mapping[str, FigureTable]) -> str:
    """Return what users ask first: mean JCT in hours beside that of the backfill which they run."""
    parts = []
    for name, one in tables.items():
        hours = {row: mean_hours(one, row) for row in COMPARED if row != BOUND}
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


def all_tables() -> str:
    """Return every row of each board's table of figures, with conditions, findings and limits."""
    tables = world_tables()
    parts = ["\n\n".join(_whole(name, one)) for name, one in tables.items()]
    sealed = [f"- `{name}`: {line}." for name, one in tables.items() for line in list_sealed(one)]
    findings = [state_findings(tables, COMPARED), *sealed]
    parts += ["### Ahead and behind", "\n".join(findings), compare_with_backfill(tables)]
    return "\n\n".join([*parts, describe_limits(next(iter(tables.values())))])


def _whole(name: str, one: FigureTable) -> Iterator[str]:
    yield f"### {WORLDS[name]}"
    yield f"The board [{name}](leaderboards/{name}/README.md). {describe_table(one)}{describe_halves(one)}"
    yield speeds_of([one.board])
    yield table(list_headers(one), list(list_table_rows(one)), words=(0, 1))
    stopped = list_stopped(one)
    if stopped:
        yield "\n".join(f"- {line}" for line in stopped)
