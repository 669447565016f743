"""Lower bounds: by hand, and never beaten."""

import numpy as np
import pytest
from hypothesis import given, settings
from random_scenarios import all_left, random_scenarios
from scenarios import Job, small_scenario

from clustergym.results.bounds.bounds import least_work, lower_bounds
from clustergym.results.measured_run import measure_run
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.sim.drive import simulate


def test_bounds_by_hand():
    # On X a job of m takes 4, 2 or 1 s an iteration on 1, 2 or 4 GPUs: 4 GPU-seconds whatever its count.
    # On Y, 8 s on one.
    times = {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0}, "Y": {1: 8.0}}}
    jobs = [Job("a", 0, 30), Job("b", 0, 10), Job("c", 20, 10)]
    scenario = small_scenario(jobs, {"X": (1, 4), "Y": (1, 4)}, times)
    alone_s, work = least_work(scenario)
    assert alone_s.tolist() == [30.0, 10.0, 10.0]
    assert work.tolist() == [120.0, 40.0, 40.0]
    # One machine of 8 GPUs: 15, 5 and 5 s of work. b ends at 5, a at 20, c at 25: 5 + 20 + 5 = 30 in the
    # system, 10 s in the mean; alone they take 50 / 3.
    # The last job cannot end before 30, nor the work of 25 s before 25.
    assert lower_bounds(scenario) == pytest.approx((50 / 3, 30.0))


def test_the_work_of_many_bounds_the_mean():
    # Eight jobs of 4 GPU-seconds on 4 GPUs, 1 s each when it has all of them: 1 + 2 + ... + 8 s.
    jobs = [Job(f"{i}", 0, 1) for i in range(8)]
    scenario = small_scenario(jobs, {"X": (1, 4)}, {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0}}})
    assert lower_bounds(scenario) == pytest.approx((36 / 8, 8.0))


def test_a_shorter_job_preempts_the_bound():
    # 10 s of work from 0, 2 s from 4: the short one ends at 6, the long one at 12.
    jobs = [Job("long", 0, 10, gpus=4), Job("short", 4, 2, gpus=4)]
    scenario = small_scenario(jobs, {"X": (1, 4)}, {"m": {"X": {4: 1.0}}})
    assert lower_bounds(scenario) == pytest.approx(((12 + 2) / 2, 12.0))


def test_no_job_no_bound():
    scenario = small_scenario([Job("a", 0, 10, gpus=4)], {"X": (1, 4)}, {"m": {"X": {}}})
    assert lower_bounds(scenario) == (0.0, 0.0)


def test_a_job_that_is_dropped_counts_for_nothing():
    # "big" asks for more GPUs than there are and is dropped; on 1 of them it would take 1,000 s.
    # "a" alone takes 10 s.
    jobs = [Job("big", 0, 1000, gpus=8), Job("a", 0, 10)]
    scenario = small_scenario(jobs, {"X": (1, 4)}, {"m": {"X": {1: 1.0}}}, oversize="drop")
    assert least_work(scenario)[0].tolist() == [np.inf, 10.0]
    assert lower_bounds(scenario) == (10.0, 10.0)
    metrics = measure_run(
        simulate(scenario, make_policy({"name": "fcfs"}), make_placer({"name": "buddy"})).simulation
    ).metrics
    assert (metrics["jct_mean"], metrics["jobs_dropped"]) == (10.0, 1)


@settings(max_examples=40, deadline=None)
@given(random_scenarios())
def test_no_policy_beats_the_bounds(scenario):
    bounds = lower_bounds(scenario)
    for name in ("fcfs", "srtf", "ares", "hesrpt", "optimus"):
        run = simulate(scenario, make_policy({"name": name}), make_placer({"name": "buddy"}))
        assert all_left(run)
        metrics = measure_run(run.simulation).metrics
        assert metrics["jct_mean"] >= bounds.jct_mean * (1 - 1e-9) - 1e-5
        assert metrics["makespan"] >= bounds.makespan * (1 - 1e-9) - 1e-5
        assert np.isfinite(bounds.makespan)
