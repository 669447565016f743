"""Find, check and read result.json files, each run once."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, PrivateAttr, ValidationError

from clustergym.common.errors import InputError, visible_all
from clustergym.common.reading import read_json

FILE_NAME = "result.json"
UNFINISHED = "unfinished.txt"
"""Name of a file in the folder of a run that still runs or was killed; it is removed when the run ends."""
LARGEST_BYTES, LARGEST_NUMBER = 2**24, 1e30
SCHEMA_VERSION = 1
SCHEMA = f"clustergym.result/{SCHEMA_VERSION}"
"""Value of the key `schema` in a result.json of this version."""


def _number(value: object) -> float | int | None:
    if value is None:
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LARGEST_NUMBER:
        return value
    raise ValueError("is neither null nor a finite number from 0")


Number = Annotated[float | int | None, PlainValidator(_number)]


class _StrictSchema(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="allow", allow_inf_nan=False, defer_build=True)


class NamedPart(_StrictSchema):
    """A policy or placer: its registered name and its parameters."""

    name: str = Field(min_length=1)
    parameters: dict[str, Any] = {}

    @property
    def key(self) -> str:
        """A text that is equal for equal names and parameters, whatever the parameters' order."""
        return json.dumps([self.name, self.parameters], sort_keys=True)


class ScenarioName(_StrictSchema):
    """Name, version and hash of a result's scenario; the hash excludes policy, placer and seed."""

    name: str
    version: int
    sha256: str = Field(min_length=1)


class Decisions(_StrictSchema):
    """The number of a policy's decisions in a run, and how long they took in wall seconds."""

    count: int = Field(ge=0)
    seconds_p50: float | None = Field(default=None, ge=0)
    seconds_p99: float | None = Field(default=None, ge=0)


class CauseLoss(_StrictSchema):
    """What one cause of interruptions did in a run: their number, and the GPU-hours lost."""

    interruptions: int = Field(ge=0)
    lost_gpu_hours: float = Field(ge=0)


class QueueFigures(_StrictSchema):
    """The metrics of one queue of tenants in a result.json."""

    quota_gpus: float = Field(ge=0, lt=LARGEST_NUMBER)


class TenantFigures(_StrictSchema):
    """The metrics of tenants in a result.json, by queue."""

    queues: dict[str, QueueFigures]


class ResultFile(_StrictSchema):
    """The checked content of a result.json; unknown keys are kept.

    Attributes
    ----------
    run_key : str
        Hash of all that determines the run.
    policy, placer : NamedPart
    information_class : str
    scenario : ScenarioName
    seed : int
    horizon_s : float or None
    metrics : dict
        Name to number, or None where the metric has no value.
    tenants : TenantFigures or None
        What tenants had; None without queues.
    losses : dict
        What each cause of interruptions has cost.
    digest : str
        Digest of the event log.
    decisions : Decisions or None
    wall_s : float or None
    versions : dict
        Versions of clustergym and its libraries.
    """

    run_key: str = Field(min_length=1)
    policy: NamedPart
    placer: NamedPart
    information_class: str
    scenario: ScenarioName
    seed: int
    horizon_s: float | None = Field(default=None, ge=0)
    metrics: dict[str, Number]
    tenants: TenantFigures | None = None
    losses: dict[str, CauseLoss] = {}
    digest: str
    decisions: Decisions | None = None
    wall_s: float | None = Field(default=None, ge=0)
    versions: dict[str, str] = {}
    _path: Path = PrivateAttr(default=Path())

    @property
    def path(self) -> Path:
        """Path of the result.json that the result was read from."""
        return self._path

    def in_file(self, path: Path) -> ResultFile:
        """Store the path of the result's file in this object, and return the object."""
        self._path = path
        return self


def read_result(path: Path) -> ResultFile:
    """Read and check the result.json of one run."""
    try:
        data = visible_all(read_json(path, LARGEST_BYTES, "run it again, or leave it out"))
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(str(error), file=path, remedy="run it again, or leave it out") from None
    schema = data.pop("schema", None) if isinstance(data, dict) else None
    match = re.fullmatch(r"clustergym\.result/(\d{1,9})", schema) if isinstance(schema, str) else None
    if match is None:
        remedy = f"its schema is not {SCHEMA}; leave it out of the folder"
        raise InputError("not a result of clustergym", file=path, field="schema", remedy=remedy)
    if int(match[1]) > SCHEMA_VERSION:
        message = f"schema {schema} is newer than this clustergym reads ({SCHEMA})"
        raise InputError(message, file=path, field="schema", remedy="update clustergym")
    if isinstance(data.get("placer"), str):
        data["placer"] = {"name": data["placer"]}
    try:
        return ResultFile.model_validate(data).in_file(path)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise InputError(message, file=path, field=field, remedy="run it again") from None


def find_results(places: Iterable[Path]) -> list[Path]:
    """Return the paths of every result.json given or below the given folders, sorted."""
    found: set[Path] = set()
    for place in places:
        here = [place] if place.is_file() else list(_search(place))
        if not here:
            message = f"holds no {FILE_NAME}" + _describe_unfinished([place]).replace("note:", ", but", 1)
            raise InputError(message, file=place, remedy="name a folder of finished runs")
        found.update(Path(os.path.abspath(path)) for path in here)
    return sorted(found)


def _search(folder: Path) -> Iterator[Path]:
    if not folder.exists():
        raise InputError("no such file or folder", file=folder, remedy="name a folder of finished runs")

    def refuse(error: OSError) -> None:
        raise InputError(
            error.strerror or "cannot be searched", file=error.filename, remedy="check its rights"
        )

    for root, folders, files in os.walk(folder, onerror=refuse):
        folders.sort()
        if FILE_NAME in files or FILE_NAME in folders:
            yield Path(root) / FILE_NAME


def _describe_unfinished(places: Sequence[Path]) -> str:
    """Return a note on unfinished runs below the given folders; empty if there are none."""
    found = [path.parent for place in places for path in sorted(place.rglob(UNFINISHED))]
    several = f" and {len(found) - 1} more" * (len(found) > 1)
    return f"note: a run was begun and not finished in {found[0]}{several}" if found else ""


def read_results(places: Iterable[Path]) -> list[ResultFile]:
    """Read the results in the given folders, each run once, in order of their paths.

    A note on unfinished runs is printed on stderr.

    Raises
    ------
    InputError
        As `read_result` and `find_results`; also if two files of one run key disagree.
    """
    by_key: dict[str, ResultFile] = {}
    places = list(places)
    for path in find_results(places):
        result = read_result(path)
        twin = by_key.setdefault(result.run_key, result)
        if (twin.digest, twin.metrics) != (result.digest, result.metrics):
            message = f"disagrees with {twin.path}, which has the same run key {result.run_key}"
            raise InputError(message, file=path, field="digest", remedy="run both again")
    if note := _describe_unfinished(places):
        print(note, file=sys.stderr)
    return list(by_key.values())
