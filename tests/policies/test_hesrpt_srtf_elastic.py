"""heSRPT and elastic SRTF, on cases solved by hand; what they share."""

import numpy as np
import pytest
from clustergym.policies.hesrpt import HighEfficiencySrpt, fit_speedup, optimal_shares
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.srtf import ShortestRemainingTimeFirst
from hypothesis import given, settings
from hypothesis import strategies as st
from random_scenarios import all_left, random_scenarios
from round_scenarios import first_decided
from scenarios import Job, small_scenario

from clustergym.sim.drive import simulate

# Speedup k^(1/2): 8 s on one GPU.
ROOT = {"m": {"X": {k: 8 / k**0.5 for k in (1, 2, 4, 8, 16)}}}


def test_optimal_shares_by_hand():
    # p = 1/2, so powers of 2: of three jobs the longest has 1/9, then 4/9 - 1/9, then 1 - 4/9.
    shares = optimal_shares(np.array([5.0, 9.0, 7.0]), np.full(3, 0.5))
    np.testing.assert_allclose(shares, [5 / 9, 1 / 9, 3 / 9])


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=8, unique=True), st.floats(0.05, 0.95))
@settings(max_examples=100, deadline=None)
def test_shares_add_up_and_favour_the_short(sizes, p):
    size = np.array(sizes)
    shares = optimal_shares(size, np.full(len(size), p))
    assert shares.sum() == pytest.approx(1)
    assert (np.diff(shares[np.argsort(size)]) <= 1e-12).all()


def _total_flow_s(size, share, p):
    """Return the summed flow time of two jobs, the first at `share` until one ends, then all for one."""
    rate = np.array([share**p, (1 - share) ** p])
    first = int(np.argmin(size / rate))
    t = size[first] / rate[first]
    rest = size[1 - first] - rate[1 - first] * t
    return 2 * t + rest


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(0.1, 0.9))
@settings(max_examples=60, deadline=None)
def test_no_other_shares_of_two_jobs_have_less_flow_time(a, b, p):
    # Brute force over the shares of two jobs until the first ends.
    size = np.array([a, b])
    best = _total_flow_s(size, float(optimal_shares(size, np.full(2, p))[0]), p)
    for share in np.linspace(0.005, 0.995, 199):
        assert best <= _total_flow_s(size, share, p) * (1 + 1e-9)


def test_the_fit_finds_the_exponent_of_a_power_law_over_the_best_types():
    counts = np.array([1, 2, 4, 8])
    time_s = np.full((3, 2, 4), np.inf)
    time_s[0, 0] = 6 / counts**0.7
    time_s[0, 1] = 9 / counts**0.7
    time_s[1, 1, 2] = 3.0  # one point: taken as hardly parallel
    exponent, one_gpu_s = fit_speedup(counts, time_s)
    np.testing.assert_allclose(exponent, [0.7, 0.01, 0.01])
    np.testing.assert_allclose(one_gpu_s, [6.0, 3.0 * 4**0.01, np.inf])


def test_hesrpt_rounds_shares_down_and_hands_out_the_rest():
    # 16 GPUs, p = 1/2, three jobs: shares 8.9, 5.3 and 1.8 GPUs: 8, 4 and 1. Of the 3 left over the
    # longest takes 1 and b cannot double; 2 more for c: 4.
    jobs = [Job("a", 0, 100), Job("b", 0, 200), Job("c", 0, 300)]
    scenario = small_scenario(jobs, {"X": (2, 8)}, ROOT)
    assert first_decided(scenario, HighEfficiencySrpt()) == {"a": ("X", 8), "b": ("X", 4), "c": ("X", 4)}


@pytest.mark.parametrize(("checkpoint_s", "gpus"), [(1.0, [8, 16]), (1000.0, [8])])
def test_by_the_guard_hesrpt_grows_a_running_job_only_where_that_repays_its_restart(checkpoint_s, gpus):
    # a (short, 16 x 3/4 = 12 GPUs: 8) ends; b holds 4, then 8 (left over), and then could have 16.
    jobs = [Job("a", 0, 100, family="a"), Job("b", 0, 400)]
    times = {**ROOT, "a": ROOT["m"]}
    scenario = small_scenario(jobs, {"X": (2, 8)}, times, checkpoint_s={"m": checkpoint_s})
    log = simulate(scenario, HighEfficiencySrpt(guard=True, round_s=None), Buddy()).simulation.log.events
    assert [e.gpus for e in log if e.job == 1 and e.iteration_time_s] == gpus


def test_elastic_srtf_shrinks_to_what_is_free_and_grows_into_what_is_left():
    # a (least left) has its 4 of 8, b the 4 left of its 8. Alone a has all 8.
    times = {"m": {"X": {2: 10.0, 4: 6.0, 8: 4.0}}}
    jobs = [Job("a", 0, 10, gpus=4), Job("b", 0, 100, gpus=8)]
    policy = ShortestRemainingTimeFirst(elastic=True)
    assert first_decided(small_scenario(jobs, {"X": (1, 8)}, times), policy) == {"a": ("X", 4), "b": ("X", 4)}
    assert first_decided(small_scenario(jobs[:1], {"X": (1, 8)}, times), policy) == {"a": ("X", 8)}
    rigid = ShortestRemainingTimeFirst()
    assert first_decided(small_scenario(jobs, {"X": (1, 8)}, times), rigid) == {"a": ("X", 4)}


def test_elastic_srtf_leaves_a_running_job_its_surplus_while_nobody_needs_it():
    # a holds 8, twice its request. b comes and wants 2 of the 2 others: a is not shrunk.
    times = {"m": {"X": {2: 10.0, 4: 6.0, 8: 4.0}}}
    jobs = [Job("a", 0, 1000, gpus=4), Job("b", 10, 10, gpus=2)]
    scenario = small_scenario(jobs, {"X": (1, 10)}, times)
    log = simulate(
        scenario, ShortestRemainingTimeFirst(elastic=True, guard=True, round_s=None), Buddy()
    ).simulation.log
    launches = [(e.time_s, e.job, e.gpus) for e in log.events if e.iteration_time_s]
    assert launches == [(0.0, 0, 8), (10.0, 1, 2)]


@given(random_scenarios(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_hesrpt_decides_legally_and_all_jobs_end(scenario, guard):
    assert all_left(simulate(scenario, HighEfficiencySrpt(guard=guard), Buddy()))


@given(random_scenarios(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_srtf_decides_legally_and_all_jobs_end(scenario, elastic):
    assert all_left(simulate(scenario, ShortestRemainingTimeFirst(elastic=elastic), Buddy()))
