"""The scores of a board's entries and their ranks, in their division and over all divisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from clustergym.benchmark.leaderboard.board import Board
from clustergym.benchmark.leaderboard.entry import (
    RAW,
    Entry,
    ResultRow,
    entry_folder,
    entry_names,
    read_entry,
    read_results,
)
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.results.metrics.aggregates import (
    Aggregate,
    paired_difference,
    probability_of_improvement,
    stratified,
)

DECIMALS = 4
"""Of scores and of P(better), wherever they are written."""


@dataclass(frozen=True)
class Standing:
    """An entry with its scores and ranks on a board.

    Attributes
    ----------
    name : str
        Name of the entry's folder.
    entry : Entry
    rows : tuple of ResultRow
        In the order of the board's cells.
    division : str
    score : Aggregate
        Interquartile mean of the cells' scores within each family of traces, and the mean over families.
    by_scenario : dict of str to float
        Mean score.
    raw : dict of str to float or None
        Means of `RAW` and of what else the board shows, and decision_s_p50 and decision_s_p99.
    rank : int
        Rank in its division.
    rank_all : int
        Rank over all divisions.
    over_next : Aggregate or None
        Probability that it is better in a cell than the next entry of its division.
    """

    name: str
    entry: Entry
    rows: tuple[ResultRow, ...]
    division: str
    score: Aggregate
    by_scenario: dict[str, float]
    raw: dict[str, float | None]
    rank: int = 0
    rank_all: int = 0
    over_next: Aggregate | None = None


def standings(board: Board) -> list[Standing]:
    """Return the board's entries with scores and ranks, by division, the best first.

    Schedules that were found in hindsight are in no division, and left out.

    Raises
    ------
    InputError
        If an entry is malformed, lacks a cell or is of another version of the board; `check` tells more.
    """
    entries = {name: read_entry(entry_folder(board, name), board) for name in entry_names(board)}
    found = [_standing(board, name, entry) for name, entry in entries.items() if not entry.hindsight]
    ordered = sorted(found, key=lambda standing: (-standing.score.value, standing.name))
    cells = {standing.name: scores_of(board, standing.rows) for standing in ordered}
    families = board.families
    overall = dict(zip(cells, ranks(list(cells.values()), families), strict=True))
    out: list[Standing] = []
    for division in sorted({standing.division for standing in found}):
        inside = [standing for standing in ordered if standing.division == division]
        places = ranks([cells[standing.name] for standing in inside], families)
        for at, (standing, rank) in enumerate(zip(inside, places, strict=True)):
            below = cells[inside[at + 1].name] if at + 1 < len(inside) else None
            over = None
            if below is not None:
                over = _rounded(probability_of_improvement(cells[standing.name], below, families))
            out.append(replace(standing, rank=rank, rank_all=overall[standing.name], over_next=over))
    return out


def ranks(ordered: Sequence[Sequence[Floats]], families: Sequence[str]) -> list[int]:
    """Return the ranks of entries that are given by their scores in every cell, the best first.

    `families` are those of the scenarios that the cells belong to.

    An entry shares the rank before it unless the best of that rank is better by a paired difference whose
    whole interval is above 0.
    """
    out: list[int] = []
    for place, scores in enumerate(ordered, start=1):
        head = ordered[out[-1] - 1] if out else None
        shares = head is not None and paired_difference(head, scores, families).low <= 0.0
        out.append(out[-1] if shares else place)
    return out


def scores_of(board: Board, rows: Sequence[ResultRow]) -> list[Floats]:
    """Return an entry's scores: for each scenario an array over seeds."""
    value = {row.cell: row.metrics[board.metric] for row in rows}
    out = []
    for scenario in board.scenarios:
        cells = [cell for cell in board.cells if cell.scenario == scenario.name]
        out.append(np.array([board.score(cell, float(value[cell] or 0.0)) for cell in cells]))
    return out


def _standing(board: Board, name: str, entry: Entry) -> Standing:
    folder = entry_folder(board, name)
    every = {row.cell: row for row in read_results(folder)}
    if entry.board_version != board.version:
        message = f"is of version {entry.board_version} of the board, which is at {board.version}"
        raise InputError(message, file=folder / "entry.yaml", remedy="run it anew with `leaderboard add`")
    for cell in board.cells:
        if cell not in every or every[cell].metrics.get(board.metric) is None:
            message = f"has no {board.metric} in {cell}"
            raise InputError(message, file=folder / "results.csv", remedy="run `leaderboard check`")
    rows = tuple(every[cell] for cell in board.cells)
    scores = scores_of(board, rows)
    names = [scenario.name for scenario in board.scenarios]
    shown = dict.fromkeys((*RAW, *(board.shows or ())))
    raw: dict[str, float | None] = {key: _mean([row.metrics.get(key) for row in rows]) for key in shown}
    for time in ("decision_s_p50", "decision_s_p99"):
        raw[time] = _mean([row.times[time] for row in rows])
    return Standing(
        name,
        entry,
        rows,
        entry.division(board),
        _rounded(stratified(scores, board.families)),
        {label: round(float(by_seed.mean()), DECIMALS) for label, by_seed in zip(names, scores, strict=True)},
        raw,
    )


def _rounded(found: Aggregate) -> Aggregate:
    return Aggregate(*(round(value, DECIMALS) for value in found))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None
