"""The bridge on the back end in memory: what it calls, in which order, and how it answers what it sees."""

from dataclasses import replace

import numpy as np
import pytest
from clustergym.operators.live.backend import FakeBackend, Part, list_parts
from clustergym.operators.live.bridge import RETRY_S, LiveSimulation
from clustergym.operators.live.clocks import LateClock, LiveClock, ScaledClock
from clustergym.operators.live.link import Link
from scenarios import Job, Script, small_scenario

from clustergym.common.errors import InputError
from clustergym.results.measured_run import simulate
from clustergym.results.metrics.metrics import measure_scenario
from clustergym.scenario.by_name import load_scenario
from clustergym.scenario.disturbances.checkpoints import Checkpoints
from clustergym.scenario.disturbances.failures import Failures, NodeFailure
from clustergym.scenario.policy import Decision
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.sim.drive import drive


class Watched(FakeBackend):
    """Notes its calls, and lets a test change the cluster at some poll."""

    def __init__(self, node_gpus):
        super().__init__(node_gpus)
        self.calls, self.polls, self.at_poll = [], 0, {}

    def submit(self, name, part):
        refused = super().submit(name, part)
        self.calls.append(("submit", name, part.nodes, part.gpus))
        return refused

    def cancel(self, names):
        self.calls.append(("cancel", *names))
        super().cancel(names)

    def poll(self):
        self.polls += 1
        self.at_poll.pop(self.polls, lambda: None)()
        return super().poll()


def live(scenario, policy, backend, clock=None, placer="buddy"):
    link = Link(backend, clock or LiveClock(), 0.005, 1.0)
    arguments = (policy.information_class, policy.round_s, 0)
    simulation = LiveSimulation(scenario, make_placer({"name": placer}), *arguments).connect(link.ask, "cg-x")
    link.expected = simulation.allocator.expected
    return simulation


def two_nodes(jobs, **keys):
    """Two nodes of two GPUs; an iteration takes 1 s on any count."""
    return small_scenario(jobs, {"A": (2, 2)}, {"m": {"A": dict.fromkeys((1, 2, 4), 1.0)}}, **keys)


def kinds(simulation, job):
    events = [event for event in simulation.log.events if event.job == job]
    return [(event.time_s, str(event.event_type)) for event in events]


def test_an_allotment_is_one_part_for_each_number_of_gpus():
    assert list_parts("n", ((0, 4), (1, 4), (5, 2))) == {"n.0": Part((0, 1), 4), "n.1": Part((5,), 2)}


def test_stops_come_before_starts_and_the_result_is_the_simulators():
    scenario = two_nodes([Job("a", 0, 100), Job("b", 50, 100)])
    entries = {0.0: {"a": ("A", 2)}, 50.0: {"b": ("A", 4)}, 150.0: {"a": ("A", 1)}}
    backend = Watched(scenario.cluster.node_gpus)
    simulation = live(scenario, policy := Script(scenario, dict(entries)), backend)
    drive(simulation, policy)
    assert backend.calls == [
        ("submit", "cg-x-0-1.0", (0,), 2),
        ("cancel", "cg-x-0-1.0"),
        ("submit", "cg-x-1-1.0", (0, 1), 2),
        ("cancel", "cg-x-1-1.0"),
        ("submit", "cg-x-0-2.0", (0,), 1),
        ("cancel", "cg-x-0-2.0"),
    ]
    assert simulation.log.digest == simulate(scenario, Script(scenario, dict(entries)), "buddy").digest


@pytest.mark.parametrize("horizon_s", [60.0, 120.0])
def test_a_run_ends_at_its_horizon(horizon_s):
    # b comes at 50 s and takes 100 s: it never ends.
    scenario = two_nodes([Job("a", 0, 100), Job("b", 50, 100)], horizon_s=horizon_s)
    simulation = live(scenario, make_policy({"name": "fcfs"}), FakeBackend(scenario.cluster.node_gpus))
    drive(simulation, make_policy({"name": "fcfs"}))
    assert simulation.end_s == horizon_s
    assert simulation.log.digest == simulate(scenario, make_policy({"name": "fcfs"}), "buddy").digest


def test_a_job_that_is_gone_is_a_failure_and_runs_again():
    scenario = two_nodes([Job("a", 0, 100), Job("b", 10, 10)])
    backend = Watched(scenario.cluster.node_gpus)
    simulation = live(scenario, policy := make_policy({"name": "fcfs"}), backend)
    # Poll 1 is before job b's arrival at 10 s, poll 2 after it.
    backend.at_poll[2] = lambda: backend.cancel(["cg-x-0-1.0"])
    drive(simulation, policy)
    assert kinds(simulation, 0) == [
        *((0.0, "submit"), (0.0, "start"), (10.0, "fail"), (10.000001, "resume")),
        # A job without a failure's interval between checkpoints goes back to its launch.
        (110.000001, "complete"),
    ]
    assert "ended by the scheduler" in [event.reason for event in simulation.log.events]


