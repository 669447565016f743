"""Scores of a board's entries: ranked inside a division, never across."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from clustergym.errors import InputError
from clustergym.leaderboard.board import Board
from clustergym.leaderboard.entry import (
    RAW,
    Entry,
    ResultRow,
    entry_folder,
    entry_names,
    read_entry,
    read_results,
)
from clustergym.metrics.aggregates import Aggregate, probability_of_improvement, stratified

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Standing:
    """An entry on a board.

    Attributes
    ----------
    name : str
        Of its folder.
    entry : Entry
    rows : tuple of ResultRow
        In the order of the board's cells.
    division : str
    score : Aggregate
        Interquartile mean of the cells' scores.
    by_scenario : dict of str to float
        Mean score.
    raw : dict of str to float or None
        Means of `RAW`, and decision_s_p50 and decision_s_p99.
    rank : int
        In its division; entries whose intervals overlap that of the best of them share it.
    over_next : Aggregate or None
        Probability that it is better in a cell than the next of its division.
    """

    name: str
    entry: Entry
    rows: tuple[ResultRow, ...]
    division: str
    score: Aggregate
    by_scenario: dict[str, float]
    raw: dict[str, float | None]
    rank: int = 0
    over_next: Aggregate | None = None


def standings(board: Board) -> list[Standing]:
    """Return the entries by division, the best first.

    Raises
    ------
    InputError
        If an entry is malformed or lacks a cell; `check` tells more.
    """
    found = [_standing(board, name) for name in entry_names(board)]
    out: list[Standing] = []
    for division in sorted({one.division for one in found}):
        inside = [one for one in found if one.division == division]
        out += _ranked(board, sorted(inside, key=lambda one: (-one.score.value, one.name)))
    return out


def scores_of(board: Board, rows: Sequence[ResultRow]) -> list[Floats]:
    """Return the scores of an entry, an array by seed for each scenario."""
    value = {row.cell: row.metrics[board.metric] for row in rows}
    out = []
    for scenario in board.scenarios:
        cells = [cell for cell in board.cells if cell.scenario == scenario.name]
        out.append(np.array([board.score(cell, float(value[cell] or 0.0)) for cell in cells]))
    return out


def _standing(board: Board, name: str) -> Standing:
    folder = entry_folder(board, name)
    entry, every = read_entry(folder, board), {row.cell: row for row in read_results(folder)}
    for cell in board.cells:
        if cell not in every or every[cell].metrics[board.metric] is None:
            message = f"has no {board.metric} in {cell}"
            raise InputError(message, file=folder / "results.csv", remedy="run `leaderboard check`")
    rows = tuple(every[cell] for cell in board.cells)
    scores = scores_of(board, rows)
    names = [scenario.name for scenario in board.scenarios]
    raw: dict[str, float | None] = {metric: _mean([row.metrics[metric] for row in rows]) for metric in RAW}
    for time in ("decision_s_p50", "decision_s_p99"):
        raw[time] = _mean([row.times[time] for row in rows])
    return Standing(
        name,
        entry,
        rows,
        entry.division(board),
        stratified(scores),
        {label: float(one.mean()) for label, one in zip(names, scores, strict=True)},
        raw,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


def _ranked(board: Board, ordered: Sequence[Standing]) -> list[Standing]:
    """Give ranks: one whose interval reaches into that of the best of the rank before shares it."""
    out: list[Standing] = []
    for place, one in enumerate(ordered, start=1):
        head = next((other for other in out if out and other.rank == out[-1].rank), None)
        shares = head is not None and one.score.high >= head.score.low
        rank = out[-1].rank if shares else place
        below = ordered[place] if place < len(ordered) else None
        over = None
        if below is not None:
            over = probability_of_improvement(scores_of(board, one.rows), scores_of(board, below.rows))
        out.append(replace(one, rank=rank, over_next=over))
    return out
