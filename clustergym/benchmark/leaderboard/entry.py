"""Entries: claims about a policy or placer on a board, read without trusting any of them."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field

from clustergym.benchmark.leaderboard import cell_logs
from clustergym.benchmark.leaderboard.board import NAME, Board, Cell, Name, board_names
from clustergym.cluster.schema import StrictSchema, validate_content
from clustergym.common.errors import InputError, nearest, shorten_text, visible
from clustergym.common.reading import read_regular
from clustergym.common.yaml_file import read_mapping
from clustergym.results.metrics.catalogue import METRICS

LARGEST_RESULTS_BYTES = 4_000_000
LARGEST_README_BYTES = 1_000_000
FILES = ("entry.yaml", "results.csv", "curves.json", "README.md", cell_logs.FILE)

TIMES = ("decision_s_p50", "decision_s_p99", "wall_s")
"""Columns that differ from machine to machine: shown, not replayed."""

FIXED = ("scenario", "seed", "digest", "decisions", *TIMES)
RAW = (
    "jct_mean",
    "jct_p99",
    "makespan",
    "ftf_mean",
    "ftf_worst",
    "unfair_fraction",
    "deadline_satisfaction",
    "throughput_mean",
    "restarts_mean",
)
"""Metrics that every entry has; further columns are those of the catalogue when it was made."""

Line = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(visible)]
"""Control, bidirectional and invisible characters are written out, wherever it is shown."""

MOST_PARAMETERS, DEEPEST, LONGEST_TEXT = 500, 6, 200
"""Of a policy or placer: values, levels of nesting, and characters of a name or text."""
TUNING = ("train", "dev")
"""Splits to train and tune on, of boards that name none."""
ELSEWHERE = "elsewhere"
"""What was trained on is of none of the boards."""


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """Return parameters checked to be few, short and plain; raise a `ValueError` for others."""
    if "name" in value:
        raise ValueError("has a parameter `name`: the name stands beside the parameters")
    # One count for all levels: a list in each of many mappings is as large as one long list.
    left = [MOST_PARAMETERS]

    def plain(part: Any, depth: int) -> Any:
        left[0] -= 1
        if left[0] < 0 or depth > DEEPEST:
            raise ValueError(f"has more than {MOST_PARAMETERS} values, or more than {DEEPEST} levels")
        if isinstance(part, dict):
            return {text(key): plain(inner, depth + 1) for key, inner in part.items()}
        if isinstance(part, list):
            return [plain(inner, depth + 1) for inner in part]
        if isinstance(part, str):
            return text(part)
        # Below 2**63, as every reader of JSON and YAML keeps it; NaN and infinity have no text that all
        # read alike.
        whole = part is None or isinstance(part, bool) or (isinstance(part, int) and abs(part) < 2**63)
        if not whole and not (isinstance(part, float) and math.isfinite(part)):
            raise ValueError(
                "has a value that is not a finite number, text, true, false, null, list or mapping"
            )
        return part

    def text(word: Any) -> str:
        if not isinstance(word, str) or len(word) > LONGEST_TEXT:
            raise ValueError(f"has a name that is not text, or a text of over {LONGEST_TEXT} characters")
        return visible(word)

    made: dict[str, Any] = plain(value, 0)
    return made


Parameters = Annotated[dict[str, Any], AfterValidator(_plain)]


class ComponentChoice(StrictSchema):
    """The name and parameters of an entry's policy or placer, which may be unpublished."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
    parameters: Parameters = Field(default_factory=dict)

    @property
    def keys(self) -> dict[str, Any]:
        """Name and parameters in one mapping, as in a configuration."""
        return {"name": self.name, **self.parameters}


