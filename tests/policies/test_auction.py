"""The auction by a rule of ten lines, on cases solved by hand; a bid here is a sum of natural logs."""

import pytest
from clustergym.policies.auction import Auction
from clustergym.policies.placers.buddy import Buddy
from hypothesis import given, settings
from random_scenarios import all_left, random_scenarios
from round_scenarios import first_decided
from scenarios import Job, small_scenario

from clustergym.sim.drive import simulate

COUNTS = (1, 2, 4, 8, 16)
ROOT = {"m": {"X": {k: 8 / k**0.5 for k in COUNTS}}}
"""Speedup k^(1/2)."""


def test_a_job_alone_doubles_until_another_gpu_adds_too_little():
    # From k/2 to k GPUs one adds (k^0.5 - (k/2)^0.5) / (k/2) = 0.586 / k^0.5 of what it does alone. 4 of 16:
    # 2.7 + 3 ln(0.293) - 1.25 ln(4/16) = 0.75, for 8: 2.7 + 3 ln(0.207) - 1.25 ln(8/16) = -1.16; a backlog
    # of 800 s on 16 GPUs adds 0.5 ln(1.014) = 0.01.
    assert first_decided(small_scenario([Job("a", 0, 100)], {"X": (2, 8)}, ROOT), Auction()) == {
        "a": ("X", 4)
    }
    # In proportion to GPUs each adds as much as the first: 2.7 - 1.25 ln(16/16) for the last ones.
    linear = {"m": {"X": {k: 8 / k for k in COUNTS}}}
    assert first_decided(small_scenario([Job("a", 0, 100)], {"X": (2, 8)}, linear), Auction()) == {
        "a": ("X", 16)
    }


def test_a_type_is_for_whom_it_suits_best():
    # Both are faster on X, a twice and b eight times; in the mean Y is e^-1.39 as fast. Alike on X (0), on Y
    # a bids 3 ln(1/2) + 1.5 (1.39 - 0.69) + 1.5 x 1.39 = 1.04, and b less: a starts on Y first, then b on X.
    times = {"a": {"X": {1: 1.0}, "Y": {1: 2.0}}, "b": {"X": {1: 1.0}, "Y": {1: 8.0}}}
    jobs = [Job("a", 0, 100, family="a"), Job("b", 0, 100, family="b")]
    found = first_decided(small_scenario(jobs, {"X": (1, 1), "Y": (1, 1)}, times), Auction())
    assert found == {"a": ("Y", 1), "b": ("X", 1)}


@pytest.mark.parametrize(("checkpoint_s", "gpus"), [(1.0, [2, 4]), (4000.0, [2])])
def test_a_running_job_doubles_only_where_that_repays_its_restart(checkpoint_s, gpus):
    # Of 4 GPUs b, the shorter one, starts at 2.76 and doubles at 2.7; to 4 it would bid 1.83. a starts at
    # 2.24 and doubles at 2.7. b ends at 2,400 s; a, with 400 iterations left, would take 800 s on 4 in place
    # of 1,600 s. It bids 2.7 + 0.93 for its age - 0.5 for growth - 4 restart / (restart + 800 s).
    times = {"m": {"X": {k: 8 / k for k in (1, 2, 4)}}}
    jobs = [Job("a", 0, 1000), Job("b", 0, 600)]
    scenario = small_scenario(jobs, {"X": (1, 4)}, times, checkpoint_s={"m": checkpoint_s})
    log = simulate(scenario, Auction(), Buddy()).simulation.log.events
    assert [event.gpus for event in log if event.job == 0 and event.iteration_time_s] == gpus


def test_a_shorter_job_takes_the_gpu_of_a_longer_one():
    # b, at 10 s, has a tenth of a's work: ln 10 = 2.3 more. a keeps its GPU (0.5) and is 10 s old (0.04).
    times = {"m": {"X": {1: 8.0}}}
    scenario = small_scenario([Job("a", 0, 100), Job("b", 10, 10)], {"X": (1, 1)}, times)
    end_s = {e.job: e.time_s for e in simulate(scenario, Auction(), Buddy()).simulation.log.events}
    assert end_s == {0: 880.0, 1: 90.0}


@given(random_scenarios())
@settings(max_examples=30, deadline=None)
def test_it_decides_legally_and_all_jobs_end(scenario):
    assert all_left(simulate(scenario, Auction(), Buddy()))
