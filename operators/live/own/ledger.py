"""Records which of a user's scripts were submitted, before and after each call, so that none runs twice."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from ..journal import append_line, open_locked, read_lines

LEDGER_SCHEMA = "clustergym.live-jobs/1"
FILE_NAME = "jobs.jsonl"
REMEDY = "give the folder of a live run of scripts"


@dataclass
class Entry:
    """The recorded state of a user's script: submitted, running or ended, and with how many GPUs.

    Attributes
    ----------
    script, sha256 : str
    attempt : int
        Number of its last submission, from 1.
    gpus : int
        GPUs of that submission.
    number : str
        Slurm's number of it; empty while it is not known.
    stopping : bool
        Whether it was told to save its state and end.
    begun_s : float
        Its first submission, seconds since 1970.
    ended : dict
        How it ended; empty: it has not.
    """

    script: str
    sha256: str
    attempt: int = 1
    gpus: int = 0
    number: str = ""
    stopping: bool = False
    begun_s: float = 0.0
    ended: dict[str, Any] = field(default_factory=dict)


class Ledger:
    """The recorded state of each user script; a change is written to the open file before it is made here.

    Attributes
    ----------
    run : str
        Name of the run.
    entries : dict of str to Entry
    """

    def __init__(self, run: str, entries: dict[str, Entry], file: IO[bytes]) -> None:
        self.run, self.entries, self._file = run, entries, file

    def note(self, event: str, script: str, **more: Any) -> None:
        """Write an event of a script to disk, then change the script's recorded state."""
        line = {"event": event, "script": script, **more}
        append_line(self._file, line)
        os.fsync(self._file.fileno())
        apply_event(self.entries, line)


def apply_event(entries: dict[str, Entry], line: Mapping[str, Any]) -> None:
    """Change a script's recorded state by an event, in place.

    Raises
    ------
    KeyError, TypeError, ValueError
        If the event is none.
    """
    event, name = line["event"], str(line["script"])
    if event == "submitting":
        before = entries.get(name)
        begun_s = before.begun_s if before else float(line["at_s"])
        sha256, attempt, gpus = str(line["sha256"]), int(line["attempt"]), int(line["gpus"])
        entries[name] = Entry(name, sha256, attempt, gpus, begun_s=begun_s)
    elif event == "submitted":
        entries[name].number = str(line["number"])
    elif event == "stopping":
        entries[name].stopping = True
    elif event == "ended":
        entries[name].ended = {key: line[key] for key in ("state", "start_s", "end_s", "nodes")}
    else:
        raise ValueError(f"{event!r} is no event")


@contextmanager
def open_ledger(folder: Path) -> Iterator[Ledger]:
    """Give a context with the record in a folder, or a new one; only one process can have it open.

    Raises
    ------
    InputError
        If another process has it open, or it cannot be read.
    """
    path = folder / FILE_NAME
    with open_locked(path) as file:
        run, entries, length = os.urandom(4).hex(), dict[str, Entry](), 0
        if path.stat().st_size:
            run, entries, length = read_ledger(path)
        file.truncate(length)
        if not length:
            append_line(file, {"schema": LEDGER_SCHEMA, "run": run})
        yield Ledger(run, entries, file)


def read_ledger(path: Path) -> tuple[str, dict[str, Entry], int]:
    """Read a record of scripts: the run's name, their states, and the number of bytes in complete lines."""
    entries = dict[str, Entry]()
    take = partial(apply_event, entries)
    header, length = read_lines(path, LEDGER_SCHEMA, ["run"], take, REMEDY)
    return header["run"], entries, length
