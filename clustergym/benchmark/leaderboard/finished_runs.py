"""Runs that are finished, as those of `clustergym live`: what an entry has of each, from its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clustergym.benchmark.leaderboard.board import Board, Cell
from clustergym.benchmark.leaderboard.cell_logs import pack
from clustergym.benchmark.leaderboard.run_cells import CellRun, row_of
from clustergym.common.errors import InputError
from clustergym.results.decision_log import DECISIONS_SCHEMA, open_log
from clustergym.results.folder_replay import replay_folder
from clustergym.results.result_files import NamedPart, ResultFile, read_result
from clustergym.scenario.policy import Placer, Policy
from clustergym.scenario.registry import parameters_of


def finished_runs(
    board: Board, parameters: Mapping[str, Any], folders: Sequence[Path]
) -> dict[Cell, CellRun]:
    """Return the runs in folders by their cells.

    Parameters
    ----------
    board : Board
        Whose entries are policies.
    parameters : mapping
        Of the policy.
    folders : sequence of Path
        Of runs of that policy, in a cell each.

    Raises
    ------
    InputError
        If a folder has no finished run, or one of another policy, placer or cell; or if the simulator does
        not replay it to the same metrics, as on a live run's scaled clock.
    """
    found: dict[Cell, CellRun] = {}
    if folders and board.chooses != "policy":
        remedy = "leave --run out"
        raise InputError(f"entries of {board.name} have other logs", field="--run", remedy=remedy)
    for folder in folders:
        result = read_result(folder / "result.json")
        cell = _cell_of(board, result)
        if cell in found:
            raise InputError(f"is a run of {cell}", file=folder, remedy="name one run of each cell")
        policy, placer = board.contestants(parameters)
        _check_part(result, "policy", result.policy, policy)
        _check_part(result, "placer", result.placer, placer)
        if not replay_folder(folder)["equal"]:
            message = "the simulator does not replay it to the same digest and metrics"
            raise InputError(message, file=folder, remedy="give a run in lock-step, or leave it out")
        header, lines = open_log(folder / "decisions.jsonl.gz", "decision", DECISIONS_SCHEMA, None)
        log = pack([header, *(line for _, line in lines)])
        found[cell] = CellRun(row_of(cell, result.model_dump()), log)
    return found


def _check_part(result: ResultFile, kind: str, ran: NamedPart, made: Policy | Placer) -> None:
    wanted = NamedPart(name=made.name, parameters=parameters_of(made))
    if ran.key != wanted.key:
        raise InputError(
            f"is {ran.key}, not {wanted.key}", file=result.path, field=kind, remedy="leave it out"
        )


def _cell_of(board: Board, result: ResultFile) -> Cell:
    for cell in board.cells:
        if (cell.seed, board.constants(cell).sha256) == (result.seed, result.scenario.sha256):
            return cell
    message = f"is no cell of {board.name}: {result.scenario.name}, seed {result.seed}"
    remedy = f"run it with the overrides and a seed of {board.folder / 'board.yaml'}"
    raise InputError(message, file=result.path, field="scenario", remedy=remedy)
