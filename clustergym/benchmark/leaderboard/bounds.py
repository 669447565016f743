"""The bounds of a board's cells, with the prices that prove them: leaderboards/<board>/bounds.json."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from clustergym.benchmark.leaderboard.board import Board, Cell, Sha256
from clustergym.cluster.schema import StrictSchema, Text, validate_content
from clustergym.common.errors import InputError
from clustergym.common.processes import Processes, in_order
from clustergym.common.reading import read_json
from clustergym.common.writing import write_text
from clustergym.results.bounds.bounds import BOUNDED, Certificate, build_programme, proven
from clustergym.results.bounds.price_search import search
from clustergym.scenario.scenario import Scenario

FILE = "bounds.json"
LARGEST_BYTES = 2**25
METHOD = "Lagrangian dual of GPU-time prices"
TOLERANCE = 1e-9


class CellBound(StrictSchema):
    """A bound on the metric that provably no schedule beats in one cell (scenario, seed), with its proof.

    Attributes
    ----------
    metric : str
    bound : float
        No schedule has a lower metric; of `deadline_satisfaction`, none a higher one.
    method : str
    scenario : str
        SHA-256 of the scenario.
    refinements : list of list of float
        Intervals and the bound reached with them, from coarse to fine.
    edges_s, price : list
        The certificate (`clustergym.results.bounds.bounds.Certificate`).
    """

    metric: Text
    bound: float
    method: Text
    scenario: Sha256
    refinements: list[list[float]]
    edges_s: Annotated[list[float], Field(min_length=1)]
    price: list[list[float]]

    @field_validator("price")
    @classmethod
    def _rows_of_intervals(cls, price: list[list[float]], given: ValidationInfo) -> list[list[float]]:
        intervals = len(given.data.get("edges_s", ())) - 1
        if intervals >= 0 and (not price or any(len(row) != intervals for row in price)):
            raise PydanticCustomError("shape", "must be rows of one value for each interval of edges_s")
        return price

    @property
    def certificate(self) -> Certificate:
        """The proof of the bound: prices of GPU time by GPU type and time interval."""
        return Certificate(np.array(self.edges_s), np.array(self.price))


class BoardBounds(StrictSchema):
    """The content of bounds.json: proven lower bounds on the metric by cell (scenario, seed)."""

    cells: dict[Text, CellBound]


def read_bounds(board_folder: Path) -> dict[str, CellBound]:
    """Read a board's proven lower bounds by the name of the cell (scenario, seed); empty without a file."""
    path = board_folder / FILE
    if not path.exists():
        return {}
    remedy = f"remove it, and write it anew with `leaderboard bound {board_folder.name}`"
    return validate_content(BoardBounds, {"cells": read_json(path, LARGEST_BYTES, remedy)}, file=path).cells


def add_bounds(board: Board, workers: Processes = 1, scenarios: list[str] | None = None) -> Path:
    """Compute missing or outdated lower bounds on a board's metric, and store them; return the file."""
    if board.metric not in BOUNDED:
        remedy = f"bounds are of {', '.join(BOUNDED)}"
        raise InputError(f"{board.metric!r} has no bound", file=board.folder / "board.yaml", remedy=remedy)
    found = read_bounds(board.folder)
    missing = [
        cell
        for cell in board.cells
        if (not scenarios or cell.scenario in scenarios)
        # A bound is of one scenario; if the board's is another by now, it is sought anew.
        and (str(cell) not in found or found[str(cell)].scenario != board.constants(cell).sha256)
    ]
    board.compose()
    made = in_order(partial(bound_of_cell, board), missing, workers, f"bounds of {board.name}")
    for cell, bound in zip(missing, made, strict=True):
        # Written as each is found, so that what is stopped keeps them.
        found[str(cell)] = bound
        _write(board, found)
    return board.folder / FILE


def bound_of_cell(board: Board, cell: Cell) -> CellBound:
    """Search for the greatest provable lower bound on the metric in a cell (scenario and seed)."""
    scenario = board.scenario(cell)
    bound = search(build_programme(scenario, board.metric))
    return CellBound(
        metric=board.metric,
        bound=bound.value,
        method=METHOD,
        scenario=scenario.sha256,
        refinements=[[intervals, round(value, 6)] for intervals, value in bound.refinements],
        edges_s=bound.certificate.edges_s.tolist(),
        price=bound.certificate.price.tolist(),
    )


def _write(board: Board, found: dict[str, CellBound]) -> None:
    """Write bounds in the order of the board's cells, a line each."""
    cells = [str(cell) for cell in board.cells if str(cell) in found]
    lines = [
        f"{json.dumps(cell)}: {json.dumps(_plain(found[cell]), separators=(',', ':'))}" for cell in cells
    ]
    write_text(board.folder / FILE, "{\n" + ",\n".join(lines) + "\n}\n")


def _plain(bound: CellBound) -> dict[str, Any]:
    content = bound.model_dump()
    content["price"] = [
        # Whole prices without a point: the file is smaller, and is read as the same numbers.
        [int(value) if value == int(value) else value for value in row]
        for row in bound.price
    ]
    return content


def problem(board: Board, cell: Cell, scenario: Scenario, found: CellBound) -> str:
    """Return why a bound's certificate does not prove the bound; empty if it does."""
    if (found.metric, found.scenario) != (board.metric, scenario.sha256):
        return f"the bound of {cell} is of another metric or scenario"
    try:
        # Any prices prove some bound (weak duality), so what is verified is the figure, not the search for
        # it.
        value = proven(build_programme(scenario, found.metric), found.certificate)
    except InputError as error:
        return f"the bound of {cell} has no valid certificate: {error}"
    if not math.isclose(value, found.bound, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        return f"the certificate of {cell} proves {value:.6g}, its bound is {found.bound:.6g}"
    return ""


def beats_bound(board: Board, claimed: float, bound: float) -> bool:
    """Return whether a claimed result is better than a proven bound by more than rounding errors."""
    return board.sign * (claimed - bound) < -TOLERANCE * bound
