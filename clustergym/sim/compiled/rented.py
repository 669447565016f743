"""Rented nodes on the compiled engine: what `ActiveCapacity`, which both engines use, does to an episode."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.scenario.disturbances.capacity import BEGIN, END, ORDER, ActiveCapacity, Capacity
from clustergym.scenario.scenario import Scenario
from clustergym.sim import columns as c
from clustergym.sim.compiled import jobs
from clustergym.sim.compiled.buddy import sort_many
from clustergym.sim.compiled.episode import Episode, record, record_nodes
from clustergym.sim.compiled.numba_cache import compile_entry, compile_in_place
from clustergym.sim.compiled.scenario_arrays import ClusterArrays

CODES = {ORDER: c.NODE_ORDER, BEGIN: c.NODE_BEGIN, END: c.NODE_END}


@compile_in_place
def _is_on(episode: Episode, row: int, node: int) -> bool:
    """Return whether a job holds GPUs of a node."""
    at = episode.job[row, c.FIRST_SHARE]
    while at != c.NONE:
        if episode.share[at, c.NODE] == node:
            return True
        at = episode.share[at, c.NEXT_SHARE]
    return False


@compile_entry
def note_node(episode: Episode, event: int, node: int, gpu_type: int, gpus: int) -> None:
    """Log an event of a node, and request a decision unless it is an order."""
    record(episode, event, c.NONE, gpu_type, gpus, c.NONE, 0, 0.0)
    episode.placed[0, 0], episode.placed[1, 0] = node, gpus
    record_nodes(episode, 1)
    if event != c.NODE_ORDER:
        jobs.request_decision(episode)


@compile_entry
def clear_node(episode: Episode, cluster: ClusterArrays, node: int) -> None:
    """Preempt the jobs on a node, those first that were placed first."""
    found, count = np.empty(episode.clock[c.RUNNING_JOBS], np.int64), 0
    for place in range(len(found)):
        if _is_on(episode, episode.running[place], node):
            # Jobs are placed in the order of these numbers.
            found[count] = episode.job[episode.running[place], c.DUE_ID]
            count += 1
    sort_many(found[:count])
    for number in found[:count]:
        for place in range(episode.clock[c.RUNNING_JOBS]):
            row = episode.running[place]
            if episode.job[row, c.DUE_ID] == number:
                jobs.vacate(episode, cluster, row)
                record(episode, c.PREEMPT_AT_TERM, row, c.NONE, 0, c.NONE, 0, 0.0)
                jobs.enqueue(episode, row)
                break


class RentedNodes:
    """The run in which `ActiveCapacity` acts, over the arrays of an episode.

    Parameters
    ----------
    capacity : Capacity
    scenario : Scenario
    cluster : ClusterArrays
        Its `capacity` follows what is rented.
    episode : callable
        Returns the episode, whose arrays are replaced when they grow.

    Attributes
    ----------
    active : ActiveCapacity
    """

    def __init__(
        self, capacity: Capacity, scenario: Scenario, cluster: ClusterArrays, episode: Callable[[], Episode]
    ) -> None:
        self._spec, self._cluster, self._episode = scenario.cluster, cluster, episode
        self._wakes: list[int] = []
        self.trace, self.placer, self.allocations = scenario.trace, None, None
        episode().clock[c.ALWAYS] = 1
        self.active = ActiveCapacity(capacity, self)  # type: ignore[arg-type]

    @property
    def now(self) -> int:
        """The present time, in ticks."""
        return int(self._episode().clock[c.NOW])

    def follow(self, steps: Iterator[int]) -> None:
        """Stop the clock at some ticks."""
        for tick in steps:
            heapq.heappush(self._wakes, tick)
        self._episode().clock[c.WAKE] = self._wakes[0]

    def serve(self) -> None:
        """Let the nodes go and come that are due now; the clock may then go on."""
        while self._wakes and self._wakes[0] <= self.now:
            heapq.heappop(self._wakes)
        clock = self._episode().clock
        clock[c.WAKE], clock[c.SERVED] = self._wakes[0] if self._wakes else c.NEVER, 1
        self.active.serve()

    def note(self, event: str, node: int, cause: str = "") -> None:
        """Log an event of a node."""
        gpu_type, gpus = int(self._spec.node_type[node]), int(self._spec.node_gpus[node])
        note_node(self._episode(), CODES[event], node, gpu_type, gpus)

    def lose(self, node: int, event: str, reason: str) -> None:
        """Take a node out of use, on which no job is left."""
        self.close(node)
        self.note(event, node)

    def give_back(self, node: int, event: str) -> None:
        """Put a node into use."""
        episode, gpu_type, gpus = self._episode(), self._spec.node_type[node], self._spec.node_gpus[node]
        episode.closed[node] = 0
        episode.free_on_node[node] = gpus
        episode.free[gpu_type] += gpus
        self._cluster.capacity[gpu_type] += gpus
        self.note(event, node)

    def close(self, node: int) -> None:
        """Let nothing be launched on a node any more; what its jobs give back is not free."""
        episode, gpu_type = self._episode(), self._spec.node_type[node]
        if not episode.closed[node]:
            episode.closed[node] = 1
            episode.free[gpu_type] -= episode.free_on_node[node]
            episode.free_on_node[node] = 0
            self._cluster.capacity[gpu_type] -= self._spec.node_gpus[node]

    def clear(self, nodes: Collection[int]) -> None:
        """Preempt the jobs on some nodes."""
        for node in nodes:
            clear_node(self._episode(), self._cluster, node)

    def holding(self, row: int) -> dict[int, int]:
        """Return the GPUs that a job holds on each of its nodes."""
        episode, found = self._episode(), dict[int, int]()
        at = int(episode.job[row, c.FIRST_SHARE])
        while at != c.NONE:
            node, gpus, at = episode.share[at].tolist()
            found[node] = gpus
        return found

    def move_jobs(self, rows: Sequence[int], going: Collection[int]) -> None:
        """Close the nodes that go, and mark the jobs on them, of those that stay, as jobs that move."""
        job: Ints = self._episode().job
        for node in going:
            self.close(node)
        job[[row for row in rows if going & self.holding(row).keys()], c.MOVES] = 1

    def __getattr__(self, name: str) -> Any:
        """Refuse what only the SimPy engine does, such as letting jobs fail."""
        raise AttributeError(f"the compiled engine has no {name} of rented nodes")
