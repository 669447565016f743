"""Write what is committed of a board: entries of new or finished runs, constants and trace hashes."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from clustergym.benchmark.leaderboard import DECISION_LIMIT_S, cell_logs
from clustergym.benchmark.leaderboard.board import NAME, Board, Cell
from clustergym.benchmark.leaderboard.cell_logs import pack, read_logs, write_logs
from clustergym.benchmark.leaderboard.entry import (
    FIXED,
    TIMES,
    ComponentChoice,
    Entry,
    ResultRow,
    read_entry,
    read_results,
)
from clustergym.benchmark.leaderboard.entry_curves import write_curves
from clustergym.benchmark.leaderboard.registered import list_training_data
from clustergym.benchmark.leaderboard.run_cells import CellRun, make_result_row, run_cell, run_cells
from clustergym.common.errors import InputError
from clustergym.common.processes import Processes, in_order
from clustergym.common.writing import write_text
from clustergym.results.decision_log import DECISIONS_SCHEMA, open_log
from clustergym.results.folder_replay import replay_folder
from clustergym.results.metrics.catalogue import METRICS
from clustergym.results.result_files import NamedPart, ResultFile, read_result
from clustergym.scenario.policy import Placer, Policy
from clustergym.scenario.registry import list_parameters

HARDWARE, LICENCE = "one core of an x86-64 machine", "Apache-2.0"

SOLVERS = {
    "gavel": "HiGHS (linear programs)",
    "themis": "none",
    "sia": "SCIP or HiGHS (integer programs)",
    "allox": "scipy linear_sum_assignment",
    "pollux": "genetic search",
}
ALGORITHM_SOLVERS = {"arnold": ("exact search over components (Arnold's programme)", "100,000 choices")}
"""Solver and limits, by the algorithm of a placer."""


def add(
    board: Board,
    name: str,
    parameters: Mapping[str, Any],
    *,
    title: str | None = None,
    authors: Sequence[str] = ("clustergym",),
    workers: Processes = 1,
    words: Sequence[str] = (),
    decision_limit_s: float | None = DECISION_LIMIT_S,
    finished: Sequence[Path] = (),
) -> Path:
    """Run a policy, a placer or both in all scenarios and seeds that an entry lacks; write the entry's files.

    What entry.yaml says of an entry of this version of the board stays, but for the title if one is given.

    Parameters
    ----------
    board : Board
        It says whether `parameters` are those of a policy, of a placer, or of both by these two keys.
    name : str
        Name of the entry's folder.
    parameters : mapping
    title : str, optional
        The title that pages show.
    authors : sequence of str
    workers : int
        Processes.
    words : sequence of str
        The overrides of the command line that give the same parameters; by default every parameter.
    decision_limit_s : float, optional
        Wall seconds that a decision may take.
    finished : sequence of Path
        Folders of runs in cells that are not run anew (`load_finished_runs`).
    """
    if not re.fullmatch(NAME, name):
        remedy = "use lower-case letters, digits and hyphens"
        raise InputError(f"{name!r} is not a name for an entry", field="name", remedy=remedy)
    for cell in board.cells:
        board.constants(cell)  # Before anything is run: a board that is not frozen has no scores.
    folder = board.folder / name
    entry = _entry(board, name, parameters, title or name, authors, words or _words(board, parameters))
    # What an earlier call left off is gone on with: rows and logs of finished cells are kept.
    begun, runs = folder.exists(), dict[Cell, CellRun]()
    found = _read_begun(folder, entry, board)
    if found is not None:
        runs, entry = read_runs(folder), found.model_copy(update={"title": title or found.title})
    runs |= load_finished_runs(board, parameters, finished)
    missing = [cell for cell in board.cells if cell not in runs]
    folder.mkdir(parents=True, exist_ok=True)
    write_runs(folder, board, runs)
    write_yaml(folder / "entry.yaml", entry.model_dump(exclude_none=True))

    def done(run: CellRun) -> None:
        runs[run.row.cell] = run
        write_runs(folder, board, runs)

    try:
        run_cells(board, parameters, missing, workers, done, decision_limit_s)
    except (InputError, MemoryError):
        if not begun and not runs:
            shutil.rmtree(folder)
        raise
    write_curves(board, name)
    write_readme(folder, entry, board)
    return folder


def _entry(
    board: Board,
    name: str,
    parameters: Mapping[str, Any],
    title: str,
    authors: Sequence[str],
    words: Sequence[str],
) -> Entry:
    from clustergym.common.version import __version__
    from clustergym.scenario.registry import list_parameters

    policy, placer = board.contestants(parameters)
    given = board.keys_by_component(parameters)
    made: dict[str, Policy | Placer] = {"policy": policy, "placer": placer}
    choices = {
        component: ComponentChoice(name=keys["name"], parameters=_plain(list_parameters(made[component])))
        for component, keys in given.items()
    }
    algorithm = str(given["placer"].get("algorithm")) if "placer" in given else ""
    solver, limits = ALGORITHM_SOLVERS.get(algorithm, ("none", "none"))
    if "policy" in given:
        decides = str(choices["policy"].parameters.get("within", policy.name)).partition(" ")[0]
        solver = SOLVERS.get(decides, solver)
    command = [board.name, name, *words]
    return Entry(
        board=board.name,
        board_version=board.version,
        title=title,
        authors=list(authors),
        policy=choices.get("policy"),
        placer=choices.get("placer"),
        version=__version__,
        information_class=policy.information_class.value if "policy" in given else "none",
        deterministic=True,
        trained_on=list_training_data(choices.values(), board),
        search_budget="none",
        solver=solver,
        limits=limits,
        hardware=HARDWARE,
        licence=LICENCE,
        command=" ".join(["python -m clustergym.leaderboard add", *(shlex.quote(word) for word in command)]),
    )


def _words(board: Board, parameters: Mapping[str, Any]) -> list[str]:
    """Return parameters as overrides of the command line; Hydra reads values in YAML's notation."""
    words = []
    for component, keys in board.keys_by_component(parameters).items():
        rest = [f"{component}.{key}={json.dumps(value)}" for key, value in keys.items() if key != "name"]
        words += [f"{component}={keys['name']}", *rest]
    return words


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple | list) else value


