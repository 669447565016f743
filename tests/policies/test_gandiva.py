"""Gandiva on cases solved by hand: it measures, tries, takes back, and slices time."""

import pytest
from clustergym.policies.gandiva import Gandiva
from clustergym.policies.placers.buddy import Buddy
from hypothesis import given, settings
from hypothesis import strategies as st
from random_scenarios import all_left, random_scenarios
from scenarios import Job, ends, small_scenario

from clustergym.sim.drive import simulate


def run_small(jobs, groups, times, rounds=10.0, policy=None, **more):
    policy = policy or Gandiva()
    return simulate(small_scenario(jobs, groups, times, rounds=rounds, **more), policy, Buddy())


def test_a_lone_job_grows_after_a_round_of_measurement():
    # 10 s at 4 s an iteration: 97.5 of 100 left; then 2 s: 10 + 195.
    run = run_small([Job("a", 0, 100)], {"X": (1, 2)}, {"m": {"X": {1: 4.0, 2: 2.0}}})
    assert ends(run) == {"a": 205.0}


def test_a_growth_that_measures_slower_is_taken_back_for_good():
    # From 10 to 20 on 2 GPUs it does 10/6 iterations: slower. 95.8333 are left: 20 + 383.3333.
    policy = Gandiva()
    run = run_small([Job("a", 0, 100)], {"X": (1, 2)}, {"m": {"X": {1: 4.0, 2: 6.0}}}, policy=policy)
    assert ends(run)["a"] == pytest.approx(403.3333, abs=1e-3)
    assert policy.counters() == {"trials": 1, "taken_back": 1, "slices_ended": 0}


def test_a_grown_job_shrinks_for_one_that_waits():
    # a: 2.5 iterations on 1, from 10 on 5 on 2. b comes at 15 and starts at 20 beside a on 1; b ends at
    # 60, when a has done 17.5 and grows again: 60 + 82.5 x 2.
    jobs = [Job("a", 0, 100), Job("b", 15, 10)]
    run = run_small(jobs, {"X": (1, 2)}, {"m": {"X": {1: 4.0, 2: 2.0}}})
    assert ends(run) == {"b": 60.0, "a": 225.0}


def test_a_job_is_moved_to_a_type_that_is_idle_and_back_if_it_is_slower():
    groups = {"X": (1, 1), "Y": (1, 1)}
    jobs = [Job("a", 0, 100, gpu_type="X")]
    # From 10 on at 2 s: 10 + 97.5 x 2. At 8 s it does 1.25 by 20, and is back: 20 + 96.25 x 4.
    faster = run_small(jobs, groups, {"m": {"X": {1: 4.0}, "Y": {1: 2.0}}})
    slower = run_small(jobs, groups, {"m": {"X": {1: 4.0}, "Y": {1: 8.0}}})
    stays = run_small(jobs, groups, {"m": {"X": {1: 4.0}, "Y": {1: 2.0}}}, policy=Gandiva(migrate=False))
    assert (ends(faster), ends(slower), ends(stays)) == ({"a": 205.0}, {"a": 405.0}, {"a": 400.0})


def test_jobs_take_turns():
    # Each needs 400 s of the only GPU, in turns of 100 s: a has 0, 200, 400, 600; b 100, 300, 500, 700.
    jobs = [Job("a", 0, 100), Job("b", 0, 100)]
    policy = Gandiva(slice_s=100.0)
    run = run_small(jobs, {"X": (1, 1)}, {"m": {"X": {1: 4.0}}}, rounds=50.0, policy=policy)
    assert ends(run) == {"a": 700.0, "b": 800.0}
    # 100, 200, ... 600: whose turn ends; at 700 a is done.
    assert policy.counters()["slices_ended"] == 6


@pytest.mark.parametrize(
    ("guard", "expected"), [(False, {"b": 200.0, "a": 930.0}), (True, {"b": 700.0, "a": 930.0})]
)
def test_by_the_guard_a_slice_lasts_for_20_restarts(guard, expected):
    # a takes 800 s. Its slice of 100 s ends at 100, b has 100 to 200, and a works again 30 s later: 230 +
    # 700. By the guard the slice lasts for 20 x 30 s, b has 600 to 700, and a ends at 730 + 200.
    jobs = [Job("a", 0, 200, gpu_type="X"), Job("b", 0, 25, gpu_type="X")]
    policy = Gandiva(slice_s=100.0, guard=guard)
    groups, times = {"X": (1, 1), "Y": (1, 1)}, {"m": {"X": {1: 4.0}}}
    run = run_small(jobs, groups, times, rounds=50.0, policy=policy, checkpoint_s={"m": 30.0})
    assert ends(run) == expected


@pytest.mark.parametrize(("guard", "end_s"), [(False, 225.0), (True, 400.0)])
def test_by_the_guard_a_trial_waits_for_20_restarts(guard, end_s):
    # At 10, 97.5 iterations are left: after a restart of 20 s they take 195 s on 2 GPUs. By the guard a keeps
    # its GPU for 20 x 20 s, in which it does all.
    times, policy = {"m": {"X": {1: 4.0, 2: 2.0}}}, Gandiva(guard=guard)
    run = run_small([Job("a", 0, 100)], {"X": (1, 2)}, times, policy=policy, checkpoint_s={"m": 20.0})
    assert ends(run) == {"a": end_s}


@settings(max_examples=100, deadline=None)
@given(scenario=random_scenarios(), slice_s=st.sampled_from([30.0, 200.0]))
def test_every_job_finishes(scenario, slice_s):
    assert all_left(simulate(scenario, Gandiva(slice_s=slice_s, round_s=None), Buddy()))
