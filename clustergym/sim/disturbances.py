"""Carry out the effects of disturbances on the nodes and jobs of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np

from clustergym.cluster.spec import Nodes
from clustergym.scenario.clock import seconds
from clustergym.scenario.disturbances.capacity import ActiveCapacity, Capacity
from clustergym.scenario.policy import InformationClass
from clustergym.sim.job_execution import JobExecution
from clustergym.sim.log import EventType
from clustergym.sim.stalls import StalledError
from clustergym.sim.state import Phase

FRUITLESS_FAILURES = 200_000
"""A run counts as stalled after this many node failures in a row during which no job completes."""


class _Interruption(NamedTuple):
    """The cause of an interruption: `Event.reason`, `Event.cause`, and the seconds that its restart adds."""

    reason: str
    cause: str
    restart_s: float


class Disturbances:
    """Starts a scenario's disturbances (such as node failures), and carries out what they do.

    Attributes
    ----------
    out : Counter of int
        By how many disturbances each node is out of use.
    capacity : ActiveCapacity or None
        The rented nodes, if the scenario has any.
    """

    def __init__(self, execution: JobExecution) -> None:
        self.execution, self.progress, self.profiler = execution, execution.progress, execution.profiler
        self.scenario, self.trace = execution.scenario, execution.scenario.trace
        self.clock, self.jobs, self.log, self.queue = (
            execution.clock,
            execution.jobs,
            execution.log,
            execution.queue,
        )
        self.allocator, self.placer = execution.allocator, execution.allocator.placer
        self.allocations, self.courses = execution.allocator.allocations, execution.courses
        self.follow, self.note = self.clock.follow, self.log.note
        self.drop, self.decide_again = execution.drop, self.queue.decide_again
        self.out: Counter[int] = Counter()
        self._undetected: dict[int, _Interruption] = {}
        self._failures_in_a_row = self._completions = 0
        self.queue.always = any(isinstance(one, Capacity) for one in self.scenario.disturbances)
        started = [disturbance.start(self) for disturbance in self.scenario.disturbances]
        self.courses.extend(course for course in started if course is not None)
        self.jobs.unseen.update(row for course in self.courses for row in course.jobs)
        rented = (course for course in self.courses if isinstance(course, ActiveCapacity))
        self.capacity = next(rented, None)

    @property
    def now(self) -> int:
        """The present time, in ticks."""
        return self.clock.now

    # Nodes

    def take_out(
        self,
        node: int,
        duration: int,
        events: tuple[str, str],
        reason: str,
        cause: str = "",
        detection: int = 0,
        restart_s: float = 0.0,
    ) -> None:
        """Take a node out of use for some ticks: its jobs are interrupted, its profiling runs start again.

        The first of the `events` is logged now, the second when the time is over. A node that several
        disturbances have taken out is back in use when the last of them is over.

        Parameters
        ----------
        detection : int
            Ticks until anybody notices, if jobs are on the node: until then they hang, and nothing is
            launched on it. The `duration` begins when they are over.
        restart_s : float
            Seconds that the next launch of each job stands still longer.
        """
        self._count_outage(node, events[0], cause)
        interruption, rows = _Interruption(reason, cause, restart_s), self.list_jobs(node)
        if detection and rows:
            # Jobs hang on it but nothing new starts there: a scheduler would not use a node that stopped
            # answering, though it does not yet know why.
            self.allocator.suspect[node] = "a check"
            for row in rows:
                self._hang(row, detection, interruption)
            self.clock.after(detection, lambda: self._close(node, interruption))
        else:
            detection = 0
            self._close(node, interruption)
        self.clock.after(detection + duration, lambda: self.give_back(node, events[1]))

    def lose(self, node: int, event: str, reason: str) -> None:
        """Take a node out of use at once, and interrupt its jobs; `give_back` puts it back into use."""
        self._count_outage(node, event, "")
        self._close(node, _Interruption(reason, "", 0.0))

    def _count_outage(self, node: int, event: str, cause: str) -> None:
        if self._completions != self.execution.completions:
            self._completions, self._failures_in_a_row = self.execution.completions, 0
        self._failures_in_a_row += 1
        if self._failures_in_a_row > FRUITLESS_FAILURES:
            what = f"{FRUITLESS_FAILURES} node failures since a job completed"
            raise StalledError(f"stalled at {self.clock.now_s:.0f} s: {what}")
        self.note(event, node, cause)
        self.out[node] += 1

    def _close(self, node: int, interruption: _Interruption) -> None:
        self.allocator.suspect.pop(node, None)
        if node not in self.allocations.down:
            for holder in self.allocator.list_holders((node,)):
                if holder >= 0:
                    self.interrupt(holder, *interruption)
                else:
                    # Measurements on a node that fails are worth nothing.
                    self.profiler.postpone(holder, forget=True)
            self.allocations.fail(node)
        self.decide_again()

    def give_back(self, node: int, event: str) -> None:
        """Put a node back into use, unless another disturbance keeps it out."""
        self.out[node] -= 1
        # Outages may overlap: the node is back when the last is over.
        if not self.out[node]:
            self.allocations.repair(node)
        self.note(event, node)
        self.decide_again()

    def list_jobs(self, node: int) -> list[int]:
        """Return the jobs that hold GPUs of a node, in order of allocation."""
        return [holder for holder in self.allocator.list_holders((node,)) if holder >= 0]

    def list_busy_nodes(self, tick: int) -> set[int]:
        """Return the nodes of jobs estimated to run beyond a tick, which a planned job had better avoid."""
        jobs, busy = self.jobs, set[int]()
        for row in self.allocations.holders:
            if row >= 0 and row not in jobs.unseen:
                standstill = max(int(jobs.ready[row]) - self.clock.now, 0)
                gpu_type, level = int(jobs.gpu_type[row]), int(jobs.level[row])
                if self.progress.estimate_end(row, gpu_type, level, standstill) > tick:
                    busy.update(node for node, _ in self.allocations.holding(row))
        return busy

    def slow(self, node: int, factor: float, duration: int, events: tuple[str, str], cause: str = "") -> None:
        """Slow down all jobs on a node by a factor for a number of ticks, and log the two events.

        A job is as slow as its slowest node. Factors of one node multiply.
        """
        factors = self.progress.slow.setdefault(node, [])

        def change(act: Callable[[float], None], event: str) -> None:
            act(factor)
            self.note(event, node, cause)
            for row in self.list_jobs(node):
                self.progress.update_speed(row)

        change(factors.append, events[0])
        self.clock.after(duration, lambda: change(factors.remove, events[1]))

    def clear(self, nodes: Collection[int]) -> None:
        """Preempt the jobs on some nodes, and postpone the profiling runs there."""
        for holder in self.allocator.list_holders(nodes):
            if holder < 0:
                self.profiler.postpone(holder)
            else:
                self.save(holder)

    # Jobs

    def save(self, row: int) -> None:
        """Preempt a job that has saved, unless it hangs."""
        if not self.give_up(row):
            self.execution.preempt(row)

    def find_save_s(self, row: int) -> float:
        """Return the seconds that a job takes to save."""
        return float(self.jobs.save_s[row])

    def waits(self, row: int) -> bool:
        """Return whether a job waits for GPUs."""
        return bool(self.jobs.phase[row] == Phase.QUEUED)

    def find_queued_tick(self, row: int) -> int:
        """Return the tick at which a job last began to wait for GPUs."""
        return int(self.jobs.queued_since[row])

    def find_work_tick(self, row: int) -> int | None:
        """Return the tick at which a job starts, or started, to work on its GPUs; None if it holds none."""
        return int(self.jobs.ready[row]) if self.jobs.gpus[row] else None

    def request(self, row: int) -> tuple[int, int]:
        """Return a job's request as (type index, GPUs); "any type" becomes the job's fastest type."""
        scenario = self.scenario
        gpu_type, gpus = int(scenario.request_type[row]), int(scenario.request_gpus[row])
        if gpu_type < 0:
            level = int(np.searchsorted(scenario.tables.counts, gpus))
            times = scenario.known_times(InformationClass.CLAIRVOYANT)
            gpu_type = int(np.argmin(times[scenario.class_of[row], :, level]))
        return gpu_type, gpus

    def start_at_nodes(self, row: int, gpu_type: int, gpus: int, nodes: Nodes) -> None:
        """Take the GPUs of some nodes from all jobs and profiling runs, and start a waiting job there."""
        self.clear([node for node, _ in nodes])
        self.execution.launch(row, gpu_type, gpus, rescale=False, on=nodes)
        self.decide_again()

    def interrupt(self, row: int, reason: str, cause: str = "", restart_s: float = 0.0) -> None:
        """Interrupt a running job: it loses its GPUs and its work since the last checkpoint, and waits.

        Its next launch stands still `restart_s` seconds longer. A job that hangs is interrupted by what it
        hangs for.
        """
        jobs = self.jobs
        if not jobs.gpus[row]:
            return
        given = _Interruption(reason, cause, restart_s)
        # A job that hangs already is interrupted for what it hangs for, whatever interrupts it now.
        reason, cause, restart_s = self._undetected.pop(row, given)
        gpu_type, gpus = int(jobs.gpu_type[row]), int(jobs.gpus[row])
        lost_s, lost = self.execution.undo(row)
        jobs.restart_s[row] = restart_s
        self.log.record(
            EventType.FAIL,
            row,
            gpu_type,
            gpus,
            reason=reason,
            lost_s=lost_s,
            lost_iterations=lost,
            cause=cause,
            write_share=float(jobs.write_share[row]),
        )
        self.queue.enqueue(row)
        for course in self.courses:
            course.note_interruption(row)

    def give_up(self, row: int) -> bool:
        """Interrupt a job if it hangs (its node has failed unnoticed); return whether it did."""
        hangs = bool(self.jobs.hangs[row])
        if hangs:
            self.interrupt(row, *self._undetected[row])
        return hangs

    def _hang(self, row: int, duration: int, interruption: _Interruption) -> None:
        """Let a job stand still for some ticks, until a failure of its node is noticed."""
        if not self.jobs.hangs[row]:
            self._undetected[row], self.jobs.hangs[row] = interruption, True
            self.stand_still(row, duration)
            reason, cause = interruption.reason, interruption.cause
            self.progress.update_speed(row, EventType.HANG, reason=reason, cause=cause)

    def halt(self, row: int, duration: int, undo: bool, reason: str, cause: str = "") -> None:
        """Let a running job stand still on its nodes for some ticks; with `undo` it loses unsaved work.

        Nothing happens to a job that hangs: it is going to be interrupted.
        """
        jobs = self.jobs
        if not jobs.gpus[row] or jobs.hangs[row]:
            return
        left, undone = self.stand_still(row, duration)
        marks = {"lost_s": 0.0, "lost_iterations": 0.0}
        if undo:
            marks = {"lost_s": seconds(undone), "lost_iterations": left - float(jobs.remaining[row])}
            jobs.remaining[row], jobs.unsaved[row] = left, 0
        self.progress.update_speed(row, EventType.HALT, reason=reason, cause=cause, **marks)

    def stand_still(self, row: int, duration: int) -> tuple[float, int]:
        """Let a job stand still; return the iterations left at its last checkpoint, and the ticks since."""
        jobs, now = self.jobs, self.clock.now
        left, undone = jobs.at_checkpoint(row, now)
        jobs.settle(row, now)
        jobs.checkpointed[row], jobs.unsaved[row] = left, undone
        # A standstill that is under way is not cut short.
        jobs.ready[row] = max(int(jobs.ready[row]), now + duration)
        return float(left), int(undone)
