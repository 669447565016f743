"""Morphling's rules on cases solved by hand."""

from __future__ import annotations

import pytest
from clustergym.policies.morphling import Curves, Morphling
from clustergym.policies.placers.buddy import Buddy
from hypothesis import given, settings
from random_scenarios import all_left, random_scenarios
from scenarios import Job, allotments, small_scenario

from clustergym.scenario.policy import Decision, InformationClass
from clustergym.sim.drive import simulate
from clustergym.sim.engine import Simulation

STEEP = {1: 4.0, 2: 2.0, 4: 1.0}
FLAT = {1: 4.0, 2: 3.5, 4: 3.48}


def simulation_of(jobs, groups, times):
    scenario = small_scenario(jobs, groups, times, rounds=60.0)
    return Simulation(scenario, Buddy(defragment_s=None), InformationClass.PROFILED)


def decide(simulation, **parameters):
    return allotments(Morphling(**parameters).schedule(simulation.advance()))


@pytest.mark.parametrize(("rules", "first"), [("paper", 1), ("program", 0)])
def test_the_steepest_first_as_meant_and_last_in_the_program(rules, first):
    # Both ask for 2, of 2. a, which needs both, gains 1/2 / 2 a GPU, over its 1/2: slope 0.5. The first GPU
    # of b gains 1/4, over its 1 / 3.5: slope 0.875.
    jobs = [Job("a", 0, 1000, gpus=2, family="a"), Job("b", 0, 1000, gpus=2, family="b")]
    simulation = simulation_of(jobs, {"X": (1, 2)}, {"a": {"X": {2: 2.0}}, "b": {"X": FLAT}})
    assert decide(simulation, rules=rules) == {first: (0, 2)}


def test_a_count_that_is_not_1_percent_faster_is_not_worth_its_gpus():
    # 3.48 s are not 1 % faster than 3.5 s.
    alone = simulation_of([Job("b", 0, 1000, family="b")], {"X": (1, 4)}, {"b": {"X": FLAT}})
    assert decide(alone) == {0: (0, 2)}


def test_slopes_are_gains_a_gpu_relative_to_the_request():
    jobs = [Job("a", 0, 1000, gpus=2, family="a"), Job("b", 0, 1000, gpus=2, family="b")]
    simulation = simulation_of(jobs, {"X": (1, 8)}, {"a": {"X": STEEP}, "b": {"X": FLAT}})
    simulation.advance()
    simulation.apply(Decision.of([(0, 0, 2), (1, 0, 1)]))
    view = simulation.advance()
    # a: from 2 to 4 GPUs (1 - 0.5) / 2 a GPU, over its 0.5 at 2; b: (1 / 3.5 - 1 / 4) / 1 over 1 / 3.5.
    curves = Curves(view, Morphling().find_curves(view), Morphling().find_guarded(view), guard=False)
    assert [curves.find_slope(at) for at in range(2)] == pytest.approx([0.5, 0.125])


@pytest.mark.parametrize(("rules", "held"), [("paper", {0: (0, 2), 1: (0, 2)}), ("program", {0: (0, 4)})])
def test_a_waiting_job_gets_gpus_from_flatter_ones_only_as_meant(rules, held):
    # a holds all 4, its slope is 0; b finds none, and needs 1: a is halved, and b grows on what that leaves.
    jobs = [Job("a", 0, 1000, family="a"), Job("b", 30, 1000, family="a")]
    simulation = simulation_of(jobs, {"X": (1, 4)}, {"a": {"X": STEEP}})
    simulation.advance()
    simulation.apply(Decision.of([(0, 0, 4)]))
    assert decide(simulation, rules=rules) == held


def test_a_guaranteed_job_keeps_two_thirds_of_its_requests_speed():
    # a asked for 4 (1 iteration a second). On 2 it would have 0.5 < 1 / 1.5, so that it shrinks for nobody.
    jobs = [Job("a", 0, 1000, gpus=4, family="a", priority=1), Job("b", 30, 1000, family="a")]
    simulation = simulation_of(jobs, {"X": (1, 4)}, {"a": {"X": STEEP}})
    simulation.advance()
    simulation.apply(Decision.of([(0, 0, 4)]))
    assert decide(simulation) == {0: (0, 4)}


def test_a_job_stays_in_a_node_unless_its_model_does_not_fit_one_gpu():
    # Two nodes of 2. a could use 4 GPUs, and gets 2; large needs 2 at least, and takes all it can.
    alone = simulation_of([Job("a", 0, 1000, family="a")], {"X": (2, 2)}, {"a": {"X": STEEP}})
    assert decide(alone) == {0: (0, 2)}
    large = simulation_of([Job("a", 0, 1000, family="a")], {"X": (2, 2)}, {"a": {"X": {2: 2.0, 4: 1.0}}})
    assert decide(large) == {0: (0, 4)}


@pytest.mark.parametrize("rules", ["paper", "program"])
@settings(max_examples=20, deadline=None, derandomize=True)
@given(scenario=random_scenarios())
def test_every_job_completes_and_runs_repeat(rules, scenario):
    run = simulate(scenario, Morphling(rules=rules), Buddy())
    assert all_left(run)
    assert simulate(scenario, Morphling(rules=rules), Buddy()).simulation.changes == run.simulation.changes