class Entry(StrictSchema):
    """The content of entry.yaml, which describes an entry on a leaderboard.

    Attributes
    ----------
    board, board_version
    title : str
    authors : list of str
    policy, placer : ComponentChoice
        What the board lets entries choose; the other is None.
    version : str
        Version of its code.
    information_class : str
        Of the policy; `none` for a placer alone: it knows which nodes are free, and nothing of jobs but type
        and number of GPUs.
    deterministic : bool
        Whether the same seed gives the same decisions; all that is published here does.
    trained_on : list of str
        Splits of the board, `train`, `dev`, names of boards, or `elsewhere`; none if nothing was trained
        or tuned.
    search_budget, solver, hardware, licence, command : str
    limits : str
        Limits of time, nodes or gap.
    hindsight : bool, optional
        Its decisions were found by a search that knew the whole trace: outside all divisions.
    variant : bool, optional
        Its decisions are not those of what is published here under the name, as another version of it; the
        title says so.
    """

    board: Name
    board_version: Annotated[int, Field(ge=1)]
    title: Line
    authors: Annotated[list[Line], Field(min_length=1, max_length=100)]
    policy: ComponentChoice | None = None
    placer: ComponentChoice | None = None
    version: Line
    information_class: Literal["clairvoyant", "profiled", "data_parallel", "bootstrap", "none"]
    deterministic: bool
    trained_on: list[Line] = Field(default_factory=list)
    search_budget: Line = "none"
    solver: Line = "none"
    limits: Line = "none"
    hardware: Line
    licence: Line
    command: Line
    hindsight: Literal[True] | None = None
    variant: Literal[True] | None = None

    @property
    def choices(self) -> dict[str, ComponentChoice]:
        """The policy, the placer or both that the entry chooses, under the keys `policy` and `placer`."""
        both = {"policy": self.policy, "placer": self.placer}
        return {component: chosen for component, chosen in both.items() if chosen is not None}

    @property
    def keys(self) -> dict[str, Any]:
        """Name and parameters of the chosen policy or placer; if both, by the keys `policy` and `placer`."""
        keys = {component: chosen.keys for component, chosen in self.choices.items()}
        return keys if len(keys) > 1 else next(iter(keys.values()))

    def division(self, board: Board) -> str:
        """Return the ranking group, as `profiled, open`: what its policy knows; open: trained on this board.

        What it knows is of iteration times; an example is `profiled, open`. Any other ends in `closed`.
        """
        # Only the board's own test traces open a division: training on its other splits is what they are
        # for.
        trained_here = {board.name, board.split} & {*self.trained_on}
        return f"{self.information_class}, {'open' if trained_here else 'closed'}"


class ResultRow(NamedTuple):
    """A row of an entry's results.csv: one run's event-log digest, decision times and metrics."""

    cell: Cell
    digest: str
    decisions: int
    times: dict[str, float]
    metrics: dict[str, float | None]


def entry_names(board: Board) -> list[str]:
    """Return the names of a leaderboard's folders, except those that begin with a dot."""
    return sorted(
        path.name for path in board.folder.iterdir() if path.is_dir() and not path.name.startswith(".")
    )


def entry_folder(board: Board, name: str) -> Path:
    """Return the folder of an entry, after a check that it is a plain folder of the leaderboard.

    Raises
    ------
    InputError
        If the name is not allowed, or the folder is a link or holds what an entry does not.
    """
    folder = board.folder / name
    if not re.fullmatch(NAME, name):
        remedy = "use lower-case letters, digits and hyphens"
        raise InputError(f"{name!r} is not a name for an entry", field="entry", remedy=remedy)
    if folder.is_symlink() or not folder.is_dir():
        raise InputError("is not a folder of the board", file=folder, field="entry", remedy="name an entry")
    # Links are refused before anything is opened: they may lead out of the folder or to what never ends.
    for path in sorted(folder.iterdir()):
        if path.name not in FILES or path.is_symlink():
            message = "is a link" if path.is_symlink() else "does not belong in an entry"
            raise InputError(message, file=path, remedy=f"an entry has {', '.join(FILES)}")
        if not path.is_file():
            raise InputError("is not a plain file", file=path, remedy="write it anew")
    return folder


def read_entry(folder: Path, board: Board) -> Entry:
    """Read and check an entry's entry.yaml."""
    source = read_mapping(folder / "entry.yaml")
    entry = validate_content(Entry, source.content, file=source.path, source=source)
    # One line an error: the first is told, with its line in the file.
    problem = next(_problems(entry, board), None)
    if problem is not None:
        key, message, remedy = problem
        raise InputError(message, file=source.path, line=source.line((key,)), field=key, remedy=remedy)
    return entry