def _read_begun(folder: Path, entry: Entry, board: Board) -> Entry | None:
    """Return the entry that a folder holds, finished or not; None if it is of an earlier board version."""
    if not has_started(folder):
        return None
    found = read_entry(folder, board)
    if found.board_version < board.version:
        return None
    # Two policies under one name would give a table of which nobody knows what a row is of.
    if (found.choices, found.board_version) != (entry.choices, entry.board_version):
        message = f"is of another {board.chooses}, parameters or board version"
        raise InputError(message, file=folder / "entry.yaml", remedy="remove the folder, or name another")
    return found


def has_started(folder: Path) -> bool:
    """Return whether a folder holds the files of a leaderboard entry, finished or not."""
    return all((folder / name).is_file() for name in ("entry.yaml", "results.csv", cell_logs.FILE))


def read_runs(folder: Path) -> dict[Cell, CellRun]:
    """Read an entry's runs by cell (scenario, seed), without those that lack a results row or a log."""
    logs, rows = read_logs(folder), read_results(folder)
    return {
        row.cell: CellRun(row, logs.read_packed(row.cell)) for row in rows if str(row.cell) in logs.labels
    }


def write_runs(folder: Path, board: Board, runs: Mapping[Cell, CellRun]) -> None:
    """Write an entry's runs to its folder: logs first, so that every results row on disk has its log."""
    write_logs(folder, {cell: run.log for cell, run in runs.items()}, board.cells)
    _write_results(folder, [runs[cell].row for cell in board.cells if cell in runs])


def write_yaml(path: Path, content: Mapping[str, Any]) -> None:
    """Write a mapping to a YAML file, with its keys in the given order."""
    write_text(path, yaml.safe_dump(dict(content), sort_keys=False, width=110))


