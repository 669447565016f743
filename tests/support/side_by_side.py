"""A compiled episode and the SimPy engine, stepped together; the first difference is named."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from clustergym.policies.placers.buddy import Buddy
from compiled_entries import advance, enact

from clustergym.scenario.clock import ticks
from clustergym.scenario.policy import Decision, InformationClass, View
from clustergym.scenario.scenario import Scenario
from clustergym.sim import columns as c
from clustergym.sim.compiled.batch import Batch
from clustergym.sim.compiled.event_log import LazyLog
from clustergym.sim.compiled.scenario_arrays import check_covered, cluster_arrays, scenario_arrays
from clustergym.sim.engine import Simulation, StalledError

Targets = dict[int, tuple[int, int]]
"""Row of a job -> GPU type and GPUs."""

_JOBS = {
    "phase": c.PHASE,
    "gpu_type": c.TYPE,
    "level": c.LEVEL,
    "ready": c.READY,
    "worked_until": c.WORKED_UNTIL,
    "held_since": c.HELD_SINCE,
    "queued_since": c.QUEUED_SINCE,
    "restarts": c.RESTARTS,
    "launched": c.LAUNCHED,
}
_FIGURES = {"remaining": c.REMAINING, "iteration_s": c.ITERATION_S, "attained_gpu_s": c.ATTAINED_GPU_S}


class SideBySide:
    """One scenario in both engines.

    Attributes
    ----------
    view : View or None
        What the SimPy engine shows at this decision point; None: the episode is over.
    step : int
        Decisions made.
    """

    def __init__(self, scenario: Scenario, information: InformationClass) -> None:
        placer = Buddy()
        check_covered(scenario, information, placer)
        self.scenario, self.step = scenario, 0
        self.simulation = Simulation(scenario, placer, information)
        self.cluster = cluster_arrays(scenario.cluster, scenario.tables.counts)
        self.batch = Batch(self.cluster, 1, logged=True)
        self.batch.load(0, scenario_arrays(scenario, information, None))
        self._next_episode = 0
        self.view: View | None = None
        self._advance()

    def decide(self, targets: Targets, drop: list[int]) -> None:
        """Make a decision in both; compare them after it, and at the next decision point."""
        job, counts = self.batch.episodes.job[0], self.cluster.counts
        rows = self.batch.episodes.in_view[0, : self._clock(c.IN_VIEW)]
        job[rows, c.TARGET_TYPE], job[rows, c.TARGET_LEVEL], job[rows, c.REJECTED] = c.NONE, c.NONE, 0
        for row, (kind, gpus) in targets.items():
            job[row, c.TARGET_TYPE], job[row, c.TARGET_LEVEL] = kind, np.searchsorted(counts, gpus)
        job[drop, c.REJECTED] = 1
        got, expected = enact(self.batch.episodes, self.cluster), c.DECISION
        try:
            decision = ((row, kind, gpus) for row, (kind, gpus) in sorted(targets.items()))
            self.simulation.apply(Decision.of(decision, drop))
        except StalledError:
            expected = c.STALLED
        self._same("what it comes to", expected, got)
        self.step += 1
        self._compare()
        if expected == c.STALLED:
            self._end(self.simulation.clock.now)
        else:
            self._advance()

    def _advance(self) -> None:
        self.batch.make_room()
        got, expected = advance(self.batch.episodes, self.cluster), c.DECISION
        try:
            self.view = self.simulation.advance()
        except StalledError:
            self.view, expected = None, c.STALLED
        if self.view is None and expected == c.DECISION:
            expected = c.OVER
        self._same("what it comes to", expected, got)
        self._compare()
        if self.view is None:
            stalled = expected == c.STALLED
            self._end(self.simulation.clock.now if stalled else ticks(self.simulation.end_s))

    def _end(self, tick: int) -> None:
        self.view = None
        self._same("end", tick, self._clock(c.END))
        self._same("digest", self.simulation.log.digest, self.batch.log(0).digest)

    def _clock(self, column: int) -> int:
        return int(self.batch.episodes.clock[0, column])

    def _same(self, name: str, expected: Any, got: Any, job: str = "") -> None:
        if expected != got:
            raise AssertionError(f"step {self.step}{job}, {name}: SimPy {expected}, compiled {got}")

    def _compare(self) -> None:
        """Compare the whole state, and the events since the last time."""
        self._compare_events()
        simulation, episodes = self.simulation, self.batch.episodes
        if self.view is not None:
            self._same("now", simulation.clock.now, self._clock(c.NOW))
            rows = episodes.in_view[0, : self._clock(c.IN_VIEW)].tolist()
            in_view = sorted(simulation.queue.in_view)
            self._same("jobs in view", in_view, rows)
        self._same("decision points", simulation.decision_points, self._clock(c.DECISION_POINTS))
        self._same("idle rounds", simulation.stalls.idle_rounds, self._clock(c.IDLE_ROUNDS))
        self._same("launches", simulation.execution.launches, self._clock(c.LAUNCHES))
        self._same("defragmented at", simulation.execution.defragmented_at, self._clock(c.DEFRAGMENTED_AT))
        for name, expected, got in self._columns():
            if not np.array_equal(expected, got):
                row = int(np.flatnonzero((expected != got).reshape(len(got), -1).any(axis=1))[0])
                self._same(name, expected[row].tolist(), got[row].tolist(), f", row {row}")
        self._same("profiles", *self._profiles())
        for row in range(len(self.scenario.trace)):
            expected, got = simulation.allocations.holding(row), tuple(self._nodes(row))
            self._same("nodes", expected, got, f", row {row}")
            self._same("number of nodes", len(expected), int(episodes.job[0, row, c.NODES]), f", row {row}")

    def _nodes(self, row: int) -> Iterator[tuple[int, int]]:
        """Yield the nodes that a job holds, and its GPUs on each."""
        at, share = self.batch.episodes.job[0, row, c.FIRST_SHARE], self.batch.episodes.share[0]
        while at != c.NONE:
            yield int(share[at, c.NODE]), int(share[at, c.ON_NODE])
            at = share[at, c.NEXT_SHARE]

    def _columns(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield the name of each column of the jobs and nodes, and its values in both engines."""
        jobs, episodes, free = self.simulation.jobs, self.batch.episodes, self.simulation.allocations
        n = len(self.scenario.trace)
        job, figures = episodes.job[0, :n], episodes.figures[0, :n]
        for name, column in _JOBS.items():
            yield name, getattr(jobs, name), job[:, column]
        for name, column in _FIGURES.items():
            yield name, getattr(jobs, name), figures[:, column]
        counts = np.append(self.cluster.counts, 0)
        yield "gpus", jobs.gpus, counts[job[:, c.LEVEL]]
        yield "searched", jobs.searched, episodes.searched[0, :n]
        due = np.full(n, c.NEVER)
        for row in np.flatnonzero(jobs.gpus).tolist():
            due[row] = int(jobs.ready[row]) + ticks(float(jobs.remaining[row] * jobs.iteration_s[row]))
        yield "due", due, job[:, c.DUE]
        yield "hidden", jobs.hidden, job[:, c.HIDDEN]
        yield "free GPUs of type", free.free, episodes.free[0]
        yield "free GPUs of node", free.free_on_node, episodes.free_on_node[0]

    def _profiles(self) -> tuple[Any, Any]:
        """Return (unit, type, job, ticks left, tick of start) of the profiles that wait and run in both."""
        profiler, profile = self.simulation.profiler, self.batch.episodes.profile[0]
        types = len(self.cluster.capacity)
        waiting = profile[: self._clock(c.WAITING_PROFILES), c.NTH_WAITING].tolist()
        running = profile[: self._clock(c.RUNNING_PROFILES), c.NTH_RUNNING].tolist()
        got = [
            (at // types, at % types, *map(int, profile[at, [c.OWNER, c.LEFT_TICKS]]))
            for kind in range(types)
            for at in waiting
            if at % types == kind
        ]
        got += [
            (at // types, at % types, *map(int, profile[at, [c.OWNER, c.LEFT_TICKS, c.SINCE]]))
            for at in running
        ]
        waits = [one for queue in profiler.waiting for one in queue]
        expected = [(one.unit, one.gpu_type, one.row, one.left) for one in waits]
        expected += [(one.unit, one.gpu_type, one.row, one.left, one.since) for one in profiler.running]
        return expected, got

    def _compare_events(self) -> None:
        episodes, first = self.batch.episodes, self._next_episode
        last = self._clock(c.EVENTS)
        assert last <= len(episodes.event[0]), "written past the log's end"
        assert self._clock(c.EVENT_NODES) <= len(episodes.event_node[0]), "written past the log's end"
        log = LazyLog(
            episodes.event[0, first:last], episodes.event_iteration_s[0, first:last], episodes.event_node[0]
        )
        expected = self.simulation.log.events[first:]
        for at, (mine, other) in enumerate(zip(log.events, expected, strict=False)):
            if tuple(map(str, mine)) != tuple(map(str, other)):
                raise AssertionError(f"step {self.step}, event {first + at}: SimPy {other}, compiled {mine}")
        self._same("events", len(expected), last - first)
        self._next_episode = last
