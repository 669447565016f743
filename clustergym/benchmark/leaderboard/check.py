"""The check of entries: files, every metric by replay, and with `strict` some cells by a new run."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from clustergym.benchmark.leaderboard import cell_logs
from clustergym.benchmark.leaderboard.board import Board, Cell
from clustergym.benchmark.leaderboard.bounds import CellBound, beats_bound, problem, read_bounds
from clustergym.benchmark.leaderboard.cell_logs import CellLogs, read_logs
from clustergym.benchmark.leaderboard.cell_replay import Flag, FlagReason, replay_cell
from clustergym.benchmark.leaderboard.entry import (
    LARGEST_README_BYTES,
    Entry,
    ResultRow,
    entry_folder,
    entry_names,
    read_entry,
    read_entry_text,
    read_results,
)
from clustergym.benchmark.leaderboard.entry_curves import difference
from clustergym.benchmark.leaderboard.registered import (
    can_be_run_again,
    explain_unchecked,
    find_unpublished,
    problems,
)
from clustergym.common import random_streams
from clustergym.common.errors import InputError, alike, shorten_text, visible
from clustergym.common.processes import Processes, in_order
from clustergym.results.metrics.intervals import Outcome
from clustergym.results.metrics.metrics import Measurement
from clustergym.scenario.scenario import Scenario
from clustergym.sim.engines import AnySimulation

BATCH = 6
"""Entries that a process replays in a cell on one and the same scenario."""


def check_entries(
    board: Board,
    names: Sequence[str],
    strict: int = 0,
    seed: int = 0,
    workers: Processes = 1,
    progress: bool = False,
    replayed: int | None = None,
) -> dict[str, list[Flag]]:
    """Check entries by replaying their logs and running policies again; return failures by entry.

    Parameters
    ----------
    board : Board
    names : sequence of str
        Names of the entries' folders.
    strict : int
        Cells in which a policy or placer that this project publishes is run again, whatever the entry says;
        at least one, if all cells are replayed. 0: others pass, as do entries that are declared a variant or
        found in hindsight.
    seed : int
        Seed of the draw of cells, which depends on the entry's logs too.
    workers : int
        Processes; the flags and their order do not depend on their number.
    progress : bool
        Whether to show progress on stderr.
    replayed : int, optional
        Cells of each entry whose log is replayed, drawn at random; all by default.
    """
    flags: dict[str, list[Flag]] = {name: [] for name in names}
    claims: dict[str, dict[Cell, ClaimedCell]] = {}
    for name in flags:
        claims[name] = _open_entry(board, name, flags[name])
    # Over all entries of the board, not only those asked for: a title is taken for that of an entry that
    # stands there already.
    for name, flag in _titles(board, flags):
        flags[name].append(flag)
    tasks = []
    drawn = {name: _draw_of_entry(of_entry, replayed, seed) for name, of_entry in claims.items()}
    for cell in board.cells:
        there = [name for name in flags if cell in drawn[name]]
        # Cell by cell, not entry by entry: the entries of a batch share the cell's scenario, which is built
        # once.
        tasks += [(cell, there[at : at + BATCH]) for at in range(0, len(there), BATCH)]
    board.compose()
    label = f"check {board.name}" if progress else None
    replays = [(cell, [claims[name][cell] for name in batch]) for cell, batch in tasks]
    for (_, batch), found in zip(
        tasks, in_order(partial(check_cell, board), replays, workers, label), strict=True
    ):
        for name, flagged in zip(batch, found, strict=True):
            flags[name] += flagged
    # What failed its replay is wrong already, and a run again is the dearest step.
    sound = [name for name in flags if not flags[name] and (strict or replayed is None)]
    again = [(claims[name], strict, seed) for name in sound]
    label = f"run {board.name} again" if progress else None
    for name, flagged in zip(sound, in_order(partial(_rerun, board), again, workers, label), strict=True):
        flags[name] += flagged
    return flags


def draw_cells(cells: Sequence[Cell], count: int | None, seed: int, source: str) -> list[Cell]:
    """Draw `count` of the cells (None: all); return them in their order. Seed and source say which."""
    if count is None:
        return list(cells)
    # The draw depends on what was entered, so that nobody can prepare just the cells that a known seed
    # draws.
    word = int(hashlib.sha256(source.encode()).hexdigest()[:8], 16)
    drawn = random_streams.CELLS_RUN_AGAIN.generator(seed, word).permutation(len(cells))[:count]
    return [cells[at] for at in sorted(drawn.tolist())]


def check_constants(
    board: Board, cells: Sequence[Cell], workers: Processes = 1, progress: bool = False
) -> list[Flag]:
    """Rerun a board's baseline and reference in some cells; return differences from board.yaml.

    They are policies or placers.
    """
    from clustergym.benchmark.leaderboard.add import measure_constants

    board.compose()
    label = f"baseline and reference of {board.name}" if progress else None
    found = in_order(partial(_compare_constants, board, measure_constants), cells, workers, label)
    return [
        Flag(FlagReason.CONSTANTS, str(cell), message)
        for cell, wrong in zip(cells, found, strict=True)
        for message in wrong
    ]


def _compare_constants(
    board: Board, measured: Callable[[Board, Cell], Mapping[str, Any]], cell: Cell
) -> list[str]:
    """Run the baseline and reference in a cell; describe where board.yaml differs from their results."""
    entered = board.constants(cell)
    try:
        found = measured(board, cell)
    except InputError as error:
        return [str(error)]
    values = [(name, value, getattr(entered, name)) for name, value in found.items()]
    return [
        f"{name} is {value}, and {said} in board.yaml"
        for name, value, said in values
        if (value != said if isinstance(value, str) else not same(value, said))
    ]


def _open_entry(board: Board, name: str, flags: list[Flag]) -> dict[Cell, ClaimedCell]:
    """Return the result that an entry claims for each cell; add faults of its files to `flags`."""
    try:
        folder = entry_folder(board, name)
        entry, rows = read_entry(folder, board), read_results(folder)
    except InputError as error:
        flags.append(Flag(FlagReason.SCHEMA, name, str(error)))
        return {}
    flags += [*_readme(folder), *_identity(entry, board)]
    flags += _cells([str(row.cell) for row in rows], board, "results.csv", "row")
    try:
        logs = read_logs(folder)
    except InputError as error:
        flags.append(Flag(FlagReason.DECISION_LOG, cell_logs.FILE, str(error)))
        return {}
    flags += _check_logs(logs, board)
    once = {row.cell: row for row in rows}
    there = [cell for cell in board.cells if cell in once and logs.labels.count(str(cell)) == 1]
    return {cell: ClaimedCell(folder, entry, logs, once[cell]) for cell in there}


def _readme(folder: Path) -> Iterator[Flag]:
    path = folder / "README.md"
    if not path.is_file():
        return
    try:
        lines = read_entry_text(path, LARGEST_README_BYTES).replace("\t", " ").splitlines()
    except InputError as error:
        yield Flag(FlagReason.SCHEMA, "README.md", str(error))
        return
    for number, line in enumerate(lines, start=1):
        if visible(line) != line:
            message = f"line {number} has characters that nobody sees: {shorten_text(visible(line), 60)}"
            # One line of a page is enough to refuse it; the rest would only repeat it.
            yield Flag(FlagReason.SCHEMA, "README.md", message)
            return


def describe_unverified(board: Board, name: str) -> list[str]:
    """Return a line on each thing that could not be verified of a valid leaderboard entry."""
    line = explain_unchecked(read_entry(entry_folder(board, name), board))
    return [line] if line else []


def _identity(entry: Entry, board: Board) -> Iterator[Flag]:
    if (entry.board, entry.board_version) != (board.name, board.version):
        of = f"of {entry.board} version {entry.board_version}, not {board.name} version {board.version}"
        yield Flag(FlagReason.BOARD, "entry.yaml", of)
    yield from (Flag(FlagReason.PUBLISHED, "entry.yaml", message) for message in problems(entry, board))
    if entry.variant and "variant" not in entry.title.lower():
        yield Flag(FlagReason.TITLE, "entry.yaml", "is declared a variant, which its title must say")


def _titles(board: Board, names: Iterable[str]) -> Iterator[tuple[str, Flag]]:
    """Yield a flag for each entry whose title looks like another entry's title."""
    by_title: dict[str, list[str]] = {}
    for name in entry_names(board):
        try:
            by_title.setdefault(alike(read_entry(entry_folder(board, name), board).title), []).append(name)
        except InputError:  # `_open_entry` reports it.
            continue
    # Equal titles are too few: `alike` folds case, spaces and what nobody sees.
    for shared in by_title.values():
        for name in [other for other in shared if len(shared) > 1 and other in names]:
            others = ", ".join(other for other in shared if other != name)
            yield name, Flag(FlagReason.TITLE, "entry.yaml", f"its title may be taken for that of {others}")


