"""The replay of an entry's cell without its policy, and the flags for what can be wrong with it."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from clustergym.benchmark.leaderboard.board import Board, Cell
from clustergym.benchmark.leaderboard.cell_logs import CellLogs
from clustergym.benchmark.leaderboard.entry import Entry
from clustergym.benchmark.leaderboard.registered import read_period
from clustergym.common.errors import InputError, visible
from clustergym.scenario.policy import InformationClass, Placer, Policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim.engines import AnySimulation

if TYPE_CHECKING:
    from clustergym.results.placement_log import Answer
    from clustergym.sim.engine import Change


class FlagReason(enum.StrEnum):
    """Reasons why the check of a leaderboard entry can fail."""

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
    """A failure that a check found in a leaderboard entry: its reason, its place and a message.

    Attributes
    ----------
    reason : FlagReason
    where : str
        Cell, or file.
    message : str
    """

    reason: FlagReason
    where: str
    message: str

    def __str__(self) -> str:
        return visible(f"{self.reason.value}: {self.where}: {self.message}")

    def list_fields(self) -> dict[str, str]:
        """Return the failure as the JSON object that `leaderboard check --json` writes."""
        return {"kind": self.reason.value, "where": self.where, "message": self.message}


def replay_cell(
    board: Board, cell: Cell, scenario: Scenario, entry: Entry, logs: CellLogs
) -> tuple[AnySimulation, int] | Flag:
    """Replay a log of one scenario and seed; return the simulation and number of decisions, or a failure."""
    from clustergym.results.placement_log import PlacementError
    from clustergym.sim.decision_checks import DecisionError
    from clustergym.sim.engine import StalledError

    where = str(cell)
    # From the cheapest test to the dearest, and from what concerns the board to what concerns the entry:
    # the first failure is the one that explains the others.
    if scenario.sha256 != board.constants(cell).sha256:
        message = "the board's own scenario has changed since its constants were frozen"
        return Flag(FlagReason.TRACE_HASH, where, message)
    log = LOGS[board.chooses](entry, board, cell)
    try:
        header = log.read(logs, scenario)
    except InputError as error:
        return Flag(FlagReason.DECISION_LOG, where, str(error))
    if header.get("scenario_sha256") != scenario.sha256:
        return Flag(FlagReason.TRACE_HASH, where, "the decisions were made on another scenario")
    wrong = log.wrong(header, scenario)
    if wrong:
        return Flag(FlagReason.HEADER, where, f"{wrong} is not that of the entry or the board")
    try:
        simulation, decided = log.replay(scenario, header)
    except (DecisionError, PlacementError) as error:
        return Flag(FlagReason.ILLEGAL_DECISION, where, str(error))
    except (InputError, StalledError) as error:
        return Flag(FlagReason.DIVERGED, where, str(error))
    # A run's log has what its decisions changed; a log with more was not written by a run.
    if log.idle(simulation):
        return Flag(FlagReason.DECISION_LOG, where, "tells of decisions that change nothing")
    return simulation, decided


SHORTEST_PERIOD_S, LONGEST_PERIOD_S = 1.0, 1e6
"""A log with shorter rounds would be replayed for ever."""


class EntryLog(ABC):
    """Base class of an entry's log of one run: the policy's decisions, the nodes its placer chose, or both.

    Attributes
    ----------
    periods : dict of str to str
        Keys of the header with the seconds of a round or between defragmentations; whose they are.
    """

    periods: ClassVar[dict[str, str]]

    def __init__(self, entry: Entry, board: Board, cell: Cell) -> None:
        self.entry, self.board, self.cell = entry, board, cell

    @abstractmethod
    def read(self, logs: CellLogs, scenario: Scenario) -> dict[str, Any]:
        """Read and keep the log, and return its header; raise an `InputError` for a malformed log."""

    @abstractmethod
    def describe_header(self) -> dict[str, Any]:
        """Return the keys and values that the log's header must have."""

    @abstractmethod
    def replay(self, scenario: Scenario, header: Mapping[str, Any]) -> tuple[AnySimulation, int]:
        """Replay the log; return the simulation and the number of decisions; raise if it does not fit."""

    def idle(self, simulation: AnySimulation) -> bool:
        """Return whether the replay shows that a logged decision changes nothing; False unless overridden."""
        return False

    def wrong(self, header: Mapping[str, Any], scenario: Scenario) -> str:
        """Return the first key of a log's header whose value is wrong; an empty text if all are right."""
        for key, value in self.describe_header().items():
            # Python's True equals 1: a type that differs is another value.
            if header.get(key) != value or type(header.get(key)) is not type(value):
                return key
        for key, component in self.periods.items():
            length_s, known = header.get(key, ""), read_period(self.entry, component, key)
            # The scenario's clock goes before the policy's: under a common clock nobody has rounds of their
            # own.
            if key == "round_s" and scenario.rounds != "policy":
                known = (None if isinstance(scenario.rounds, str) else scenario.rounds,)
            if known and length_s != known[0]:
                return key
            is_number = isinstance(length_s, int | float) and not isinstance(length_s, bool)
            if length_s is not None and not (is_number and SHORTEST_PERIOD_S <= length_s <= LONGEST_PERIOD_S):
                return key
        return ""


