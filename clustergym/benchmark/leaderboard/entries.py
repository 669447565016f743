"""Policies of others on a board: their logs are kept, and every figure of theirs comes from a replay.

So too the logs of some rows of the table, which stand in its folder `logs`.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from clustergym.benchmark.leaderboard import DECISION_LIMIT_S, cell_logs
from clustergym.benchmark.leaderboard.board import NAME, Cell
from clustergym.benchmark.leaderboard.cell_logs import read_logs, write_logs
from clustergym.benchmark.leaderboard.cells import ComparedPolicy, FigureTable, Place, Row
from clustergym.benchmark.leaderboard.entry import (
    LOGS,
    ComponentChoice,
    Entry,
    entry_folder,
    entry_names,
    read_entry,
)
from clustergym.benchmark.leaderboard.replay import describe_choice, replay_log
from clustergym.benchmark.leaderboard.runs import Log, play
from clustergym.common.errors import InputError, alike, nearest
from clustergym.common.processes import Processes, in_order
from clustergym.common.writing import write_text
from clustergym.results.metrics.intervals import Outcome
from clustergym.results.metrics.metrics import Measurement
from clustergym.scenario.policy import Placer, Policy
from clustergym.scenario.registry import entry_points
from clustergym.scenario.scenario import Scenario

LICENCE = "Apache-2.0"
UNKNOWN = "0" * 12
"""The fingerprint of what is only known by its log."""


class EnteredPolicy(NamedTuple):
    """An entry as rows of a table."""

    compared: ComparedPolicy
    rows: list[Row]


def is_published(component: str, name: str) -> bool:
    """Return whether this project has a policy or placer of this name."""
    return entry_points(component).get(name, "").startswith("clustergym.")


def add_entry(
    table: FigureTable,
    name: str,
    chosen: Mapping[str, Mapping[str, Any]],
    title: str,
    authors: Sequence[str],
    command: str,
    workers: Processes = 1,
    limit_s: float | None = DECISION_LIMIT_S,
) -> Path:
    """Run a policy in every cell that each row of the table has, and write its entry: logs, and no figures.

    Parameters
    ----------
    table : FigureTable
    name : str
        Of the entry's folder.
    chosen : mapping
        Name and parameters by `policy` and `placer`; the board's own for one left out.
    title : str
    authors : sequence of str
    command : str
        That made the entry.
    workers : int or "ray"
    limit_s : float, optional
        Wall seconds that a decision may take.
    """
    if not re.fullmatch(NAME, name) or name in (*table.policies, LOGS):
        remedy = "use lower-case letters, digits and hyphens, and no name of policies.yaml"
        raise InputError(f"{name!r} is not a name for an entry", field="name", remedy=remedy)
    if all(is_published(component, str(keys["name"])) for component, keys in chosen.items()):
        remedy = "name it in policies.yaml and cells.yaml, and run `clustergym leaderboard fill`"
        raise InputError("is of this project, so that it is a row", field="policy", remedy=remedy)
    policy, placer = table.board.contestants(chosen.get("policy"), chosen.get("placer"))
    own = _choose(placer) if "placer" in chosen else None
    entry = Entry(
        board=table.board.name,
        board_version=table.board.version,
        title=title,
        authors=list(authors),
        policy=_choose(policy),
        placer=own,
        information_class=policy.information_class.value,
        licence=LICENCE,
        command=command,
    )
    log: Log = "schedule" if own else "decisions"
    cells = table.keys.least_cells
    table.board.compose()
    play_cell = partial(_play_cell, table, policy, placer, log, limit_s)
    made = list(in_order(play_cell, cells, workers, f"run {name} on {table.board.name}"))
    folder = table.board.folder / name
    folder.mkdir(exist_ok=True)
    write_logs(folder / cell_logs.FILE, dict(zip(cells, made, strict=True)), cells)
    content = entry.model_dump(exclude_none=True)
    write_text(folder / "entry.yaml", yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
    return folder


def _choose(made: Policy | Placer) -> ComponentChoice:
    # Tuples, as some parameters are, have no form in YAML.
    parameters = json.loads(json.dumps(describe_choice(made)))
    return ComponentChoice(name=parameters.pop("name"), parameters=parameters)


def _play_cell(
    table: FigureTable, policy: Policy, placer: Placer, log: Log, limit_s: float | None, cell: Cell
) -> bytes:
    from clustergym.sim.engine import StalledError
    from clustergym.sim.guard import StoppedError

    scenario = table.board.scenario(cell, table.keys.overrides(cell.scenario, ""))
    try:
        return play(scenario, policy, placer, cell.seed, log, limit_s).log
    except (StalledError, StoppedError) as error:
        raise InputError(str(error), field=str(cell), remedy="no entry was written") from error


def replay_entry(table: FigureTable, name: str) -> EnteredPolicy:
    """Replay the logs of an entry, without its code; raise an `InputError` for the first thing wrong."""
    folder = entry_folder(table.board, name)
    entry, path = read_entry(folder, table.board, Entry), folder / "entry.yaml"
    chosen = {"policy": entry.policy, "placer": entry.placer}
    if all(one is None or is_published(component, one.name) for component, one in chosen.items()):
        raise InputError(f"{entry.policy.name!r} is of this project", file=path, remedy="name another policy")
    others = []
    for other in entry_names(table.board):
        with contextlib.suppress(InputError):  # It is told of that entry itself.
            others.append(read_entry(entry_folder(table.board, other), table.board, Entry).title)
    titles = [alike(title) for title in [*others, *(one.title for one in table.policies.values())]]
    if name in table.policies or titles.count(alike(entry.title)) > 1:
        message = "its name or title may be taken for that of another row"
        raise InputError(message, file=path, field="title", remedy="choose another")
    placer = table.board.contestants({"name": "fcfs"})[1] if entry.placer is None else None
    described = describe_choice(placer) if placer else (entry.placer.keys if entry.placer else {})
    of = {"policy": entry.policy.name, "information_class": entry.information_class, "placer": described}
    rows = replay_cells(table, name, folder / cell_logs.FILE, table.keys.least_cells, of, placer)
    keys = {component: one.keys for component, one in chosen.items() if one is not None}
    compared = ComparedPolicy(title=entry.title, rules="entered", seen=entry.seen, **keys)
    return EnteredPolicy(compared, rows)


def check_cells(labels: Sequence[str], cells: Sequence[Cell], path: Path) -> None:
    """Check that logs are of these cells, in this order."""
    wanted = [str(cell) for cell in cells]
    for cell in (*wanted, *labels):
        if cell not in wanted or labels.count(cell) != 1:
            found = f"has {labels.count(cell)} logs of {cell}, and {wanted.count(cell)} are to be there"
            raise InputError(found, file=path, remedy="make it anew")
    if labels != wanted:
        raise InputError("has its cells in another order", file=path, remedy="make it anew")


def replay_cells(
    table: FigureTable,
    name: str,
    path: Path,
    cells: Sequence[Cell],
    of: Mapping[str, Any],
    placer: Placer | None,
) -> list[Row]:
    """Replay the logs of some cells, and return their rows."""
    from clustergym.results.measured_run import measure_run

    logs, rows = read_logs(path), []
    check_cells([label for label, _ in logs], cells, path)
    for cell, (_, packed) in zip(cells, logs, strict=True):
        scenario = table.board.scenario(cell, table.keys.overrides(cell.scenario, ""))
        made = replay_log(path, packed, scenario, {**of, "seed": cell.seed}, placer)
        measured = measure_run(made)
        _check_finished(scenario, measured, path, cell)
        found = {metric: measured.metrics.get(metric) for metric in table.keys.metrics}
        place = Place(name, cell.scenario, cell.seed, "")
        rows.append(Row(place, "{}", UNKNOWN, UNKNOWN, scenario.sha256, made.log.digest, 0.0, "", "", found))
    return rows


def _check_finished(scenario: Scenario, measured: Measurement, path: Path, cell: Cell) -> None:
    # A schedule that leaves jobs out could beat any bound. Jobs that fit no GPUs of the cluster, and those
    # with a deadline, may be dropped.
    left = int((scenario.scored & (measured.records.outcome == Outcome.UNFINISHED)).sum())
    unfit = int((scenario.request_gpus == 0).sum())
    may_drop = bool(np.isfinite(scenario.trace.deadline_s).any())
    dropped = 0 if may_drop else int(measured.metrics["jobs_dropped"] or 0) - unfit
    if left or dropped > 0:
        message = f"{cell}: {left} jobs unfinished, {max(dropped, 0)} dropped"
        raise InputError(message, file=path, remedy="run it until all jobs have ended")


def keep_logs(table: FigureTable, names: Sequence[str], workers: Processes = 1) -> Iterator[Path]:
    """Run rows on the first seed of each family, write and yield their logs."""
    cells = table.keys.first_cells
    table.board.compose()
    for name in names:
        policy, placer = table.contestants(name)
        log: Log = "decisions" if table.policies[name].placer is None else "schedule"
        made = in_order(partial(_play_cell, table, policy, placer, log, DECISION_LIMIT_S), cells, workers)
        path = table.board.folder / LOGS / f"{name}.jsonl.gz"
        path.parent.mkdir(exist_ok=True)
        write_logs(path, dict(zip(cells, made, strict=True)), cells)
        yield path


def replay_kept(table: FigureTable, name: str) -> list[Row]:
    """Replay the log of a row of the table, without its policy."""
    path = table.board.folder / LOGS / f"{name}.jsonl.gz"
    if name not in table.keys.logged:
        remedy = nearest(name, table.keys.logged)
        raise InputError("is no log that cells.yaml names", file=path, remedy=remedy)
    policy, placer = table.contestants(name)
    known, placed = policy.information_class.value, describe_choice(placer)
    of = {"policy": policy.name, "information_class": known, "placer": placed}
    own = None if table.policies[name].placer else placer
    return replay_cells(table, name, path, table.keys.first_cells, of, own)
