"""Optimus's marginal gains on cases solved by hand."""

import pytest
from clustergym.policies.optimus import Optimus
from clustergym.policies.placers.buddy import Buddy
from round_scenarios import without_profiles
from scenarios import Job, allotments, small_scenario

from clustergym.scenario.policy import Decision, InformationClass
from clustergym.sim.drive import simulate
from clustergym.sim.engine import Simulation
from clustergym.sim.log import EventType


def simulation_of(jobs, groups, times, checkpoint_s=None):
    scenario = small_scenario(jobs, groups, times, checkpoint_s=checkpoint_s, rounds=60.0)
    return Simulation(scenario, Buddy(defragment_s=None), InformationClass.DATA_PARALLEL)


def test_gpus_go_where_they_save_most_time():
    # Each job gets 1 GPU; 2 are left. A second saves a 1000 x (4 - 2) = 2000 s, b 1000 x (4 - 3.5) =
    # 500 s, a fourth would save a (4 - 1) x 1000 / 3 = 1000 s a GPU but 3 are not free.
    times = {"a": {"X": {1: 4.0, 2: 2.0, 4: 1.0}}, "b": {"X": {1: 4.0, 2: 3.5, 4: 3.4}}}
    jobs = [Job("a", 0, 1000, family="a"), Job("b", 0, 1000, family="b")]
    view = simulation_of(jobs, {"X": (1, 4)}, times).advance()
    assert allotments(Optimus().schedule(view)) == {0: (0, 2), 1: (0, 2)}


def test_a_gpu_that_helps_nobody_stays_free():
    times = {"m": {"X": {1: 4.0, 2: 4.0}}}
    view = simulation_of([Job("a", 0, 1000)], {"X": (1, 2)}, times).advance()
    assert allotments(Optimus().schedule(view)) == {0: (0, 1)}


def test_least_counts_first_the_shortest_jobs_first():
    # One GPU: b ends sooner. c needs at least 2.
    times = {"m": {"X": {1: 4.0}}, "big": {"X": {2: 0.1}}}
    jobs = [Job("a", 0, 1000), Job("b", 0, 10), Job("c", 0, 1, family="big")]
    view = simulation_of(jobs, {"X": (1, 2)}, times).advance()
    # c ends first and takes both.
    assert allotments(Optimus().schedule(view)) == {2: (0, 2)}
    view = simulation_of(jobs[:2], {"X": (1, 1)}, {"m": {"X": {1: 4.0}}}).advance()
    assert allotments(Optimus().schedule(view)) == {1: (0, 1)}


def test_a_job_moves_to_a_faster_type_that_is_free():
    # a holds 1 Y and has 99 iterations left; on 1 X they take half the time.
    times = {"m": {"X": {1: 1.0}, "Y": {1: 2.0}}}
    simulation = simulation_of([Job("a", 0, 129)], {"X": (1, 1), "Y": (1, 1)}, times)
    simulation.advance()
    simulation.apply(Decision.of([(0, 1, 1)]))
    assert allotments(Optimus().schedule(simulation.advance())) == {0: (0, 1)}


@pytest.mark.parametrize(("restart_s", "guard", "gpus"), [(4.0, True, 2), (60.0, True, 1), (60.0, False, 2)])
def test_by_the_guard_rescaling_must_repay_its_restart(restart_s, guard, gpus):
    # 100 iterations are left at 1200 s: 100 s on 1, 50 s on 2. A restart of 4 s makes it 54 < 100; one of
    # 60 s 110, and as published it does not count. 20 restarts, at most 1200 s, are over.
    times = {"m": {"X": {1: 1.0, 2: 0.5}}}
    simulation = simulation_of([Job("a", 0, 1300)], {"X": (1, 2)}, times, {"m": restart_s})
    simulation.advance()
    simulation.apply(Decision.of([(0, 0, 1)]))
    policy, view = Optimus(guard=guard), simulation.advance()
    while view.now_s < 1200.0:
        policy.find_guarded(view)
        simulation.apply(Decision.keep(view))
        view = simulation.advance()
    assert allotments(policy.schedule(view)) == {0: (0, gpus)}


@pytest.mark.parametrize(("guard", "gpus"), [(True, [1, 1, 1, 2]), (False, [1, 2, 2, 2])])
def test_by_the_guard_a_launched_job_keeps_its_gpus_for_20_restarts(guard, gpus):
    # a starts on 1 X at 0 beside b, which ends at 30; 20 restarts of 8 s are 160 s. As published a grows at
    # 60, by the guard at 180.
    times = {"m": {"X": {1: 1.0, 2: 0.5}}}
    jobs = [Job("a", 0, 10_000), Job("b", 0, 30)]
    simulation, policy = simulation_of(jobs, {"X": (1, 2)}, times, {"m": 8.0}), Optimus(guard=guard)
    held = []
    for _ in range(4):
        decision = policy.schedule(simulation.advance())
        simulation.apply(decision)
        held.append(allotments(decision)[0][1])
    assert held == gpus


def test_a_job_without_a_profile_runs_as_requested():
    # "n" fits on 2 and 4 GPUs, but not in pure data parallelism.
    jobs = [Job("a", 0, 100, gpus=2, family="n"), Job("b", 0, 100)]
    times = {"m": {"X": {1: 4.0, 2: 3.0}}, "n": {"X": {2: 2.0, 4: 1.0}}}
    scenario = without_profiles(small_scenario(jobs, {"X": (1, 4)}, times, rounds="policy"), "n")
    simulation = Simulation(scenario, Buddy(), InformationClass.DATA_PARALLEL, 60.0)
    assert allotments(Optimus().schedule(simulation.advance()))[0] == (0, 2)
    run = simulate(scenario, Optimus(), Buddy())
    assert sum(e.event_type == EventType.COMPLETE for e in run.simulation.log.events) == 2
