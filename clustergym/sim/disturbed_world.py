"""What disturbances do to the nodes and jobs of a simulation."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from clustergym.scenario.clock import seconds
from clustergym.scenario.disturbance import Course
from clustergym.scenario.policy import InformationClass, Placer
from clustergym.scenario.scenario import Scenario
from clustergym.sim.log import EventKind
from clustergym.sim.world import World

FRUITLESS_FAILURES = 200_000
"""A run counts as stalled after this many node failures in a row during which no job completes."""


class _Blow(NamedTuple):
    """What an interruption says of itself: `Event.reason`, `Event.cause`, and seconds its restart adds."""

    reason: str
    cause: str
    restart_s: float


class StalledError(RuntimeError):
    """The run cannot go on: jobs wait and no event or decision will start them, or nodes only fail."""


class DisturbedWorld(World):
    """A world in which the disturbances of its scenario take place; parameters are those of `World`."""

    def __init__(
        self, scenario: Scenario, placer: Placer, information: InformationClass, round_s: float | None
    ) -> None:
        super().__init__(scenario, placer, information, round_s)
        self._out: Counter[int] = Counter()
        self._undetected: dict[int, _Blow] = {}
        started = [disturbance.start(self) for disturbance in scenario.disturbances]
        self._courses: list[Course] = [course for course in started if course is not None]
        self._unseen = {row for course in self._courses for row in course.jobs}

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
        """Take a node out of use for some ticks; its jobs are interrupted, its profiles start anew.

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
        self._count_out(node, events[0], cause)
        blow, rows = _Blow(reason, cause, restart_s), self.jobs_on(node)
        if detection and rows:
            self._suspect[node] = "a check"
            for row in rows:
                self._hang(row, detection, blow)
            self._after(detection, lambda: self._close(node, blow))
        else:
            detection = 0
            self._close(node, blow)
        self._after(detection + duration, lambda: self._give_back(node, events[1]))

    def _lose(self, node: int, event: str, reason: str) -> None:
        """Take a node out of use, as is noticed at once, until `_give_back`."""
        self._count_out(node, event, "")
        self._close(node, _Blow(reason, "", 0.0))

    def _count_out(self, node: int, event: str, cause: str) -> None:
        self._failures_in_a_row += 1
        if self._failures_in_a_row > FRUITLESS_FAILURES:
            raise StalledError(
                f"stalled at {self.now_s:.0f} s: {FRUITLESS_FAILURES} node failures since a job completed"
            )
        self.note(event, node, cause)
        self._out[node] += 1

    def _close(self, node: int, blow: _Blow) -> None:
        self._suspect.pop(node, None)
        if node not in self.allocations.down:
            for holder in self._holders_on((node,)):
                if holder >= 0:
                    self.interrupt(holder, *blow)
                else:
                    self._profiles.forget(self._put_off(holder))
            self.allocations.fail(node)
        self.decide_again()

    def _give_back(self, node: int, event: str) -> None:
        self._out[node] -= 1
        if not self._out[node]:
            self.allocations.repair(node)
        self.note(event, node)
        self.decide_again()

    def jobs_on(self, node: int) -> list[int]:
        """Return the jobs that hold GPUs of a node, in order of allocation."""
        return [holder for holder in self._holders_on((node,)) if holder >= 0]

    def works_from(self, row: int) -> int | None:
        """Return the tick from which a job works or has worked on its GPUs; None if it holds none."""
        return int(self.jobs.ready[row]) if self.jobs.gpus[row] else None

    def slow(self, node: int, factor: float, duration: int, events: tuple[str, str], cause: str = "") -> None:
        """Lengthen the iterations of all jobs on a node by a factor for some ticks; logs as `take_out`.

        A job is as slow as its slowest node. Factors of one node multiply.
        """
        factors = self._slow.setdefault(node, [])
        factors.append(factor)
        self._slowed(node, events[0], cause)

        def over() -> None:
            factors.remove(factor)
            self._slowed(node, events[1], cause)

        self._after(duration, over)

    def _slowed(self, node: int, event: str, cause: str) -> None:
        self.note(event, node, cause)
        for row in self.jobs_on(node):
            self._go_on(row)

    def interrupt(self, row: int, reason: str, cause: str = "", restart_s: float = 0.0) -> None:
        """Take a running job's GPUs and its work since its last checkpoint; it waits again.

        Its next launch stands still `restart_s` seconds longer. A job that hangs is interrupted by what it
        hangs for.
        """
        jobs = self.jobs
        if not jobs.gpus[row]:
            return
        reason, cause, restart_s = self._undetected.pop(row, _Blow(reason, cause, restart_s))
        kind, gpus = int(jobs.gpu_type[row]), int(jobs.gpus[row])
        left, undone = jobs.at_checkpoint(row, self.now)
        self._vacate(row)
        lost = left - float(jobs.remaining[row])
        jobs.remaining[row], jobs.restart_s[row] = left, restart_s
        self._record(
            EventKind.FAIL,
            row,
            kind,
            gpus,
            reason=reason,
            lost_s=seconds(undone),
            lost_iterations=lost,
            cause=cause,
            write_share=float(jobs.write_share[row]),
        )
        self._enqueue(row)
        for course in self._courses:
            course.interrupted(row)

    def _give_up(self, row: int) -> None:
        self.interrupt(row, *self._undetected[row])

    def _hang(self, row: int, duration: int, blow: _Blow) -> None:
        """Let a job stand still for some ticks until a failure of its node is noticed."""
        if not self.jobs.hangs[row]:
            self._undetected[row], self.jobs.hangs[row] = blow, True
            self._stop(row, duration)
            self._go_on(row, EventKind.HANG, reason=blow.reason, cause=blow.cause)

    def halt(self, row: int, duration: int, undo: bool, reason: str, cause: str = "") -> None:
        """Let a running job stand still for some ticks on its nodes; `undo` its work since its checkpoint.

        Nothing happens to a job that hangs: it is going to be interrupted.
        """
        jobs = self.jobs
        if not jobs.gpus[row] or jobs.hangs[row]:
            return
        left, undone = self._stop(row, duration)
        marks = {"lost_s": 0.0, "lost_iterations": 0.0}
        if undo:
            marks = {"lost_s": seconds(undone), "lost_iterations": left - float(jobs.remaining[row])}
            jobs.remaining[row], jobs.unsaved[row] = left, 0
        self._go_on(row, EventKind.HALT, reason=reason, cause=cause, **marks)

    def _stop(self, row: int, duration: int) -> tuple[float, int]:
        """Let a job stand still for some ticks from now on; return `JobStates.at_checkpoint` of now."""
        jobs = self.jobs
        left, undone = jobs.at_checkpoint(row, self.now)
        jobs.settle(row, self.now)
        jobs.checkpointed[row], jobs.unsaved[row] = left, undone
        jobs.ready[row] = max(int(jobs.ready[row]), self.now + duration)
        return left, undone
