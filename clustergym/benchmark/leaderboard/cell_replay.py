"""The replay of an entry's cell without its policy, and the flags for what can be wrong with an entry."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from clustergym.benchmark.leaderboard.board import Board, Cell
from clustergym.benchmark.leaderboard.cell_logs import CellLogs
from clustergym.benchmark.leaderboard.entry import Entry
from clustergym.benchmark.leaderboard.entry_logs import LOGS
from clustergym.common.errors import InputError
from clustergym.common.visible_text import visible
from clustergym.scenario.scenario import Scenario
from clustergym.sim.engine import Simulation


class FlagKind(enum.StrEnum):
    """The kinds of failure that a check of an entry can find."""

    SCHEMA = "schema"
    """entry.yaml, results.csv or a file that does not belong there."""
    BOARD = "board"
    """Of another board, or of another version of it."""
    PUBLISHED = "not as published"
    """The registry knows better: class, parameters, determinism or training of what is published here."""
    TITLE = "title"
    """May be taken for that of another entry."""
    MISSING_CELL = "missing cell"
    """No row in results.csv, or no log."""
    DUPLICATE_CELL = "duplicate cell"
    FOREIGN_CELL = "foreign cell"
    """A scenario or seed that the board does not have."""
    DECISION_LOG = "decision log"
    """Cannot be read, has its cells out of order, or names what the scenario does not have."""
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
    CONSTANTS = "constants differ"
    """The board's baseline, reference or bound of a cell is not what its runs give."""
    RERUN = "re-run differs"
    """The policy or placer, run again, decides otherwise."""


@dataclass(frozen=True)
class Flag:
    """A failure that a check found in an entry.

    Attributes
    ----------
    kind : FlagKind
    where : str
        Cell, or file.
    message : str
    """

    kind: FlagKind
    where: str
    message: str

    def __str__(self) -> str:
        return visible(f"{self.kind.value}: {self.where}: {self.message}")


def replayed(
    board: Board, cell: Cell, scenario: Scenario, entry: Entry, logs: CellLogs
) -> tuple[Simulation, int] | Flag:
    """Replay a cell's log; return the simulation and the number of decisions, or a flag."""
    from clustergym.results.placement_log import PlacementError
    from clustergym.sim.decision_checks import DecisionError
    from clustergym.sim.engine import StalledError

    where = str(cell)
    if scenario.sha256 != board.constants(cell).sha256:
        message = "the board's own scenario has changed since its constants were frozen"
        return Flag(FlagKind.TRACE_HASH, where, message)
    log = LOGS[board.chooses](entry, board, cell)
    try:
        header = log.read(logs, scenario)
    except InputError as error:
        return Flag(FlagKind.DECISION_LOG, where, str(error))
    if header.get("scenario_sha256") != scenario.sha256:
        return Flag(FlagKind.TRACE_HASH, where, "the decisions were made on another scenario")
    wrong = log.wrong(header, scenario)
    if wrong:
        return Flag(FlagKind.HEADER, where, f"{wrong} is not that of the entry or the board")
    try:
        simulation, decided = log.replay(scenario, header)
    except (DecisionError, PlacementError) as error:
        return Flag(FlagKind.ILLEGAL_DECISION, where, str(error))
    except (InputError, StalledError) as error:
        return Flag(FlagKind.DIVERGED, where, str(error))
    if log.idle(simulation):
        return Flag(FlagKind.DECISION_LOG, where, "tells of decisions that change nothing")
    return simulation, decided
