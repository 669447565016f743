"""How full and how fragmented divisible nodes are over time, and how long requests of each size wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clustergym.cluster.parts import WHOLE, DivisibleCluster, Nodes, Parts, Requests
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.sim.compiled.numba_cache import compile_entry
from clustergym.sim.log import ENDS, LAUNCHES, NO_JOB, Event
from clustergym.sim.parts.fragmentation import UsualRequests, fragments, idle_milli
from clustergym.sim.parts.placers import classify_request, give_back

SIZES = ("cpu_only", "part", "one_gpu", "several_gpus")


class PartUsage(NamedTuple):
    """GPUs over time: allocated, and idle but unusable for the commonest requests for parts of GPUs.

    Attributes
    ----------
    time_s : ndarray of float
        Ascending; -inf first. Of equal times the last state counts.
    allocated_gpus, fragmented_gpus, partly_used_nodes : ndarray of float
        GPUs; GPUs; nodes.
    """

    time_s: Floats
    allocated_gpus: Floats
    fragmented_gpus: Floats
    partly_used_nodes: Floats

    def look_up(self, times: Floats) -> dict[str, Floats]:
        """Return the columns' values at given times, by the column's name."""
        rows = np.searchsorted(self.time_s, times, side="right") - 1
        return {name: getattr(self, name)[rows] for name in self._fields[1:]}

    def mean(self, name: str, since_s: float, until_s: float) -> float | None:
        """Return a column's average over the time from `since_s` to `until_s`; None if that is empty."""
        if not until_s > since_s:
            return None
        edges = np.append(np.clip(self.time_s, since_s, until_s), until_s)
        return float(np.dot(getattr(self, name), np.diff(edges))) / (until_s - since_s)


def part_course(events: Sequence[Event], cluster: DivisibleCluster, parts: Parts) -> PartUsage:
    """Compute GPUs over time from events: allocated, and idle but unusable for the commonest requests."""
    from clustergym.sim.parts.fragmentation import find_usual_requests

    held: dict[int, Event] = {}
    times, changes = [], []
    for event in events:
        if event.job == NO_JOB:
            continue
        if event.event_type in LAUNCHES or event.event_type in ENDS:
            before = held.pop(event.job, None)
            if before is not None:
                times.append(event.time_s)
                changes.append((event.job, before.nodes[0][0], before.devices, False))
        if event.event_type in LAUNCHES:
            held[event.job] = event
            times.append(event.time_s)
            changes.append((event.job, event.nodes[0][0], event.devices, True))
    job, node, devices, comes = np.array(changes, dtype=np.int64).reshape(-1, 4).T.copy()
    course = replay_changes(
        cluster.empty_nodes(),
        parts.requests,
        find_usual_requests(parts.rows, parts.accepted),
        Change(parts.request[job], node, devices, comes.astype(np.bool_)),
    )
    return PartUsage(
        np.append(-np.inf, np.array(times, dtype=np.float64)),
        course.allocated_milli / WHOLE,
        course.fragments_milli / WHOLE,
        course.partly_used.astype(np.float64),
    )


def part_metrics(
    course: PartUsage,
    cluster: DivisibleCluster,
    parts: Parts,
    submit_s: Floats,
    queue_s: Floats,
    seen: Bools,
) -> dict[str, float | int | None]:
    """Return metrics of divisible GPUs by name: allocation, fragmentation, mean waits by request size.

    Parameters
    ----------
    course : PartUsage
    cluster : DivisibleCluster
    parts : Parts
    submit_s, queue_s : ndarray of float, shape (n,)
        Submission of each job, and the seconds that it waited.
    seen : ndarray of bool, shape (n,)
        Whether it was submitted in the run.
    """
    since_s, until_s = (
        (float(submit_s[seen].min()), float(submit_s[seen].max())) if seen.any() else (0.0, 0.0)
    )
    gpus, nodes = float(cluster.capacity.sum()), float(len(cluster.node_gpus))

    def share(name: str, of: float) -> float | None:
        mean = course.mean(name, since_s, until_s)
        return None if mean is None else mean / of

    size = np.where(parts.gpus == 0, 0, np.where(parts.gpus < 1, 1, np.where(parts.gpus == 1, 2, 3)))
    waits: dict[str, float | int | None] = {}
    for row, name in enumerate(SIZES):
        mine = queue_s[seen & (size == row)]
        waits[f"queue_mean_{name}"] = float(mine.mean()) if len(mine) else None
    return {
        "gpu_allocation": share("allocated_gpus", gpus),
        "fragmentation": share("fragmented_gpus", gpus),
        "partly_used_nodes": share("partly_used_nodes", nodes),
        **waits,
    }


class Change(NamedTuple):
    """A sequence of C requests for parts of GPUs that are placed on nodes or removed, as arrays.

    Attributes
    ----------
    request, node, devices : ndarray of int, shape (C,)
        Row of the request, its node, and its devices there as bits.
    comes : ndarray of bool, shape (C,)
    """

    request: Ints
    node: Ints
    devices: Ints
    comes: Bools


class PartUsageHistory(NamedTuple):
    """GPUs allocated, and idle but unusable for the commonest requests, before and after C changes, (C + 1,).

    Attributes
    ----------
    allocated_milli : ndarray of int
        Thousandths of GPUs.
    fragments_milli : ndarray of float
        Expected thousandths of idle GPU that a usual request cannot use (FGD, section 4).
    partly_used : ndarray of int
        Nodes of which some GPU is allocated and some is idle.
    """

    allocated_milli: Ints
    fragments_milli: Floats
    partly_used: Ints


def replay_changes(
    nodes: Nodes, requests: Requests, usual: UsualRequests, changes: Change
) -> PartUsageHistory:
    """Place and remove requests on empty nodes, one by one; return the use of GPUs after each change."""
    states = len(changes.request) + 1
    course = PartUsageHistory(np.zeros(states, np.int64), np.zeros(states), np.zeros(states, np.int64))
    _follow(nodes, requests, usual, changes, course)
    return course


@compile_entry
def _follow(
    nodes: Nodes, requests: Requests, usual: UsualRequests, changes: Change, course: PartUsageHistory
) -> None:
    number = len(nodes.devices)
    own, partly = np.empty(number), np.zeros(number, np.int64)
    for at in range(number):
        own[at] = fragments(nodes, at, usual)
    course.fragments_milli[0] = own.sum()
    for change in range(len(changes.request)):
        at, request = changes.node[change], changes.request[change]
        asked = requests.gpus[request] * requests.gpu_milli[request]
        if changes.comes[change]:
            _put(nodes, at, requests, request, changes.devices[change])
        else:
            give_back(nodes, at, requests, request, changes.devices[change])
            asked = -asked
        own[at] = fragments(nodes, at, usual)
        idle = idle_milli(nodes, at)
        partly[at] = 0 < idle < WHOLE * nodes.devices[at]
        course.allocated_milli[change + 1] = course.allocated_milli[change] + asked
        course.fragments_milli[change + 1] = own.sum()
        course.partly_used[change + 1] = partly.sum()


@compile_entry
def _put(nodes: Nodes, at: int, requests: Requests, request: int, devices: int) -> None:
    """Take what a request asks for from known devices."""
    nodes.version[at] += 1
    nodes.cpu_milli[at] -= requests.cpu_milli[request]
    nodes.memory_mib[at] -= requests.memory_mib[request]
    if requests.gpus[request]:
        nodes.hosted[at, classify_request(requests, request)] += 1
    for place in range(nodes.devices[at]):
        if (devices >> place) & 1:
            nodes.gpu_milli[at, place] -= requests.gpu_milli[request]
