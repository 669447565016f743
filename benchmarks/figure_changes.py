"""What changes a board's ratios: seeds, divisor, guard, cap of GPUs and prices, each alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clustergym.benchmark.leaderboard.cells import FigureTable
from clustergym.benchmark.leaderboard.pairs import compare_with_reference
from clustergym.benchmark.leaderboard.table_text import find_title, format_ratio
from clustergym.common.tables import table

DIVISOR = "fcfs"
CONDITIONS = {
    "measured-counts": "cap: 16 GPUs",
    "search-60-s": "price: search of 60 s",
    "search-120-s": "price: search of 120 s",
    "free-profiles": "price: none",
}


def describe_changes(tables: Mapping[str, FigureTable], names: Iterable[str]) -> str:
    """Return for each board that has conditions what one change does to each row's ratio to the reference.

    A factor is the ratio with the change over the ratio without it, **on the same seeds**: conditions are run
    on fewer seeds than the board has, and the seeds alone move a ratio.
    """
    listed, parts = [*names], []
    for name, one in tables.items():
        conditions = {
            title: {row: factor_of_condition(one, row, label) for row in listed}
            for label, title in CONDITIONS.items()
        }
        ran = {title: factors for title, factors in conditions.items() if any(factors.values())}
        if not ran:
            continue
        rows = [
            [
                find_title(one, row),
                format_ratio(ratio),
                format_ratio(compare_with_reference(one, row, reference=DIVISOR).overall),
                *map(_show, (factor_of_first_seed(one, row), factor_of_guard(one, row))),
                *(_show(factors[row]) for factors in ran.values()),
            ]
            for row in listed
            if row in one.policies and (ratio := compare_with_reference(one, row).overall)
        ]
        heads = ["policy", "ratio", "divisor: FCFS", "first seed alone", "no guard", *ran]
        parts.append(f"`{name}`:\n\n{table(heads, rows, words=(0,))}")
    return "\n\n".join(parts)


def factor_of_first_seed(one: FigureTable, row: str) -> float | None:
    """Return the ratio on the first seed of each family over that on all seeds."""
    first = one.keys.first_seed
    return _divide(one._replace(rows={at: of for at, of in one.rows.items() if at.seed == first}), one, row)


def factor_of_guard(one: FigureTable, row: str) -> float | None:
    """Return the ratio of a guarded row's policy as published over its own; None for other rows."""
    published = row.removesuffix("-guarded")
    if published == row or published not in one.policies:
        return None
    found = [compare_with_reference(one, name).overall for name in (published, row)]
    return found[0].value / found[1].value if found[0] and found[1] else None


def factor_of_condition(one: FigureTable, row: str, condition: str) -> float | None:
    """Return the ratio under a condition over the usual one, on the seeds that both rows have under it."""
    ran = [
        {(at.scenario, at.seed) for at in one.rows if (at.policy, at.condition) == (name, condition)}
        for name in (row, one.keys.reference)
    ]
    both = ran[0] & ran[1]
    same = one._replace(rows={at: of for at, of in one.rows.items() if (at.scenario, at.seed) in both})
    return _divide(same, same, row, condition) if row in one.policies else None


def _divide(changed: FigureTable, usual: FigureTable, row: str, condition: str = "") -> float | None:
    found = [compare_with_reference(changed, row, condition), compare_with_reference(usual, row, "")]
    ratios = [one.overall for one in found]
    return ratios[0].value / ratios[1].value if ratios[0] and ratios[1] else None


def _show(factor: float | None) -> str:
    return "-" if factor is None else f"x {factor:.2f}"
