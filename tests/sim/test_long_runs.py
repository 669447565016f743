"""What a run does once for all that ask, and what it leaves as it found it."""

import gc

import pytest
from clustergym.policies.fcfs import FirstComeFirstServed
from clustergym.policies.placers.buddy import Buddy
from scenarios import Job, small_scenario

from clustergym.scenario.policy import Decision, InformationClass
from clustergym.sim.decision_checks import DecisionError
from clustergym.sim.drive import simulate
from clustergym.sim.engine import Simulation

SCENARIO = small_scenario([Job("a", 0, 10)], {"X": (1, 4)}, {"m": {"X": {1: 1.0}}})


class Watching(FirstComeFirstServed):
    """FCFS that notes how rarely Python collects garbage while it decides."""

    def schedule(self, view):
        self.threshold = gc.get_threshold()
        return super().schedule(view)


class Illegal(Watching):
    """A policy whose first decision is refused."""

    def schedule(self, view):
        super().schedule(view)
        return Decision.of([(99, 0, 1)])


def test_a_run_leaves_the_garbage_collector_as_it_was():
    before = gc.get_threshold()
    policy = Watching()
    simulate(SCENARIO, policy, Buddy())
    assert policy.threshold == (*before[:2], 10 * before[2])
    assert gc.get_threshold() == before
    with pytest.raises(DecisionError):
        simulate(SCENARIO, Illegal(), Buddy())
    assert gc.get_threshold() == before


def test_a_view_looks_its_times_up_once_and_nobody_can_change_them():
    view = Simulation(SCENARIO, Buddy(), InformationClass.PROFILED).advance()
    times = view.iteration_time_s()
    assert view.iteration_time_s() is times
    with pytest.raises(ValueError, match="read-only"):
        times[0] = 0.0
