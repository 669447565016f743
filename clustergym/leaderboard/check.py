"""Checking an entry: what it decided is replayed without it, and every metric computed anew."""

from __future__ import annotations

import enum
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clustergym.errors import InputError
from clustergym.leaderboard.board import Board, Cell
from clustergym.leaderboard.entry import (
    LARGEST_PACKED_BYTES,
    LARGEST_README_BYTES,
    Entry,
    ResultRow,
    decisions_path,
    entry_folder,
    read_entry,
    read_results,
)
from clustergym.leaderboard.logs import LOGS
from clustergym.scenario import Scenario
from clustergym.sim.engine import Simulation

BOUNDED = ("jct_mean", "makespan")
TOLERANCE = 1e-9
LONGEST_DECISION_S = 3600.0


class Kind(enum.StrEnum):
    """What is wrong with an entry; each kind of failure has a flag of its own."""

    SCHEMA = "schema"
    """entry.yaml, results.csv or a file that does not belong there."""
    BOARD = "board"
    """Of another board, or of another version of it."""
    MISSING_CELL = "missing cell"
    DUPLICATE_CELL = "duplicate cell"
    FOREIGN_CELL = "foreign cell"
    """A scenario or seed that the board does not have."""
    DECISION_LOG = "decision log"
    """Cannot be read, or names what the scenario does not have."""
    TRACE_HASH = "trace hash"
    """Made on another scenario than the board's."""
    HEADER = "header"
    """The log's policy, class, round, placer, period or seed are not those of entry and board."""
    ILLEGAL_DECISION = "illegal decision"
    DIVERGED = "replay diverged"
    """A decision or placement where none is asked for, or after the end; or a replay that stalls."""
    DIGEST = "digest mismatch"
    METRIC = "metric mismatch"
    UNFINISHED = "unfinished jobs"
    """Jobs left unfinished or dropped where the board does not allow it."""
    BOUND = "better than the lower bound"
    DECISION_TIMES = "implausible decision times"
    CURVES = "curves"
    """Missing, malformed, or not those of the decisions."""
    RERUN = "re-run differs"
    """The policy or placer, run again, decides otherwise."""


@dataclass(frozen=True)
class Flag:
    """One failure.

    Attributes
    ----------
    kind : Kind
    where : str
        Cell, or file.
    message : str
    """

    kind: Kind
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.where}: {self.message}"


def check(board: Board, name: str, strict: int = 0, seed: int = 0) -> list[Flag]:
    """Return what is wrong with an entry; nothing if all is well.

    Parameters
    ----------
    board : Board
    name : str
        Of the entry's folder.
    strict : int
        Cells, drawn at random, in which the policy or placer is run again; only those that this
        project publishes, whatever the entry says.
    seed : int
        Of that draw.
    """
    try:
        folder = entry_folder(board, name)
        entry, rows = read_entry(folder, board), read_results(folder)
    except InputError as error:
        return [Flag(Kind.SCHEMA, name, str(error))]
    flags = [*_files(folder, board), *_identity(entry, board), *_cells(rows, board)]
    once = {row.cell: row for row in rows if row.cell in board.cells}
    for cell, row in once.items():
        flags += _replayed(folder, entry, board, cell, row)
    if strict and not flags:
        flags += _rerun(entry, board, once, strict, seed)
    return flags


def _files(folder: Path, board: Board) -> Iterator[Flag]:
    """Flag files that do not belong into decisions/, are links, or are too large."""
    wanted = {decisions_path(folder, cell).name for cell in board.cells}
    logs, readme = folder / "decisions", folder / "README.md"
    if not logs.is_dir():
        yield Flag(Kind.SCHEMA, "decisions", "no such folder")
        return
    for found in sorted(os.scandir(logs), key=lambda one: one.name):
        if found.name not in wanted or not found.is_file(follow_symlinks=False):
            yield Flag(Kind.SCHEMA, f"decisions/{_short(found.name)}", "does not belong in an entry")
    if readme.is_file() and readme.stat().st_size > LARGEST_README_BYTES:
        yield Flag(Kind.SCHEMA, "README.md", f"is larger than {LARGEST_README_BYTES:,} bytes")


