"""Boards: versioned sets of scenarios and seeds, with what scores are measured against."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, PrivateAttr

from clustergym.cluster.schema import Checked, Text, checked
from clustergym.cluster.yaml_file import read_mapping
from clustergym.errors import InputError, nearest
from clustergym.metrics.catalogue import METRICS
from clustergym.paths import PACKAGE
from clustergym.policy import Placer
from clustergym.scenario import Scenario

NAME = r"[a-z0-9][a-z0-9-]{0,63}"
"""Boards, scenarios and entries are named so: no name is a path."""

Name = Annotated[str, Field(pattern=f"^{NAME}$")]
Seconds = Annotated[float, Field(gt=0)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Cell(NamedTuple):
    """A run that every entry of a board has: a scenario and a seed."""

    scenario: str
    seed: int

    def __str__(self) -> str:
        return f"{self.scenario}-{self.seed}"


class Constants(Checked):
    """What a cell is scored against, frozen with the board's version.

    Attributes
    ----------
    sha256 : str
        Of the scenario: trace, cluster, oracle, costs and rules.
    fcfs, reference : float
        The metric of first come, first served, and of the reference policy.
    jct_bound : float
        Seconds of mean JCT that no schedule can beat (`clustergym.metrics.bounds`).
    """

    sha256: Sha256
    fcfs: float
    reference: float
    jct_bound: float


class BoardScenario(Checked):
    """A scenario of a board.

    Attributes
    ----------
    name : str
    overrides : list of str
        Of the main job, less the seed.
    constants : dict of int to Constants
        By seed; empty only while a board is made.
    """

    name: Name
    overrides: list[Text]
    constants: dict[int, Constants] = Field(default_factory=dict)


class Board(Checked):
    """A board: leaderboards/<name>/board.yaml.

    Attributes
    ----------
    name, version, title, summary
    metric : str
        What is scored, of `clustergym.metrics.catalogue`.
    better : str
        `lower` or `higher`.
    drops : bool
        Whether a policy may drop jobs.
    split : str
        Its traces are named so in `trained_on`; an entry trained on them is open.
    seeds : list of int
    placer : dict
        Of every entry.
    reference : dict
        Policy that scores 1; fcfs scores 0.
    scenarios : list of BoardScenario
    """

    name: Name
    version: Annotated[int, Field(ge=1)]
    title: Text
    summary: Text
    metric: Text
    better: Literal["lower", "higher"]
    drops: bool = False
    split: Text
    seeds: Annotated[list[int], Field(min_length=1)]
    placer: dict[str, Any]
    reference: dict[str, Any]
    scenarios: Annotated[list[BoardScenario], Field(min_length=1)]
    _folder: Path = PrivateAttr(default=Path())

    @property
    def folder(self) -> Path:
        """leaderboards/<name>."""
        return self._folder

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell, in order."""
        return tuple(Cell(one.name, seed) for one in self.scenarios for seed in self.seeds)

    def constants(self, cell: Cell) -> Constants:
        """Return what a cell is scored against."""
        found = next(one for one in self.scenarios if one.name == cell.scenario)
        if cell.seed not in found.constants:
            remedy = f"run `python -m clustergym.leaderboard freeze {self.name}`"
            raise InputError(
                f"has no constants of seed {cell.seed}",
                file=self.folder / "board.yaml",
                field=cell.scenario,
                remedy=remedy,
            )
        return found.constants[cell.seed]

    def scenario(self, cell: Cell) -> Scenario:
        """Build the scenario of a cell."""
        from clustergym.config import build_scenario

        return build_scenario(self.configuration(cell))

    def configuration(self, cell: Cell) -> dict[str, Any]:
        """Return the configuration of the main job in a cell."""
        from clustergym.api import compose

        found = next(one for one in self.scenarios if one.name == cell.scenario)
        return compose([*found.overrides, f"seed={cell.seed}"])

    def make_placer(self) -> Placer:
        """Return a new placer."""
        from clustergym.registry import make_placer

        return make_placer(self.placer)

    def score(self, cell: Cell, value: float) -> float:
        """Return 0 for as good as fcfs, 1 for as good as the reference; beyond either, on the same line."""
        constants = self.constants(cell)
        return (value - constants.fcfs) / (constants.reference - constants.fcfs)


def boards_dir() -> Path:
    """Return the folder of the committed boards."""
    return PACKAGE.parent / "leaderboards"


def board_names(root: Path | None = None) -> list[str]:
    """Return the names of the boards there are."""
    folder = boards_dir() if root is None else root
    return sorted(path.parent.name for path in folder.glob("*/board.yaml"))


def load_board(name: str, root: Path | None = None) -> Board:
    """Read a board.

    Raises
    ------
    InputError
        If there is none of that name, or its file is malformed.
    """
    folder = (boards_dir() if root is None else root) / name
    if not re.fullmatch(NAME, name) or not (folder / "board.yaml").is_file():
        raise InputError(f"unknown board {name!r}", field="board", remedy=nearest(name, board_names(root)))
    source = read_mapping(folder / "board.yaml")
    board = checked(Board, source.content, file=source.path, source=source)
    board._folder = folder
    problem = next(_problems(board), None)
    if problem is not None:
        key, message, remedy = problem
        raise InputError(message, file=source.path, line=source.line((key,)), field=key, remedy=remedy)
    return board


def _problems(board: Board) -> Iterator[tuple[str, str, str]]:
    if board.name != board.folder.name:
        yield "name", f"{board.name!r} is not its folder's", f"name it {board.folder.name}"
    if board.metric not in METRICS:
        yield "metric", f"unknown metric {board.metric!r}", nearest(board.metric, list(METRICS))
    for key, values in (("seeds", board.seeds), ("scenarios", [one.name for one in board.scenarios])):
        if len(set(values)) < len(values):
            yield key, "names one twice", "name each once"