def _write_results(folder: Path, rows: Sequence[ResultRow]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    # Rows of an entry that was begun before the catalogue had a metric lack it: the column is then left
    # out.
    names = [name for name in METRICS if all(name in row.metrics for row in rows)]
    writer.writerow([*FIXED, *names])
    for row in rows:
        times = [row.times[name] for name in TIMES]
        metrics = ["" if row.metrics[name] is None else row.metrics[name] for name in names]
        writer.writerow([*row.cell, row.digest, row.decisions, *times, *metrics])
    write_text(folder / "results.csv", text.getvalue())


def write_readme(folder: Path, entry: Entry, board: Board) -> None:
    """Write a leaderboard entry's README.md: how it was made, and how to check it."""
    text = f"""# {entry.title}

An entry of the board [{board.name}](../README.md), version {board.version}. Made by

    {entry.command}

`results.csv` has a row for each scenario and seed; `{cell_logs.FILE}` what was decided in each. From that,
`python -m clustergym.leaderboard check {board.name} {folder.name}` computes every metric anew, without
the {board.chooses}.
"""
    write_text(folder / "README.md", text)


def freeze(board: Board, workers: Processes = 1, next_version: bool = False, progress: bool = False) -> Path:
    """Run a board's baseline and reference (policies or placers); write the results to its board.yaml.

    Both run in every cell (scenario, seed). The hashes of the cells' traces are written too.

    Parameters
    ----------
    board : Board
    workers : int
        Processes.
    next_version : bool
        Raise the version and measure everything anew; all entries must then be run anew too.
    progress : bool
        Whether to show progress on stderr.

    Raises
    ------
    InputError
        If the board already has both, which only a new version may replace; or if the reference
        is not better than the baseline in a cell.
    """
    path = board.folder / "board.yaml"
    if next_version:
        # A new version forgets constants and traces together: one made with the other's cells would compare
        # two boards.
        bare = [scenario.model_copy(update={"constants": {}, "traces": {}}) for scenario in board.scenarios]
        board = board.model_copy(update={"version": board.version + 1, "scenarios": bare})
    content = board.content()
    frozen = [any(getattr(scenario, key) for scenario in board.scenarios) for key in ("constants", "traces")]
    if all(frozen):
        message, remedy = "its constants are frozen", "give --next-version"
        raise InputError(message, file=path, field="constants", remedy=remedy)
    board.compose()
    for key, there, measure in zip(("constants", "traces"), frozen, (_constants, _traces), strict=True):
        if not there:
            found = measure(board, workers, f"{key} of {board.name}" if progress else None)
            for scenario in content["scenarios"]:
                scenario[key] = found[scenario["name"]]
    write_yaml(path, content)
    return path


def _constants(board: Board, workers: Processes, label: str | None) -> dict[str, Any]:
    """Run the baseline and reference in all cells; return their results by scenario and seed."""
    found: dict[str, dict[int, Any]] = {scenario.name: {} for scenario in board.scenarios}
    runs = in_order(partial(measure_constants, board), board.cells, workers, label)
    for cell, values in zip(board.cells, runs, strict=True):
        found[cell.scenario][cell.seed] = values
    return found


def measure_constants(board: Board, cell: Cell) -> dict[str, Any]:
    """Run a board's baseline and reference (policies or placers) in a cell (scenario, seed); return results.

    The results are the metric of each, a lower bound on mean JCT, and the scenario's hash.
    """
    from clustergym.results.bounds.bounds import lower_bounds

    runs = {
        "baseline": run_cell(board, board.baseline, cell),
        "reference": run_cell(board, board.reference, cell, board.reference_overrides),
    }
    values = {label: float(run.row.metrics[board.metric] or 0.0) for label, run in runs.items()}
    # The score of a cell divides by their difference: without one, or with one below 0, it has no meaning.
    if board.sign * (values["reference"] - values["baseline"]) >= 0:
        message = f"the reference is not better than the baseline in {cell}: {values}"
        remedy = "choose another reference or load"
        raise InputError(message, file=board.folder / "board.yaml", field="reference", remedy=remedy)
    built = board.scenario(cell)
    return {"sha256": built.sha256, **values, "jct_bound": lower_bounds(built).jct_mean}


def _traces(board: Board, workers: Processes, label: str | None) -> dict[str, Any]:
    """Generate the traces of every split; return their hashes by scenario, split and seed."""
    found: dict[str, Any] = {
        scenario.name: {split: {} for split in board.splits} for scenario in board.scenarios
    }
    places = [
        (scenario.name, split, seed)
        for scenario in board.scenarios
        for split, seeds in board.splits.items()
        for seed in seeds
    ]
    cells = [Cell(name, seed) for name, _, seed in places]
    for (name, split, seed), digest in zip(
        places, in_order(partial(_digest, board), cells, workers, label), strict=True
    ):
        found[name][split][seed] = digest
    return found


def _digest(board: Board, cell: Cell) -> str:
    return board.trace(cell).sha256


def load_finished_runs(
    board: Board, parameters: Mapping[str, Any], folders: Sequence[Path]
) -> dict[Cell, CellRun]:
    """Read a policy's finished runs from folders; return them by leaderboard cell (scenario, seed).

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
        cell = _find_cell(board, result)
        if cell in found:
            raise InputError(f"is a run of {cell}", file=folder, remedy="name one run of each cell")
        policy, placer = board.contestants(parameters)
        _check_part(result, "policy", result.policy, policy)
        _check_part(result, "placer", result.placer, placer)
        # Before it is taken, not at the next check: a live run on a scaled clock has times that no replay
        # gives.
        if not replay_folder(folder)["equal"]:
            message = "the simulator does not replay it to the same digest and metrics"
            raise InputError(message, file=folder, remedy="give a run in lock-step, or leave it out")
        header, lines = open_log(folder / "decisions.jsonl.gz", "decision", DECISIONS_SCHEMA, None)
        log = pack([header, *(line for _, line in lines)])
        found[cell] = CellRun(make_result_row(cell, result.model_dump()), log)
    return found


def _check_part(result: ResultFile, component: str, ran: NamedPart, made: Policy | Placer) -> None:
    wanted = NamedPart(name=made.name, parameters=list_parameters(made))
    if ran.key != wanted.key:
        raise InputError(
            f"is {ran.key}, not {wanted.key}", file=result.path, field=component, remedy="leave it out"
        )


def _find_cell(board: Board, result: ResultFile) -> Cell:
    for cell in board.cells:
        # By the scenario's hash, not its name: names are given twice, and a file may say anything.
        if (cell.seed, board.constants(cell).sha256) == (result.seed, result.scenario.sha256):
            return cell
    message = f"is no cell of {board.name}: {result.scenario.name}, seed {result.seed}"
    remedy = f"run it with the overrides and a seed of {board.folder / 'board.yaml'}"
    raise InputError(message, file=result.path, field="scenario", remedy=remedy)