def _identity(entry: Entry, board: Board) -> Iterator[Flag]:
    if (entry.board, entry.board_version) != (board.name, board.version):
        of = f"of {entry.board} version {entry.board_version}, not {board.name} version {board.version}"
        yield Flag(Kind.BOARD, "entry.yaml", of)
    if board.chooses == "placer" and entry.chosen.name in published("placer"):
        try:
            board.contestants(entry.keys)
        except InputError as error:
            yield Flag(Kind.SCHEMA, "entry.yaml", str(error))


def _cells(rows: Sequence[ResultRow], board: Board) -> Iterator[Flag]:
    count = Counter(row.cell for row in rows)
    for cell in board.cells:
        if not count[cell]:
            yield Flag(Kind.MISSING_CELL, str(cell), "has no row in results.csv")
    for cell, times in count.items():
        if cell not in board.cells:
            yield Flag(Kind.FOREIGN_CELL, str(cell), "is no cell of the board")
        elif times > 1:
            yield Flag(Kind.DUPLICATE_CELL, str(cell), f"has {times} rows in results.csv")


def _replayed(folder: Path, entry: Entry, board: Board, cell: Cell, row: ResultRow) -> list[Flag]:
    """Replay a cell and compare; what is wrong at one step hides the later ones."""
    from clustergym.leaderboard.curves import difference

    made = replayed(folder, entry, board, cell)
    if isinstance(made, Flag):
        return [made]
    simulation, decided = made
    flags = [*_compared(simulation, board, cell, row), *_times(str(cell), row, decided)]
    wrong = "" if flags else difference(board, folder, cell, simulation)
    return [*flags, *([Flag(Kind.CURVES, str(cell), wrong)] if wrong else [])]


def replayed(folder: Path, entry: Entry, board: Board, cell: Cell) -> tuple[Simulation, int] | Flag:
    """Return the run that a cell's log makes and how many decisions there were, or what is wrong with it."""
    from clustergym.leaderboard.placements import PlacementError
    from clustergym.sim.engine import StalledError
    from clustergym.sim.validate import DecisionError

    where, path = str(cell), decisions_path(folder, cell)
    if path.is_symlink() or not path.is_file():
        return Flag(Kind.DECISION_LOG, where, f"no such file as decisions/{path.name}")
    if path.stat().st_size > LARGEST_PACKED_BYTES:
        return Flag(Kind.DECISION_LOG, where, f"is larger than {LARGEST_PACKED_BYTES:,} bytes")
    scenario = board.scenario(cell)
    if scenario.sha256 != board.constants(cell).sha256:
        message = "the board's own scenario has changed since its constants were frozen"
        return Flag(Kind.TRACE_HASH, where, message)
    log = LOGS[board.chooses](entry, board, cell)
    try:
        header = log.read(path, scenario)
    except InputError as error:
        return Flag(Kind.DECISION_LOG, where, str(error))
    if header.get("scenario_sha256") != scenario.sha256:
        return Flag(Kind.TRACE_HASH, where, "the decisions were made on another scenario")
    wrong = log.wrong(header)
    if wrong:
        return Flag(Kind.HEADER, where, f"{wrong} is not that of the entry or the board")
    try:
        simulation, decided = log.replay(scenario, header[log.period])
    except (DecisionError, PlacementError) as error:
        return Flag(Kind.ILLEGAL_DECISION, where, str(error))
    except (InputError, StalledError) as error:
        return Flag(Kind.DIVERGED, where, str(error))
    if log.idle(simulation):
        return Flag(Kind.DECISION_LOG, where, "tells of decisions that change nothing")
    return simulation, decided


