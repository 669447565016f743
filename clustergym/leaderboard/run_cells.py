"""Runs of a policy or placer in the cells of a board, as many at a time as there are processes."""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustergym.errors import InputError
from clustergym.leaderboard.board import Board, Cell, load_board
from clustergym.leaderboard.entry import ResultRow
from clustergym.paths import atomic_path
from clustergym.policy import Placer, Policy
from clustergym.scenario import Scenario

if TYPE_CHECKING:
    from clustergym.sim.run import Run


def run_cell(
    name: str,
    root: Path,
    parameters: Mapping[str, Any],
    decisions: Path | None,
    cell: Cell,
    overrides: Sequence[str] = (),
) -> ResultRow:
    """Run a policy or placer in a cell, and write what it decided into a folder if one is given.

    Parameters
    ----------
    name : str
        Of a board in the folder `root`, which says what `parameters` are of.
    root : Path
    parameters : mapping
    decisions : Path or None
    cell : Cell
    overrides : sequence of str
        Of the main job, beyond the cell's.

    Raises
    ------
    InputError
        For a policy or placer that is unknown, that the scenario lacks something for, or that stalls.
    """
    from clustergym.output import measurement_of, result_of
    from clustergym.sim.engine import StalledError

    board = load_board(name, root)
    scenario = board.scenario(cell, overrides)
    policy, placer = board.contestants(parameters)
    try:
        run, lines_of = _RUNS[board.chooses](scenario, policy, placer, cell.seed)
    except StalledError as error:
        label = f"{board.chooses} {parameters['name']}, {cell}"
        raise InputError(str(error), field=label, remedy="no entry was written") from error
    result = result_of(run, measurement_of(run.simulation), policy, placer, cell.seed)
    if decisions is not None:
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines_of(result))
        with atomic_path(decisions / f"{cell}.jsonl.gz") as temporary:
            temporary.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    times = result["decisions"]
    return ResultRow(
        cell,
        result["digest"],
        times["count"],
        {
            "decision_s_p50": _digits(times["seconds_p50"] or 0.0),
            "decision_s_p99": _digits(times["seconds_p99"] or 0.0),
            "wall_s": _digits(result["wall_s"]),
        },
        result["metrics"],
    )


Lines = Callable[[Mapping[str, Any]], Iterable[object]]
"""Lines of the log, of the content of result.json."""


def _decided(scenario: Scenario, policy: Policy, placer: Placer, seed: int) -> tuple[Run, Lines]:
    from clustergym.output import decision_lines
    from clustergym.sim.run import simulate

    run = simulate(scenario, policy, placer, seed)
    return run, partial(decision_lines, run.simulation)


def _placed(scenario: Scenario, policy: Policy, placer: Placer, seed: int) -> tuple[Run, Lines]:
    """Run a policy under a placer; the decisions and their times are the placer's."""
    from clustergym.leaderboard.placements import placement_lines, simulate_recorded

    run, recorded = simulate_recorded(scenario, policy, placer, seed)

    def lines_of(result: Mapping[str, Any]) -> Iterable[object]:
        keys = ("policy", "placer")
        chosen = {key: {"name": result[key]["name"], **result[key]["parameters"]} for key in keys}
        header = {**chosen, "defragment_s": placer.defragment_s, "seed": seed}
        return placement_lines(scenario, recorded.answers, header)

    return replace(run, decision_times=recorded.times), lines_of


_RUNS = {"policy": _decided, "placer": _placed}


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def run_cells(
    board: Board,
    parameters: Mapping[str, Any],
    cells: Sequence[Cell],
    decisions: Path | None = None,
    workers: int = 1,
    done: Callable[[ResultRow], None] = lambda row: None,
    overrides: Sequence[str] = (),
) -> list[ResultRow]:
    """Run a policy or placer in cells; `done` is told of each as it ends. Raises as `run_cell`."""
    task = partial(
        run_cell, board.name, board.folder.parent, dict(parameters), decisions, overrides=tuple(overrides)
    )
    label, started, rows = str(parameters["name"]), time.perf_counter(), []

    def ended(row: ResultRow) -> None:
        done(row)
        rows.append(row)
        spent = time.perf_counter() - started
        print(f"{label} on {board.name}: {len(rows)} of {len(cells)} cells, {spent:.0f} s", file=sys.stderr)

    if workers == 1:
        for cell in cells:
            ended(task(cell))
    else:
        with ProcessPoolExecutor(workers) as pool:
            for row in pool.map(task, cells):
                ended(row)
    return rows
