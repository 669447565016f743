"""The event log of a run on SimPy, which completes each event from the state of its job."""

from __future__ import annotations

from typing import Any

from clustergym.cluster.allocation import Allocations, PartAllocations
from clustergym.cluster.spec import Nodes
from clustergym.scenario.scenario import Scenario
from clustergym.sim.clock import Clock
from clustergym.sim.log import NO_JOB, PACES, Event, EventLog
from clustergym.sim.state import JobStates


class EventRecorder(EventLog):
    """The event log of a run, with methods that add events at the present time."""

    def __init__(self, scenario: Scenario, clock: Clock, jobs: JobStates, allocations: Allocations) -> None:
        super().__init__()
        self._cluster, self._requested = scenario.cluster, scenario.trace.global_batch
        self._clock, self._jobs = clock, jobs
        self._parts = allocations if isinstance(allocations, PartAllocations) else None

    def record(
        self, event_type: str, row: int, gpu_type: int = -1, gpus: int = 0, nodes: Nodes = (), **more: Any
    ) -> None:
        """Add an event of a job at the present time; `more` are further fields of the event."""
        if event_type in PACES:
            batch = int(self._jobs.batch[row])
            if batch != self._requested[row]:
                more["batch"] = batch
            if self._jobs.disturbed:
                more["write_share"] = float(self._jobs.write_share[row])
            if (partner := self._jobs.get_partner(row)) != NO_JOB:
                more["partner"] = partner
        if self._parts is not None and nodes and row != NO_JOB:
            more["devices"] = int(self._parts.devices_of[row])
        self.append(Event(self._clock.now_s, event_type, row, gpu_type, gpus, nodes, **more))

    def note(self, event_type: str, node: int, cause: str = "") -> None:
        """Add an event of a node, such as a failure, at the present time."""
        gpus = int(self._cluster.node_gpus[node])
        self.record(
            event_type, NO_JOB, int(self._cluster.node_type[node]), gpus, ((node, gpus),), cause=cause
        )
