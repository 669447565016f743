"""What the hook for disturbances carries beyond failures of nodes and planned jobs, worked out by hand."""

from dataclasses import dataclass, field

import pytest
from scenarios import Job, events_of, run_of

from clustergym.results.measured_run import measure_run
from clustergym.scenario.clock import ticks
from clustergym.scenario.disturbance import ActiveDisturbance, Disturbance
from clustergym.sim.log import NO_JOB, EventType

X4, X8 = ("X", 4), ("X", 8)


class Toy(Disturbance):
    key = "toy"

    @classmethod
    def from_config(cls, given, cluster, trace, seed):
        return None


@dataclass(frozen=True)
class Switch(Toy):
    """Takes all its nodes at once."""

    nodes: tuple[int, ...]
    times_s: tuple[tuple[float, float], ...]
    outages = (("switch_fail", "switch_repair"),)

    def start(self, run):
        run.follow(self._fail(run))

    def _fail(self, run):
        for time_s, repair_s in self.times_s:
            yield ticks(time_s)
            for node in self.nodes:
                run.take_out(node, ticks(repair_s), self.outages[0], "switch failed", "heat")


def test_what_takes_many_nodes_fails_a_job_once_and_outages_may_overlap():
    # a holds nodes 0 and 1, b node 2. The switch of 0 and 1 fails at 50 for 20 s and at 60 for 30 s: both
    # nodes are back at 90, and a starts again from its launch, as nothing asks for checkpoints.
    jobs = [Job("a", 0.0, 100, 8), Job("b", 0.0, 100, 4)]
    entries = {0.0: {"a": X8, "b": X4}, 90.0: {"a": X8, "b": X4}}
    run, script = run_of(jobs, 3, Switch((0, 1), ((50.0, 20.0), (60.0, 30.0))), entries)
    assert events_of(run, EventType.FAIL) == [(50.0, 0)]
    assert events_of(run, EventType.COMPLETE) == [(100.0, 1), (190.0, 0)]
    assert events_of(run, "switch_fail") == [(time_s, NO_JOB) for time_s in (50.0, 50.0, 60.0, 60.0)]
    outages = [e for e in run.simulation.log.events if e.event_type in ("switch_fail", "switch_repair")]
    fails = [(time_s, "switch_fail", "heat") for time_s in (50.0, 50.0, 60.0, 60.0)]
    repairs = [(time_s, "switch_repair", "") for time_s in (70.0, 70.0, 90.0, 90.0)]
    assert [(e.time_s, e.event_type, e.cause) for e in outages] == fails + repairs
    available = {view.now_s: int(view.available[0]) for view in script.views}
    assert available == {0.0: 12, 50.0: 4, 60.0: 4, 70.0: 4, 90.0: 12, 100.0: 12}
    assert measure_run(run.simulation).metrics["lost_gpu_hours"] == pytest.approx(8 * 50 / 3600)


@dataclass(frozen=True)
class Slow(Toy):
    """Slows node 0 down."""

    times_s: tuple[tuple[float, float, float], ...]

    def start(self, run):
        run.follow(self._slow(run))

    def _slow(self, run):
        for time_s, factor, duration_s in self.times_s:
            yield ticks(time_s)
            run.slow(0, factor, ticks(duration_s), ("slow", "slow_end"), "hot")


def test_a_job_is_as_slow_as_its_slowest_node():
    # a holds nodes 0 and 1: 20 iterations until 20, 10 until 40 (twice as slow), 2 until 50 (five times), 5
    # until 60 (twice), and the last 63 until 123.
    slow = Slow(((20.0, 2.0, 40.0), (40.0, 2.5, 10.0)))
    run, _ = run_of([Job("a", 0.0, 100, 8)], 2, slow, {0.0: {"a": X8}})
    assert events_of(run, EventType.COMPLETE) == [(123.0, 0)]
    paces = [e.iteration_time_s for e in run.simulation.log.events if e.event_type == EventType.RATE]
    assert paces == [2.0, 5.0, 2.0, 1.0]
    told = [(e.time_s, e.event_type, e.cause) for e in run.simulation.log.events if e.cause]
    assert told == [
        (20.0, "slow", "hot"),
        (40.0, "slow", "hot"),
        (50.0, "slow_end", "hot"),
        (60.0, "slow_end", "hot"),
    ]
    # Work is conserved at these speeds, or this raises.
    assert measure_run(run.simulation).metrics["jobs_finished"] == 1


