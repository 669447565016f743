"""Planned jobs: whole nodes are reserved and drained before each job's planned start."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustergym.cluster.allocation import Allocations
from clustergym.cluster.spec import ClusterSpec, Nodes
from clustergym.inputs.errors import InputError, nearest, require
from clustergym.interface.policy import Infeasible, Placer
from clustergym.workload.trace import Trace

COLUMNS = ("job_id", "start_s")
"""Columns of a file of planned jobs."""


class Reservation(NamedTuple):
    """A planned job: row of the trace, planned start, and how long before it nodes are drained, seconds."""

    job: int
    start_s: float
    lead_s: float


@dataclass(frozen=True)
class ReservationChoice:
    """The key `scenario.reservations` of the configuration.

    Attributes
    ----------
    path : str or None
        A CSV file with the columns `COLUMNS`: jobs of the trace and when they are planned to start.
    lead_s : float
        Seconds before the planned start in which the nodes are drained.
    """

    path: str | None = None
    lead_s: float = 3600.0

    def __post_init__(self) -> None:
        require(0 <= self.lead_s < 1e12, "scenario.reservations.lead_s", self.lead_s, "give seconds from 0")


def reservations_from_config(given: Mapping[str, Any], trace: Trace) -> tuple[Reservation, ...]:
    """Build the reservations of a configuration, in order of planned start.

    Raises
    ------
    InputError
        If a key or value is not valid. For a file: if it is malformed, names a job twice or one that the
        trace does not have, or plans a start before the job's submission. Names line and column.
    """
    from clustergym.inputs.parameters import build

    choice: ReservationChoice = build(ReservationChoice, given, "scenario.reservations")
    if choice.path is None:
        return ()
    from clustergym.inputs.columns import numbers
    from clustergym.inputs.text_files import read_csv

    table = read_csv(Path(choice.path), COLUMNS)
    rows, found = {name: row for row, name in enumerate(trace.job_id)}, dict[int, Reservation]()
    starts = numbers(table, "start_s", low=0.0).tolist()
    for name, start_s, line in zip(table.columns["job_id"], starts, table.line, strict=True):

        def refuse(message: str, field: str, remedy: str, line: int = line) -> InputError:
            return InputError(message, file=choice.path, line=line, field=field, remedy=remedy)

        if name not in rows:
            raise refuse(f"trace {trace.name} has no job {name!r}", "job_id", nearest(name, rows))
        submit_s = float(trace.submit_s[rows[name]])
        if rows[name] in found:
            raise refuse(f"job {name} is named twice", "job_id", "keep one row of it")
        if start_s < submit_s:
            message = f"job {name} is planned for {start_s:g} s but submitted at {submit_s:g} s"
            raise refuse(message, "start_s", "plan it for later")
        found[rows[name]] = Reservation(rows[name], start_s, choice.lead_s)
    return tuple(sorted(found.values(), key=lambda planned: (planned.start_s, planned.job)))


class Book:
    """The reservations of a run: which nodes are kept for which planned job.

    Attributes
    ----------
    start : dict of int to int
        Planned start of each planned job, ticks.
    nodes : dict of int to tuple of int
        Nodes kept for each planned job that waits; empty if none were found yet.
    due : set of int
        Jobs that do not run although their planned start has come.
    running : set of int
    """

    def __init__(self, start: dict[int, int]) -> None:
        self.start = start
        self.nodes: dict[int, tuple[int, ...]] = {}
        self.due: set[int] = set()
        self.running: set[int] = set()

    @property
    def active(self) -> bool:
        """Whether any planned job drains nodes or runs."""
        return bool(self.nodes or self.running)

    def drain(self, job: int) -> None:
        """Start to keep nodes for a job; the nodes are found later."""
        self.nodes[job] = ()

    def release(self, node: int) -> None:
        """Give up the nodes of planned jobs that wait for a failed node, so that others are found."""
        for job, nodes in self.nodes.items():
            if node in nodes:
                self.nodes[job] = ()

    def withheld(self, until: float, job: int | None = None) -> set[int]:
        """Return the nodes that a job ending at tick `until` may not use.

        They are kept for planned jobs other than `job` that start before then or are due.
        """
        return {
            node
            for other, nodes in self.nodes.items()
            if other != job and (until > self.start[other] or other in self.due)
            for node in nodes
        }

    def first_of(self, nodes: Collection[int]) -> int:
        """Return the planned job with the earliest start among those that some of the nodes are kept for."""
        jobs = [job for job, kept in self.nodes.items() if not set(kept).isdisjoint(nodes)]
        return min(jobs, key=lambda job: (self.start[job], job))


def choose_nodes(
    spec: ClusterSpec, placer: Placer, kind: int, gpus: int, closed: set[int], busy: set[int]
) -> tuple[int, ...]:
    """Choose whole nodes for a planned job; empty if there are too few.

    The placer chooses among the nodes that will be free by themselves or, if these do not suffice, among
    all nodes that are not closed. If it spreads the job over more nodes than needed, the first ones count.

    Parameters
    ----------
    spec : ClusterSpec
    placer : Placer
    kind, gpus : int
        Type index and GPUs of the job.
    closed : set of int
        Nodes that have failed or are kept for other planned jobs.
    busy : set of int
        Nodes that will be in use at the planned start.
    """
    per_node = int(spec.gpus_per_node[kind])
    wanted = -(-gpus // per_node)
    for shut in (closed | busy, closed):
        room = Allocations(spec)
        with room.hidden(shut):
            if room.free[kind] < wanted * per_node:
                continue
            found = placer.place(room, kind, wanted * per_node)
        if not isinstance(found, Infeasible):
            return tuple(int(node) for node, _ in found[:wanted])
    return ()


def filled(nodes: tuple[int, ...], gpus: int, per_node: int) -> Nodes:
    """Return an allocation of `gpus` GPUs that fills nodes in order; the last may keep free GPUs."""
    shares = np.minimum(gpus - per_node * np.arange(len(nodes)), per_node).tolist()
    return tuple(zip(nodes, shares, strict=True))
