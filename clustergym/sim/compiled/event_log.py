"""The event log of a compiled episode as the engine's `EventLog`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import starmap
from operator import eq
from typing import Any, overload

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.scenario.disturbances.capacity import BEGIN, END, ORDER
from clustergym.sim import columns as c
from clustergym.sim.log import Event, EventLog, EventType

EVENT_TYPES = {
    c.SUBMITTED: (EventType.SUBMIT, ""),
    c.PROFILE_START: (EventType.PROFILE_START, ""),
    c.PROFILE_END: (EventType.PROFILE_END, ""),
    c.START: (EventType.START, ""),
    c.RESUME: (EventType.RESUME, ""),
    c.RESCALE: (EventType.RESCALE, ""),
    c.MIGRATE: (EventType.MIGRATE, ""),
    c.PREEMPT: (EventType.PREEMPT, ""),
    c.COMPLETE: (EventType.COMPLETE, ""),
    c.DROP_BY_POLICY: (EventType.DROP, "policy"),
    c.FITS_NOWHERE: (EventType.DROP, "fits nowhere"),
    c.MOVED: (EventType.MIGRATE, ""),
    c.PREEMPT_AT_TERM: (EventType.PREEMPT, ""),
    c.NODE_ORDER: (ORDER, ""),
    c.NODE_BEGIN: (BEGIN, ""),
    c.NODE_END: (END, ""),
}
"""EVENT_TYPE of a compiled event -> the engine's event type and reason."""

NAMES = [str(EVENT_TYPES[code][0]) for code in range(len(EVENT_TYPES))]
REASONS = [repr(EVENT_TYPES[code][1]) for code in range(len(EVENT_TYPES))]
"""Texts of the event types and reasons, by EVENT_TYPE."""

TOGETHER = 16384
"""Events that are made at a time."""
ROW_BYTES = 16
"""Of a node and its GPUs."""
Allocation = tuple[tuple[int, int], ...]


class _Nodes:
    """The nodes and GPUs of allocations; equal ones, which many events have, are made once."""

    def __init__(self) -> None:
        self._made: dict[bytes, tuple[Allocation, str, str]] = {b"": ((), "()", "")}

    def read(self, first: Ints, count: Ints, event_node: Ints) -> list[tuple[Allocation, str, str]]:
        """Return the allocation of each of some events, its text, and its JSON (without nodes empty)."""
        begin = int(first[0])
        # Events of a slice hold adjacent rows of `event_node`, so that one copy serves all of them.
        own = event_node[begin : int((first + count).max())]
        packed, made = own.tobytes(), self._made
        ends = ((first - begin + count) * ROW_BYTES).tolist()
        keys = list(map(packed.__getitem__, map(slice, ((first - begin) * ROW_BYTES).tolist(), ends)))
        for key in set(keys) - made.keys():
            pairs = np.frombuffer(key, np.int64).reshape(-1, 2).tolist()
            allocation = tuple((node, gpus) for node, gpus in pairs)
            made[key] = allocation, str(allocation), str(pairs).replace(" ", "")
        return list(map(made.__getitem__, keys))


