"""The accountant that checks random runs notices what it is there for."""

from dataclasses import replace

import pytest
from accountant import Accountant
from clustergym.policies.placers.buddy import Buddy
from scenarios import Job, Script, price, small_scenario

from clustergym.scenario.costs import Costs
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