def _compared(simulation: Simulation, board: Board, cell: Cell, row: ResultRow) -> Iterator[Flag]:
    from clustergym.metrics.bounds import lower_bounds
    from clustergym.output import measurement_of

    where, scenario = str(cell), simulation.scenario
    metrics = measurement_of(simulation).metrics
    if simulation.log.digest != row.digest:
        yield Flag(Kind.DIGEST, where, f"replayed {simulation.log.digest[:16]}…, entered {row.digest[:16]}…")
    for name, value in metrics.items():
        if name in row.metrics and not _same(value, row.metrics[name]):
            yield Flag(Kind.METRIC, where, f"{name} is {value}, entered {row.metrics[name]}")
    left = int(metrics["jobs_unfinished"] or 0)
    dropped = 0 if board.drops else int(metrics["jobs_dropped"] or 0) - _unfit(scenario)
    if left or dropped > 0:
        yield Flag(Kind.UNFINISHED, where, f"{left} jobs unfinished, {max(dropped, 0)} dropped")
    bounds = lower_bounds(scenario)
    for name in BOUNDED if not (left or dropped > 0 or board.drops) else ():
        bound, claimed = getattr(bounds, name), row.metrics[name]
        if claimed is not None and claimed < bound * (1 - TOLERANCE):
            yield Flag(Kind.BOUND, where, f"{name} {claimed:,.0f} is below {bound:,.0f}")


def _unfit(scenario: Scenario) -> int:
    return int((scenario.request_gpus == 0).sum())


def _same(value: float | None, entered: float | None) -> bool:
    if value is None or entered is None:
        return value is None and entered is None
    return math.isclose(value, entered, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _times(where: str, row: ResultRow, points: int) -> Iterator[Flag]:
    median, p99, wall = (row.times[name] for name in ("decision_s_p50", "decision_s_p99", "wall_s"))
    if row.decisions != points:
        message = f"{row.decisions} decisions were entered, the run has {points} decision points"
        yield Flag(Kind.DECISION_TIMES, where, message)
    elif not 0 < median <= p99 * 1.05 or not p99 <= LONGEST_DECISION_S:
        yield Flag(Kind.DECISION_TIMES, where, f"median {median:g} s, 99th percentile {p99:g} s")
    elif wall < 0.45 * row.decisions * median:
        message = f"{row.decisions} decisions of {median:g} s in the median take longer than {wall:g} s"
        yield Flag(Kind.DECISION_TIMES, where, message)


def _rerun(entry: Entry, board: Board, rows: dict[Cell, ResultRow], strict: int, seed: int) -> Iterator[Flag]:
    """Run it again in cells drawn at random; nothing that the entry names is imported."""
    import numpy as np

    from clustergym.leaderboard.run_cells import run_cell

    if entry.chosen.name not in published(board.chooses):
        message = f"{entry.chosen.name!r} is not published here and cannot be run again"
        yield Flag(Kind.RERUN, "entry.yaml", message)
        return
    files = [value for value in entry.chosen.parameters.values() if isinstance(value, str) and "/" in value]
    if files:
        yield Flag(Kind.RERUN, "entry.yaml", f"{_short(files[0])!r} names a file, which is not opened")
        return
    if not entry.deterministic:
        return
    rng = np.random.default_rng([seed, 41])
    for index in sorted(rng.choice(len(board.cells), min(strict, len(board.cells)), replace=False).tolist()):
        cell = board.cells[index]
        try:
            policy = board.contestants(entry.keys)[0]
            knows = policy.information_class.value if board.chooses == "policy" else "none"
            again = run_cell(board.name, board.folder.parent, entry.keys, None, cell)
        except Exception as error:  # Of one with parameters that nobody tried before.
            yield Flag(Kind.RERUN, str(cell), f"{type(error).__name__}: {_short(str(error))}")
            continue
        if knows != entry.information_class:
            message = f"the policy is of class {knows}, entered as {entry.information_class}"
            yield Flag(Kind.RERUN, str(cell), message)
        if again.digest != rows[cell].digest:
            message = f"digest {again.digest[:16]}…, entered {rows[cell].digest[:16]}…"
            yield Flag(Kind.RERUN, str(cell), message)


def published(kind: str) -> frozenset[str]:
    """Return the names of the policies, or placers, in this project's own package."""
    from clustergym.registry import entry_points

    points = entry_points({"policy": "clustergym.policies", "placer": "clustergym.placers"}[kind])
    return frozenset(name for name, target in points.items() if target.startswith("policies."))


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:60] + "…"
