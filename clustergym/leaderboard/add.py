"""Making what is committed: an entry of a policy, and the frozen constants of a board."""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from clustergym.errors import InputError
from clustergym.leaderboard.board import NAME, Board, Cell
from clustergym.leaderboard.curves import write_curves
from clustergym.leaderboard.entry import (
    FIXED,
    TIMES,
    Entry,
    PolicyKeys,
    ResultRow,
    decisions_path,
    read_results,
)
from clustergym.leaderboard.run_cells import run_cells
from clustergym.metrics.catalogue import METRICS
from clustergym.paths import atomic_path

HARDWARE, LICENCE = "one core of an x86-64 machine", "Apache-2.0"

SOLVERS = {
    "gavel": "HiGHS (linear programs)",
    "themis": "none",
    "sia": "SCIP or HiGHS (integer programs)",
    "allox": "scipy linear_sum_assignment",
    "pollux": "genetic search",
}
TRAINED = {"learned": ["train"]}
"""What the project's own policies use and were trained on, by policy name."""


def add(
    board: Board,
    name: str,
    parameters: Mapping[str, Any],
    *,
    title: str | None = None,
    authors: Sequence[str] = ("clustergym",),
    workers: int = 1,
) -> Path:
    """Run a policy in every cell of a board and write it as an entry; cells already run are kept.

    Raises
    ------
    InputError
        For a name that is none, a policy that cannot run on the board, and an entry of that name with
        another policy or board version.
    """
    if not re.fullmatch(NAME, name):
        remedy = "use lower-case letters, digits and hyphens"
        raise InputError(f"{name!r} is no name of an entry", field="name", remedy=remedy)
    folder = board.folder / name
    entry = _entry(board, name, parameters, title or name, authors)
    known = _resumed(folder, entry)
    (folder / "decisions").mkdir(parents=True, exist_ok=True)
    _write_yaml(folder / "entry.yaml", entry.model_dump())
    rows = dict(known)

    def done(row: ResultRow) -> None:
        rows[row.cell] = row
        _write_results(folder, [rows[cell] for cell in board.cells if cell in rows])

    missing = [cell for cell in board.cells if cell not in known]
    run_cells(board, parameters, missing, folder / "decisions", workers, done)
    _write_results(folder, [rows[cell] for cell in board.cells])
    write_curves(board, name)
    _write_readme(folder, entry, board)
    return folder


def _entry(
    board: Board, name: str, parameters: Mapping[str, Any], title: str, authors: Sequence[str]
) -> Entry:
    from clustergym import __version__
    from clustergym.registry import make_policy, parameters_of

    policy = make_policy(parameters)
    words = [f"policy.{key}={value}" for key, value in parameters.items() if key != "name"]
    command = ["python -m clustergym.leaderboard add", board.name, name, f"policy={policy.name}", *words]
    return Entry(
        board=board.name,
        board_version=board.version,
        title=title,
        authors=list(authors),
        policy=PolicyKeys(name=policy.name, parameters=_plain(parameters_of(policy))),
        version=__version__,
        information_class=policy.information_class.value,
        deterministic=True,
        trained_on=TRAINED.get(policy.name, []),
        search_budget="none",
        solver=SOLVERS.get(policy.name, "none"),
        limits="none",
        hardware=HARDWARE,
        licence=LICENCE,
        command=" ".join([command[0], *(shlex.quote(word) for word in command[1:])]),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else value


def _resumed(folder: Path, entry: Entry) -> dict[Cell, ResultRow]:
    """Return the rows of an entry that was begun, if it is the same."""
    from clustergym.leaderboard.entry import read_entry

    if not (folder / "entry.yaml").is_file():
        return {}
    found = read_entry(folder)
    if (found.policy, found.board_version) != (entry.policy, entry.board_version):
        message = "is of another policy, parameters or board version"
        raise InputError(message, file=folder / "entry.yaml", remedy="remove the folder, or name another")
    rows = read_results(folder) if (folder / "results.csv").is_file() else []
    return {row.cell: row for row in rows if decisions_path(folder, row.cell).is_file()}


def _write_yaml(path: Path, content: Mapping[str, Any]) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(yaml.safe_dump(dict(content), sort_keys=False, width=110), encoding="utf-8")


def _write_results(folder: Path, rows: Sequence[ResultRow]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [name for name in METRICS if all(name in row.metrics for row in rows)]
    writer.writerow([*FIXED, *names])
    for row in rows:
        times = [row.times[name] for name in TIMES]
        metrics = ["" if row.metrics[name] is None else row.metrics[name] for name in names]
        writer.writerow([*row.cell, row.digest, row.decisions, *times, *metrics])
    with atomic_path(folder / "results.csv") as temporary:
        temporary.write_text(text.getvalue(), encoding="utf-8")


def _write_readme(folder: Path, entry: Entry, board: Board) -> None:
    text = f"""# {entry.title}

An entry of the board [{board.name}](../README.md), version {board.version}. Made by

    {entry.command}

`results.csv` has a row for each scenario and seed; `decisions/` what was decided. From that,
`python -m clustergym.leaderboard check {board.name} {folder.name}` computes every metric anew, without
the policy.
"""
    with atomic_path(folder / "README.md") as temporary:
        temporary.write_text(text, encoding="utf-8")


def freeze(board: Board, workers: int = 1) -> Path:
    """Run fcfs and the reference policy in every cell and write the constants into board.yaml.

    Raises
    ------
    InputError
        If the board has constants already, which only a new version may replace; or if the reference
        is no better than fcfs in a cell.
    """
    from clustergym.metrics.bounds import lower_bounds

    path = board.folder / "board.yaml"
    if any(one.constants for one in board.scenarios):
        remedy = "raise the version and remove the constants"
        raise InputError("its constants are frozen", file=path, field="constants", remedy=remedy)
    found = {
        label: {row.cell: row for row in run_cells(board, parameters, board.cells, None, workers)}
        for label, parameters in (("fcfs", {"name": "fcfs"}), ("reference", board.reference))
    }
    content = board.model_dump()
    for scenario in content["scenarios"]:
        for seed in board.seeds:
            cell = Cell(scenario["name"], seed)
            values = {label: float(rows[cell].metrics[board.metric] or 0.0) for label, rows in found.items()}
            worse = values["reference"] - values["fcfs"]
            if (worse >= 0) if board.better == "lower" else (worse <= 0):
                message = f"the reference is no better than fcfs in {cell}: {values}"
                raise InputError(
                    message, file=path, field="reference", remedy="choose another reference or load"
                )
            built = board.scenario(cell)
            bound = {"jct_bound": lower_bounds(built).jct_mean}
            scenario["constants"][seed] = {"sha256": built.sha256, **values, **bound}
    _write_yaml(path, content)
    return path
