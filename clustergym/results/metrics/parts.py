"""Metrics of runs on divisible nodes: allocation, fragmentation, and waiting by size of request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clustergym.cluster.divisible import DivisibleCluster
from clustergym.cluster.parts import WHOLE, Parts
from clustergym.common.arrays import Bools, Floats
from clustergym.sim.log import LAUNCHES, NO_JOB, Event, EventKind

ENDS = (EventKind.PREEMPT, EventKind.COMPLETE, EventKind.FAIL, EventKind.DROP)
"""Events after which a job holds nothing."""

SIZES = ("cpu_only", "part", "one_gpu", "several_gpus")


class PartCourse(NamedTuple):
    """The state of divisible nodes from each time to the next, columns of one length.

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

    def at(self, times: Floats) -> dict[str, Floats]:
        """Return the states at some times, by name."""
        rows = np.searchsorted(self.time_s, times, side="right") - 1
        return {name: getattr(self, name)[rows] for name in self._fields[1:]}

    def mean(self, name: str, since_s: float, until_s: float) -> float | None:
        """Return the time average of a column; None over no time."""
        if not until_s > since_s:
            return None
        edges = np.append(np.clip(self.time_s, since_s, until_s), until_s)
        return float(np.dot(getattr(self, name), np.diff(edges))) / (until_s - since_s)


def part_course(events: Sequence[Event], cluster: DivisibleCluster, parts: Parts) -> PartCourse:
    """Return the course of a run, from its event log. Nodes that have failed count as idle."""
    from clustergym.results.metrics.part_course import Change, course_of
    from clustergym.sim.parts.fragmentation import usual_of

    held: dict[int, Event] = {}
    times, changes = [], []
    for event in events:
        if event.job == NO_JOB:
            continue
        if event.kind in LAUNCHES or event.kind in ENDS:
            before = held.pop(event.job, None)
            if before is not None:
                times.append(event.time_s)
                changes.append((event.job, before.nodes[0][0], before.devices, False))
        if event.kind in LAUNCHES:
            held[event.job] = event
            times.append(event.time_s)
            changes.append((event.job, event.nodes[0][0], event.devices, True))
    job, node, devices, comes = np.array(changes, dtype=np.int64).reshape(-1, 4).T.copy()
    course = course_of(
        cluster.empty_nodes(),
        parts.requests,
        usual_of(parts.rows, parts.accepted),
        Change(parts.kind[job], node, devices, comes.astype(np.bool_)),
    )
    return PartCourse(
        np.append(-np.inf, np.array(times, dtype=np.float64)),
        course.allocated_milli / WHOLE,
        course.fragments_milli / WHOLE,
        course.partly_used.astype(np.float64),
    )


def part_metrics(
    course: PartCourse,
    cluster: DivisibleCluster,
    parts: Parts,
    submit_s: Floats,
    queue_s: Floats,
    seen: Bools,
) -> dict[str, float | int | None]:
    """Return the metrics that runs on divisible nodes have besides those of all runs.

    Parameters
    ----------
    course : PartCourse
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