def test_a_node_that_is_down_is_left_and_used_again_when_it_is_back():
    scenario = two_nodes([Job("a", 0, 100, gpus=2), Job("b", 10, 20, gpus=2), Job("c", 40, 10, gpus=2)])
    backend = Watched(scenario.cluster.node_gpus)
    simulation = live(scenario, policy := make_policy({"name": "fcfs"}), backend)
    backend.at_poll[2] = lambda: backend.node_down(0)
    # What changes counts once two polls show it: one poll later than it is lost.
    backend.at_poll[7] = lambda: backend.node_up(0)
    drive(simulation, policy)
    nodes = [(event.time_s, event.event_type) for event in simulation.log.events if event.job < 0]
    assert [kind for _, kind in nodes] == ["node_fail", "node_repair"]
    failed = next(event for event in simulation.log.events if event.event_type == "fail")
    assert (failed.job, failed.reason) == (0, "node 0 is down")
    after = [event for event in simulation.log.events if event.event_type == "resume"]
    assert [(event.job, event.nodes) for event in after] == [(0, ((1, 2),))]


def test_a_failure_of_the_scenario_happens_on_the_back_end_and_is_seen_there():
    failures = Failures(schedule=(NodeFailure(30.0, 0, 20.0),), checkpoint_every_s=10.0)
    scenario = replace(two_nodes([Job("a", 0, 100, gpus=4)]), disturbances=(failures,))
    backend = Watched(scenario.cluster.node_gpus)
    simulation = live(scenario, policy := make_policy({"name": "fcfs"}), backend)
    drive(simulation, policy)
    assert [(entry.name, entry.state) for entry in backend.ended] == [
        ("cg-x-0-1.0", "NODE_FAIL"),
        ("cg-x-0-2.0", "CANCELLED"),
    ]
    assert simulation.log.digest == simulate(scenario, make_policy({"name": "fcfs"}), "buddy").digest


def test_a_refused_launch_waits_and_is_tried_again():
    scenario = two_nodes([Job("a", 0, 100, gpus=4)])
    backend = Watched(scenario.cluster.node_gpus)
    backend.submit("someone", Part((1,), 1))
    simulation = live(scenario, policy := make_policy({"name": "fcfs"}), backend)
    backend.at_poll[1] = lambda: backend.cancel(["someone"])
    drive(simulation, policy)
    assert [kind for _, kind in kinds(simulation, 0)] == ["submit", "unplaced", "start", "complete"]
    assert kinds(simulation, 0)[2][0] == RETRY_S


def test_other_nodes_than_asked_end_the_run():
    scenario = two_nodes([Job("a", 0, 100), Job("b", 10, 10)])
    backend = Watched(scenario.cluster.node_gpus)
    simulation = live(scenario, policy := make_policy({"name": "fcfs"}), backend)
    backend.at_poll[1] = lambda: backend.parts.update({"cg-x-0-1.0": Part((1,), 1)})
    with pytest.raises(InputError, match=r"cg-x-0-1\.0: holds 1 GPUs on each of nodes \[1\]"):
        drive(simulation, policy)


def test_what_is_not_confirmed_ends_the_run():
    scenario = two_nodes([Job("a", 0, 100)])
    backend = Watched(scenario.cluster.node_gpus)
    backend.cancel = lambda names: None
    simulation = live(scenario, policy := make_policy({"name": "fcfs"}), backend)
    with pytest.raises(InputError, match=r"did not end cg-x-0-1\.0 within 1 s"):
        drive(simulation, policy)


@pytest.mark.parametrize("name", ["fcfs", "srtf", "arena", "ares", "sia"])
def test_lock_step_is_the_simulator(name):
    scenario = load_scenario("live-small", ["trace.jobs=12"])
    policy = make_policy({"name": name})
    simulation = live(scenario, policy, FakeBackend(scenario.cluster.node_gpus))
    drive(simulation, policy)
    assert simulation.log.digest == simulate(scenario, make_policy({"name": name}), "buddy").digest


def test_late_events_keep_their_order():
    clock, seen = LateClock(), []
    for delay in (5, 3, 9):
        clock.timeout(delay).callbacks.append(lambda _, delay=delay: seen.append((clock.now, delay)))
    clock.catch_up(7)
    assert clock.peek() == 7
    while clock.peek() < float("inf"):
        clock.step()
    assert seen == [(7, 3), (7, 5), (9, 9)]


def test_a_scaled_clock_is_fast_while_the_run_waits_and_else_as_the_wall_clock(monkeypatch):
    wall_s = 100.0
    monkeypatch.setattr("clustergym.operators.live.clocks.time.monotonic", lambda: wall_s)
    monkeypatch.setattr("clustergym.operators.live.clocks.time.time", lambda: wall_s)
    clock = ScaledClock(seconds_per_hour=60.0)
    # A run that was killed at its 5th second goes on half a wall second later: 30 s have passed.
    clock.begin(99.5, tick=5_000_000)
    assert clock.reading() == 35_000_000
    wall_s += 2.0
    assert clock.reading() == 37_000_000
    with clock.waiting(97_000_000):
        assert clock.compute_wait_s(97_000_000) == pytest.approx(1.0)
        wall_s += 0.5
        assert clock.reading() == 67_000_000
        # It looks up half a second too late.
        wall_s += 1.0
    assert clock.reading() == 97_500_000


