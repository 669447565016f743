"""The event log of a compiled episode as the engine's `EventLog`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from clustergym.common.arrays import Floats, Ints
from clustergym.sim.compiled import columns as c
from clustergym.sim.log import Event, EventKind, EventLog, digest_events

KINDS = {
    c.SUBMITTED: (EventKind.SUBMIT, ""),
    c.PROFILE_START: (EventKind.PROFILE_START, ""),
    c.PROFILE_END: (EventKind.PROFILE_END, ""),
    c.START: (EventKind.START, ""),
    c.RESUME: (EventKind.RESUME, ""),
    c.RESCALE: (EventKind.RESCALE, ""),
    c.MIGRATE: (EventKind.MIGRATE, ""),
    c.PREEMPT: (EventKind.PREEMPT, ""),
    c.COMPLETE: (EventKind.COMPLETE, ""),
    c.DROP_BY_POLICY: (EventKind.DROP, "policy"),
    c.FITS_NOWHERE: (EventKind.DROP, "fits nowhere"),
}
"""KIND of a compiled event -> the engine's kind and reason."""

TOGETHER = 65536
"""Events that are made at a time."""
ROW_BYTES = 16
"""Of a node and its GPUs."""


class _Nodes:
    """The nodes and GPUs of allocations, of which many events have the same; each is made a tuple once."""

    def __init__(self, event_node: Ints) -> None:
        self._event_node, self._bytes = event_node, event_node.tobytes()
        self._made: dict[bytes, tuple[tuple[int, int], ...]] = {}

    def __getitem__(self, rows: tuple[int, int]) -> tuple[tuple[int, int], ...]:
        first, last = rows
        key = self._bytes[first * ROW_BYTES : last * ROW_BYTES]
        if key not in self._made:
            self._made[key] = tuple((node, gpus) for node, gpus in self._event_node[first:last].tolist())
        return self._made[key]


def _events(event: Ints, iteration_s: Floats, event_node: Ints) -> Iterator[list[Event]]:
    """Yield the events in the arrays of an `Episode`, some thousands at a time."""
    nodes = _Nodes(event_node)
    for begin in range(0, len(event), TOGETHER):
        some = slice(begin, begin + TOGETHER)
        times_s = (event[some, c.TIME] / c.TICKS_PER_S).tolist()
        overheads_s = (event[some, c.OVERHEAD] / c.TICKS_PER_S).tolist()
        yield [
            Event(
                now_s,
                KINDS[row[c.KIND]][0],
                row[c.JOB],
                row[c.EVENT_TYPE],
                row[c.EVENT_GPUS],
                nodes[row[c.FIRST_NODE], row[c.FIRST_NODE] + row[c.NODE_COUNT]],
                row[c.LOCALITY],
                overhead_s,
                time_s,
                KINDS[row[c.KIND]][1],
            )
            for row, now_s, overhead_s, time_s in zip(
                event[some].tolist(), times_s, overheads_s, iteration_s[some].tolist(), strict=True
            )
        ]


def event_log(event: Ints, iteration_s: Floats, event_node: Ints) -> EventLog:
    """Return the log of events in the arrays of an `Episode`."""
    log = EventLog()
    for some in _events(event, iteration_s, event_node):
        log.extend(some)
    return log


class LazyLog(EventLog):
    """The log of the events so far in the arrays of an `Episode`; its events are made when they are read.

    Parameters
    ----------
    event, iteration_s, event_node : ndarray
        As of `Episode`.
    """

    def __init__(self, event: Ints, iteration_s: Floats, event_node: Ints) -> None:
        self._arrays = event, iteration_s, event_node

    @cached_property
    def events(self) -> list[Event]:  # type: ignore[override]
        """All events."""
        return [event for some in _events(*self._arrays) for event in some]

    @cached_property
    def digest(self) -> str:
        """SHA-256 digest of all events, hexadecimal; they are not kept for it."""
        if "events" in self.__dict__:
            return digest_events([self.events])
        return digest_events(_events(*self._arrays))
