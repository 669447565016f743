"""Which job holds which GPU when, for pictures of schedules."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.sim.engine import Simulation
from clustergym.sim.log import Event

LAUNCHES = ("start", "resume", "rescale", "migrate")
LEAVES = ("preempt", "fail", "complete", "drop")


class Bar(NamedTuple):
    """GPUs that a job holds from `start_s` until `stop_s`; it works from `ready_s` on.

    Attributes
    ----------
    job : int
        Row of the trace.
    gpus : tuple of int
        Numbers of the GPUs, node after node.
    start_s, ready_s, stop_s : float
    profiles : bool
        Whether it is profiled on them, rather than trained.
    """

    job: int
    gpus: tuple[int, ...]
    start_s: float
    ready_s: float
    stop_s: float
    profiles: bool


def bars_of(simulation: Simulation) -> list[Bar]:
    """Return what jobs hold in a run that has ended, by start."""
    gpus, events = _Gpus(simulation), simulation.log.events
    for time_s in dict.fromkeys(event.time_s for event in events):
        now = [event for event in events if event.time_s == time_s]
        for event in now:
            if event.kind in (*LAUNCHES, *LEAVES):
                gpus.give_back((event.job, -1), time_s)
            elif event.kind == "profile_end":
                gpus.give_back((event.job, event.gpu_type), time_s)
        for event in now:
            if event.kind in (*LAUNCHES, "profile_start"):
                gpus.take(event)
    for key in list(gpus.held):
        gpus.give_back(key, simulation.end_s)
    return sorted(gpus.bars, key=lambda bar: (bar.start_s, bar.job))


class _Gpus:
    """The GPUs of a cluster, held by jobs; of a node the first free ones are taken.

    A job beside another has the same GPUs, one with a part of a GPU the device that it was given.
    """

    def __init__(self, simulation: Simulation) -> None:
        sizes = simulation.scenario.cluster.node_gpus
        self.first = np.cumsum(sizes) - sizes
        self.holders = np.zeros(int(sizes.sum()), dtype=np.int64)
        self.sizes, self.divided = sizes, simulation.scenario.parts is not None
        self.held: dict[tuple[int, int], Bar] = {}
        self.bars: list[Bar] = []

    def take(self, event: Event) -> None:
        profiles = event.kind == "profile_start"
        gpus = self._shared(event)
        if gpus is None:
            gpus = tuple(gpu for node, count in event.nodes for gpu in self._free(node)[:count])
        self.holders[list(gpus)] += 1
        ready_s = event.time_s + event.overhead_s
        key = (event.job, event.gpu_type if profiles else -1)
        self.held[key] = Bar(event.job, gpus, event.time_s, ready_s, np.inf, profiles)

    def _shared(self, event: Event) -> tuple[int, ...] | None:
        """Return the GPUs of a job's partner that is there already, or its devices; None: it has its own."""
        if self.divided:
            devices = [at for at in range(event.devices.bit_length()) if (event.devices >> at) & 1]
            return tuple(int(self.first[node]) + device for node, _ in event.nodes for device in devices)
        partner = self.held.get((event.partner, -1))
        nodes = {node for node, _ in event.nodes}
        return partner.gpus if partner and nodes == {self._node(gpu) for gpu in partner.gpus} else None

    def _node(self, gpu: int) -> int:
        return int(np.searchsorted(self.first, gpu, side="right")) - 1

    def _free(self, node: int) -> list[int]:
        first = int(self.first[node])
        return (first + np.flatnonzero(self.holders[first : first + self.sizes[node]] == 0)).tolist()

    def give_back(self, key: tuple[int, int], time_s: float) -> None:
        bar = self.held.pop(key, None)
        if bar is None:
            return
        self.bars.append(bar._replace(ready_s=min(bar.ready_s, time_s), stop_s=time_s))
        self.holders[list(bar.gpus)] -= 1
