"""Runs of a policy or placer in the cells of a board, on several processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from clustergym.benchmark.leaderboard import DECISION_LIMIT_S
from clustergym.benchmark.leaderboard.board import Board, Cell
from clustergym.benchmark.leaderboard.cell_logs import pack
from clustergym.benchmark.leaderboard.entry import ResultRow
from clustergym.common.errors import InputError
from clustergym.common.processes import Processes, in_order
from clustergym.scenario.policy import Placer, Policy
from clustergym.scenario.scenario import Scenario

if TYPE_CHECKING:
    from clustergym.results.measured_run import Result
    from clustergym.sim.guard import StepWatchdog


class CellRun(NamedTuple):
    """A run in one cell (scenario, seed): its row of results.csv, and its compressed log."""

    row: ResultRow
    log: bytes


def run_cell(
    board: Board,
    parameters: Mapping[str, Any],
    cell: Cell,
    overrides: Sequence[str] = (),
    decision_limit_s: float | None = DECISION_LIMIT_S,
) -> CellRun:
    """Run a policy or placer in one cell (scenario and seed); return its results row and compressed log.

    Parameters
    ----------
    board : Board
        It says whether `parameters` are those of a policy, of a placer, or of both by these two keys.
    parameters : mapping
    cell : Cell
    overrides : sequence of str
        Overrides of the main job in addition to the cell's.
    decision_limit_s : float, optional
        Wall seconds that a decision may take.

    Raises
    ------
    InputError
        For a policy or placer that is unknown, that the scenario lacks something for, that stalls, exits,
        or takes too long.
    """
    return run_scenario(board, board.scenario(cell, overrides), parameters, cell, decision_limit_s)


def run_scenario(
    board: Board,
    scenario: Scenario,
    parameters: Mapping[str, Any],
    cell: Cell,
    decision_limit_s: float | None = DECISION_LIMIT_S,
) -> CellRun:
    """Run a policy or placer as `run_cell` does, on the cell's scenario, which is built already."""
    from clustergym.sim.child import run_supervised
    from clustergym.sim.engine import StalledError
    from clustergym.sim.guard import StoppedError

    # In a process of its own, which a policy may end, hang or fill: a board's other cells go on.
    policy, placer = board.contestants(parameters)
    task = partial(play_cell, board, scenario, policy, placer, cell)
    try:
        return run_supervised(task, policy, placer, decision_limit_s)
    except StalledError as error:
        label = f"{board.chooses} {_names(board, parameters)}, {cell}"
        raise InputError(str(error), field=label, remedy="no entry was written") from error
    except StoppedError as error:
        raise InputError(str(error), field=str(cell)) from error


def play_cell(
    board: Board, scenario: Scenario, policy: Policy, placer: Placer, cell: Cell, watch: StepWatchdog
) -> CellRun:
    """Run a policy and a placer on a cell's scenario; return the results row and the compressed log."""
    from clustergym.results.result_writing import make_content

    result, list_lines = _RUNS[board.chooses](scenario, policy, placer, cell.seed, watch)
    content = make_content(result, policy, placer, cell.seed)
    return CellRun(make_result_row(cell, content), pack(list_lines(content)))


def make_result_row(cell: Cell, content: Mapping[str, Any]) -> ResultRow:
    """Return a run's row of results.csv, given its cell (scenario, seed) and its result.json."""
    times = content["decisions"]
    seconds = {
        "decision_s_p50": _digits(times["seconds_p50"] or 0.0),
        "decision_s_p99": _digits(times["seconds_p99"] or 0.0),
        "wall_s": _digits(content["wall_s"]),
    }
    return ResultRow(cell, content["digest"], times["count"], seconds, content["metrics"])


Lines = Callable[[Mapping[str, Any]], Iterable[object]]
"""Lines of the log, of the content of result.json."""


def _run_policy(
    scenario: Scenario, policy: Policy, placer: Placer, seed: int, watch: StepWatchdog
) -> tuple[Result, Lines]:
    from clustergym.results.measured_run import simulate
    from clustergym.results.result_writing import decision_lines

    result = simulate(scenario, policy, placer, seed, watch=watch)
    return result, partial(decision_lines, result.run.simulation)


def _run_placer(
    scenario: Scenario, policy: Policy, placer: Placer, seed: int, watch: StepWatchdog
) -> tuple[Result, Lines]:
    """Run a policy under a placer; the decisions and their times are the placer's."""
    from clustergym.results.measured_run import make_result
    from clustergym.results.placement_log import placement_lines, simulate_recorded

    run, recorded = simulate_recorded(scenario, policy, placer, seed, watch)

    def list_lines(result: Mapping[str, Any]) -> Iterable[object]:
        keys = ("policy", "placer")
        chosen = {key: {"name": result[key]["name"], **result[key]["parameters"]} for key in keys}
        header = {**chosen, "defragment_s": placer.defragment_s, "seed": seed}
        return placement_lines(scenario, recorded.answers, header)

    return make_result(replace(run, decision_times=recorded.times)), list_lines


def _run_schedule(
    scenario: Scenario, policy: Policy, placer: Placer, seed: int, watch: StepWatchdog
) -> tuple[Result, Lines]:
    """Run a policy under a placer; the log has what both decided, the times are the policy's."""
    from clustergym.results.measured_run import make_result
    from clustergym.results.placement_log import simulate_recorded
    from clustergym.results.schedule_log import schedule_lines

    run, recorded = simulate_recorded(scenario, policy, placer, seed, watch)
    return make_result(run), partial(
        schedule_lines, run.simulation, recorded.answers, defragment_s=placer.defragment_s
    )


_RUNS = {"policy": _run_policy, "placer": _run_placer, "policy and placer": _run_schedule}


def _names(board: Board, parameters: Mapping[str, Any]) -> str:
    return " and ".join(str(keys["name"]) for keys in board.keys_by_component(parameters).values())


def _digits(value: float) -> float:
    # What differs from machine to machine has no further digits to commit.
    return float(f"{value:.4g}")


def run_cells(
    board: Board,
    parameters: Mapping[str, Any],
    cells: Sequence[Cell],
    workers: Processes = 1,
    done: Callable[[CellRun], None] = lambda run: None,
    decision_limit_s: float | None = DECISION_LIMIT_S,
) -> list[CellRun]:
    """Run a policy or placer in several cells (scenario, seed), and call `done` as each run ends."""
    # Before the workers start: Hydra composes once for all of them.
    board.compose()
    label, started, runs = _names(board, parameters), time.perf_counter(), []
    task = partial(run_cell, board, dict(parameters), decision_limit_s=decision_limit_s)
    for run in in_order(task, cells, workers):
        done(run)
        runs.append(run)
        spent = time.perf_counter() - started
        print(f"{label} on {board.name}: {len(runs)} of {len(cells)} cells, {spent:.0f} s", file=sys.stderr)
    return runs
