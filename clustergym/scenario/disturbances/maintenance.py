"""Planned maintenance: nodes are drained, then taken out for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from clustergym.common.errors import InputError
from clustergym.common.parameter_types import Delay, Duration
from clustergym.common.parameters import Parameters
from clustergym.scenario.clock import ticks
from clustergym.scenario.disturbance import ActiveDisturbance, Disturbance, DisturbanceMetric, DisturbedRun
from clustergym.trace.trace import Trace

EVENTS = ("drained", "undrained")
"""Events: the node in `nodes` is empty and goes out for maintenance; it is back."""


@dataclass(frozen=True)
class Maintenance(Parameters, Disturbance):
    """Maintenance of one node after the other at equal intervals, independent of the policy.

    From `grace_s` seconds before its time nothing is launched on a node any more, and it goes out as soon as
    its jobs have ended. Jobs still there at its time are preempted: they write a checkpoint and wait.

    Attributes
    ----------
    every_s : float or None
        Seconds between two maintenances of a node; node i of N has its first at (i + 1) / N of that. Null:
        none.
    duration_s : float
        Seconds that it takes.
    grace_s : float
    """

    config_key: ClassVar[str] = "scenario.maintenance"
    key = "maintenance"
    switch = "every_s"
    outages = (EVENTS,)
    metrics = (
        DisturbanceMetric(
            "nodes_maintained",
            "",
            "",
            "times that a node was taken out for maintenance, up to the end of the run",
            lambda events: sum(event.event_type == EVENTS[0] for event in events),
        ),
    )

    every_s: Duration | None = None
    duration_s: Duration = 3600.0
    grace_s: Delay = 0.0

    def check(self, trace: Trace) -> None:
        """Raise an `InputError` if a node would be maintained again before it is back."""
        if self.every_s is not None and self.every_s <= self.grace_s + self.duration_s:
            message = f"{self.every_s:g} s are over before a node is drained and back"
            remedy = f"give more than grace_s + duration_s = {self.grace_s + self.duration_s:g}"
            raise InputError(message, field=f"{self.config_key}.every_s", remedy=remedy)

    def start(self, run: DisturbedRun) -> ActiveDisturbance:
        """Start to watch for the times of maintenance in a run."""
        return ActiveMaintenance(self, run)


class ActiveMaintenance(ActiveDisturbance):
    """Maintenance during one run, with the nodes that are being drained for it."""

    def __init__(self, plan: Maintenance, run: DisturbedRun) -> None:
        self._plan, self._run = plan, run
        self._draining: dict[int, str] = {}
        nodes = len(run.allocations.spec.node_type)
        for node in range(nodes):
            run.follow(self._drain(node, (node + 1) / nodes))

    def _drain(self, node: int, phase: float) -> Iterator[int]:
        assert self._plan.every_s is not None
        turn = 0
        while True:
            # From the turn, not from the last time: adding up intervals would add up their rounding.
            due_s = (phase + turn) * self._plan.every_s
            yield ticks(max(due_s - self._plan.grace_s, 0.0))
            self._draining[node] = "maintenance"
            yield ticks(due_s)
            # Still in the list: it has not become empty in the meantime.
            if node in self._draining:
                self._run.clear((node,))
            turn += 1

    def withheld(self, until: float) -> Mapping[int, str]:
        """Return the nodes that are being drained, on which nothing may be launched, with reasons."""
        return self._draining

    def serve(self) -> None:
        """Take drained nodes out of use once they are empty."""
        allocations = self._run.allocations
        for node in sorted(self._draining):
            # A node that failed meanwhile is empty, too, and is maintained while it is down.
            if node in allocations.down or allocations.free_on_node[node] == allocations.spec.node_gpus[node]:
                del self._draining[node]
                self._run.take_out(node, ticks(self._plan.duration_s), EVENTS, "maintenance", "maintenance")