class ArrayEvents(Sequence[Event]):
    """The events of a compiled episode as a sequence; each is made from the arrays when it is read.

    Parameters
    ----------
    event, iteration_s, event_node : ndarray
        As of `Episode`.
    """

    def __init__(self, event: Ints, iteration_s: Floats, event_node: Ints) -> None:
        self.event, self.iteration_s, self.event_node = event, iteration_s, event_node

    def __len__(self) -> int:
        return len(self.event)

    @overload
    def __getitem__(self, at: int) -> Event: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Event]: ...
    def __getitem__(self, at: int | slice) -> Event | Sequence[Event]:
        """Return an event, or those of a slice."""
        if isinstance(at, slice):
            return ArrayEvents(self.event[at], self.iteration_s[at], self.event_node)
        place = range(len(self))[at]
        (found,) = self[place : place + 1]
        return found

    def __iter__(self) -> Iterator[Event]:
        """Yield the events, building some thousands at a time."""
        for rows in self._rows():
            for now_s, what, job, gpu_type, gpus, locality, (nodes, *_), overhead_s, time_s in rows:
                name, reason = EVENT_TYPES[what]
                yield Event(now_s, name, job, gpu_type, gpus, nodes, locality, overhead_s, time_s, reason)

    def __eq__(self, other: object) -> bool:
        """Whether another sequence has the same events."""
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(starmap(eq, zip(self, other, strict=True)))

    __hash__ = None  # type: ignore[assignment]

    def lines(self) -> Iterator[str]:
        """Yield the events as lines of text, from which a log's digest is computed."""
        for rows in self._rows():
            # Every value in quotes, as repr() of the tuple of texts that `EventLog` hashes: both engines
            # have one digest.
            yield "".join(
                f"('{now_s}', '{NAMES[what]}', '{job}', '{gpu_type}', '{gpus}', '{nodes[1]}', '{locality}', "
                f"'{overhead_s}', '{time_s}', {REASONS[what]})\n"
                for now_s, what, job, gpu_type, gpus, locality, nodes, overhead_s, time_s in rows
            )

    def json_lines(self, job_ids: Sequence[str], gpu_types: Sequence[str]) -> Iterator[str]:
        """Yield the events as lines of JSON, some thousands at a time; each is an event of a job.

        Without the objects that `json.dumps` would read, in a quarter of the time.

        Parameters
        ----------
        job_ids, gpu_types : sequence of str
            In JSON, by row of the trace and by index of the type.
        """
        for rows in self._rows():
            lines = []
            for now_s, what, job, gpu_type, gpus, locality, (_, _, nodes), overhead_s, time_s in rows:
                line = f'{{"time_s":{now_s},"kind":"{NAMES[what]}","job_id":{job_ids[job]}'
                if gpus:
                    line += f',"gpu_type":{gpu_types[gpu_type]},"gpus":{gpus}'
                if nodes:
                    line += f',"nodes":{nodes}'
                if time_s:
                    line += f',"locality":{locality},"overhead_s":{overhead_s},"iteration_time_s":{time_s}'
                if reason := EVENT_TYPES[what][1]:
                    line += f',"reason":"{reason}"'
                lines.append(line + "}\n")
            yield "".join(lines)

    def _rows(self) -> Iterator[Iterator[tuple[Any, ...]]]:
        """Yield the events some thousands at a time.

        Each has its time, event, job, GPU type, GPUs, locality, allocation, overhead and iteration time.
        """
        nodes, chosen = _Nodes(), (c.EVENT_TYPE, c.JOB, c.EVENT_GPU_TYPE, c.EVENT_GPUS, c.LOCALITY)
        for begin in range(0, len(self.event), TOGETHER):
            some = self.event[begin : begin + TOGETHER]
            # By column: a list for each row takes longer than all else.
            yield zip(
                (some[:, c.TIME] / c.TICKS_PER_S).tolist(),
                *(some[:, column].tolist() for column in chosen),
                nodes.read(some[:, c.FIRST_NODE], some[:, c.NODE_COUNT], self.event_node),
                (some[:, c.OVERHEAD] / c.TICKS_PER_S).tolist(),
                self.iteration_s[begin : begin + len(some)].tolist(),
                strict=True,
            )


def _digest(lines: Iterable[str]) -> str:
    sha256 = hashlib.sha256()
    for some in lines:
        sha256.update(some.encode())
    return sha256.hexdigest()


class LazyLog(EventLog):
    """The event log of a compiled episode so far; events are made when they are read.

    Parameters
    ----------
    event, iteration_s, event_node : ndarray
        As of `Episode`.
    """

    def __init__(self, event: Ints, iteration_s: Floats, event_node: Ints) -> None:
        self.events: ArrayEvents = ArrayEvents(event, iteration_s, event_node)  # type: ignore[assignment]

    @cached_property
    def digest(self) -> str:
        """The SHA-256 digest of all events, as hexadecimal text."""
        return _digest(self.events.lines())