def _cells(found: Sequence[str], board: Board, file: str, what: str) -> Iterator[Flag]:
    """Flag cells that a file lacks or has twice, and cells that the board does not have."""
    wanted, count = [str(cell) for cell in board.cells], Counter(found)
    for cell in wanted:
        if not count[cell]:
            yield Flag(FlagReason.MISSING_CELL, cell, f"has no {what} in {file}")
    for cell, times in count.items():
        if cell not in wanted:
            yield Flag(
                FlagReason.FOREIGN_CELL, cell, f"is not a cell of the board, but has a {what} in {file}"
            )
        elif times > 1:
            yield Flag(FlagReason.DUPLICATE_CELL, cell, f"has {times} {what}s in {file}")


def _check_logs(logs: CellLogs, board: Board) -> Iterator[Flag]:
    """Flag a log whose cells are not the board's cells in the board's order."""
    wanted = [str(cell) for cell in board.cells]
    wrong = list(_cells(logs.labels, board, cell_logs.FILE, "log"))
    yield from wrong
    for found, cell in zip(logs.labels, wanted, strict=False):
        if not wrong and found != cell:
            message = f"its log stands where that of {cell} must in {cell_logs.FILE}"
            yield Flag(FlagReason.DECISION_LOG, found, message)
            return


def _draw_of_entry(claims: Mapping[Cell, ClaimedCell], count: int | None, seed: int) -> list[Cell]:
    return draw_cells([*claims], count, seed, "".join(claim.row.digest for claim in claims.values()))


