"""Planned jobs: whole nodes are reserved and drained before each job's planned start."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustergym.cluster.allocation import Allocations
from clustergym.cluster.spec import ClusterSpec, Nodes
from clustergym.common.errors import InputError, nearest, require
from clustergym.common.parameters import build
from clustergym.scenario.clock import ticks
from clustergym.scenario.disturbance import ActiveDisturbance, Disturbance, DisturbedRun
from clustergym.scenario.policy import Infeasible, Placer
from clustergym.trace.trace import Trace

COLUMNS = ("job_id", "start_s")
"""Columns of a file of planned jobs."""


class Reservation(NamedTuple):
    """A planned job: its trace row, planned start, and how many seconds earlier its nodes begin to drain."""

    job: int
    start_s: float
    lead_s: float


@dataclass(frozen=True)
class ReservationChoice:
    """The keys of `scenario.reservations` in the configuration.

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


@dataclass(frozen=True)
class PlannedJobs(Disturbance):
    """Planned jobs, which start at given times on nodes reserved for them, and which no policy sees.

    Attributes
    ----------
    planned : tuple of Reservation
    """

    key = "reservations"

    planned: tuple[Reservation, ...]

    @classmethod
    def from_config(
        cls, given: Mapping[str, Any], cluster: ClusterSpec, trace: Trace, seed: int
    ) -> PlannedJobs | None:
        """Build the planned jobs from their configuration keys, by planned start; None if there are none."""
        choice: ReservationChoice = build(ReservationChoice, given, "scenario.reservations")
        planned = () if choice.path is None else read_planned_jobs(choice.path, choice.lead_s, trace)
        return cls(planned) if planned else None

    def start(self, run: DisturbedRun) -> ActiveDisturbance:
        """Start to watch for the planned starts in a run."""
        return ActiveReservations(self.planned, run)

    def fingerprint(self) -> object:
        """Return the reservations, which stand for the planned jobs in the scenario's digest."""
        return self.planned


def read_planned_jobs(path: str, lead_s: float, trace: Trace) -> tuple[Reservation, ...]:
    """Read planned jobs from a CSV file with the columns `COLUMNS`."""
    from clustergym.common.columns import numbers
    from clustergym.common.text_files import read_csv

    table = read_csv(Path(path), COLUMNS)
    rows, found = {name: row for row, name in enumerate(trace.job_id)}, dict[int, Reservation]()
    starts = numbers(table, "start_s", low=0.0).tolist()
    for name, start_s, line in zip(table.columns["job_id"], starts, table.line, strict=True):

        def refuse(message: str, field: str, remedy: str, line: int = line) -> InputError:
            return InputError(message, file=path, line=line, field=field, remedy=remedy)

        if name not in rows:
            raise refuse(f"trace {trace.name} has no job {name!r}", "job_id", nearest(name, rows))
        submit_s = float(trace.submit_s[rows[name]])
        if rows[name] in found:
            raise refuse(f"job {name} is named twice", "job_id", "keep one row of it")
        if start_s < submit_s:
            message = f"job {name} is planned for {start_s:g} s but submitted at {submit_s:g} s"
            raise refuse(message, "start_s", "plan it for later")
        found[rows[name]] = Reservation(rows[name], start_s, lead_s)
    return tuple(sorted(found.values(), key=lambda planned: (planned.start_s, planned.job)))


