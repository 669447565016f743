"""Figures of entries under a board's other conditions, as a common clock: conditions.csv of an entry."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from clustergym.benchmark.leaderboard.board import Board, Cell
from clustergym.benchmark.leaderboard.entry import (
    LARGEST_RESULTS_BYTES,
    read_entry_text,
    read_results,
)
from clustergym.common.errors import InputError, shorten_text
from clustergym.common.processes import Processes, in_order
from clustergym.common.writing import write_text
from clustergym.scenario.scenario import Scenario

FILE = "conditions.csv"
HEADER = ["condition", "scenario", "seed", "value"]
STOPPED = "stopped"
"""In place of a figure: the run was stopped before its end."""


class Point(NamedTuple):
    """A changed condition (such as longer restarts), a scenario and a seed, at which entries are measured."""

    condition: str
    cell: Cell


def list_points(board: Board) -> list[Point]:
    """List every changed condition with every cell (scenario, seed); each entry needs a result for all."""
    return [Point(condition, cell) for condition in board.conditions for cell in board.cells]


def read_conditions(board: Board, folder: Path) -> dict[Point, float]:
    """Read an entry's metric by changed condition and cell (scenario, seed); empty without a file.

    NaN is a run that was stopped, as one that does not end: `stopped` stands there, written by hand.
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    rows = csv.reader(read_entry_text(path, LARGEST_RESULTS_BYTES).splitlines())
    known = {
        (point.condition, point.cell.scenario, str(point.cell.seed)): point for point in list_points(board)
    }
    found: dict[Point, float] = {}
    for line, row in enumerate(rows, start=1):
        # Each figure once: which of two would be meant is nobody's to choose.
        if line == 1 and row == HEADER:
            continue
        point = known.get((row[0], row[1], row[2])) if len(row) == len(HEADER) and line > 1 else None
        value = _number(row[3]) if point is not None else None
        # Each figure once: which of two would be meant is nobody's to choose.
        if point is None or value is None or point in found:
            message = f"{shorten_text(','.join(row), 60)!r} is no condition, cell and figure of {board.name}"
            raise InputError(
                message, file=path, line=line, remedy="remove the file, and run `leaderboard add` again"
            )
        found[point] = value
    return found


def _number(text: str) -> float | None:
    if text == STOPPED:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def measure_conditions(
    board: Board, folder: Path, parameters: Mapping[str, Any], workers: Processes = 1
) -> None:
    """Run an entry under all changed conditions that lack a result; write the metrics to its file.

    Parameters
    ----------
    board : Board
    folder : Path
        The entry's folder.
    parameters : mapping
        Of its policy, its placer or both.
    workers : int
        Processes.
    """
    points = list_points(board)
    if not points:
        return
    found = read_conditions(board, folder)
    missing = [point for point in points if point not in found]
    usual = {row.cell: row.metrics[board.metric] for row in read_results(folder)}
    made = in_order(
        partial(_measure_or_copy, board, parameters, usual), missing, workers, f"conditions of {folder.name}"
    )
    for point, value in zip(missing, made, strict=True):
        found[point] = value
        rows = [[at.condition, *map(str, at.cell), _show(found[at])] for at in points if at in found]
        write_text(folder / FILE, "\n".join(",".join(row) for row in [HEADER, *rows]) + "\n")


def _show(value: float) -> str:
    return STOPPED if math.isnan(value) else repr(value)


def _measure_or_copy(
    board: Board, parameters: Mapping[str, Any], usual: Mapping[Cell, float | None], point: Point
) -> float:
    changed = board.scenario(point.cell, board.conditions[point.condition])
    if changes_nothing(board.scenario(point.cell), changed, board, parameters):
        return float(usual[point.cell] or 0.0)
    return measure_point(board, parameters, point)


def measure_point(board: Board, parameters: Mapping[str, Any], point: Point) -> float:
    """Run a policy or placer in a scenario and seed under a changed condition; return the metric."""
    from clustergym.benchmark.leaderboard.run_cells import run_cell

    run = run_cell(board, parameters, point.cell, board.conditions[point.condition])
    return float(run.row.metrics[board.metric] or 0.0)


def changes_nothing(usual: Scenario, changed: Scenario, board: Board, parameters: Mapping[str, Any]) -> bool:
    """Return whether a scenario's change cannot affect a policy: it changes only costs that it never pays.

    These are costs of profiling, which measures jobs' speeds for policies that need them.
    """
    if changed.sha256 == usual.sha256:
        return True
    policy, _ = board.contestants(parameters)
    pays = policy.information_class in {*usual.costs.profile, *changed.costs.profile}
    costs = replace(changed.costs, profile=usual.costs.profile)
    return not pays and replace(changed, costs=costs).sha256 == usual.sha256


def list_condition_problems(
    board: Board, folder: Path, parameters: Mapping[str, Any] | None, cells: Sequence[Cell]
) -> Iterator[str]:
    """Yield errors in an entry's results under changed conditions; rerun `cells` if `parameters` are set."""
    found = read_conditions(board, folder)
    absent = [point for point in list_points(board) if point not in found]
    if absent:
        yield f"has no figure of {absent[0].condition}, {absent[0].cell}"
        return
    if parameters is None:
        return
    usual = {row.cell: row.metrics[board.metric] for row in read_results(folder)}
    again = [Point(condition, cell) for condition in board.conditions for cell in cells]
    for point in [one for one in again if not math.isnan(found[one])]:
        value = _measure_or_copy(board, parameters, usual, point)
        if not math.isclose(value, found[point], rel_tol=1e-9):
            yield f"{board.metric} under {point.condition} in {point.cell} is {value}, entered {found[point]}"
