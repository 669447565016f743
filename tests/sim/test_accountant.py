"""The accountant that checks random runs notices what it is there for."""

from dataclasses import replace

import numpy as np
import pytest
from accountant import Accountant
from clustergym.policies.placers.buddy import Buddy
from scenarios import Job, Script, price, small_scenario

from clustergym.scenario.costs import Costs
from clustergym.scenario.disturbances.checkpoints import Checkpoints
from clustergym.scenario.disturbances.failures import NODE_FAIL, Failures, NodeFailure
from clustergym.scenario.policy import InformationClass
from clustergym.sim.drive import simulate
from clustergym.sim.log import EventType

TIMES = {"m": {"X": {2: 1.5, 4: 1.0}}}


@pytest.fixture(scope="module")
def run():
    """Profiles for 5 s, a and b start, node 0 fails under a at 40.5, a resumes at 50.5 with 2 GPUs."""
    costs = Costs(profile=price("profiled", 5.0))
    scenario = small_scenario(
        [Job("a", 0.0, 100, 4), Job("b", 0.0, 60, 4)],
        {"X": (2, 4)},
        TIMES,
        checkpoint_s={"m": 7.0},
        costs=costs,
    )
    failures = Failures((NodeFailure(40.5 + 20, 0, 10.0),), checkpoint_every_s=15.0)
    scenario = replace(scenario, disturbances=(failures,))
    four = ("X", 4)
    entries = {5.0: {"a": four, "b": four}, 60.5: {"b": four}, 70.5: {"b": four, "a": ("X", 2)}}
    return simulate(scenario, Script(scenario, entries, InformationClass.PROFILED), Buddy()).simulation


def audit(run, events, information="profiled"):
    books = Accountant(run.scenario, information)
    books.follow(events)
    books.close_instant()
    assert {job.phase for job in books.jobs} == {"left"}


def test_the_log_as_it_is_adds_up(run):
    kinds = [event.event_type for event in run.log.events if event.job == 0]
    assert kinds[-5:] == ["profile_end", "start", "fail", "resume", "complete"]
    audit(run, list(run.log.events))


def at(events, kind, nth=0):
    return [place for place, event in enumerate(events) if event.event_type == kind][nth]


