"""A board's table of figures, cells.csv.gz: one row for each run of a policy; cells.yaml says which are run.

A figure is a fact about a policy with its parameters, the code that decides, a scenario, a seed and a
condition. `fill` adds rows, `pairs` compares them; nothing else of a run is kept here.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from clustergym.benchmark.leaderboard.board import NAME, Board, Cell, Line, Name, Seed
from clustergym.benchmark.leaderboard.runs import Log, PlayedRun, play
from clustergym.benchmark.leaderboard.sealed_entry import SealedAgent, read_agents
from clustergym.cluster.schema import StrictSchema, Text, validate_content
from clustergym.common.errors import InputError, alike, nearest, shorten_text
from clustergym.common.reading import read_regular
from clustergym.common.writing import write_files
from clustergym.common.yaml_file import read_mapping
from clustergym.results.metrics.catalogue import METRICS
from clustergym.scenario.policy import Placer, Policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim.program import Program

KEYS_FILE, POLICIES_FILE, TABLE_FILE = "cells.yaml", "policies.yaml", "cells.csv.gz"
LARGEST_BYTES = 2**26
LEAST_SEEDS = 8
"""No interval is of fewer: where tails are heavy, Student's t on logs would cover too little."""
BOUND = "lower-bound"
"""The row of what no schedule beats; it is computed, and no policy."""
USUAL = ("jct_mean", "jct_p99", "ftf_mean", "unfair_fraction", "restarts_mean", "gpu_utilization")
"""Metrics that a table has where cells.yaml names none."""
NUMBER, WHOLE = r"-?[0-9.]{1,30}(e[+-]?[0-9]{1,3})?", r"[0-9]{1,12}"


class ComparedPolicy(StrictSchema):
    """A policy of policies.yaml, which boards with a table name.

    Attributes
    ----------
    title : str
    rules : str
        `published`: the rules and parameters of its paper. `guarded`: besides, the one rule for all
        policies that do not count restarts themselves. `simple`, `learned`: of no paper. `entered`: its
        figures come from the logs of an entry. `sealed`: a program or weights of an entry.
    policy, placer : dict, optional
        Name and parameters; the board's own where one is left out.
    seen : list of str
        What its training saw of the boards: jobs, cluster, speeds, prices; empty where it saw none.
    """

    title: Line
    rules: Literal["published", "guarded", "simple", "learned", "entered", "sealed"]
    policy: dict[str, Any] | None = None
    placer: dict[str, Any] | None = None
    seen: list[Literal["jobs", "cluster", "speeds", "prices"]] = Field(default_factory=list)

    @property
    def keys(self) -> str:
        """Names and parameters as a row holds them."""
        both = {"policy": self.policy, "placer": self.placer}
        return shorten_keys(self.policy or {} if self.placer is None else both)


class ListedPolicies(StrictSchema):
    """The content of policies.yaml: the policies that tables compare, by the name of their row."""

    policies: dict[Name, ComparedPolicy]


class Condition(StrictSchema):
    """Another condition that some policies are run under, on the first seeds.

    Attributes
    ----------
    overrides : list of str
        Of the main job.
    seeds : int
    policies : list of str, optional
        All rows by default.
    """

    overrides: Annotated[list[Text], Field(min_length=1)]
    seeds: Annotated[int, Field(ge=1)] = 4
    policies: list[Name] | None = None


class TableKeys(StrictSchema):
    """The content of cells.yaml: what is run on a board.

    Attributes
    ----------
    reference : str
        The policy in `policies` that the others are compared with, on the same trace.
    first_seed, least, most : int
        Seeds are first_seed, first_seed + 1, ...; each row gets `least`, and one whose interval is wider than
        `width` up to `most`. Nothing but the width decides that.
    width : float
        Upper end of an interval over its lower end, less one.
    scenarios : dict of str to list of str
        Scenarios of the board, each a family of traces of equal weight, with more overrides.
    policies : list of str
        Rows, in the order in which they are run.
    conditions : dict of str to Condition
    metrics : list of str
        Columns of the table; the board's metric is one of them.
    compare : str
        A policy and the reference by the `ratio` of the board's metric, or by the `difference` where that may
        be 0.
    sealed : bool
        Learned rows are run on seeds that their parameters and weights determine, and on no others.
    logged : list of str
        Rows of which the runs on the first seed are kept as logs.
    probe : list of str
        Overrides of the runs that tell whether the simulator does what it did: a few jobs, all scored.
    """

    reference: Name
    first_seed: Seed
    least: Annotated[int, Field(ge=LEAST_SEEDS)]
    most: Annotated[int, Field(ge=LEAST_SEEDS)]
    width: Annotated[float, Field(gt=0)]
    scenarios: Annotated[dict[Name, list[Text]], Field(min_length=1)]
    policies: Annotated[list[Name], Field(min_length=1)]
    conditions: dict[Name, Condition] = Field(default_factory=dict)
    metrics: list[Literal[tuple(METRICS)]] = Field(default_factory=lambda: [*USUAL])  # type: ignore[valid-type]
    compare: Literal["ratio", "difference"] = "ratio"
    sealed: bool = False
    logged: list[Name] = Field(default_factory=list)
    probe: list[Text] = Field(default_factory=lambda: ["trace.jobs=60", "scenario.scored_s=null"])

    def overrides(self, scenario: str, condition: str) -> list[str]:
        """Return the overrides of a scenario under a condition; the condition's come last and win."""
        known = self.conditions.get(condition)
        return self.scenarios[scenario] + (known.overrides if known else [])

    def sealed_label(self, policy: str) -> str:
        """Return what stands for a condition in rows of a policy's sealed test."""
        return f"sealed-{policy}"

    @property
    def first_cells(self) -> list[Cell]:
        """The scenarios with the first seed, of which logs are kept."""
        return [Cell(name, self.first_seed) for name in self.scenarios]

    @property
    def least_cells(self) -> list[Cell]:
        """The scenarios with the seeds that every row gets."""
        seeds = range(self.first_seed, self.first_seed + self.least)
        return [Cell(name, seed) for name in self.scenarios for seed in seeds]


