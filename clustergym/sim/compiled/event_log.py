"""The event log of a compiled episode as the engine's `EventLog`."""

from __future__ import annotations

from clustergym.common.arrays import Floats, Ints
from clustergym.sim.compiled import columns as c
from clustergym.sim.log import Event, EventKind, EventLog

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


def event_log(event: Ints, iteration_s: Floats, event_node: Ints) -> EventLog:
    """Return the log of events in the arrays of an `Episode`."""
    times_s = (event[:, [c.TIME, c.OVERHEAD]] / c.TICKS_PER_S).tolist()
    nodes = _Nodes(event_node)
    log, events = EventLog(), []
    for row, (now_s, overhead_s), time_s in zip(event.tolist(), times_s, iteration_s.tolist(), strict=True):
        kind, reason = KINDS[row[c.KIND]]
        first = row[c.FIRST_NODE]
        events.append(
            Event(
                now_s,
                kind,
                row[c.JOB],
                row[c.EVENT_TYPE],
                row[c.EVENT_GPUS],
                nodes[first, first + row[c.NODE_COUNT]],
                row[c.LOCALITY],
                overhead_s,
                time_s,
                reason,
            )
        )
    log.extend(events)
    return log
