"""Configurations, the restart factor and what is learnt from running jobs, worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.shared.goodput import (
    ObservedSpeeds,
    configurations,
    open_configurations,
    restart_factor,
)
from scenarios import Job, small_scenario

from clustergym.scenario.costs import Costs
from clustergym.scenario.policy import Decision, InformationClass
from clustergym.sim.engine import Simulation

# Linear scaling would be 8, 4, 2, 1 on X and 16, 8, 4, 2 on Y; jobs really scale worse.
TIMES = {"m": {"X": {1: 8.0, 2: 5.0, 4: 4.0, 8: 3.0}, "Y": {1: 16.0, 2: 12.0, 4: 10.0}}}


def simulation_of(jobs, checkpoint_s=0.0, groups=None, times=TIMES, costs=None):
    groups, restarts = groups or {"X": (1, 8), "Y": (1, 4)}, {"m": checkpoint_s}
    scenario = small_scenario(jobs, groups, times, checkpoint_s=restarts, costs=costs, rounds=60.0)
    return Simulation(scenario, Buddy(defragment_s=None), InformationClass.BOOTSTRAP)


def launched(simulation, speeds, view, job, gpus):
    """Launch a job on GPUs of X, by a decision that is recorded; return the View of a minute later."""
    decision = Decision.of([(job, 0, gpus)])
    speeds.record_decision(view, decision)
    simulation.apply(decision)
    return simulation.advance()


def test_what_a_late_launch_did_not_hold_its_gpus_for_is_not_observed():
    simulation = simulation_of([Job("a", 0, 1000)])
    speeds = ObservedSpeeds()
    view = launched(simulation, speeds, simulation.advance(), 0, 4)
    # Launched 20 s after the decision, the job has had 4 X for 40 s and done an iteration every 4 s.
    late = replace(view, attained_gpu_s=np.array([160.0]), remaining_iterations=np.array([990.0]))
    assert late.now_s == 60.0
    assert speeds.observe(late).tolist() == [0]
    assert speeds.get_observed_times(late)[0, 0, 2] == pytest.approx(4.0)


def test_observation_corrects_the_linear_guess():
    simulation = simulation_of([Job("a", 0, 1000)])
    speeds, view = ObservedSpeeds(), simulation.advance()
    prior = view.iteration_time_s()
    assert prior[0, 0].tolist() == [8.0, 4.0, 2.0, 1.0]
    assert len(speeds.observe(view)) == 0
    assert (speeds.estimates(view, prior) == prior).all()
    view = launched(simulation, speeds, view, 0, 4)
    assert speeds.observe(view).tolist() == [0]
    # On 4 X it takes 4 s, twice the guess of 2: beyond that the factor 2 stays, at 2 GPUs it is the
    # root of 2, half way between 1 at 1 GPU (known) and 2 at 4. Y borrows the same factors.
    slower = np.array([1.0, np.sqrt(2), 2.0, 2.0])
    estimate = speeds.estimates(view, prior)[0]
    assert estimate[0] == pytest.approx(np.array([8.0, 4.0, 2.0, 1.0]) * slower)
    assert estimate[1, :3] == pytest.approx(np.array([16.0, 8.0, 4.0]) * slower[:3])
    assert np.isinf(estimate[1, 3])
    assert speeds.most_gpus(view).tolist() == [4]
    # What is known already is no news.
    assert len(speeds.observe(launched(simulation, speeds, view, 0, 4))) == 0


def test_each_job_is_corrected_by_what_was_seen_of_it():
    # b alone runs, on 4 X: its guess of 2 s becomes 4 s. a, before it, keeps its own.
    simulation = simulation_of([Job("a", 0, 1000), Job("b", 0, 1000)])
    speeds, view = ObservedSpeeds(), simulation.advance()
    speeds.observe(view)
    view = launched(simulation, speeds, view, 1, 4)
    assert speeds.observe(view).tolist() == [1]
    estimates = speeds.estimates(view, view.iteration_time_s())
    assert estimates[:, 0, 2].tolist() == pytest.approx([2.0, 4.0])
    assert speeds.most_gpus(view).tolist() == [0, 4]


def test_a_second_observation_is_interpolated_and_a_standstill_is_no_work():
    # From 60 s on 1 X after a first minute on 8; the restart takes 30 s: 30 s of work are seen.
    simulation = simulation_of([Job("a", 0, 1000)], checkpoint_s=30.0)
    speeds, view = ObservedSpeeds(), simulation.advance()
    for gpus in (8, 1):
        speeds.observe(view)
        view = launched(simulation, speeds, view, 0, gpus)
    speeds.observe(view)
    observed = speeds.get_observed_times(view)[0, 0]
    assert observed[[0, 3]] == pytest.approx([8.0, 3.0])
    assert np.isnan(observed[[1, 2]]).all()
    # 8 GPUs: 3 s against 1; half way in log scale 3^(1/3) and 3^(2/3).
    estimate = speeds.estimates(view, view.iteration_time_s())[0, 0]
    assert estimate == pytest.approx([8.0, 4 * 3 ** (1 / 3), 2 * 3 ** (2 / 3), 3.0])


def test_what_is_left_of_a_standstill_is_no_work_either():
    # The launch takes 90 s: at 60 s, where a keeps what it has, 30 s are left; from 90 to 120 it works.
    costs = Costs(search="proxy", profile={}, first_launch=True)
    simulation = simulation_of([Job("a", 0, 1000)], 90.0, {"X": (1, 8)}, costs=costs)
    speeds, view = ObservedSpeeds(), simulation.advance()
    for _ in range(2):
        speeds.observe(view)
        view = launched(simulation, speeds, view, 0, 2)
    assert speeds.observe(view).tolist() == [0]
    assert speeds.get_observed_times(view)[0, 0, 1] == pytest.approx(5.0)


def test_restart_factor_by_hand():
    # Started at 0 on 2 X, at 60 moved to 4 X (30 s). At 120: age 120, one restart of 30 s behind it:
    # (120 - 30) / (120 + 30) = 0.6 on all but what it holds. b waits: 1 everywhere.
    simulation = simulation_of([Job("a", 0, 1000), Job("b", 0, 1000)], checkpoint_s=30.0)
    simulation.advance()
    simulation.apply(Decision.of([(0, 0, 2)]))
    simulation.advance()
    simulation.apply(Decision.of([(0, 0, 4)]))
    view = simulation.advance()
    factor = restart_factor(view)
    assert factor[0] == pytest.approx(np.array([[0.6, 0.6, 1.0, 0.6], [0.6] * 4]))
    assert (factor[1] == 1.0).all()
    # b's launch costs nothing: it has worked its whole age, whatever it gets.
    assert (restart_factor(view, waiting=True)[1] == 1.0).all()


def test_restart_factor_of_a_waiting_job_by_hand():
    # The first launch costs 30 s: at age 60 it would have worked 60 / 90 of it.
    costs = Costs(search="proxy", profile={}, first_launch=True)
    simulation = simulation_of([Job("a", 0, 1000)], 30.0, {"X": (1, 8)}, costs=costs)
    for expected in (0.0, 60 / 90):
        view = simulation.advance()
        assert restart_factor(view, waiting=True)[0, 0] == pytest.approx(expected)
        assert (restart_factor(view)[0] == 1.0).all()
        simulation.apply(Decision.of([]))


def test_configurations_are_powers_of_two_inside_a_node_then_whole_nodes():
    simulation = simulation_of([Job("a", 0, 10)], groups={"X": (2, 4), "Y": (1, 2)})
    # X: 1, 2, 4, and 8 on two nodes; Y: 1, 2.
    assert configurations(simulation.setting).tolist() == [[True] * 4, [True, True, False, False]]
    view = simulation.advance()
    assert open_configurations(view, None, 2)[0].tolist() == [[True] * 4, [True, True, False, False]]
    # Having held nothing, it gets its least count; having held 2, up to 4.
    assert open_configurations(view, np.array([0]), 2)[0, 0].tolist() == [True, False, False, False]
    assert open_configurations(view, np.array([2]), 2)[0, 0].tolist() == [True, True, True, False]


def test_a_job_that_fits_no_configuration_may_have_any_count_it_fits():
    # Nodes of 3: 4 GPUs are neither inside a node nor whole nodes.
    only_four = {"m": {"X": {4: 4.0}}}
    simulation = simulation_of([Job("a", 0, 10)], groups={"X": (2, 3)}, times=only_four)
    assert configurations(simulation.setting)[0].tolist() == [True, True, False]
    assert open_configurations(simulation.advance(), np.array([0]), 2)[0, 0].tolist() == [False, False, True]
