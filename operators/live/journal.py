"""The journal of a live run: every answer it was given, so that a killed run goes on where it was.

The table of a live run is a function of its scenario, policy, placer, seed and the answers. A run that is
started again is given the answers of its journal first, and then asks the scheduler.

A finished live run is replayed from its decision log and its journal, without policy and scheduler.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
from annotated_types import Ge, Le, Lt

from clustergym.common.errors import InputError
from clustergym.common.parameter_types import NonNegativeInt
from clustergym.common.parameters import build
from clustergym.common.reading import read_regular
from clustergym.results.result_writing import find_finished_result
from clustergym.scenario.clock import TICKS_PER_S
from clustergym.scenario.policy import InformationClass, Placer
from clustergym.scenario.scenario import Scenario
from clustergym.sim.drive import follow, replay
from clustergym.sim.engine import Change, Simulation
from clustergym.sim.engines import AnySimulation

from .bridge import LiveSimulation
from .link import Answer, Ask
from .slurm import PREFIX

JOURNAL_SCHEMA = "clustergym.live/2"
FILE_NAME = "journal.jsonl"
LARGEST_BYTES = 256_000_000
REMEDY = "give the folder of a live run"


Header = dict[str, str]
"""The first line of a journal: `run`, its name; `key`, a hash of all that determines it; `clock`."""


class Journal:
    """An open journal: the scheduler's answers to a live run, in a file by which a killed run continues.

    Attributes
    ----------
    header : Header
    entries : list
        Call, what it names, and answer, of each call before the journal was opened.
    used : bool
        Whether any call is in it.
    """

    def __init__(self, header: Header, entries: list[Any], file: IO[bytes]) -> None:
        self.header, self.entries, self._file = header, entries, file
        self.used = bool(entries)

    def asking(self, ask: Ask, go_on: Callable[[Answer], object]) -> Ask:
        """Return a function that repeats the journal's answers, then calls `go_on`, then records `ask`'s.

        `go_on` is called before the first call that the journal does not answer, if it answers any, with its
        last answer.
        """
        answers, resuming = enumerate(self.entries, start=1), bool(self.entries)

        def asked(call: str, given: dict[str, Any]) -> Answer:
            nonlocal resuming
            answer = next_answer(answers, call, given)
            if answer is not None:
                return answer
            if resuming:
                resuming = False
                go_on(self.entries[-1][2])
            answer = ask(call, given)
            append_line(self._file, [call, given, answer])
            self.used = True
            return answer

        return asked


def next_answer(entries: Iterator[tuple[int, Any]], call: str, given: dict[str, Any]) -> Answer | None:
    """Return a journal's answer to the next call, None at its end; raise if it answers another call."""
    at, entry = next(entries, (0, None))
    if entry is not None and [call, given] != entry[:2]:
        message = f"entry {at} answers {entry[0]} {entry[1]}, not {call} {given}"
        remedy = "the policy decides otherwise than before: give another hydra.run.dir"
        raise InputError(message, file=FILE_NAME, remedy=remedy)
    return None if entry is None else entry[2]


def make_clock(folder: Path) -> Callable[[float], float]:
    """Return a function from real time (seconds since 1970) to a live run's time in seconds.

    On a clock that does not run by itself it is the wall second.
    """
    answers = [answer for _, _, answer in read_journal(folder / FILE_NAME)[1]]
    wall_s = [float(answer["wall_s"]) for answer in answers]
    if not answers or answers[0]["t"] is None:
        return lambda time_s: time_s - (wall_s[0] if wall_s else 0.0)
    run_s = [answer["t"] / TICKS_PER_S for answer in answers]
    return lambda time_s: float(np.interp(time_s, wall_s, run_s))


def read_journal(path: Path) -> tuple[Header, list[Any], int]:
    """Read a journal; return its header, its entries, and the number of bytes in complete lines."""
    entries: list[Any] = []

    def take(entry: Any) -> None:
        check_entry(entry)
        entries.append(entry)

    header, length = read_lines(path, JOURNAL_SCHEMA, ("run", "key", "clock"), take, REMEDY)
    return header, entries, length


@dataclass(frozen=True)
class CallAnswer:
    """What the answer to a call may have in a journal.

    Attributes
    ----------
    t, wall_s : int or None, float
        The run's time in ticks, where its clock runs by itself, and the real time.
    refused : str
        Of a start: why it is refused.
    back : bool
        Of a repair: whether the node is back in use.
    gone, down : tuple
        Of a wait: the allocations that are gone, and the nodes out of use.
    """

    t: Annotated[int, Ge(0), Le(10**9 * TICKS_PER_S)] | None
    wall_s: Annotated[float, Ge(0), Lt(1e12)]
    refused: str = ""
    back: bool = False
    gone: tuple[str, ...] = ()
    down: tuple[NonNegativeInt, ...] = ()


