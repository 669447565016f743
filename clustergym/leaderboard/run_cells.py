"""Runs of a policy in the cells of a board, as many at a time as there are processes."""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from clustergym.errors import InputError
from clustergym.leaderboard.board import Board, Cell, load_board
from clustergym.leaderboard.entry import ResultRow
from clustergym.paths import atomic_path


def run_cell(
    name: str, root: Path, parameters: Mapping[str, Any], decisions: Path | None, cell: Cell
) -> ResultRow:
    """Run a policy in a cell, and write its decision log into a folder if one is given.

    Raises
    ------
    InputError
        For a policy that is unknown, that the scenario lacks something for, or that stalls.
    """
    from clustergym.output import decision_lines, measurement_of, result_of
    from clustergym.registry import make_policy
    from clustergym.sim.engine import StalledError
    from clustergym.sim.run import simulate

    board = load_board(name, root)
    scenario, policy, placer = board.scenario(cell), make_policy(parameters), board.make_placer()
    try:
        run = simulate(scenario, policy, placer, cell.seed)
    except StalledError as error:
        raise InputError(
            str(error), field=f"policy {policy.name}, {cell}", remedy="no entry was written"
        ) from error
    result = result_of(run, measurement_of(run.simulation), policy, placer, cell.seed)
    if decisions is not None:
        text = "".join(
            json.dumps(line, separators=(",", ":")) + "\n" for line in decision_lines(run.simulation, result)
        )
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


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def run_cells(
    board: Board,
    parameters: Mapping[str, Any],
    cells: Sequence[Cell],
    decisions: Path | None = None,
    workers: int = 1,
    done: Callable[[ResultRow], None] = lambda row: None,
) -> list[ResultRow]:
    """Run a policy in cells; `done` is told of each as it ends. Raises as `run_cell`."""
    task = partial(run_cell, board.name, board.folder.parent, dict(parameters), decisions)
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
