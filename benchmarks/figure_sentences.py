"""Sentences on what the boards' tables of figures found, each made of the figures and of nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import log

from clustergym.benchmark.leaderboard.cells import FigureTable
from clustergym.benchmark.leaderboard.pairs import Ratio, compare_with_reference


def state_findings(tables: Mapping[str, FigureTable], names: Iterable[str]) -> str:
    """Return who is ahead of the reference and who behind, and what reverses that, for boards with ratios."""
    listed = [*names]
    known = {
        name: one
        for name, one in tables.items()
        if any(_overall(one, row) for row in listed if row in one.policies and row != one.keys.reference)
    }
    return "\n".join(f"- {state_board(name, one, listed)}" for name, one in known.items())


def state_board(board: str, table: FigureTable, names: Iterable[str]) -> str:
    """Return what a board's table says of policies against its reference.

    A policy is ahead or behind only where its whole interval is; other rows with one are not told apart. A
    condition that was run counts against a sentence where its point estimate has the other sign.
    """
    reference = table.policies[table.keys.reference].title
    found = {
        name: one
        for name in names
        if name in table.policies
        and name != table.keys.reference
        and (one := _overall(table, name))
        and one.low is not None
    }
    sides: dict[str, list[str]] = {"ahead": [], "behind": [], "not told apart": []}
    for name, ratio in sorted(found.items(), key=lambda item: item[1].value):
        sides[find_side(ratio)].append(_describe(table, name, ratio))
    parts = [f"ahead of {reference}", f"behind {reference}", "not told apart from it"]
    texts = [f"{part}: {', '.join(rows)}" for part, rows in zip(parts, sides.values(), strict=True) if rows]
    reversed_in = list_reversals(table, found)
    ran = [label for label in table.keys.conditions if any(_overall(table, name, label) for name in found)]
    if ran:
        turned = "; ".join(reversed_in)
        held = f"Reversed under {turned}" if turned else "No condition that was run reverses one"
        texts.append(f"{held} ({', '.join(ran)})")
    return f"`{board}`: " + ". ".join(text[:1].upper() + text[1:] for text in texts) + "."


def find_side(ratio: Ratio) -> str:
    """Return on which side of 1 an interval lies; without an interval nothing is told apart."""
    if ratio.low is None or ratio.high is None or ratio.low <= 1.0 <= ratio.high:
        return "not told apart"
    return "ahead" if ratio.high < 1.0 else "behind"


def list_reversals(table: FigureTable, found: Mapping[str, Ratio]) -> list[str]:
    """Return the conditions under which a policy that is ahead or behind is on the other side."""
    out = []
    for label in table.keys.conditions:
        turned = [
            table.policies[name].title
            for name, usual in found.items()
            if find_side(usual) != "not told apart"
            and (there := _overall(table, name, label)) is not None
            and log(there.value) * log(usual.value) < 0.0
        ]
        if turned:
            out.append(f"{label}: {', '.join(turned)}")
    return out


def _overall(table: FigureTable, name: str, condition: str = "") -> Ratio | None:
    return compare_with_reference(table, name, condition).overall


def _describe(table: FigureTable, name: str, ratio: Ratio) -> str:
    """Return a row with its ratio; if its families lie more than two times apart, with each of theirs."""
    families = {key: one.value for key, one in compare_with_reference(table, name).families.items() if one}
    apart = max(families.values()) / min(families.values()) > 2.0
    each = f" ({', '.join(f'{key} {value:.2f}' for key, value in families.items())})" if apart else ""
    return f"{table.policies[name].title} {ratio.value:.2f}{each}"
