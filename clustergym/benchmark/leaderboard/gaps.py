"""How far entries are from the optimum, which lies between the best known schedule and the bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from clustergym.benchmark.leaderboard.board import Board, Cell
from clustergym.benchmark.leaderboard.bounds import read_bounds
from clustergym.benchmark.leaderboard.entry import ResultRow, entry_names, read_results


class Gap(NamedTuple):
    """The distance from the optimum, as a share of it: how much more, or less where higher is better.

    Attributes
    ----------
    least : float
        From the mean over cells of the best known value.
    most : float or None
        From the mean of what no schedule can beat; None: not known in every cell.
    """

    least: float
    most: float | None


class Optimum(NamedTuple):
    """The optimum lies between these means over the board's cells.

    Attributes
    ----------
    known : float
        The best that any entry reaches in each cell, those found in hindsight among them.
    bound : float or None
        What no schedule can beat.
    """

    known: float
    bound: float | None

    def gap(self, board: Board, rows: Sequence[ResultRow]) -> Gap:
        """Return the gap of an entry, given by a row for each cell."""
        value = sum(float(row.metrics[board.metric] or 0.0) for row in rows) / len(rows)
        least, most = (board.sign * (value / limit - 1.0) if limit else None for limit in self)
        return Gap(round(least or 0.0, 6), None if most is None else round(most, 6))


def optimum(board: Board) -> Optimum:
    """Return where the optimum of a board lies.

    Raises
    ------
    InputError
        If results or bounds are malformed.
    """
    best: dict[Cell, float] = {}
    for name in entry_names(board):
        for row in read_results(board.folder / name):
            value = row.metrics.get(board.metric)
            if value is not None:
                best[row.cell] = min(best.get(row.cell, value), value, key=lambda one: board.sign * one)
    bounds = cell_bounds(board)
    inside = [bounds[cell] for cell in board.cells if cell in bounds]
    return Optimum(
        sum(best[cell] for cell in board.cells if cell in best) / len(board.cells),
        sum(inside) / len(inside) if len(inside) == len(board.cells) else None,
    )


def cell_bounds(board: Board) -> dict[Cell, float]:
    """Return what no schedule can beat in each cell, as far as that is known.

    `bounds.json` of the board says it. In other cells it is the bound of the mean JCT that is frozen with the
    board, if that is the metric and no job may be dropped.
    """
    found: dict[Cell, float] = {}
    if board.metric == "jct_mean" and not board.drops:
        found = {cell: board.constants(cell).jct_bound for cell in board.cells}
    proved = read_bounds(board.folder)
    return found | {
        cell: proved[str(cell)].bound
        for cell in board.cells
        if str(cell) in proved and proved[str(cell)].metric == board.metric
    }
