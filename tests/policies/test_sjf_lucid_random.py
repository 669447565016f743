"""Shortest job first, Lucid's core and random legal decisions, on cases solved by hand."""

import numpy as np
import pytest
import scenarios
from clustergym.policies.lucid import Lucid
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.random import RandomLegal
from clustergym.policies.sjf import ShortestJobFirst
from hypothesis import given, settings
from hypothesis import strategies as st
from random_scenarios import all_left, random_scenarios
from scenarios import Job, small_scenario

from clustergym.sim.drive import simulate
from clustergym.sim.log import EventType

TIMES = {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0}, "Y": {1: 8.0, 2: 4.0}}}


def ends(scenario, policy, seed=0):
    return scenarios.ends(simulate(scenario, policy, Buddy(), seed))


def test_sjf_starts_the_shortest_and_preempts_nobody():
    # long holds all until 100. b (20 s) goes before c (30 s), which came first.
    jobs = [Job("long", 0, 100, gpus=4), Job("c", 1, 30, gpus=4), Job("b", 2, 20, gpus=4)]
    scenario = small_scenario(jobs, {"X": (1, 4)}, TIMES)
    assert ends(scenario, ShortestJobFirst(round_s=None)) == {"long": 100, "b": 120, "c": 150}


@pytest.mark.parametrize(
    ("blocks", "narrow", "other"), [("nothing", 161, 242), ("types", 330, 242), ("cluster", 330, 410)]
)
def test_sjf_blocks_longer_jobs_or_does_not(blocks, narrow, other):
    # a holds 2 of 4 X for 100 s. wide (4 X, 70 s) is shortest and waits until 100. narrow (1 X, 160 s)
    # fits beside a at 1; or it starts when wide ends, at 170. other (240 s) is for Y: at 2, or at 170.
    jobs = [
        Job("a", 0, 50, gpus=2, gpu_type="X"),
        Job("wide", 1, 70, gpus=4, gpu_type="X"),
        Job("narrow", 1, 40, gpus=1, gpu_type="X"),
        Job("other", 2, 30, gpus=1, gpu_type="Y"),
    ]
    scenario = small_scenario(jobs, {"X": (1, 4), "Y": (1, 2)}, TIMES)
    done = ends(scenario, ShortestJobFirst(round_s=None, blocks=blocks))
    assert done["a"] == 100
    # Without blocking narrow holds a GPU until 161, and wide waits for that.
    assert done["wide"] == (231 if blocks == "nothing" else 170)
    assert (done["narrow"], done["other"]) == (narrow, other)


# Lucid


def lucid_ends(jobs, groups, **parameters):
    return ends(small_scenario(jobs, groups, TIMES, rounds=10.0), Lucid(**parameters))


def test_lucid_orders_its_main_queue_by_gpu_time():
    # No profiler. At 100 b takes 4 GPUs for 30 s (120 GPU s), before c, 1 GPU for 160 s (160 GPU s).
    jobs = [Job("a", 0, 100, gpus=4), Job("c", 5, 40, gpus=1), Job("b", 6, 30, gpus=4)]
    assert lucid_ends(jobs, {"X": (1, 4)}, profiler_gpus=0) == {"a": 100, "b": 130, "c": 290}


def test_lucid_profiles_a_new_job_and_puts_it_in_the_queue_after():
    # 4 GPUs, 2 of them the profiler's. a (2 GPUs, 100 s) starts on the profiler; at 20 its time is up
    # and the main part is free: it stays where it is, counted to the main part. b (2 GPUs, 60 s) comes
    # at 20 and has the profiler until 40; c comes at 30 and waits for it. At 40 the main part is a's:
    # b gives way to c, which ends at 50 in its profiling, and waits for its turn in the main part, at
    # 100, with 40 s left.
    jobs = [Job("a", 0, 50, gpus=2), Job("b", 20, 30, gpus=2), Job("c", 30, 5, gpus=2)]
    done = lucid_ends(jobs, {"X": (1, 4)}, profiler_gpus=2, profile_limit_s=20.0)
    assert done == {"a": 100, "c": 50, "b": 140}


def test_lucid_lets_a_job_stay_on_the_profiler_while_nobody_else_wants_it():
    # As above without c: b is not disturbed.
    jobs = [Job("a", 0, 50, gpus=2), Job("b", 20, 30, gpus=2)]
    done = lucid_ends(jobs, {"X": (1, 4)}, profiler_gpus=2, profile_limit_s=20.0)
    assert done == {"a": 100, "b": 80}


def test_lucid_closes_its_profiler_for_a_job_wider_than_the_rest():
    # wide needs all 4 GPUs: nothing is set apart while it waits, and as the smallest it goes first.
    jobs = [Job("b", 0, 50, gpus=2), Job("wide", 0, 10, gpus=4)]
    assert lucid_ends(jobs, {"X": (1, 4)}, profiler_gpus=2) == {"wide": 10, "b": 110}


@given(random_scenarios(data_parallel_fits=False), st.sampled_from([0, 2, 8]), st.sampled_from([20.0, 200.0]))
@settings(max_examples=80, deadline=None)
def test_lucid_decides_legally_and_all_jobs_end(scenario, gpus, limit_s):
    assert all_left(simulate(scenario, Lucid(profiler_gpus=gpus, profile_limit_s=limit_s), Buddy()))


@given(random_scenarios(), st.sampled_from(["nothing", "types", "cluster"]))
@settings(max_examples=40, deadline=None)
def test_sjf_decides_legally_and_all_jobs_end(scenario, blocks):
    assert all_left(simulate(scenario, ShortestJobFirst(blocks=blocks), Buddy()))


# Random


@given(random_scenarios(), st.sampled_from([0.1, 1.0]), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_random_decides_legally_and_all_jobs_end(scenario, redraw, seed):
    assert all_left(simulate(scenario, RandomLegal(redraw=redraw), Buddy(), seed))


def test_random_is_its_seed_and_nothing_else():
    jobs = [Job(f"j{i}", 10 * i, 40) for i in range(8)]
    scenario = small_scenario(jobs, {"X": (1, 4), "Y": (1, 2)}, TIMES, rounds=10.0)
    policy = RandomLegal()
    assert ends(scenario, policy, seed=3) == ends(scenario, policy, seed=3)
    assert ends(scenario, policy, seed=3) != ends(scenario, policy, seed=4)


@pytest.mark.slow
def test_random_draws_every_allotment_of_a_lone_job_alike():
    # X 1, 2, 4, Y 1, 2 or nothing, where the job that can run then does: X 1, 2, 4, Y 1, 2 alike.
    scenario = small_scenario([Job("a", 0, 40)], {"X": (1, 4), "Y": (1, 2)}, TIMES)
    firsts = []
    for seed in range(400):
        log = simulate(scenario, RandomLegal(), Buddy(), seed).simulation.log.events
        firsts.append(next((e.gpu_type, e.gpus) for e in log if e.event_type == EventType.START))
    counts = np.array([firsts.count(cell) for cell in [(0, 1), (0, 2), (0, 4), (1, 1), (1, 2)]])
    assert counts.sum() == 400
    # Binomial of 400 draws at 1/5: 80 with a standard deviation of 8.
    assert (np.abs(counts - 80) < 32).all()