class SlowCalls(LiveClock):
    """A clock that runs by itself: every reading, as after each call, is a second later."""

    def __init__(self):
        self.now = 0

    def begin(self, wall_s, tick=0):
        pass

    def reading(self):
        self.now += 1_000_000
        return self.now

    def compute_wait_s(self, tick):
        self.now = max(self.now, int(tick))
        return 0.0


class SlowDecisions(SlowCalls):
    """A clock on which calls take no time."""

    def reading(self):
        return self.now


@pytest.mark.parametrize("slow", ["calls", "decisions"])
def test_on_a_running_clock_what_calls_and_decisions_take_is_standstill(slow):
    clock = SlowCalls() if slow == "calls" else SlowDecisions()
    scenario = two_nodes([Job("a", 0, 100), Job("b", 50, 100)])

    class Shrink(Script):
        """Job a has two GPUs until job b comes and has two, and then one."""

        def schedule(self, view):
            clock.now += 3_000_000 * (slow == "decisions")
            both = {"b": ("A", 2)} if len(view) == 2 else {}
            self.entries = {view.now_s: {"a": ("A", 3 - len(view)), **both}}
            return super().schedule(view) if len(view) == 2 or not view.job[0] else Decision.keep(view)

    policy = Shrink(scenario, {})
    simulation = live(scenario, policy, Watched(scenario.cluster.node_gpus), clock)
    drive(simulation, policy)
    records = measure_scenario(scenario, simulation.log.events, simulation.end_s).records
    np.testing.assert_allclose(records.iterations_done, [100, 100], atol=1e-5)
    still = [event for event in simulation.log.events if event.event_type == "rate" and event.job == 0]
    moved = next(event for event in simulation.log.events if event.event_type == "rescale")
    assert still[0].time_s + still[0].overhead_s == moved.time_s


@pytest.mark.parametrize("name", ["fcfs", "arena", "ares"])
def test_on_a_running_clock_the_log_is_sound_and_jobs_are_late_but_whole(name):
    scenario = load_scenario("live-small", ["trace.jobs=12"])
    policy = make_policy({"name": name})
    simulation = live(scenario, policy, FakeBackend(scenario.cluster.node_gpus), SlowCalls())
    drive(simulation, policy)
    records = measure_scenario(scenario, simulation.log.events, simulation.end_s).records
    assert records.submit_s.tolist() == np.round(scenario.trace.submit_s, 6).tolist()
    np.testing.assert_allclose(records.iterations_done, scenario.trace.iterations, rtol=1e-6)
    plain = simulate(scenario, make_policy({"name": name}), "buddy").metrics["jct_mean"]
    assert 0.95 * plain < records.jct_s.mean() < 1.1 * plain


class Noticing(Script):
    """Gives a notice at 50 to what it leaves out, and moves b to node 1 at 100."""

    def schedule(self, view):
        decision = super().schedule(view)
        if view.now_s == 50.0:
            return replace(decision, notice=np.array([0]))
        return replace(decision, move={1: ((1, 2),)}) if view.now_s == 100.0 else decision


def test_notice_is_a_stop_once_the_job_has_saved_and_a_move_is_a_stop_and_a_start():
    # a saves from 50 to 60, b has node 0 from then on, and node 1 from 100; c wakes the policy at 100.
    jobs = [Job("a", 0, 100, 2), Job("b", 50, 100, 2), Job("c", 100, 1, 2)]
    scenario = two_nodes(jobs, checkpoint_s={"m": 20.0})
    scenario = replace(scenario, disturbances=(Checkpoints(500.0),))
    entries = {0.0: {"a": ("A", 2)}, 50.0: {}, 60.0: {"b": ("A", 2)}, 100.0: {"b": ("A", 2)}}
    backend = Watched(scenario.cluster.node_gpus)
    simulation = live(scenario, policy := Noticing(scenario, dict(entries)), backend)
    view = simulation.advance()
    while view is not None and view.now_s <= 100.0:
        simulation.apply(policy.schedule(view))
        view = simulation.advance()
    assert kinds(simulation, 0) == [(0.0, "submit"), (0.0, "start"), (50.0, "save"), (60.0, "preempt")]
    assert kinds(simulation, 1)[:4] == [
        (50.0, "submit"),
        (60.0, "start"),
        (100.0, "undo"),
        (100.0, "migrate"),
    ]
    first = next(call[2] for call in backend.calls if call[1] == "cg-x-1-1.0")
    assert backend.calls[:5] == [
        ("submit", "cg-x-0-1.0", (0,), 2),
        ("cancel", "cg-x-0-1.0"),
        ("submit", "cg-x-1-1.0", first, 2),
        ("cancel", "cg-x-1-1.0"),
        ("submit", "cg-x-1-2.0", (1,), 2),
    ]