class Place(NamedTuple):
    """Where a row stands; a table has at most one row a place."""

    policy: str
    scenario: str
    seed: int
    condition: str

    def __str__(self) -> str:
        return " ".join(map(str, self)).strip()


class Row(NamedTuple):
    """One run of a policy.

    Attributes
    ----------
    place : Place
    keys : str
        Name and parameters of the policy, as JSON.
    code : str
        Fingerprint of the files that decide, of the weights and of all parameters
        (`fingerprint.fingerprint_policy`).
    simulator : str
        Fingerprint of what the simulator does (`fingerprint.fingerprint_simulator`).
    sha256 : str
        Of the scenario: trace, cluster, oracle, costs and rules.
    digest : str
        Of the event log; empty where the run did not end.
    cpu_s : float
    solvers : str
        Versions of the solvers that the policy may call.
    stopped : str
        Why the run did not end; empty where it did.
    metrics : dict of str to float or None
    """

    place: Place
    keys: str
    code: str
    simulator: str
    sha256: str
    digest: str
    cpu_s: float
    solvers: str
    stopped: str
    metrics: Mapping[str, float | None]


FIXED = (*Place._fields, *Row._fields[1:-1])


class FigureTable(NamedTuple):
    """A board with what is run on it, the rows that its table has, and the agents of its sealed entries."""

    board: Board
    keys: TableKeys
    policies: Mapping[str, ComparedPolicy]
    rows: dict[Place, Row]
    agents: Mapping[str, SealedAgent] = {}

    @property
    def path(self) -> Path:
        """The file of the table."""
        return self.board.folder / TABLE_FILE

    def reread(self) -> FigureTable:
        """Return the table with the rows that its file has now."""
        return self._replace(rows={row.place: row for row in read_rows(self.path, self.keys.metrics)})

    def contestants(self, name: str) -> tuple[Policy, Placer]:
        """Build the policy and the placer of a row; a sealed entry's policy is a process, to be closed."""
        if name in self.agents:
            return self.agents[name].start(), self.board.contestants({"name": "fcfs"})[1]
        return self.board.contestants(self.policies[name].policy, self.policies[name].placer)

    def play(self, name: str, scenario: Scenario, seed: int, log: Log = "none") -> PlayedRun:
        """Run a row on a scenario; raises the errors of `runs.play`."""
        policy, placer = self.contestants(name)
        with policy if isinstance(policy, Program) else nullcontext():
            return play(scenario, policy, placer, seed, log)

    def condition_of(self, name: str) -> str:
        """Return the condition under which a row's main figures are run: none, or its sealed test."""
        known = self.policies.get(name)
        sealed = self.keys.sealed and known is not None and known.rules in ("learned", "sealed")
        return self.keys.sealed_label(name) if sealed else ""


