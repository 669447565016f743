"""The check of a cell: replay the entry's decisions without its policy and compare every metric."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clustergym.benchmark.leaderboard.board import Board, Cell
from clustergym.benchmark.leaderboard.bounds import CellBound, beaten, problem, read_bounds
from clustergym.benchmark.leaderboard.cell_logs import CellLogs
from clustergym.benchmark.leaderboard.cell_replay import Flag, FlagKind, replayed
from clustergym.benchmark.leaderboard.entry import Entry, ResultRow
from clustergym.benchmark.leaderboard.entry_curves import difference
from clustergym.scenario.scenario import Scenario
from clustergym.sim.engine import Simulation

BOUNDED = ("jct_mean", "makespan")
TOLERANCE = 1e-9
LONGEST_DECISION_S = 3600.0


@dataclass(frozen=True)
class ClaimedCell:
    """The results and logs that an entry claims for a cell.

    Attributes
    ----------
    folder : Path
        Folder of the entry.
    entry : Entry
    logs : CellLogs
    row : ResultRow
    """

    folder: Path
    entry: Entry
    logs: CellLogs
    row: ResultRow


def check_cell(board: Board, task: tuple[Cell, Sequence[ClaimedCell]]) -> list[list[Flag]]:
    """Check one cell of several entries on one scenario; return the flags of each entry."""
    cell, claims = task
    scenario, bound = board.scenario(cell), read_bounds(board.folder).get(str(cell))
    wrong = "" if bound is None else problem(board, cell, scenario, bound)
    if wrong:
        return [[Flag(FlagKind.BOUND, str(cell), wrong)] for _ in claims]
    return [_flags(board, cell, scenario, claim, bound) for claim in claims]


def _flags(
    board: Board, cell: Cell, scenario: Scenario, claim: ClaimedCell, bound: CellBound | None
) -> list[Flag]:
    """Replay a cell and compare; the first step with flags ends the check."""
    made = replayed(board, cell, scenario, claim.entry, claim.logs)
    if isinstance(made, Flag):
        return [made]
    simulation, decided = made
    compared = _compared(simulation, board, cell, claim.row, bound)
    flags = [*compared, *_times(str(cell), claim.row, decided)]
    wrong = "" if flags else difference(board, claim.folder, cell, simulation)
    return [*flags, *([Flag(FlagKind.CURVES, str(cell), wrong)] if wrong else [])]


def _compared(
    simulation: Simulation, board: Board, cell: Cell, row: ResultRow, proved: CellBound | None
) -> Iterator[Flag]:
    from clustergym.results.bounds.bounds import lower_bounds
    from clustergym.results.measured_run import measurement_of

    where, scenario = str(cell), simulation.scenario
    metrics = measurement_of(simulation).metrics
    if simulation.log.digest != row.digest:
        yield Flag(
            FlagKind.DIGEST, where, f"replayed {simulation.log.digest[:16]}…, entered {row.digest[:16]}…"
        )
    for name, value in metrics.items():
        if name in row.metrics and not same(value, row.metrics[name]):
            yield Flag(FlagKind.METRIC, where, f"{name} is {value}, entered {row.metrics[name]}")
    left = int(metrics["jobs_unfinished"] or 0)
    unfit = int((scenario.request_gpus == 0).sum())
    dropped = 0 if board.drops else int(metrics["jobs_dropped"] or 0) - unfit
    if left or dropped > 0:
        yield Flag(FlagKind.UNFINISHED, where, f"{left} jobs unfinished, {max(dropped, 0)} dropped")
    figure = row.metrics.get(board.metric)
    if board.metric not in row.metrics:
        yield Flag(FlagKind.METRIC, where, f"has no {board.metric}")
    if (
        proved is not None
        and figure is not None
        and not (left or dropped > 0)
        and beaten(board, figure, proved.bound)
    ):
        yield Flag(FlagKind.BOUND, where, f"{board.metric} {figure:.6g} is better than {proved.bound:.6g}")
    bounds = lower_bounds(scenario)
    for name in BOUNDED if not (left or dropped > 0 or board.drops) else ():
        bound, claimed = getattr(bounds, name), row.metrics[name]
        if claimed is not None and claimed < bound * (1 - TOLERANCE):
            yield Flag(FlagKind.BOUND, where, f"{name} {claimed:,.0f} is below {bound:,.0f}")


def same(value: float | None, entered: float | None) -> bool:
    """Return whether two figures are equal but for rounding, or both are missing."""
    if value is None or entered is None:
        return value is None and entered is None
    return math.isclose(value, entered, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _times(where: str, row: ResultRow, points: int) -> Iterator[Flag]:
    median, p99, wall = (row.times[name] for name in ("decision_s_p50", "decision_s_p99", "wall_s"))
    if row.decisions != points:
        message = f"{row.decisions} decisions were entered, the run has {points} decision points"
        yield Flag(FlagKind.DECISION_TIMES, where, message)
    elif not 0 < median <= p99 * 1.05 or not p99 <= LONGEST_DECISION_S:
        yield Flag(FlagKind.DECISION_TIMES, where, f"median {median:g} s, 99th percentile {p99:g} s")
    elif wall < 0.45 * row.decisions * median:
        message = f"{row.decisions} decisions of {median:g} s in the median take longer than {wall:g} s"
        yield Flag(FlagKind.DECISION_TIMES, where, message)