TAMPERED = {
    "GPUs twice": (EventType.START, 1, lambda e, all: e._replace(nodes=all[at(all, "start")].nodes)),
    "more GPUs than decided": (EventType.START, 0, lambda e, _: e._replace(gpus=8)),
    "a restart not paid": (EventType.RESUME, 0, lambda e, _: e._replace(overhead_s=20.0)),
    "a restart paid twice": (EventType.RESUME, 0, lambda e, _: e._replace(overhead_s=34.0)),
    "a search paid twice": (EventType.RESUME, 0, lambda e, _: e._replace(overhead_s=47.0)),
    "less lost": (EventType.FAIL, 0, lambda e, _: e._replace(lost_iterations=e.lost_iterations - 0.01)),
    "less time lost": (EventType.FAIL, 0, lambda e, _: e._replace(lost_s=e.lost_s - 0.01)),
    "another speed": (EventType.START, 0, lambda e, _: e._replace(iteration_time_s=0.99)),
    "done early": (EventType.COMPLETE, 1, lambda e, _: e._replace(time_s=e.time_s - 0.001)),
    "done late": (EventType.COMPLETE, 1, lambda e, _: e._replace(time_s=e.time_s + 0.001)),
    "another node": (NODE_FAIL, 0, lambda e, _: e._replace(nodes=((1, 4),))),
    "known too soon": (EventType.PROFILE_END, 0, lambda e, _: e._replace(time_s=4.9)),
    "another submission": (EventType.SUBMIT, 0, lambda e, _: e._replace(time_s=1.0)),
    "launched twice": (EventType.RESUME, 0, lambda e, _: e._replace(event_type=EventType.START)),
    "no whole microsecond": (EventType.COMPLETE, 1, lambda e, _: e._replace(time_s=e.time_s + 3e-7)),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_log_that_was_changed_does_not(run, what):
    events = list(run.log.events)
    kind, nth, change = TAMPERED[what]
    place = at(events, kind, nth)
    events[place] = change(events[place], events)
    with pytest.raises((AssertionError, KeyError)):
        audit(run, events)


@pytest.mark.parametrize(
    "kind", ["submit", "start", "fail", "resume", "complete", "profile_end", "node_repair"]
)
def test_a_log_that_lacks_an_event_does_not(run, kind):
    events = list(run.log.events)
    del events[at(events, kind)]
    with pytest.raises((AssertionError, KeyError)):
        audit(run, events)


def test_a_log_out_of_order_does_not(run):
    events = list(run.log.events)
    place = at(events, "fail")
    events[place], events[place + 1] = events[place + 1], events[place]
    with pytest.raises((AssertionError, KeyError, StopIteration)):
        audit(run, events)


class Noticing(Script):
    """A script that also says who saves before it stops or its GPUs change, by time."""

    notices: dict[float, tuple[int, ...]]

    def schedule(self, view):
        notice = np.array(self.notices.get(view.now_s, ()), dtype=np.int64)
        waits = view.job[view.gpus == 0][: int(view.free[0]) // 2 if view.now_s > 90.0 else 0]
        decision = super().schedule(view).also((row, 0, 2) for row in waits.tolist())
        return replace(decision, notice=notice)


@pytest.fixture(scope="module")
def stopped():
    """Checkpoints each 15 s, 5 s to save and 5 to load; a, b, c are rows 0, 1, 2.

    a is stopped at 20.5, b has notice then and at 70.5, when its node fails while it saves. c shrinks at 20.5
    without notice, and grows at 70.5 with it. d and e wake the policy; d has GPUs until 25.5.
    """
    costs = Costs(first_launch=False)
    jobs = [Job("a", 0.0, 60, 4), Job("b", 0.0, 100, 4), Job("c", 0.0, 150, 4)]
    jobs += [Job("d", 20.5, 1, 2), Job("e", 70.5, 1, 2)]
    given = {"X": (3, 4)}, {"m": {"X": {2: 1.5, 4: 1.0}}}
    scenario = small_scenario(jobs, *given, checkpoint_s={"m": 10.0}, costs=costs)
    failures = Failures((NodeFailure(72.5, 2, 10.0),), checkpoint_every_s=600.0)
    scenario = replace(scenario, disturbances=(Checkpoints(15.0), failures))
    four, two = ("X", 4), ("X", 2)
    entries = {
        0.0: {"a": four, "b": four, "c": four},
        20.5: {"c": two, "d": two},
        25.5: {"a": four, "b": four, "c": two},
        70.5: {"a": four, "c": four},
        82.5: {"a": four, "b": four, "c": four},
    }
    script = Noticing(scenario, entries)
    script.notices = {20.5: (1,), 70.5: (1, 2)}
    return simulate(scenario, script, Buddy(defragment_s=None)).simulation


def test_stops_with_and_without_notice_add_up(stopped):
    kinds = [
        (event.time_s, event.event_type)
        for event in stopped.log.events
        if event.event_type in ("save", "undo")
    ]
    assert kinds == [(20.5, "undo"), (20.5, "save"), (20.5, "undo"), (25.5, "undo"), (70.5, "save")]
    assert [event.job for event in stopped.log.events if event.event_type == "fail"] == [1]
    audit(stopped, list(stopped.log.events), "none")


STOPPED = {
    "less undone": ("undo", 0, lambda e: e._replace(lost_s=e.lost_s - 0.1)),
    "fewer iterations undone": ("undo", 0, lambda e: e._replace(lost_iterations=e.lost_iterations + 0.1)),
    "another job's work": ("undo", 0, lambda e: e._replace(job=1)),
    "a longer save": ("save", 0, lambda e: e._replace(overhead_s=e.overhead_s + 1.0)),
    "stopped before it has saved": ("preempt", 1, lambda e: e._replace(time_s=e.time_s - 0.5)),
    "a save not paid": ("rescale", 1, lambda e: e._replace(overhead_s=e.overhead_s - 5.0)),
    "a failure that forgets": ("fail", 0, lambda e: e._replace(lost_s=0.0)),
}


@pytest.mark.parametrize("what", STOPPED)
def test_a_log_of_stops_that_was_changed_does_not(stopped, what):
    events = list(stopped.log.events)
    kind, nth, change = STOPPED[what]
    place = at(events, kind, nth)
    events[place] = change(events[place])
    with pytest.raises((AssertionError, KeyError)):
        audit(stopped, events, "none")


@pytest.mark.parametrize("kind", ["save", "undo"])
def test_a_log_that_lacks_a_stop_does_not(stopped, kind):
    events = list(stopped.log.events)
    del events[at(events, kind)]
    with pytest.raises((AssertionError, KeyError)):
        audit(stopped, events, "none")
