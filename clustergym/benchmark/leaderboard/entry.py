"""Entries: policies of others, described in entry.yaml, which is read without trusting any of it."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field

from clustergym.benchmark.leaderboard import cell_logs
from clustergym.benchmark.leaderboard.board import NAME, Board, Line, Name
from clustergym.cluster.schema import StrictSchema, validate_content
from clustergym.common.errors import InputError, visible
from clustergym.common.yaml_file import read_mapping

LOGS = "logs"
"""The folder of a board's own logs."""
PROGRAM, WEIGHTS = "program.py", "weights.safetensors"
FILES = (("entry.yaml", cell_logs.FILE), ("entry.yaml", PROGRAM), ("entry.yaml", WEIGHTS, "weights.yaml"))
"""Of an entry of the open list: logs; of the sealed list: a program, or weights."""

MOST_PARAMETERS, DEEPEST, LONGEST_TEXT = 500, 6, 200
"""Of a policy or placer: values, levels of nesting, and characters of a name or text."""


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


class EntryHead(StrictSchema):
    """What every entry.yaml says.

    Attributes
    ----------
    board, board_version
    title : str
    authors : list of str
    information_class : str
        What the policy knows of iteration times.
    seen : list of str
        What its training saw of the board: jobs, cluster, speeds, prices.
    licence : str
    """

    board: Name
    board_version: Annotated[int, Field(ge=1)]
    title: Line
    authors: Annotated[list[Line], Field(min_length=1, max_length=100)]
    information_class: Literal["clairvoyant", "profiled", "data_parallel", "bootstrap", "none"]
    seen: list[Literal["jobs", "cluster", "speeds", "prices"]] = Field(default_factory=list)
    licence: Line


class Entry(EntryHead):
    """The content of entry.yaml of a policy that this project does not have, with logs.

    Attributes
    ----------
    policy : ComponentChoice
    placer : ComponentChoice, optional
        With all parameters; the board's if it is left out.
    command : str
    """

    policy: ComponentChoice
    placer: ComponentChoice | None = None
    command: Line


Read = TypeVar("Read", bound=EntryHead)


def entry_names(board: Board) -> list[str]:
    """Return the names of a leaderboard's folders, except that of its own logs."""
    return sorted(
        path.name
        for path in board.folder.iterdir()
        if path.is_dir() and not path.name.startswith(".") and path.name != LOGS
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
    own = next((names for names in FILES if (folder / names[1]).exists()), FILES[0])
    for path in sorted(folder.iterdir()):
        if path.name not in own or path.is_symlink():
            message = "is a link" if path.is_symlink() else "does not belong in an entry"
            raise InputError(message, file=path, remedy=f"an entry has {', '.join(own)}")
        if not path.is_file():
            raise InputError("is not a plain file", file=path, remedy="write it anew")
    return folder


def read_entry(folder: Path, board: Board, schema: type[Read]) -> Read:
    """Read an entry's entry.yaml; raise an `InputError` if it is not of this version of the board."""
    source = read_mapping(folder / "entry.yaml")
    entry = validate_content(schema, source.content, file=source.path, source=source)
    if (entry.board, entry.board_version) != (board.name, board.version):
        raise InputError(
            f"is of {entry.board} version {entry.board_version}, not {board.name} version {board.version}",
            file=source.path,
            line=source.line(("board_version",)),
            field="board_version",
            remedy="add it anew",
        )
    return entry
