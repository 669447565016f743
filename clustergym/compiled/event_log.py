"""The event log of a compiled episode as the engine's `EventLog`."""

from __future__ import annotations

from clustergym.arrays import Floats, Ints
from clustergym.compiled import columns as c
from clustergym.scenarios.clock import seconds
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


def event_log(event: Ints, iteration_s: Floats, event_node: Ints) -> EventLog:
    """Return the log of events in the arrays of an `Episode`."""
    log, nodes = EventLog(), event_node.tolist()
    for row, time_s in zip(event.tolist(), iteration_s.tolist(), strict=True):
        kind, reason = KINDS[row[c.KIND]]
        first = row[c.FIRST_NODE]
        log.append(
            Event(
                seconds(row[c.TIME]),
                kind,
                row[c.JOB],
                row[c.EVENT_TYPE],
                row[c.EVENT_GPUS],
                tuple((node, gpus) for node, gpus in nodes[first : first + row[c.NODE_COUNT]]),
                row[c.LOCALITY],
                seconds(row[c.OVERHEAD]),
                time_s,
                reason,
            )
        )
    return log
