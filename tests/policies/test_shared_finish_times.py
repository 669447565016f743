"""Estimates of run times, worked out by hand."""

import numpy as np
import pytest
from clustergym.policies.gavel import Gavel
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.shared import finish_times
from round_scenarios import first_view, without_profiles
from scenarios import Job, small_scenario

from clustergym.scenario.costs import Costs
from clustergym.scenario.policy import Decision, InformationClass
from clustergym.sim.engine import Simulation

TIMES = {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0}, "Y": {1: 8.0, 2: 4.0}}}
GROUPS = {"X": (1, 4), "Y": (1, 2)}


def test_the_ideal_is_the_run_time_on_one_nth_of_every_type():
    # N = 2. a, 2 GPUs: shares of time 4/(2x2) = 1 on X, 2/(2x2) = 1/2 on Y, together at most 1:
    # 2/3 and 1/3; 1/2 and 1/4 iterations a second there: 1/3 + 1/12 = 5/12, so 240 s for 100.
    # b, 4 GPUs, runs on X only: share 4/(2x4) = 1/2 at 1 a second: 20 s for 10.
    scenario = small_scenario([Job("a", 0, 100, gpus=2), Job("b", 0, 10, gpus=4)], GROUPS, TIMES)
    view = first_view(scenario, Gavel())
    times = finish_times.request_times(view)
    assert times.time_s.tolist() == [[2.0, 4.0], [1.0, np.inf]]
    shares = finish_times.compute_isolated_shares(view, times)
    assert shares.ravel().tolist() == pytest.approx([2 / 3, 1 / 3, 1 / 2, 0])
    assert finish_times.ideal_s(view, times).tolist() == pytest.approx([240.0, 20.0])
    assert finish_times.compute_isolated_remaining_s(view, times).tolist() == pytest.approx([240.0, 20.0])
    # Of eight jobs' cluster a has 1/4 and 1/8 of the time: 1/8 + 1/32 = 5/32 a second.
    assert finish_times.ideal_s(view, times, 8.0)[0] == pytest.approx(640.0)


def test_remaining_time_counts_the_standstill_of_a_restart():
    # a starts on X with a search of 2 GPUs x 5 s. At 4 s, 6 s of that are left and no iteration is
    # done; going elsewhere costs a search there and 3 s of checkpoint.
    costs = Costs(search="pruned", search_s_per_gpu={"pruned": 5.0}, profile={})
    jobs = [Job("a", 0, 10, gpus=2), Job("b", 4, 10, gpus=2)]
    scenario = small_scenario(jobs, GROUPS, TIMES, checkpoint_s={"m": 3.0}, costs=costs)
    simulation = Simulation(scenario, Buddy(), InformationClass.DATA_PARALLEL)
    simulation.advance()
    simulation.apply(Decision.of([(0, 0, 2)]))
    view = simulation.advance()
    assert view is not None
    at_request = finish_times.remaining_at_request_s(view, finish_times.request_times(view))
    assert at_request.tolist() == [[6.0 + 20, 13.0 + 40], [10.0 + 20, 10.0 + 40]]
    everywhere = finish_times.remaining_s(view)
    assert everywhere[0].tolist() == [[5 + 3 + 40, 26, 20 + 3 + 10], [5 + 3 + 80, 53, np.inf]]


def test_a_job_without_profile_is_taken_to_be_as_long_as_the_median_job():
    # a and b take 200 and 40 s at their best: 120 s in the middle; c has 30 iterations: 4 s each. On Y
    # they are half as fast.
    jobs = [Job("a", 0, 100, gpus=2), Job("b", 0, 20, gpus=2), Job("c", 0, 30, gpus=2, family="n")]
    scenario = without_profiles(small_scenario(jobs, GROUPS, {**TIMES, "n": TIMES["m"]}), "n")
    times = finish_times.request_times(first_view(scenario, Gavel()))
    assert times.guessed.tolist() == [False, False, True]
    assert times.time_s[2].tolist() == [4.0, 8.0]


def test_the_median_is_the_middle_one_or_the_mean_of_two():
    assert finish_times._median(np.array([5.0, 1.0, 2.0])) == 2.0
    assert finish_times._median(np.array([5.0, 1.0, 2.0, 4.0])) == 3.0
    assert finish_times._median(np.array([7.0])) == 7.0


@pytest.mark.parametrize("ran_on", [0, 1])
def test_a_job_without_profile_that_has_run_is_taken_to_go_on_as_fast(ran_on):
    # c has run 20 s at 2 s an iteration on X, or at 4 s on Y; b, half as fast on Y, comes then.
    jobs = [Job("c", 0, 30, gpus=2, family="n"), Job("b", 20, 20, gpus=2)]
    scenario = without_profiles(small_scenario(jobs, GROUPS, {**TIMES, "n": TIMES["m"]}), "n")
    simulation = Simulation(scenario, Buddy(), InformationClass.DATA_PARALLEL)
    simulation.advance()
    simulation.apply(Decision.of([(0, ran_on, 2)]))
    view = simulation.advance()
    assert view is not None
    assert finish_times.request_times(view).time_s[0].tolist() == pytest.approx([2.0, 4.0])
