"""Boards: versioned sets of scenarios, each a family of traces, and what is compared on them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, PrivateAttr

from clustergym.cluster.schema import StrictSchema, Text, validate_content
from clustergym.common.errors import InputError, nearest, shorten_text, visible
from clustergym.common.paths import PACKAGE, conf_dir
from clustergym.common.yaml_file import read_mapping
from clustergym.results.metrics.catalogue import METRICS
from clustergym.scenario.policy import Placer, Policy
from clustergym.scenario.scenario import Scenario

NAME = r"[a-z0-9][a-z0-9-]{0,63}"
"""Boards, scenarios and entries are named so: no name is a path."""

Name = Annotated[str, Field(pattern=f"^{NAME}$")]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Line = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(visible)]
"""Control, bidirectional and invisible characters are written out, wherever it is shown."""


class Cell(NamedTuple):
    """A scenario and a seed of a leaderboard."""

    scenario: str
    seed: int

    def __str__(self) -> str:
        return f"{self.scenario}-{self.seed}"


class BoardScenario(StrictSchema):
    """One scenario of a leaderboard: a family of traces.

    Attributes
    ----------
    name : str
    overrides : list of str
        Overrides of the main job that make the scenario, without the seed.
    """

    name: Name
    overrides: list[Text]

    @property
    def _given(self) -> dict[str, str]:
        return {key: value for key, _, value in (words.partition("=") for words in self.overrides)}

    def find_chosen_file(self, group: str) -> str | None:
        """Return the name of the file chosen in a configuration group, such as `trace`; None if none is."""
        path = conf_dir() / "scenario" / f"{self._given.get('scenario', '')}.yaml"
        if group in self._given or not path.is_file():
            return self._given.get(group)
        defaults = read_mapping(path).content.get("defaults", [])
        wanted = f"override /{group}"
        return next((str(entry[wanted]) for entry in defaults if wanted in entry), None)


class Board(StrictSchema):
    """A leaderboard, as its file leaderboards/<name>/board.yaml defines it.

    Attributes
    ----------
    name, version, title, summary
    price : str, optional
        What policies pay for the information they get, and why, in words.
    metric : str
        The metric that is compared, of `clustergym.results.metrics.catalogue`.
    better : str
        `lower` or `higher`.
    policy, placer : dict
        What is run where a row names none; a board whose rows are policies alone has no policy.
    scenarios : list of BoardScenario
    """

    name: Name
    version: Annotated[int, Field(ge=1)]
    title: Text
    summary: Text
    price: Text | None = None
    metric: Text
    better: Literal["lower", "higher"]
    policy: dict[str, Any] | None = None
    placer: dict[str, Any]
    scenarios: Annotated[list[BoardScenario], Field(min_length=1)]
    _folder: Path = PrivateAttr(default=Path())
    _composed: dict[tuple[str, ...], dict[str, Any]] = PrivateAttr(default_factory=dict)

    @property
    def sign(self) -> float:
        """1 if a lower metric is better on this leaderboard, -1 if a higher one is."""
        return 1.0 if self.better == "lower" else -1.0

    @property
    def folder(self) -> Path:
        """The leaderboard's folder, leaderboards/<name>."""
        return self._folder

    def in_folder(self, folder: Path) -> Self:
        """Return the board, as read from a folder."""
        self._folder = folder
        return self

    def scenario(self, cell: Cell, overrides: Sequence[str] = ()) -> Scenario:
        """Build the simulated scenario of a cell (scenario, seed), with more configuration `overrides`."""
        from clustergym.scenario.scenario_config import build_scenario

        return build_scenario(self.configuration(cell, overrides))

    def configuration(self, cell: Cell, overrides: Sequence[str] = ()) -> dict[str, Any]:
        """Return the configuration of a cell (scenario, seed), with more configuration `overrides`."""
        from clustergym.scenario.by_name import compose

        found = next(scenario for scenario in self.scenarios if scenario.name == cell.scenario)
        words = (*found.overrides, *overrides)
        if words not in self._composed:
            self._composed[words] = compose(words)
        return {**deepcopy(self._composed[words]), "seed": cell.seed}

    def compose(self) -> None:
        """Compose and store every scenario's configuration now, so that worker processes need not do it."""
        for scenario in self.scenarios:
            self.configuration(Cell(scenario.name, 0))

    def contestants(
        self, policy: Mapping[str, Any] | None, placer: Mapping[str, Any] | None = None
    ) -> tuple[Policy, Placer]:
        """Build a policy and a placer from names and parameters; take the board's own for one left out."""
        from clustergym.scenario.registry import make_placer, make_policy

        return make_policy(policy or self.policy or {}), make_placer(placer or self.placer)


def boards_dir() -> Path:
    """Return the folder of the leaderboards that come with this project."""
    return PACKAGE.parent / "leaderboards"


def board_names(root: Path | None = None) -> list[str]:
    """Return the names of all leaderboards in a folder."""
    folder = boards_dir() if root is None else root
    found = sorted(path.parent.name for path in folder.glob("*/board.yaml"))
    if not found:
        remedy = "boards are in a checkout: `clustergym leaderboard --root CHECKOUT/leaderboards …`"
        raise InputError("holds no board", file=folder, remedy=remedy)
    return found


def load_board(name: str, root: Path | None = None) -> Board:
    """Read a leaderboard from its board.yaml."""
    folder = (boards_dir() if root is None else root) / name
    if not re.fullmatch(NAME, name) or not (folder / "board.yaml").is_file():
        raise InputError(f"unknown board {name!r}", field="board", remedy=nearest(name, board_names(root)))
    source = read_mapping(folder / "board.yaml")
    board = validate_content(Board, source.content, file=source.path, source=source).in_folder(folder)
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
    names = [scenario.name for scenario in board.scenarios]
    if len(set(names)) < len(names):
        yield "scenarios", "names one twice", "name each once"
    for key, value in board.model_dump(include={"scenarios", "policy", "placer"}).items():
        # A board must be the same for every reader.
        if word := re.search(r'[^"]*\$\{[^"]*', json.dumps(value, ensure_ascii=False)):
            yield key, f"{shorten_text(word[0], 60)!r} is an interpolation", "write the value out"
