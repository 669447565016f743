"""`leaderboard best-known`: the best schedule of each cell that a search in hindsight finds, as an entry.

The entry stands outside all divisions: no scheduler could have made its decisions, as each was chosen knowing
the whole trace. A cell keeps its schedule until a search finds a better one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from clustergym.agents.plan import NAME, PlanPolicy
from clustergym.benchmark.leaderboard.add import (
    HARDWARE,
    LICENCE,
    has_started,
    read_runs,
    write_readme,
    write_runs,
    write_yaml,
)
from clustergym.benchmark.leaderboard.board import Board, Cell
from clustergym.benchmark.leaderboard.entry import (
    ComponentChoice,
    Entry,
    entry_names,
    read_entry,
    read_results,
)
from clustergym.benchmark.leaderboard.entry_curves import write_curves
from clustergym.benchmark.leaderboard.run_cells import CellRun, play_cell
from clustergym.common.errors import InputError, nearest
from clustergym.common.processes import Processes, in_order
from clustergym.common.version import __version__
from clustergym.sim.guard import StepWatchdog
from clustergym.training.hindsight import GOALS, USUAL, Proposals, search

Budget = dict[str, Any]
"""What a schedule was found with: `evaluations` and `seed` of `best_known`, and its proposals."""


class SearchOutcome(NamedTuple):
    """What a search for a better schedule in one cell (scenario and seed) found, beside earlier results.

    Attributes
    ----------
    cell : Cell
    value : float
        The board's metric, of the schedule that the search found.
    kept : float
        The same of the schedule that the entry has now: the better of that and the one before.
    best_entry : str
        The best of the other entries in the cell; empty without any.
    best_value : float
    """

    cell: Cell
    value: float
    kept: float
    best_entry: str
    best_value: float


def best_known(
    board: Board,
    cells: Sequence[Cell],
    evaluations: int,
    seed: int,
    proposals: Proposals = USUAL,
    workers: Processes = 1,
    done: Callable[[SearchOutcome], None] = lambda searched: None,
) -> Path:
    """Try `evaluations` schedules in each cell (scenario, seed); store better ones; return the entry's path.

    Parameters
    ----------
    board : Board
    cells : sequence of Cell
    evaluations : int
        Episodes that are played in each cell.
    seed : int
        Of the search; each cell has a random stream of its own.
    proposals : Proposals
    workers : int
        Processes; the entry does not depend on their number.
    done : callable
        Called as each cell is searched.

    Raises
    ------
    InputError
        If the board's entries are placers, or its metric is not one of `GOALS`.
    """
    if board.chooses != "policy" or board.metric not in GOALS:
        message = f"the search plans schedules for {', '.join(GOALS)}"
        raise InputError(message, field=f"board {board.name}", remedy="choose another board")
    folder = board.folder / NAME
    runs, budgets = _load_earlier(board, folder)
    others = {name: _values(board, name) for name in entry_names(board) if name != NAME}
    board.compose()
    for run in in_order(partial(_search, board, evaluations, seed, proposals), cells, workers):
        cell, before = run.row.cell, runs.get(run.row.cell)
        # Written as each cell is found, so that a search that is killed keeps what it has.
        if before is None or board.sign * (_value(board, run) - _value(board, before)) < 0:
            runs[cell] = run
            budgets[str(cell)] = {"evaluations": evaluations, "seed": seed, **proposals._asdict()}
            _write(board, folder, runs, budgets)
        entry, best = _best(board, {name: of[cell] for name, of in others.items() if cell in of})
        done(SearchOutcome(cell, _value(board, run), _value(board, runs[cell]), entry, best))
    if all(cell in runs for cell in board.cells):
        write_curves(board, NAME)
    return folder


def choose_cells(board: Board, words: Sequence[str]) -> list[Cell]:
    """Return the cells (scenario, seed) whose name or scenario is in `words`; all cells if it is empty."""
    known = [*(str(cell) for cell in board.cells), *(scenario.name for scenario in board.scenarios)]
    for word in words:
        if word not in known:
            remedy = nearest(word, known)
            raise InputError(f"{word!r} is no cell of {board.name}", field="--cells", remedy=remedy)
    return [cell for cell in board.cells if not words or {str(cell), cell.scenario} & {*words}]


def _search(board: Board, evaluations: int, seed: int, proposals: Proposals, cell: Cell) -> CellRun:
    """Search for a schedule in one cell (scenario, seed), and run what was found in the simulator."""
    scenario = board.scenario(cell)
    plan = search(scenario, board.metric, evaluations, seed, board.cells.index(cell), proposals)
    # Any policy's name gives the board's placer; what plays is the plan.
    _, placer = board.contestants({"name": "fcfs"})
    return play_cell(board, scenario, PlanPolicy(plan), placer, cell, StepWatchdog())


def _load_earlier(board: Board, folder: Path) -> tuple[dict[Cell, CellRun], dict[str, Budget]]:
    """Return the runs and budgets by cell that an earlier search wrote for this version of the board."""
    if not has_started(folder):
        return {}, {}
    entry = read_entry(folder, board)
    if entry.keys["name"] != NAME or not entry.hindsight:
        message = "is not of a search in hindsight"
        raise InputError(message, file=folder / "entry.yaml", remedy="remove the folder")
    # Schedules of another version of the board are of other jobs: the search begins anew.
    if entry.board_version != board.version:
        return {}, {}
    return read_runs(folder), dict(entry.choices["policy"].parameters)


def _write(board: Board, folder: Path, runs: dict[Cell, CellRun], budgets: dict[str, Budget]) -> None:
    spent = sorted({budget["evaluations"] for budget in budgets.values()})
    between = " to ".join(f"{count:,}" for count in dict.fromkeys((spent[0], spent[-1])))
    entry = Entry(
        board=board.name,
        board_version=board.version,
        title="best known schedules",
        authors=["clustergym"],
        policy=ComponentChoice(
            name=NAME, parameters={str(c): budgets[str(c)] for c in board.cells if c in runs}
        ),
        version=__version__,
        information_class="clairvoyant",
        deterministic=True,
        trained_on=[board.split],
        search_budget=f"{between} episodes of each cell",
        hardware=HARDWARE,
        licence=LICENCE,
        command=_command(board, budgets),
        hindsight=True,
    )
    folder.mkdir(exist_ok=True)
    write_runs(folder, board, runs)
    write_yaml(folder / "entry.yaml", entry.model_dump(exclude_none=True))
    write_readme(folder, entry, board)


def _command(board: Board, budgets: dict[str, Budget]) -> str:
    """Return the command that finds the schedules again, with placeholders where cells differ."""
    words = [f"python -m clustergym.leaderboard best-known {board.name}"]
    first = next(iter(budgets.values()))
    if any(budget != first for budget in budgets.values()):
        return " ".join([*words, "--cells CELL", *(f"--{key} OF_CELL" for key in first)])
    return " ".join([*words, *(f"--{key} {value}" for key, value in first.items())])


def _values(board: Board, name: str) -> dict[Cell, float]:
    """Return an entry's metric in each cell (scenario, seed) that has one."""
    found = {row.cell: row.metrics.get(board.metric) for row in read_results(board.folder / name)}
    return {cell: value for cell, value in found.items() if value is not None}


def _value(board: Board, run: CellRun) -> float:
    return float(run.row.metrics[board.metric] or 0.0)


def _best(board: Board, values: dict[str, float]) -> tuple[str, float]:
    """Return the best entry and its value; nothing and NaN without entries."""
    if not values:
        return "", float("nan")
    name = min(values, key=lambda name: board.sign * values[name])
    return name, values[name]
