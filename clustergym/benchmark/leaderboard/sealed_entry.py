"""Entries of a board's sealed list: a program or weights, and no figures; the board plays them itself."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NamedTuple

import yaml
from pydantic import Field

from clustergym.benchmark.leaderboard import entry as entries
from clustergym.benchmark.leaderboard.board import Board, Line
from clustergym.cluster.schema import StrictSchema, validate_content
from clustergym.common.errors import InputError
from clustergym.common.reading import read_regular
from clustergym.common.writing import write_text
from clustergym.sim.program import LARGEST_BYTES, Limits, Program, read_program

LIMITS = Limits(cpu_s=600, memory_mb=4096, decision_cpu_s=1.0)
"""Of one run."""
Day = Annotated[str, Field(pattern=r"^20\d\d-[01]\d-[0-3]\d$")]


class Beacon(StrictSchema):
    """A public random value that is named before anyone can know it.

    Attributes
    ----------
    source, round : str
        Who publishes it, and which of its values it is: anyone can look it up.
    announced, due : str
        The days, in UTC, of the entry's commit and of the value; the second is later.
    value : str, optional
        In hexadecimal or decimal digits, once it is known.
    """

    source: Line
    round: Line
    announced: Day
    due: Day
    value: Annotated[str, Field(pattern="^[0-9a-f]{16,256}$")] | None = None


class SealedEntry(entries.EntryHead):
    """The content of a sealed entry's entry.yaml."""

    beacon: Beacon


class SealedAgent(NamedTuple):
    """What a sealed entry says, its program or weights, and their SHA-256.

    That of weights is of the YAML file beside them, which has the weights' own.
    """

    entry: SealedEntry
    file: Path
    sha256: str

    @property
    def keys(self) -> dict[str, str]:
        """What a row holds in place of a policy's name and parameters."""
        return {"name": self.file.stem, "sha256": self.sha256, "beacon": self.entry.beacon.value or ""}

    def start(self) -> Program:
        """Start the process in which the agent decides; nothing of an entry is run or imported in this one.

        Raises
        ------
        InputError
            If weights are not in the form of this project's auctions, or an agent knows what it does not say.
        """
        if self.file.name == entries.PROGRAM:
            made = Program(read_program(self.file), LIMITS)
        else:
            from clustergym.agents.auction_checkpoints import load

            load(str(self.file))
            made = Program("", LIMITS, weights=self.file)
        if made.information_class.value != self.entry.information_class:
            made.close()
            message, file = (
                f"is not {made.information_class}, as the agent's",
                self.file.parent / "entry.yaml",
            )
            raise InputError(message, file=file, field="information_class", remedy="write what it declares")
        return made


def read_agents(board: Board) -> Mapping[str, SealedAgent]:
    """Read the sealed entries of a board by name, without starting any."""
    found = {}
    for folder in (board.folder / name for name in entries.entry_names(board)):
        files = (folder / name for name in (entries.PROGRAM, entries.WEIGHTS))
        file = next((path for path in files if path.exists()), None)
        if file is None:
            continue
        entry = entries.read_entry(entries.entry_folder(board, folder.name), board, SealedEntry)
        due, announced, path = entry.beacon.due, entry.beacon.announced, folder / "entry.yaml"
        if due <= announced:
            message = f"{due} is not later than {announced}, when it was announced"
            raise InputError(message, file=path, field="beacon.due", remedy="name a later one")
        hashed = file if file.name == entries.PROGRAM else file.with_suffix(".yaml")
        content = read_regular(hashed, LARGEST_BYTES, "give a program or a checkpoint")
        found[folder.name] = SealedAgent(entry, file, hashlib.sha256(content).hexdigest())
    return found


def record_value(agent: SealedAgent, value: str) -> None:
    """Write a beacon's value into entry.yaml, where there is none; raise an `InputError` for another one."""
    beacon, path = agent.entry.beacon, agent.file.parent / "entry.yaml"
    given = value.strip().lower()
    message, remedy = f"{given!r} is not the value there", "leave --beacon out: a round has one value"
    if beacon.value is None and datetime.now(UTC).date().isoformat() < beacon.due:
        message, remedy = f"nobody can know the value before {beacon.due}", "seal it then"
    elif beacon.value in (None, given):
        content = {**agent.entry.model_dump(), "beacon": {**beacon.model_dump(), "value": given}}
        validate_content(SealedEntry, content, file=path)
        return write_text(path, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
    raise InputError(message, file=path, field="beacon.value", remedy=remedy)