def load_table(board: Board) -> FigureTable:
    """Read cells.yaml, the policies that it names and the table of a board."""
    source = read_mapping(board.folder / KEYS_FILE)
    keys = validate_content(TableKeys, source.content, file=source.path, source=source)
    listed = read_mapping(board.folder.parent / POLICIES_FILE)
    policies = validate_content(ListedPolicies, listed.content, file=listed.path, source=listed).policies
    names = [scenario.name for scenario in board.scenarios]
    for field, given, known in (
        ("policies", keys.policies, [*policies, BOUND]),
        ("reference", [keys.reference], keys.policies),
        ("scenarios", keys.scenarios, names),
        ("logged", keys.logged, keys.policies),
        ("metrics", [board.metric], keys.metrics),
        *(("conditions", one.policies or (), keys.policies) for one in keys.conditions.values()),
    ):
        for name in given:
            if name not in known:
                where: dict[str, Any] = {"file": source.path, "line": source.line((field,)), "field": field}
                raise InputError(f"unknown name {name!r}", remedy=nearest(name, known), **where)
    agents = read_agents(board)
    for name, agent in agents.items():
        seen, title = agent.entry.seen, agent.entry.title
        taken = name in (BOUND, *policies) or alike(title) in [alike(one.title) for one in policies.values()]
        if not keys.sealed or taken or not re.fullmatch(NAME, keys.sealed_label(name)):
            message, remedy = "its name is too long, or it or its title is as another row's", "choose others"
            if not keys.sealed:
                message, remedy = "this board has no sealed list", "enter it by its logs"
            raise InputError(message, file=agent.file.parent / "entry.yaml", field="title", remedy=remedy)
        policies[name] = ComparedPolicy(title=title, rules="sealed", policy=agent.keys, seen=seen)
    keys = keys.model_copy(update={"policies": [*keys.policies, *agents]})
    return FigureTable(board, keys, policies, {}, agents).reread()


def read_rows(path: Path, metrics: Sequence[str] = USUAL) -> Iterator[Row]:
    """Read a table of figures with columns of `metrics`; a file that is not there has no rows."""
    if not path.exists():
        return
    remedy = "run `clustergym leaderboard fill`"
    try:
        with gzip.open(io.BytesIO(read_regular(path, LARGEST_BYTES, remedy))) as stream:
            text = stream.read(LARGEST_BYTES + 1).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"is no table of figures: {error}", file=path, remedy=remedy) from None
    if len(text) > LARGEST_BYTES:
        raise InputError("is too large a table", file=path, remedy=remedy)
    reader = csv.DictReader(io.StringIO(text))
    names = [*FIXED, *metrics]
    patterns = PATTERNS | dict.fromkeys(metrics, f"({NUMBER})?")
    if reader.fieldnames != names:
        raise InputError("its columns are not those of a table of figures", file=path, line=1, remedy=remedy)
    places = set[Place]()
    for values in reader:
        wrong = next((name for name in names if not _is_valid(patterns[name], values.get(name))), None)
        if wrong is not None or None in values:
            shown = shorten_text(str(values.get(wrong or "", "more fields than columns")), 60)
            raise InputError(
                f"{shown!r} is not valid", file=path, line=reader.line_num, field=wrong, remedy=remedy
            )
        row = _parse(values, metrics)
        if row.place in places:
            raise InputError("stands twice", file=path, line=reader.line_num, remedy=remedy)
        places.add(row.place)
        yield row


PATTERNS = {
    **dict.fromkeys(("policy", "scenario"), NAME),
    "condition": f"({NAME})?",
    "seed": WHOLE,
    "cpu_s": NUMBER,
    **dict.fromkeys(("code", "simulator"), "[0-9a-f]{12}"),
    "sha256": "[0-9a-f]{64}",
    "digest": "([0-9a-f]{64})?",
    **dict.fromkeys(("keys", "solvers", "stopped"), "[ -~]{0,2000}"),
}


def _is_valid(pattern: str, value: str | None) -> bool:
    # The pattern before `float`: Python reads `1_000` and `infinity` as numbers.
    if value is None or not re.fullmatch(pattern, value):
        return False
    try:
        return NUMBER not in pattern or not value or math.isfinite(float(value))
    except ValueError:
        return False


def _parse(values: Mapping[str, Any], metrics: Sequence[str]) -> Row:
    place = Place(values["policy"], values["scenario"], int(values["seed"]), values["condition"])
    found = {name: float(values[name]) if values[name] else None for name in metrics}
    words = {name: values[name] for name in Row._fields[1:-1] if name != "cpu_s"}
    return Row(place=place, metrics=found, cpu_s=float(values["cpu_s"]), **words)


def write_rows(path: Path, rows: Iterable[Row], metrics: Sequence[str] = USUAL) -> None:
    """Write a table of figures, in an order and a form that depend on the rows alone."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*FIXED, *metrics])
    for row in sorted(rows, key=lambda row: row.place):
        values = ["" if row.metrics[name] is None else row.metrics[name] for name in metrics]
        writer.writerow([*row.place, *row[1:-1], *values])
    write_files({path: gzip.compress(text.getvalue().encode("utf-8"), mtime=0)})


def shorten_keys(policy: Mapping[str, Any]) -> str:
    """Return a policy's name and parameters as a row holds them."""
    return json.dumps(dict(policy), sort_keys=True, separators=(",", ":"))