@dataclass(frozen=True)
class Crashes(Toy):
    """Lets a job fail so many seconds after its first, second, … launch."""

    after_s: tuple[float, ...]

    def start(self, run):
        return CrashCourse(self, run)


@dataclass
class CrashCourse(ActiveDisturbance):
    crashes: Crashes
    run: object
    launches: int = 0

    def note_launch(self, row):
        self.launches += 1
        self.run.follow(self._crash(row, self.run.now + ticks(self.crashes.after_s[self.launches - 1])))

    def _crash(self, row, tick):
        yield tick
        self.run.interrupt(row, "segmentation fault")


def test_a_job_that_fails_by_itself():
    # a fails 30 s after its first and second launch, and would at 190 s after its third, but ends at 160.
    jobs = [Job("a", 0.0, 100, 4), Job("b", 0.0, 100, 4)]
    entries = {0.0: {"a": X4}, 30.0: {"a": X4}, 60.0: {"a": X4}, 160.0: {"b": X4}}
    run, _ = run_of(jobs, 1, Crashes((30.0, 30.0, 130.0, 999.0)), entries)
    assert events_of(run, EventType.FAIL) == [(30.0, 0), (60.0, 0)]
    assert events_of(run, EventType.COMPLETE) == [(160.0, 0), (260.0, 1)]
    metrics = measure_run(run.simulation).metrics
    assert (metrics["failures_mean"], metrics["node_failures"]) == (2 / 2, 0)
    assert metrics["lost_gpu_hours"] == pytest.approx(4 * 60 / 3600)


@dataclass(frozen=True)
class Drain(Toy):
    """Lets the jobs of a node end, then takes it out for maintenance."""

    node: int
    time_s: float
    duration_s: float

    def start(self, run):
        return DrainCourse(self, run)


@dataclass
class DrainCourse(ActiveDisturbance):
    drain: Drain
    run: object
    nodes: dict[int, str] = field(default_factory=dict)

    def __post_init__(self):
        self.run.follow(self._begin())

    def _begin(self):
        yield ticks(self.drain.time_s)
        self.nodes[self.drain.node] = "maintenance"

    def withheld(self, until):
        return self.nodes

    def serve(self):
        allocations, node = self.run.allocations, self.drain.node
        if node in self.nodes and allocations.free_on_node[node] == allocations.spec.node_gpus[node]:
            del self.nodes[node]
            self.run.take_out(node, ticks(self.drain.duration_s), ("drained", "undrained"), "maintenance")


def test_a_drained_node_finishes_its_jobs_and_then_goes_out():
    # a ends on node 0 at 50. b, from 20 on, finds only node 1; at 75 node 0 is back.
    jobs = [Job("a", 0.0, 50, 4), Job("b", 20.0, 10, 8)]
    entries = {0.0: {"a": X4}, 50.0: {}, 60.0: {"b": X8}, 75.0: {"b": X8}}
    run, script = run_of(jobs, 2, Drain(0, 10.0, 25.0), entries)
    assert events_of(run, "drained", "undrained") == [(50.0, NO_JOB), (75.0, NO_JOB)]
    assert events_of(run, EventType.FAIL) == []
    assert events_of(run, EventType.COMPLETE) == [(50.0, 0), (85.0, 1)]
    assert [int(view.available[0]) for view in script.views if view.now_s == 50.0] == [4]


def test_a_launch_that_only_fits_on_a_draining_node_is_unplaced():
    # b, the larger, takes node 0. Node 1 has 2 GPUs free beside a, but drains from 10 on and is out at 50.
    jobs = [Job("a", 0.0, 50, 2), Job("b", 0.0, 50, 4), Job("c", 20.0, 10, 2)]
    x2 = ("X", 2)
    entries = {0.0: {"a": x2, "b": X4}, 20.0: {"a": x2, "b": X4, "c": x2}, 50.0: {"c": x2}}
    run, _ = run_of(jobs, 2, Drain(1, 10.0, 25.0), entries)
    unplaced = [
        (e.time_s, e.job, e.reason) for e in run.simulation.log.events if e.event_type == EventType.UNPLACED
    ]
    assert unplaced == [(20.0, 2, "nodes are kept for maintenance, 2 GPUs short")]
    assert events_of(run, EventType.COMPLETE) == [(50.0, 1), (50.0, 0), (60.0, 2)]