class DecisionLog(EntryLog):
    """An entry's log of a policy's decisions, which is replayed with the board's placer."""

    periods: ClassVar = {"round_s": "policy"}

    def read(self, logs: CellLogs, scenario: Scenario) -> dict[str, Any]:
        """Read and keep the log of decisions; return its header."""
        from clustergym.results.decision_log import read_decisions

        self._changes: list[Change]
        header, self._changes = read_decisions(logs.path, scenario, logs.read_packed(self.cell))
        return header

    def describe_header(self) -> dict[str, Any]:
        """Return the header the log must have: policy, what it knows of iteration times, placer, seed.

        What a policy knows is its information class.
        """
        return {
            "policy": self.entry.keys["name"],
            "information_class": self.entry.information_class,
            "placer": _parameters(self._placer()),
            "seed": self.cell.seed,
        }

    def replay(self, scenario: Scenario, header: Mapping[str, Any]) -> tuple[AnySimulation, int]:
        """Carry out the logged decisions; return the simulation and the number of decisions."""
        from clustergym.sim.drive import replay

        information = InformationClass(self.entry.information_class)
        seed, round_s = self.cell.seed, header["round_s"]
        made = replay(scenario, self._placer(), information, round_s, seed, self._changes)
        return made, made.decision_points

    def idle(self, simulation: AnySimulation) -> bool:
        """Return whether any logged decision changed nothing in the replay."""
        return simulation.changes != self._changes

    def _placer(self) -> Placer:
        from clustergym.scenario.registry import make_placer

        return make_placer(self.board.placer or {})


class PlacementLog(EntryLog):
    """An entry's log of the nodes that its placer chose, with which the board's policy is run again."""

    periods: ClassVar = {"defragment_s": "placer"}

    def read(self, logs: CellLogs, scenario: Scenario) -> dict[str, Any]:
        """Read and keep the log of the nodes that the placer chose; return its header."""
        from clustergym.results.placement_log import read_placements

        self._answers: list[Answer]
        header, self._answers = read_placements(logs.path, scenario, logs.read_packed(self.cell))
        return header

    def describe_header(self) -> dict[str, Any]:
        """Return the header that the log must have: the board's policy, the entry's placer, the seed."""
        return {"policy": _parameters(self._policy()), "placer": self.entry.keys, "seed": self.cell.seed}

    def replay(self, scenario: Scenario, header: Mapping[str, Any]) -> tuple[AnySimulation, int]:
        """Run the policy with the logged nodes; return the simulation and how often it asked for nodes."""
        from clustergym.results.placement_log import replay_placements

        seed, defragment_s = self.cell.seed, header["defragment_s"]
        return replay_placements(scenario, self._policy(), self._answers, defragment_s, seed)

    def _policy(self) -> Policy:
        from clustergym.scenario.registry import make_policy

        return make_policy(self.board.policy or {})


class ScheduleLog(EntryLog):
    """An entry's log of a policy's decisions and a placer's chosen nodes, replayed without running either."""

    periods: ClassVar = {"round_s": "policy", "defragment_s": "placer"}

    def read(self, logs: CellLogs, scenario: Scenario) -> dict[str, Any]:
        """Read and keep the log of decisions and chosen nodes; return its header."""
        from clustergym.results.schedule_log import read_schedule

        self._changes: list[Change]
        self._answers: list[Answer]
        found = read_schedule(logs.path, scenario, logs.read_packed(self.cell))
        header, self._changes, self._answers = found
        return header

    def describe_header(self) -> dict[str, Any]:
        """Return the header the log must have: policy, what it knows of iteration times, placer, seed.

        What a policy knows is its information class.
        """
        return {
            "policy": self.entry.keys["policy"]["name"],
            "information_class": self.entry.information_class,
            "placer": self.entry.keys["placer"],
            "seed": self.cell.seed,
        }

    def replay(self, scenario: Scenario, header: Mapping[str, Any]) -> tuple[AnySimulation, int]:
        """Carry out logged decisions on logged nodes; return the simulation and number of decision points."""
        from clustergym.results.schedule_log import replay_schedule

        information, seed = InformationClass(self.entry.information_class), self.cell.seed
        log, periods = (self._changes, self._answers), (header["round_s"], header["defragment_s"])
        made = replay_schedule(scenario, information, *periods, seed, *log)
        return made, made.decision_points

    def idle(self, simulation: AnySimulation) -> bool:
        """Return whether any logged decision changed nothing in the replay."""
        return simulation.changes != self._changes


LOGS: dict[str, type[EntryLog]] = {
    "policy": DecisionLog,
    "placer": PlacementLog,
    "policy and placer": ScheduleLog,
}
"""By what a board's entries choose."""


def _parameters(made: Policy | Placer) -> dict[str, Any]:
    from clustergym.scenario.registry import list_parameters

    return {"name": made.name, **list_parameters(made)}