def _rerun(board: Board, task: tuple[Mapping[Cell, ClaimedCell], int, int]) -> list[Flag]:
    """Run a published policy or placer again in random cells; the entry's names are never imported."""
    claims, strict, seed = task
    anyone = next(iter(claims.values()))
    entry = anyone.entry
    # Only what this project publishes is run: a name in an entry is looked up, never imported.
    if not can_be_run_again(entry):
        unknown = find_unpublished(entry)
        if not strict or not unknown or entry.hindsight or entry.variant:
            return []
        message = f"{unknown!r} is not published here and cannot be run again"
        return [Flag(FlagReason.RERUN, "entry.yaml", message)]
    cells = _draw_of_entry(claims, max(strict, 1), seed)
    return [flag for cell in cells for flag in _again(board, entry, claims[cell].row)]


def _again(board: Board, entry: Entry, row: ResultRow) -> Iterator[Flag]:
    from clustergym.benchmark.leaderboard.run_cells import run_cell

    where = str(row.cell)
    try:
        digest = run_cell(board, entry.keys, row.cell).row.digest
    except InputError as error:
        if not isinstance(error.__cause__, ImportError):  # `describe_unverified` tells what is not installed.
            yield Flag(FlagReason.RERUN, where, shorten_text(str(error), 200))
        return
    except Exception as error:  # The entry's parameters may make the policy raise anything.
        yield Flag(FlagReason.RERUN, where, f"{type(error).__name__}: {shorten_text(str(error), 60)}")
        return
    if digest != row.digest:
        yield Flag(FlagReason.RERUN, where, f"digest {digest[:16]}…, entered {row.digest[:16]}…")


BOUNDED = ("jct_mean", "makespan")
TOLERANCE = 1e-9
LONGEST_DECISION_S = 3600.0