def _problems(entry: Entry, board: Board) -> Iterator[tuple[str, str, str]]:
    """Yield the errors in an entry's keys on its board."""
    for component in {*entry.choices} - {*board.components}:
        yield component, f"is the board's: entries of {board.name} choose a {board.chooses}", "leave it out"
    for component in board.components:
        if component not in entry.choices:
            message = f"is missing: entries of {board.name} choose a {board.chooses}"
            yield component, message, f"give {component}: {{name: …, parameters: …}}"
    if board.chooses == "placer" and entry.information_class != "none":
        message = f"{entry.information_class!r} is not that of a placer, which uses no speeds"
        yield "information_class", message, "give none"
    known = [*dict.fromkeys((*board.splits, *TUNING)), *board_names(board.folder.parent), ELSEWHERE]
    for source in entry.trained_on:
        if source not in known:
            message = (
                f"{shorten_text(source, 60)!r} is not a split of {board.name}, nor a board, nor {ELSEWHERE!r}"
            )
            yield "trained_on", message, nearest(source, known)


def read_results(folder: Path) -> list[ResultRow]:
    """Read an entry's results.csv."""
    path = folder / "results.csv"
    return list(_rows(path, read_entry_text(path, LARGEST_RESULTS_BYTES)))


def read_entry_text(path: Path, largest: int) -> str:
    """Return the text of an entry's file; raise an `InputError` if it is too large or not UTF-8."""
    try:
        return read_regular(path, largest, "write it anew").decode("utf-8")
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", file=path, remedy="write it anew") from None


def _rows(path: Path, text: str) -> Iterator[ResultRow]:
    reader = csv.reader(text.splitlines())
    try:
        header = next(reader, [])
        if not _is_header(header):
            message = "its columns are not those of results.csv"
            raise InputError(message, file=path, line=1, remedy="write it with `leaderboard add`")
        for values in reader:
            if len(values) != len(header):
                message = f"has {len(values)} fields, not {len(header)}"
                raise InputError(message, file=path, line=reader.line_num, remedy="write it anew")
            yield _row(path, reader.line_num, dict(zip(header, values, strict=True)))
    except csv.Error as error:
        raise InputError(str(error), file=path, line=reader.line_num, remedy="write it anew") from None


def _is_header(header: list[str]) -> bool:
    metrics = header[len(FIXED) :]
    known = set(RAW) <= set(metrics) <= set(METRICS) and len(set(metrics)) == len(metrics)
    return tuple(header[: len(FIXED)]) == FIXED and known


NUMBER, WHOLE = r"-?[0-9.]{1,30}(e[+-]?[0-9]{1,3})?", r"[0-9]{1,12}"


def _row(path: Path, line: int, values: dict[str, str]) -> ResultRow:
    # Patterns before `float`: Python reads `1_000`, `infinity` and digits of other scripts as numbers.
    patterns = {"scenario": NAME, "seed": WHOLE, "digest": "[0-9a-f]{64}", "decisions": WHOLE}
    metrics = [name for name in values if name in METRICS]
    patterns |= dict.fromkeys(TIMES, NUMBER) | dict.fromkeys(metrics, f"({NUMBER})?")
    for name, pattern in patterns.items():
        if not re.fullmatch(pattern, values[name]) or not _readable(name, values[name]):
            shown = values[name] if len(values[name]) <= 40 else values[name][:40] + "…"
            message = f"{shown!r} is not valid"
            raise InputError(message, file=path, line=line, field=name, remedy="write it anew")
    return ResultRow(
        Cell(values["scenario"], int(values["seed"])),
        values["digest"],
        int(values["decisions"]),
        {name: float(values[name]) for name in TIMES},
        {name: float(values[name]) if values[name] else None for name in metrics},
    )


def _readable(name: str, value: str) -> bool:
    """Return whether a field's text can be read, and is finite where it is a number."""
    if name in ("scenario", "digest") or not value:
        return True
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False
