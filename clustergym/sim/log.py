"""The event log: everything that happened in a run, and a digest of it."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple


class EventType(enum.StrEnum):
    """Types of events of jobs in the event log, such as a start or a preemption."""

    SUBMIT = "submit"
    """The job enters the system."""
    PROFILE_START = "profile_start"
    """The job holds `gpus` GPUs of `gpu_type` from now on, for profiling."""
    PROFILE_END = "profile_end"
    """The job gives back the GPUs of the matching `profile_start`."""
    START = "start"
    """First launch."""
    RESUME = "resume"
    """Launch after a preemption."""
    RESCALE = "rescale"
    """A running job's GPU type or count changes."""
    MIGRATE = "migrate"
    """A running job moves to other nodes with the same type and count."""
    RATE = "rate"
    """A running job's speed changes but its GPUs do not: other jobs enter or leave the links or the GPUs that
    it shares, its batch changes, or its training reaches a point where its batch's efficiency changes."""
    PREEMPT = "preempt"
    """A running job loses its GPUs, keeps its progress, and waits."""
    COMPLETE = "complete"
    """The job has done its work. If it failed or was killed in its log, it has done as much as there:
    `reason` is then `failed` or `killed`."""
    DROP = "drop"
    """The job leaves the system for good without completing; `reason` says why."""
    FAIL = "fail"
    """A node of the job fails, or another disturbance interrupts it: it loses its GPUs and its work since
    the last checkpoint, and waits."""
    UNPLACED = "unplaced"
    """The placer found no nodes for a launch: the job is not launched and waits; `reason` says why."""
    HANG = "hang"
    """A node of the job has failed, but the failure is not detected yet: the job holds its GPUs without work,
    until a `fail` event or until it gives them back."""
    HALT = "halt"
    """A disturbance stops a running job, which keeps its GPUs and works again after `overhead_s`."""
    SAVE = "save"
    """The job is told that it will be stopped: it stands still and writes a checkpoint for `overhead_s`, then
    loses its GPUs (`preempt`)."""
    UNDO = "undo"
    """The job goes back to its last checkpoint, because the next event stops or moves it without notice;
    `gpus` are those that it held."""


LAUNCHES = (EventType.START, EventType.RESUME, EventType.RESCALE, EventType.MIGRATE)
"""Events after which a job holds the event's allocation and works from `time_s + overhead_s` on."""
ENDS = (EventType.PREEMPT, EventType.COMPLETE, EventType.FAIL, EventType.DROP)
"""Events after which a job holds nothing."""

NO_JOB = -1
"""The job of an event of a node."""

PACES = (*LAUNCHES, EventType.RATE, EventType.HANG, EventType.HALT, EventType.SAVE)
"""Events that set how fast a job works from `time_s + overhead_s` on."""


class Event(NamedTuple):
    """One event of a run: its time, type, job, GPUs, nodes and costs.

    Attributes
    ----------
    time_s : float
    event_type : str
        An `EventType`, or for an event of a node the name that a disturbance gives it.
    job : int
        Row of the trace; `NO_JOB` for an event of a node.
    gpu_type : int
        Index of the cluster's GPU types; -1 where the event has none.
    gpus : int
        GPUs held after a launch or for profiling, before an UNDO, lost by a FAIL, asked for by an UNPLACED
        launch, or of the node; 0 where the event has none.
    nodes : tuple of (int, int)
        (node, GPUs on it) of the allocation, nodes ascending; empty where it changes no nodes.
    locality : int
        `Locality` of the placement after a launch or a RATE; -1 otherwise.
    overhead_s : float
        Seconds after `time_s` in which the GPUs are held but no work is done.
    iteration_time_s : float
        Seconds that the work of an iteration at the requested batch takes after the overhead; 0 where the
        event is none of `PACES`.
    reason : str
        Why a job was dropped, failed, could not be placed, or ended before its work was done.
    lost_s, lost_iterations : float
        Seconds of work, and iterations, that a FAIL, a HALT or an UNDO takes back.
    batch : int
        Global batch after an event of `PACES`, samples; 0: the requested one.
    devices : int
        After a launch on a divisible cluster, the devices of the node as bits; a job without GPUs has 0.
    partner : int
        Row of the job that shares the GPUs after an event of `PACES`; `NO_JOB`: none.
    cause : str
        What a disturbance names as its cause; empty where it names none.
    write_share : float
        After an event of `PACES`, the share of the job's working time in which it writes checkpoints; before
        a FAIL or an UNDO, what it was.
    """

    time_s: float
    event_type: str
    job: int
    gpu_type: int = -1
    gpus: int = 0
    nodes: tuple[tuple[int, int], ...] = ()
    locality: int = -1
    overhead_s: float = 0.0
    iteration_time_s: float = 0.0
    reason: str = ""
    lost_s: float = 0.0
    lost_iterations: float = 0.0
    batch: int = 0
    devices: int = 0
    partner: int = NO_JOB
    cause: str = ""
    write_share: float = 0.0


class EventLog:
    """The events of a run in order of time, with a SHA-256 digest of their exact values."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._sha256 = hashlib.sha256()

    def append(self, event: Event) -> None:
        """Add an event; its time must not be before that of the last event."""
        self.events.append(event)
        self._sha256.update(_line(event).encode())

    def extend(self, events: Sequence[Event]) -> None:
        """Add several events, which must be in order of time."""
        self.events += events
        self._sha256.update("".join(map(_line, events)).encode())

    def sort(self) -> None:
        """Sort the events by time, and recompute the digest."""
        events, self.events, self._sha256 = self.events, [], hashlib.sha256()
        self.extend(sorted(events, key=lambda event: event.time_s))

    @property
    def digest(self) -> str:
        """The SHA-256 digest of all events so far, as hexadecimal text."""
        return self._sha256.hexdigest()


@lru_cache(maxsize=4096)
def _text(nodes: tuple[tuple[int, int], ...]) -> str:
    """Return the text of an allocation: many events have the same one."""
    return str(nodes)


def _line(event: Event) -> str:
    """Return the text of an event that is hashed: its values as a tuple of texts.

    Fields of failures, chosen batches, devices, checkpoints that cost, and pairs are hashed only where an
    event has them, so that the digests of runs without them stay the same.
    """
    time_s, event_type, job, gpu_type, gpus, nodes, locality, overhead_s, iteration_s = event[:9]
    line = (
        f"('{time_s}', '{event_type}', '{job}', '{gpu_type}', '{gpus}', '{_text(nodes)}', '{locality}', "
        f"'{overhead_s}', '{iteration_s}', {event.reason!r}"
    )
    if event.batch or event.lost_s or event.lost_iterations:
        line += f", '{event.lost_s}', '{event.lost_iterations}'"
    if event.batch:
        line += f", '{event.batch}'"
    if event.devices:
        line += f", devices '{event.devices}'"
    if event.cause or event.write_share:
        line += f", {event.cause!r}, '{event.write_share}'"
    return f"{line}, beside '{event.partner}')\n" if event.partner != NO_JOB else line + ")\n"
