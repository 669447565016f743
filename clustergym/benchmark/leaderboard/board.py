"""Boards: versioned sets of scenarios and seeds, with the constants that define scores."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, PrivateAttr

from clustergym.cluster.schema import StrictSchema, Text, validate_content
from clustergym.common.errors import InputError, nearest, shorten_text
from clustergym.common.paths import PACKAGE, conf_dir
from clustergym.common.yaml_file import read_mapping
from clustergym.results.metrics.catalogue import METRICS
from clustergym.scenario.policy import Placer, Policy
from clustergym.scenario.scenario import Scenario
from clustergym.trace.trace import Trace

NAME = r"[a-z0-9][a-z0-9-]{0,63}"
"""Boards, scenarios and entries are named so: no name is a path."""

Name = Annotated[str, Field(pattern=f"^{NAME}$")]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Cell(NamedTuple):
    """A scenario and a seed of a leaderboard; every entry has one run in each cell."""

    scenario: str
    seed: int

    def __str__(self) -> str:
        return f"{self.scenario}-{self.seed}"


class CellConstants(StrictSchema):
    """A cell's (scenario, seed) baseline and reference result, lower bound on mean JCT, and scenario hash.

    Attributes
    ----------
    sha256 : str
        Hash of the scenario: trace, cluster, oracle, costs and rules.
    baseline, reference : float
        The metric of the board's baseline and of its reference.
    jct_bound : float
        Seconds of mean JCT that no schedule can beat (`clustergym.results.bounds.bounds`).
    """

    sha256: Sha256
    baseline: float
    reference: float
    jct_bound: float


class BoardScenario(StrictSchema):
    """One scenario of a leaderboard, with each seed's baseline and reference results and trace hash.

    Attributes
    ----------
    name : str
    overrides : list of str
        Overrides of the main job that make the scenario, without the seed.
    constants : dict of int to CellConstants
        Constants by seed; empty only while a board is made.
    traces : dict of str to dict of int to str
        SHA-256 of the traces of every split, by split and seed; empty only while a board is made.
    """

    name: Name
    overrides: list[Text]
    constants: dict[int, CellConstants] = Field(default_factory=dict)
    traces: dict[Name, dict[int, Sha256]] = Field(default_factory=dict)

    @property
    def family(self) -> str:
        """Name of where the scenario's jobs come from; scenarios with the same name form a family.

        It is the chosen file in conf/trace (else the scenario's name), and the trace file if one is given.
        """
        named = self.find_chosen_file("trace") or self.name
        return f"{named} {self._given['trace.path']}" if "trace.path" in self._given else named

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


class InFolder(StrictSchema):
    """Base class of the content of a leaderboard's file, which also stores that file's folder."""

    _folder: Path = PrivateAttr(default=Path())

    @property
    def folder(self) -> Path:
        """The leaderboard's folder, leaderboards/<name>."""
        return self._folder

    def in_folder(self, folder: Path) -> Self:
        """Store the leaderboard's folder in this object, and return the object."""
        self._folder = folder
        return self


class Board(InFolder):
    """A leaderboard, as its file leaderboards/<name>/board.yaml defines it.

    Attributes
    ----------
    name, version, title, summary
    price : str, optional
        What policies pay for the information they get, and why, in words.
    metric : str
        The metric that is scored, of `clustergym.results.metrics.catalogue`.
    better : str
        `lower` or `higher`.
    drops : bool
        Whether a policy may drop jobs.
    split : str
        Name of the board's own split in `trained_on`; an entry trained on it is open.
    seeds : list of int
        Seeds of that split.
    tuning_seeds : dict of str to list of int
        Seeds of the splits to train and tune on, by split; the scenarios are the same.
    chooses : str
        What an entry is: a `policy`, under the board's placer, or a `placer`, under the board's policy, or
        `policy and placer`.
    policy, placer : dict
        The board gives the one that entries do not choose; None of what they choose.
    baseline : dict
        The policy or placer, whichever entries choose, that scores 0. Where they choose both, it has the keys
        `policy` and `placer`.
    reference : dict
        The policy or placer that scores 1, or both.
    reference_overrides : list of str
        Overrides of the main job for the reference alone, where it stands for an ideal setting.
    shows : list of str, optional
        The columns of raw figures on the board's pages; those of
        `clustergym.benchmark.leaderboard.score` if it is left out.
    scenarios : list of BoardScenario
    """

    name: Name
    version: Annotated[int, Field(ge=1)]
    title: Text
    summary: Text
    price: Text | None = None
    metric: Text
    better: Literal["lower", "higher"]
    drops: bool = False
    split: Name
    seeds: Annotated[list[Seed], Field(min_length=1)]
    tuning_seeds: dict[Name, Annotated[list[Seed], Field(min_length=1)]] = Field(default_factory=dict)
    chooses: Literal["policy", "placer", "policy and placer"] = "policy"
    policy: dict[str, Any] | None = None
    placer: dict[str, Any] | None = None
    baseline: dict[str, Any] = Field(default_factory=lambda: {"name": "fcfs"})
    reference: dict[str, Any]
    reference_overrides: list[Text] = Field(default_factory=list)
    shows: Annotated[list[Text], Field(min_length=1)] | None = None
    scenarios: Annotated[list[BoardScenario], Field(min_length=1)]
    _composed: dict[tuple[str, ...], dict[str, Any]] = PrivateAttr(default_factory=dict)

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """All cells (pairs of a scenario and a seed), scenario by scenario, then seed by seed."""
        return tuple(Cell(scenario.name, seed) for scenario in self.scenarios for seed in self.seeds)

    @cached_property
    def families(self) -> tuple[str, ...]:
        """The trace family of each scenario; scores are averaged within families, then over families."""
        return tuple(scenario.family for scenario in self.scenarios)

    @property
    def components(self) -> tuple[str, ...]:
        """What an entry on this leaderboard chooses: `policy`, `placer`, or both."""
        return tuple(self.chooses.split(" and "))

    def keys_by_component(self, chosen: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        """Return `chosen` under the key `policy` or `placer`; unchanged if it already has both of these keys.

        `chosen` is such a mapping on a board of both components, else one name with its parameters.
        """
        return dict(chosen) if len(self.components) > 1 else {self.chooses: chosen}

    @property
    def sign(self) -> float:
        """1 if a lower metric is better on this leaderboard, -1 if a higher one is."""
        return 1.0 if self.better == "lower" else -1.0

    def content(self) -> dict[str, Any]:
        """Return the content of the leaderboard's board.yaml as a mapping."""
        return self.model_dump(exclude_none=True)

    def with_keys(self, **keys: Any) -> Board:
        """Return a copy of the board in which keys of board.yaml have the given values."""
        return Board.model_validate(self.content() | keys).in_folder(self.folder)

    def constants(self, cell: Cell) -> CellConstants:
        """Return the baseline's and reference's results in a cell (scenario, seed); raise if missing."""
        found = next(scenario for scenario in self.scenarios if scenario.name == cell.scenario)
        if cell.seed not in found.constants:
            remedy = f"run `clustergym leaderboard freeze {self.name}`"
            raise InputError(
                f"has no constants of seed {cell.seed}",
                file=self.folder / "board.yaml",
                field=cell.scenario,
                remedy=remedy,
            )
        return found.constants[cell.seed]

    @property
    def splits(self) -> dict[str, list[int]]:
        """Seeds by the name of their split: those for tuning, and those that entries are scored on."""
        return {**self.tuning_seeds, self.split: self.seeds}

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
            self.configuration(Cell(scenario.name, self.seeds[0]))

    def trace(self, cell: Cell) -> Trace:
        """Return the trace of a scenario and a seed; the seed may be of any split."""
        from clustergym.scenario.scenario_config import Conditions

        config = self.configuration(cell)
        return Conditions.from_config(config).trace(config["trace"], cell.seed)

    def contestants(self, chosen: Mapping[str, Any]) -> tuple[Policy, Placer]:
        """Build an entry's policy and placer from `chosen`; take the board's own if one is missing."""
        from clustergym.scenario.registry import make_placer, make_policy

        both = {"policy": self.policy or {}, "placer": self.placer or {}} | self.keys_by_component(chosen)
        return make_policy(both["policy"]), make_placer(both["placer"])

    def score(self, cell: Cell, value: float) -> float:
        """Return the score of a value of the metric, linear from 0 at the baseline to 1 at the reference."""
        constants = self.constants(cell)
        return (value - constants.baseline) / (constants.reference - constants.baseline)


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
    if board.split in board.tuning_seeds:
        yield "tuning_seeds", f"has the board's own split {board.split!r}", "name it otherwise"
    seeds = [seed for values in board.splits.values() for seed in values]
    names = [scenario.name for scenario in board.scenarios]
    for key, values in (("seeds", board.seeds), ("tuning_seeds", seeds), ("scenarios", names)):
        if len(set(values)) < len(values):
            yield key, "names one twice", "name each once"
    yield from _interpolation_problems(board)
    yield from _find_choice_problems(board)
    for metric in board.shows or ():
        if metric not in METRICS:
            yield "shows", f"unknown metric {metric!r}", nearest(metric, list(METRICS))
    yield from _trace_problems(board)


def _interpolation_problems(board: Board) -> Iterator[tuple[str, str, str]]:
    """Yield the keys with interpolations: a board must be the same for every reader."""
    remedy = "write the value out"
    for key in (
        "reference_overrides",
        "scenarios",
        "policy",
        "placer",
        "baseline",
        "reference",
    ):
        value = getattr(board, key)
        given = [one.overrides for one in value] if key == "scenarios" else value
        word = next((text for text in list_texts(given) if "${" in text), None)
        if word is not None:
            yield key, f"{shorten_text(word, 60)!r} is an interpolation", remedy


def list_texts(value: Any) -> Iterator[str]:
    """Yield every string in a value that is nested of dicts and lists."""
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from list_texts(inner)


def _find_choice_problems(board: Board) -> Iterator[tuple[str, str, str]]:
    """Yield the problems of a board's keys on policies and placers, as (field, message, remedy)."""
    for component, other in (("policy", "placer"), ("placer", "policy")):
        if component in board.components and getattr(board, component) is not None:
            yield component, "is what entries choose", f"leave it out, or give chooses: {other}"
        if component not in board.components and getattr(board, component) is None:
            yield (
                component,
                f"is missing, and entries choose the {other}",
                f"name the {component} of every entry",
            )
    if len(board.components) > 1:
        for key in ("baseline", "reference"):
            said = getattr(board, key)
            if {*said} != {*board.components} or not all(isinstance(value, dict) for value in said.values()):
                remedy = f"give {key}: {{policy: {{name: …}}, placer: {{name: …}}}}"
                yield key, "is not a policy and a placer, and entries choose both", remedy


def _trace_problems(board: Board) -> Iterator[tuple[str, str, str]]:
    """Yield the problems of trace hashes: missing ones, and ones that two splits share."""
    found: dict[str, str] = {}
    for scenario in board.scenarios:
        if scenario.traces and {split: sorted(by_seed) for split, by_seed in scenario.traces.items()} != {
            split: sorted(seeds) for split, seeds in board.splits.items()
        }:
            yield "scenarios", f"{scenario.name} has traces of other seeds", "remove traces, and freeze"
        for split, digests in scenario.traces.items():
            for seed, digest in digests.items():
                if found.setdefault(digest, split) != split:
                    where = f"{scenario.name}-{seed} of {split} is a trace of {found[digest]} too"
                    yield "scenarios", where, "give the splits other seeds"
