"""What happens exactly at a limit: cases that a change of `<` to `<=`, or a forgotten term, would turn."""

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.shared.queues import find_queue_index
from scenarios import ONE_S, Job, Script, events_of, small_scenario

from clustergym.results.measured_run import measure_run
from clustergym.scenario.disturbances.failures import Failures, NodeFailure
from clustergym.sim import disturbances
from clustergym.sim.drive import simulate
from clustergym.sim.engine import StalledError
from clustergym.sim.log import EventType


def failing(jobs, *times):
    failures = Failures(tuple(NodeFailure(time_s, 1, 1.0) for time_s in times), checkpoint_every_s=30.0)
    return small_scenario(jobs, {"X": (2, 4)}, ONE_S, disturbances=(failures,))


def test_failures_are_counted_anew_after_a_job_completes(monkeypatch):
    # Node 1, which nobody uses, fails three times before a completes at 35 and three times after it.
    monkeypatch.setattr(disturbances, "FRUITLESS_FAILURES", 3)
    jobs = [Job("a", 0.0, 35, 4), Job("b", 36.0, 50, 4)]
    scenario = failing(jobs, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0)
    run = simulate(scenario, Script(scenario, {0.0: {"a": ("X", 4)}, 36.0: {"b": ("X", 4)}}), Buddy())
    assert events_of(run, EventType.COMPLETE) == [(35.0, 0), (86.0, 1)]
    scenario = failing(jobs[:1], 5.0, 10.0, 20.0, 30.0)
    with pytest.raises(StalledError, match="3 node failures since a job completed"):
        simulate(scenario, Script(scenario, {0.0: {"a": ("X", 4)}}), Buddy())


@pytest.mark.parametrize(("iterations", "met"), [(50, 1.0), (51, 0.0)])
def test_a_deadline_is_met_by_who_ends_at_it(iterations, met):
    job = Job("a", 0.0, iterations, 1, deadline_s=50.0)
    scenario = small_scenario([job], {"X": (1, 1)}, ONE_S)
    run = simulate(scenario, Script(scenario, {0.0: {"a": ("X", 1)}}), Buddy())
    assert measure_run(run.simulation).metrics["deadline_satisfaction"] == met


@pytest.mark.parametrize(("deadline_s", "met"), [(50.0, 0.0), (51.0, None)])
def test_a_deadline_is_decided_at_the_horizon_and_not_before(deadline_s, met):
    job = Job("a", 0.0, 90, 1, deadline_s=deadline_s)
    scenario = small_scenario([job], {"X": (1, 1)}, ONE_S, horizon_s=50.0)
    run = simulate(scenario, Script(scenario, {0.0: {"a": ("X", 1)}}), Buddy())
    assert measure_run(run.simulation).metrics["deadline_satisfaction"] == met


def test_a_threshold_that_is_reached_is_passed():
    assert find_queue_index(np.array([9.9, 10.0, 19.9, 20.0]), (10.0, 20.0)).tolist() == [0, 1, 1, 2]


def test_an_instant_has_one_decision():
    # a takes 0.1 microseconds, which rounds to none: it ends in the instant it starts. b has its GPUs from
    # the next microsecond on, at a decision of its own: a log tells the two apart by their times.
    times = {"m": {"X": {4: 1e-7}}, "long": {"X": {4: 1.0}}}
    scenario = small_scenario([Job("a", 5.0, 1, 4), Job("b", 5.0, 7, 4, family="long")], {"X": (1, 4)}, times)
    entries = {5.0: {"a": ("X", 4)}, 5.000001: {"b": ("X", 4)}}
    run = simulate(scenario, Script(scenario, entries), Buddy())
    assert [change.time_s for change in run.simulation.changes] == [5.0, 5.000001]
    assert events_of(run, EventType.COMPLETE) == [(5.0, 0), (12.000001, 1)]
