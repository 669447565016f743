"""The check of a board's table of figures: drawn rows are run again, all are held against bounds."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from clustergym.benchmark.leaderboard.cells import BOUND, METRICS, FigureTable, Place, Row
from clustergym.benchmark.leaderboard.fill import Fingerprints, drop_stale, run_place
from clustergym.benchmark.leaderboard.pairs import METRIC
from clustergym.common.processes import Processes, in_order

TOLERANCE = 1e-9
COMPARED = ("keys", "code", "simulator", "sha256", "digest", "stopped")


class FigureCheck(NamedTuple):
    """What a check of a table found.

    Attributes
    ----------
    again : list of Place
        The rows that were run again.
    wrong : list of str
        A line on each row that is not what a run gives, or that is below the bound.
    stale : int
        Rows of other code, which no page shows and which are not checked.
    forged_cell, forged_policy : float
        The probabilities that a run again finds one forged row, and one policy whose rows are all forged.
    """

    again: list[Place]
    wrong: list[str]
    stale: int
    forged_cell: float
    forged_policy: float


def check_figures(
    table: FigureTable, prints: Fingerprints, count: int, workers: Processes = 1, progress: bool = False
) -> FigureCheck:
    """Run drawn rows again, each of another policy, and hold all rows against the bounds of their cells.

    The operating system draws: who writes a table cannot know which rows will be run.

    Parameters
    ----------
    table : FigureTable
    prints : Fingerprints
    count : int
        Rows to run again; at most one a policy.
    workers : int or "ray"
    progress : bool
    """
    fresh = drop_stale(table, prints)
    drawn = draw_rows([*fresh.rows.values()], count)
    table.board.compose()
    label = f"run {table.board.name} again" if progress else None
    runs = in_order(partial(run_place, table, prints), [row.place for row in drawn], workers, label)
    wrong = [line for row, found in zip(drawn, runs, strict=True) for line in compare_rows(row, found)]
    policies = {row.place.policy for row in fresh.rows.values()}
    return FigureCheck(
        [row.place for row in drawn],
        wrong + list_below_bound(fresh),
        len(table.rows) - len(fresh.rows),
        len(drawn) / max(1, len(fresh.rows)),
        len(drawn) / max(1, len(policies)),
    )


def draw_rows(rows: Sequence[Row], count: int) -> list[Row]:
    """Draw rows of different policies, all policies and then all rows of one with equal probability."""
    by_policy: dict[str, list[Row]] = {}
    for row in rows:
        by_policy.setdefault(row.place.policy, []).append(row)
    left, drawn = sorted(by_policy), list[Row]()
    while left and len(drawn) < count:
        drawn.append(secrets.choice(by_policy[left.pop(secrets.randbelow(len(left)))]))
    return drawn


def compare_rows(entered: Row, found: Row) -> list[str]:
    """Return a line on each value of a row that a new run does not give."""
    values = [(name, getattr(entered, name), getattr(found, name)) for name in COMPARED]
    values += [(name, entered.metrics[name], found.metrics[name]) for name in METRICS]
    return [
        f"{entered.place}: {name} is {new}, and {old} in the table" for name, old, new in values if old != new
    ]


def list_below_bound(table: FigureTable) -> list[str]:
    """Return a line on each row with a mean JCT below the bound, or with neither figure nor reason."""
    wrong = []
    for place, row in sorted(table.rows.items()):
        value = row.metrics[METRIC]
        bound = table.rows.get(Place(BOUND, place.scenario, place.seed, ""))
        # Another condition may have other jobs or nodes, so other bounds.
        least = bound.metrics[METRIC] if bound is not None and not place.condition else None
        if (value is None) != bool(row.stopped):
            wrong.append(f"{place}: has neither a mean JCT nor a reason, or both")
        elif value is not None and (value <= 0 or (least is not None and value < least * (1 - TOLERANCE))):
            wrong.append(f"{place}: mean JCT {value} s, and no schedule is below {least} s")
    return wrong