class ActiveReservations(ActiveDisturbance):
    """Planned jobs during one run, with the nodes that are kept for each.

    Attributes
    ----------
    start : dict of int to int
        Planned start of each planned job, ticks; in order of planned start.
    nodes : dict of int to tuple of int
        Nodes kept for each planned job that waits; empty if none were found yet.
    due : set of int
        Jobs that do not run although their planned start has come.
    """

    def __init__(self, planned: tuple[Reservation, ...], run: DisturbedRun) -> None:
        starts = [(ticks(reservation.start_s), reservation.job) for reservation in planned]
        self.start = {job: start for start, job in sorted(starts)}
        self.jobs = self.start.keys()
        self.nodes: dict[int, tuple[int, ...]] = {}
        self.due: set[int] = set()
        self._wanted: dict[int, tuple[int, int]] = {}
        self._run = run
        for reservation in planned:
            run.follow(self._drain(reservation))

    def _drain(self, planned: Reservation) -> Iterator[int]:
        start = self.start[planned.job]
        yield start - ticks(planned.lead_s)
        wanted = self._wanted[planned.job] = self._run.request(planned.job)
        if wanted[1]:
            self.nodes[planned.job] = ()
            yield start
            self.due.add(planned.job)

    @property
    def active(self) -> bool:
        """Whether nodes are being drained for any planned job, or any planned job runs."""
        return bool(self.nodes or self._list_used())

    def _list_used(self) -> set[int]:
        """Return the nodes on which planned jobs run."""
        return {node for job in self.jobs for node, _ in self._run.allocations.holding(job)}

    def withheld(self, until: float) -> dict[int, str]:
        """Return nodes kept for planned jobs that start before tick `until` or are due, with reasons."""
        names = self._run.trace.job_id
        return {
            node: f"planned job {names[job]}"
            for job, start in self.start.items()
            # Short jobs may still use the nodes until the planned start.
            if job in self.nodes and (until > start or job in self.due)
            for node in self.nodes[job]
        }

    def note_interruption(self, row: int) -> None:
        """Mark the planned job in a trace row, which lost its nodes, as due; `serve` chooses new nodes."""
        if row in self.start:
            self.nodes[row] = ()
            self.due.add(row)

    def serve(self) -> None:
        """Choose nodes for planned jobs that have none, and start those that are due."""
        run = self._run
        # In order of planned start: the earlier job chooses first.
        for row in [row for row in self.start if row in self.nodes]:
            gpu_type, gpus = self._wanted[row]
            cluster, down = run.allocations.spec, run.allocations.down
            if not down.isdisjoint(self.nodes[row]):
                self.nodes[row] = ()
            if not self.nodes[row]:
                closed = {*down, *self.withheld(math.inf), *self._list_used()}
                busy = run.list_busy_nodes(self.start[row])
                self.nodes[row] = choose_nodes(cluster, run.placer, gpu_type, gpus, closed, busy)
            if row in self.due and self.nodes[row] and run.waits(row):
                nodes = fill_nodes(self.nodes.pop(row), gpus, int(cluster.gpus_per_node[gpu_type]))
                self.due.discard(row)
                run.start_at_nodes(row, gpu_type, gpus, nodes)


def choose_nodes(
    spec: ClusterSpec, placer: Placer, gpu_type: int, gpus: int, closed: set[int], busy: set[int]
) -> tuple[int, ...]:
    """Choose whole nodes for a planned job, none `closed`, and none `busy` if possible; empty if too few.

    The placer chooses among the nodes that will be free by themselves or, if these do not suffice, among
    all nodes that are not closed. If it spreads the job over more nodes than needed, the first ones count.

    Parameters
    ----------
    spec : ClusterSpec
    placer : Placer
    gpu_type, gpus : int
        Type index and GPUs of the job.
    closed : set of int
        Nodes that have failed or are kept for other planned jobs.
    busy : set of int
        Nodes that will be in use at the planned start.
    """
    per_node = int(spec.gpus_per_node[gpu_type])
    wanted = -(-gpus // per_node)
    for shut in (closed | busy, closed):
        room = Allocations(spec)
        with room.hidden(shut):
            if room.free[gpu_type] < wanted * per_node:
                continue
            found = placer.place(room, gpu_type, wanted * per_node)
        if not isinstance(found, Infeasible):
            return tuple(int(node) for node, _ in found[:wanted])
    return ()


def fill_nodes(nodes: tuple[int, ...], gpus: int, per_node: int) -> Nodes:
    """Return nodes with the GPUs on each, filled in order up to `gpus`; the last may keep free GPUs."""
    shares = np.minimum(gpus - per_node * np.arange(len(nodes)), per_node).tolist()
    return tuple(zip(nodes, shares, strict=True))
