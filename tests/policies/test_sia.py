"""Sia's integer program on cases solved by hand, and its observations at work."""

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.shared import integer_programs
from clustergym.policies.shared.integer_programs import SolverError
from clustergym.policies.sia import Sia
from scenarios import Job, allotments, small_scenario

from clustergym.scenario.policy import Decision, InformationClass
from clustergym.sim.drive import simulate
from clustergym.sim.engine import Simulation
from clustergym.sim.log import EventType

LINEAR = {"m": {"X": {1: 8.0, 2: 4.0, 4: 2.0}, "Y": {1: 16.0, 2: 8.0, 4: 4.0}}}


def simulation_of(jobs, groups, times=LINEAR, checkpoint_s=0.0):
    scenario = small_scenario(jobs, groups, times, checkpoint_s={"m": checkpoint_s}, rounds=60.0)
    return Simulation(scenario, Buddy(defragment_s=None), InformationClass.BOOTSTRAP)


def first_decision(jobs, groups, times=LINEAR, **parameters):
    simulation = simulation_of(jobs, groups, times)
    return allotments(Sia(**parameters).schedule(simulation.advance()))


def test_the_program_by_hand():
    # Rows normalised by 1 Y: G on X is 2, 4, 8 and on Y 1, 2, 4; G^-0.5 is .707, .5, .354 and 1, .707,
    # .5. Two equal jobs, 4 X and 4 Y: one on 4 X and one on 4 Y cost .354 + .5 = .854; both on 2 X
    # 1.0; 4 X and none .354 + 1.1.
    jobs = [Job("a", 0, 1000), Job("b", 0, 1000)]
    groups = {"X": (1, 4), "Y": (1, 4)}
    chosen = first_decision(jobs, groups, growth=None)
    assert sorted(chosen.values()) == [(0, 4), (1, 4)]


def test_every_job_gets_something_before_any_gets_more():
    # 2 X: both on one GPU cost 2 x 1; one on two GPUs and none .707 + 1.1 = 1.807 is less!
    # With an incentive of 1.4: 2.0 against 2.107.
    jobs = [Job("a", 0, 1000), Job("b", 0, 1000)]
    times = {"m": {"X": {1: 8.0, 2: 4.0}}}
    assert sorted(first_decision(jobs, {"X": (1, 2)}, times, growth=None).values()) == [(0, 2)]
    chosen = first_decision(jobs, {"X": (1, 2)}, times, growth=None, incentive=1.4)
    assert chosen == {0: (0, 1), 1: (0, 1)}


@pytest.mark.parametrize("slower", [1.0, 1e-2, 1e4])
def test_a_job_ten_thousand_times_slower_is_given_the_same(slower):
    # Rows are normalised by their least: 1 / 2 a second and 5,000 seconds an iteration are alike.
    times = {"m": {kind: {n: s * slower for n, s in row.items()} for kind, row in LINEAR["m"].items()}}
    jobs = [Job("a", 0, 1000), Job("b", 0, 1000)]
    chosen = first_decision(jobs, {"X": (1, 4), "Y": (1, 4)}, times, growth=None)
    assert sorted(chosen.values()) == [(0, 4), (1, 4)]


def test_a_positive_power_maximises():
    # p = 1 on one type: 1, 2, 4 for 1, 2, 4 GPUs, 1.1 lost without: 4 + 0 against 2 + 2 + 2 x 1.1 in
    # incentives: two jobs on 2 are worth 6.2, one on 4 is worth 5.1.
    jobs = [Job("a", 0, 1000), Job("b", 0, 1000)]
    times = {"m": {"X": {1: 8.0, 2: 4.0, 4: 2.0}}}
    chosen = first_decision(jobs, {"X": (1, 4)}, times, growth=None, power=1.0)
    assert sum(gpus for _, gpus in chosen.values()) == 4
    assert chosen == {0: (0, 2), 1: (0, 2)}


def test_growth_doubles_from_the_least_count():
    simulation, policy = simulation_of([Job("a", 0, 100_000)], {"X": (1, 4)}), Sia(incentive=1.4)
    held = []
    for _ in range(4):
        decision = policy.schedule(simulation.advance())
        simulation.apply(decision)
        held.append(int(decision.gpus[0]))
    assert held == [1, 2, 4, 4]


def test_the_restart_factor_keeps_a_young_job_where_it_is():
    # a runs on 1 X since 0, a restart takes 100 s. At 60: 60 / 160 = .375. On 2 X it would count
    # 2 x .375 = .75 of what it has. At 120: 2 x 120 / 220 = 1.09: it grows.
    simulation, policy = simulation_of([Job("a", 0, 100_000)], {"X": (1, 2)}, checkpoint_s=100.0), Sia()
    held = []
    for _ in range(3):
        decision = policy.schedule(simulation.advance())
        simulation.apply(decision)
        held.append(int(decision.gpus[0]))
    assert held == [1, 1, 2]


@pytest.mark.slow
def test_it_learns_that_a_job_does_not_scale():
    # On 2 X the job is hardly faster than on one. Sia grows it, sees that, and b, which comes then and
    # scales linearly, gets the GPU: b's rows are 1, 2 and a's 1, 1.02.
    times = {"m": {"X": {1: 8.0, 2: 7.9}}, "linear": {"X": {1: 8.0, 2: 4.0}}}
    jobs = [Job("a", 0, 1000), Job("b", 130, 1000, family="linear")]
    scenario = small_scenario(jobs, {"X": (1, 3)}, times, rounds=60.0)
    run = simulate(scenario, Sia(), Buddy(defragment_s=None))
    held = {0: [], 1: []}
    for event in run.simulation.log.events:
        if event.gpus and event.event_type != EventType.COMPLETE:
            held[event.job].append((event.time_s, event.gpus))
    assert held[0][:2] == [(0.0, 1), (60.0, 2)]
    assert (240.0, 1) in held[0]
    assert (240.0, 2) in held[1]


def test_a_failing_solver_keeps_what_runs_and_fills_up(monkeypatch):
    simulation, policy = (
        simulation_of([Job("a", 0, 1000), Job("b", 0, 1000)], {"X": (1, 4)}),
        Sia(incentive=1.4),
    )
    simulation.advance()
    simulation.apply(Decision.of([(0, 0, 2)]))
    view = simulation.advance()

    def fails(*_: object) -> None:
        raise SolverError("no")

    monkeypatch.setattr(integer_programs, "_solve_relaxation", fails)
    assert allotments(policy.schedule(view))[1] == (0, 1)
    assert 0 in allotments(policy.schedule(view))
    assert policy.counters()["solver_failures"] == 2
    policy.reset(simulation.setting, np.random.default_rng(0))
    assert set(policy.counters().values()) == {0}