def check_entry(entry: Any) -> None:
    """Check an entry of a journal, which is a call with its answer; raise a ValueError if it is wrong."""
    call, given, answer = entry
    if call not in ("begin", "start", "stop", "fail", "repair", "wait"):
        raise ValueError(f"unknown call {call!r}")
    if not isinstance(given, dict) or (call == "repair" and "back" not in answer):
        raise ValueError(f"lacks what {call} names, or its answer")
    try:
        build(CallAnswer, answer, "answer")
    except InputError as error:
        raise ValueError(f"{error.field}: {error.message}") from None


def read_lines(
    path: Path, schema: str, keys: Sequence[str], take: Callable[[Any], None], remedy: str
) -> tuple[dict[str, str], int]:
    """Read a run's file of JSON lines; return the texts of its first line, and the bytes in complete lines.

    A last line that was cut off, as when the run was killed, is left out.

    Parameters
    ----------
    path : Path
    schema : str
        Which the first line must have.
    keys : sequence of str
        What else the first line has.
    take : callable
        Is given each further line, and raises what an entry without sense raises in Python.
    remedy : str
    """
    content = read_regular(path, LARGEST_BYTES, remedy)
    whole, header, number = content[: content.rfind(b"\n") + 1], dict[str, str](), 1
    try:
        for number, line in enumerate(whole.splitlines() or [b""], start=1):
            told = json.loads(line)
            if number > 1:
                take(told)
            elif told["schema"] == schema:
                header = {key: str(told[key]) for key in keys}
            else:
                raise ValueError("another schema")
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, RecursionError) as error:
        raise InputError(f"is no record of a run: {error}", file=path, line=number, remedy=remedy) from None
    return header, len(whole)


def append_line(file: IO[bytes], value: Any) -> None:
    """Append a value to a run's file as a line of JSON, so that a run which is killed has written it."""
    file.write((json.dumps(value) + "\n").encode())
    file.flush()


@contextmanager
def open_locked(path: Path) -> Iterator[IO[bytes]]:
    """Open a file of a run to append to it; an InputError if another process has it open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            message, remedy = "another process drives this run", "wait for it, or give another hydra.run.dir"
            raise InputError(message, file=path, remedy=remedy) from None
        yield file


@contextmanager
def open_journal(folder: Path, key: str, clock: str) -> Iterator[Journal]:
    """Give a context with a folder's journal: that of the run with the hash `key` to continue, or a new one.

    The journal of another run is replaced if that run has finished.

    Only one process can have it open. A journal that is still without calls at the end is removed.

    Raises
    ------
    InputError
        If another process has it open, or it is of another run that has not ended.
    """
    path = folder / FILE_NAME
    with open_locked(path) as file:
        header = {"run": os.urandom(4).hex(), "key": key, "clock": clock}
        entries: list[Any] = []
        length = 0
        if path.stat().st_size:
            found, entries, length = read_journal(path)
            if found["key"] == key:
                header = found
            elif find_finished_result(folder, found["key"]) is None:
                message, remedy = "is of another run, which has not ended", "give another hydra.run.dir"
                raise InputError(message, file=path, remedy=remedy)
            else:
                entries, length = [], 0
        file.truncate(length)
        if not length:
            append_line(file, {"schema": JOURNAL_SCHEMA, **header})
        journal = Journal(header, entries, file)
        try:
            yield journal
        finally:
            if not journal.used:
                path.unlink()


def rebuilder(folder: Path) -> Callable[..., AnySimulation]:
    """Return a function that makes a run's simulation and repeats its changes, with the journal's answers."""
    path = folder / FILE_NAME
    header, entries, _ = read_journal(path)
    if header["clock"] == "lockstep":
        return replay

    def rebuild(
        scenario: Scenario,
        placer: Placer,
        information: InformationClass,
        round_s: float | None,
        seed: int,
        changes: Sequence[Change],
    ) -> Simulation:
        answers, nodes = enumerate(entries, start=1), len(scenario.cluster.node_type)

        def ask(call: str, given: dict[str, Any]) -> Answer:
            answer = next_answer(answers, call, given)
            if answer is None:
                raise InputError(f"does not answer {call} {given}", file=path, remedy=REMEDY)
            beyond = [node for node in answer.get("down", ()) if node >= nodes]
            if beyond:
                raise InputError(f"node {beyond[0]} is down, of {nodes}", file=path, remedy=REMEDY)
            return answer

        simulation = LiveSimulation(scenario, placer, information, round_s, seed)
        follow(simulation.connect(ask, PREFIX + header["run"]), changes)
        return simulation

    return rebuild
