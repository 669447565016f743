"""Stranded GPUs: free ones that no segment of a waiting job can use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from clustergym.cluster.spec import ClusterSpec, Nodes
from clustergym.common.arrays import Ints
from clustergym.scenario.scenario import Scenario
from clustergym.sim.log import ENDS, LAUNCHES, Event, EventType

WAITS = (EventType.SUBMIT, EventType.PREEMPT, EventType.FAIL)
"""Events after which a job waits."""


def stranded_metrics(scenario: Scenario, events: Sequence[Event], end_s: float) -> dict[str, float | None]:
    """Return metrics of free GPUs that no waiting job can use, as it needs more GPUs joined by NVLink.

    A GPU is stranded while some job waits that may run on its type, and it is free, and no segment of such a
    job at its request fits where it is: a segment of at most a node on its node, a larger one on wholly free
    nodes of its NVLink domain. GPUs of failed nodes are not free.
    """
    state = _Holdings(scenario)
    stranded = free = 0.0
    before_s = events[0].time_s if events else end_s
    for event in events:
        # Counted once an instant, after all of its events: what is free between two of them is free for no
        # time.
        if event.time_s > before_s:
            lost, idle = state.count()
            stranded += lost * (event.time_s - before_s)
            free += idle * (event.time_s - before_s)
            before_s = event.time_s
        state.advance(event)
    lost, idle = state.count()
    stranded += lost * max(end_s - before_s, 0.0)
    free += idle * max(end_s - before_s, 0.0)
    return {
        "stranded_gpu_hours": stranded / 3600.0,
        "stranded_share": stranded / free if free else None,
    }


class _Holdings:
    """The free GPUs of each node and the waiting jobs, tracked from the events of a run."""

    def __init__(self, scenario: Scenario) -> None:
        self.cluster = scenario.cluster
        self.free = self.cluster.node_gpus.copy()
        self.needs = _segments_at_request(scenario)
        # Of each type, how many waiting jobs have a segment of so many GPUs.
        self.waiting = [Counter[int]() for _ in self.cluster.groups]
        self.held: dict[tuple[int, bool], Nodes] = {}
        self.in_queue: set[int] = set()
        self.out: set[int] = set()
        outages = [pair for disturbance in scenario.disturbances for pair in disturbance.outages]
        self.fails, self.returns = {down for down, _ in outages}, {up for _, up in outages}
        self._known: tuple[float, float] | None = None

    def advance(self, event: Event) -> None:
        """Apply an event of the log to the state of GPUs and waiting jobs."""
        self._known = None
        _, what, *_ = event
        if what in self.fails:
            self.out.update(node for node, _ in event.nodes)
        elif what in self.returns:
            self.out.difference_update(node for node, _ in event.nodes)
        elif what in (EventType.PROFILE_START, EventType.PROFILE_END):
            self._hold(event.job, True, event.nodes if what == EventType.PROFILE_START else ())
        elif what in LAUNCHES:
            self._hold(event.job, False, event.nodes)
            self._wait(event.job, False)
        elif what in ENDS:
            self._hold(event.job, False, ())
        if what in WAITS:
            self._wait(event.job, True)
        elif what in (EventType.COMPLETE, EventType.DROP):
            self._wait(event.job, False)

    def count(self) -> tuple[float, float]:
        """Return the stranded GPUs, and the free GPUs of types for which a job waits."""
        if self._known is None:
            parts = [
                _stranded(self.cluster, row, self._free(), each) for row, each in enumerate(self.waiting)
            ]
            self._known = float(sum(part[0] for part in parts)), float(sum(part[1] for part in parts))
        return self._known

    def _free(self) -> Ints:
        free = self.free.copy()
        free[list(self.out)] = 0
        return free

    def _hold(self, job: int, profile: bool, nodes: Nodes) -> None:
        for node, gpus in self.held.pop((job, profile), ()):
            self.free[node] += gpus
        for node, gpus in nodes:
            self.free[node] -= gpus
        if nodes:
            self.held[job, profile] = nodes

    def _wait(self, job: int, waits: bool) -> None:
        if waits == (job in self.in_queue):
            return
        (self.in_queue.add if waits else self.in_queue.discard)(job)
        for row, segment in enumerate(self.needs[job].tolist()):
            if segment:
                self.waiting[row][segment] += 1 if waits else -1


def _stranded(cluster: ClusterSpec, row: int, free: Ints, waiting: Counter[int]) -> tuple[int, int]:
    """Return the stranded and the free GPUs of a type; both 0 while no job waits for it."""
    segment = min((segment for segment, jobs in waiting.items() if jobs > 0), default=0)
    if not segment:
        return 0, 0
    mine = cluster.node_type == row
    free, per_node = free[mine], int(cluster.gpus_per_node[row])
    # The least segment fits wherever a larger one does.
    if segment <= per_node:
        usable = free[free >= segment].sum()
    else:
        domain = cluster.node_domain[mine]
        empty = np.bincount(domain, weights=free == per_node)
        usable = per_node * empty[empty >= segment // per_node].sum()
    return int(free.sum() - usable), int(free.sum())


def _segments_at_request(scenario: Scenario) -> Ints:
    """Return the segment of each job on each type at its request, shape (n, T); 0: it may not run there."""
    segments = scenario.tables.segments
    assert segments is not None
    level = np.minimum(
        np.searchsorted(scenario.tables.counts, scenario.request_gpus), len(scenario.tables.counts) - 1
    )
    cells = np.swapaxes(segments, 1, 2)[scenario.class_of, level]
    fits = np.swapaxes(scenario.feasible, 1, 2)[scenario.class_of, level]
    types = np.arange(len(scenario.cluster.groups))
    asked = (scenario.request_type[:, None] < 0) | (scenario.request_type[:, None] == types)
    found: Ints = np.where(fits & asked & (scenario.request_gpus[:, None] > 0), cells, 0)
    return found
