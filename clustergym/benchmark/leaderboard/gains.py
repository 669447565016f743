"""Score entries between random play (0) and the best known (1): (random - x) / (random - best known)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from clustergym.benchmark.leaderboard.board import Board, Cell
from clustergym.benchmark.leaderboard.entry import (
    ResultRow,
    entry_folder,
    entry_names,
    read_entry,
    read_results,
)
from clustergym.common.arrays import Floats
from clustergym.results.metrics.statistics import Aggregate, aggregate_stratified

RANDOM = "random"
"""The policy that decides by chance."""


class Chance(NamedTuple):
    """The metrics of random play (score 0) and of the best known schedules (score 1), by scenario and seed.

    Attributes
    ----------
    random : mapping of Cell to float or None
        Of random play; None: nobody entered it.
    best : mapping of Cell to float
        The best that any entry reaches, those found in hindsight among them.
    """

    random: Mapping[Cell, float] | None
    best: Mapping[Cell, float]

    def gained(self, board: Board, values: Mapping[Cell, float]) -> Aggregate | None:
        """Return the score, mean within, then over families: 0 is random play, 1 best known; or None."""
        # Where chance is as good as the best known, a share of what lies between them has no value.
        if self.random is None or any(self.random[cell] == self.best[cell] for cell in board.cells):
            return None
        ends = {cell: (self.random[cell], self.best[cell]) for cell in board.cells}
        shares = {cell: (low - values[cell]) / (low - high) for cell, (low, high) in ends.items()}
        return aggregate_stratified(_by_scenario(board, shares), board.families)


def read_chance(board: Board) -> Chance:
    """Read the metric of random play and of the best known schedule, by cell (scenario, seed).

    Where entries are placers, or policies with placers, and the baseline is random fit, it is chance.
    """
    best: dict[Cell, float] = {}
    random: dict[Cell, float] | None = None
    # Such a baseline is chance itself, so nobody has to enter it.
    if board.keys_by_component(board.baseline).get("placer", {}).get("algorithm") == "random_fit":
        random = {cell: board.constants(cell).baseline for cell in board.cells}
    for name in entry_names(board):
        values = list_values(board, read_results(board.folder / name))
        for cell, value in values.items():
            best[cell] = min(best.get(cell, value), value, key=lambda one: board.sign * one)
        choices = read_entry(entry_folder(board, name), board).choices
        if "policy" in choices and choices["policy"].name == RANDOM:
            # Random play with a cell left out is no zero point for the whole board.
            random = values if all(cell in values for cell in board.cells) else random
    return Chance(random, best)


def list_values(board: Board, rows: Sequence[ResultRow]) -> dict[Cell, float]:
    """Return the board's metric from results rows, by cell (scenario, seed); rows without it are left out."""
    return {row.cell: float(value) for row in rows if (value := row.metrics.get(board.metric)) is not None}


def compare_with_baseline(board: Board, values: Mapping[Cell, float]) -> Aggregate | None:
    """Return an entry's metric / the baseline's, mean within, then over families; None if a baseline is 0."""
    base = {cell: board.constants(cell).baseline for cell in board.cells}
    if not all(base.values()):
        return None
    ratios = {cell: values[cell] / of for cell, of in base.items()}
    return aggregate_stratified(_by_scenario(board, ratios), board.families)


def _by_scenario(board: Board, values: Mapping[Cell, float]) -> list[Floats]:
    return [
        np.array([values[cell] for cell in board.cells if cell.scenario == scenario.name])
        for scenario in board.scenarios
    ]