@dataclass(frozen=True)
class ClaimedCell:
    """The results row and logs that an entry claims for one cell (scenario and seed).

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
    """Check what entries claim for one cell (scenario, seed); return the failures of each entry."""
    cell, claims = task
    scenario, bound = board.scenario(cell), read_bounds(board.folder).get(str(cell))
    # A bound is a claim too: its certificate is verified before anything is held against it.
    wrong = "" if bound is None else problem(board, cell, scenario, bound)
    if wrong:
        return [[Flag(FlagReason.BOUND, str(cell), wrong)] for _ in claims]
    return [_flags(board, cell, scenario, claim, bound) for claim in claims]


def _flags(
    board: Board, cell: Cell, scenario: Scenario, claim: ClaimedCell, bound: CellBound | None
) -> list[Flag]:
    """Replay an entry's log of one cell and compare; the first step with failures ends the check."""
    from clustergym.results.measured_run import measure_run

    made = replay_cell(board, cell, scenario, claim.entry, claim.logs)
    if isinstance(made, Flag):
        return [made]
    simulation, decided = made
    measured = measure_run(simulation)
    compared = _compare_run(simulation, measured, board, cell, claim.row, bound)
    flags = [*compared, *_times(str(cell), claim.row, decided)]
    # Curves are of the replayed run, so they are compared only where that run is the entry's.
    wrong = "" if flags else difference(board, claim.folder, cell, simulation, measured)
    return [*flags, *([Flag(FlagReason.CURVES, str(cell), wrong)] if wrong else [])]


def _compare_run(
    simulation: AnySimulation,
    measured: Measurement,
    board: Board,
    cell: Cell,
    row: ResultRow,
    proved: CellBound | None,
) -> Iterator[Flag]:
    from clustergym.results.bounds.bounds import lower_bounds

    where, scenario, metrics = str(cell), simulation.scenario, measured.metrics
    if simulation.log.digest != row.digest:
        yield Flag(
            FlagReason.DIGEST, where, f"replayed {simulation.log.digest[:16]}…, entered {row.digest[:16]}…"
        )
    for name, value in metrics.items():
        if name in row.metrics and not same(value, row.metrics[name]):
            yield Flag(FlagReason.METRIC, where, f"{name} is {value}, entered {row.metrics[name]}")
    # A schedule that leaves jobs out could beat any bound: what does not end counts against it, but for
    # jobs that fit no GPUs of the cluster, which no schedule can run.
    left = int((scenario.scored & (measured.records.outcome == Outcome.UNFINISHED)).sum())
    unfit = int((scenario.request_gpus == 0).sum())
    dropped = 0 if board.drops else int(metrics["jobs_dropped"] or 0) - unfit
    if left or dropped > 0:
        yield Flag(FlagReason.UNFINISHED, where, f"{left} jobs unfinished, {max(dropped, 0)} dropped")
    figure = row.metrics.get(board.metric)
    if board.metric not in row.metrics:
        yield Flag(FlagReason.METRIC, where, f"has no {board.metric}")
    if (
        proved is not None
        and figure is not None
        and not (left or dropped > 0)
        and beats_bound(board, figure, proved.bound)
    ):
        yield Flag(FlagReason.BOUND, where, f"{board.metric} {figure:.6g} is better than {proved.bound:.6g}")
    bounds = lower_bounds(scenario)
    for name in BOUNDED if not (left or dropped > 0 or board.drops) else ():
        bound, claimed = getattr(bounds, name), row.metrics[name]
        if claimed is not None and claimed < bound * (1 - TOLERANCE):
            yield Flag(FlagReason.BOUND, where, f"{name} {claimed:,.0f} is below {bound:,.0f}")


def same(value: float | None, entered: float | None) -> bool:
    """Return whether two figures differ by no more than rounding, or both are missing."""
    if value is None or entered is None:
        return value is None and entered is None
    return math.isclose(value, entered, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _times(where: str, row: ResultRow, points: int) -> Iterator[Flag]:
    median, p99, wall = (row.times[name] for name in ("decision_s_p50", "decision_s_p99", "wall_s"))
    # Decision times cannot be replayed; only figures that contradict each other are refused. At least half
    # of the decisions take the median or longer, so a run takes half of their number times it; rounding and
    # clocks make 0.45 of 0.5, and leave 5 % between median and 99th percentile.
    if row.decisions != points:
        message = f"{row.decisions} decisions were entered, the run has {points} decision points"
        yield Flag(FlagReason.DECISION_TIMES, where, message)
    elif not 0 < median <= p99 * 1.05 or not p99 <= LONGEST_DECISION_S:
        yield Flag(FlagReason.DECISION_TIMES, where, f"median {median:g} s, 99th percentile {p99:g} s")
    elif wall < 0.45 * row.decisions * median:
        message = f"{row.decisions} decisions of {median:g} s in the median take longer than {wall:g} s"
        yield Flag(FlagReason.DECISION_TIMES, where, message)
