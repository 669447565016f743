"""Backfill on cases solved by hand, and its promise on random small ones."""

import numpy as np
import pytest
from clustergym.policies.fcfs import FirstComeFirstServed
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.shared.fcfs_backfill import FcfsWithOptions
from clustergym.policies.shared.reservations import FreeTimeline
from hypothesis import given, settings
from hypothesis import strategies as st
from random_scenarios import all_left, random_scenarios
from scenarios import Job, small_scenario, times_of

from clustergym.scenario.policy import InformationClass
from clustergym.sim.drive import simulate
from clustergym.sim.log import EventType

# Run time = iterations, whatever the count.
FLAT = {"m": {"X": {1: 1.0, 2: 1.0, 4: 1.0, 8: 1.0}, "Y": {1: 1.0, 2: 1.0}}}


def starts(jobs, groups, backfill, queue="gpu_type"):
    scenario = small_scenario(jobs, groups, FLAT)
    policy = FcfsWithOptions(round_s=None, backfill=backfill, queue=queue)
    return times_of(simulate(scenario, policy, Buddy()), EventType.START)


@pytest.mark.parametrize(
    ("backfill", "expected"),
    [
        # a has 2 of 4 GPUs until 100, head needs all; it runs until 150.
        ("none", {"a": 0, "head": 100, "long": 150, "fits": 150}),
        # long starts at 2 beside a, fits when a ends; head waits for both, until 202.
        ("aggressive", {"a": 0, "long": 2, "fits": 100, "head": 202}),
        # long would put head off, fits ends just in time.
        ("easy", {"a": 0, "fits": 3, "head": 100, "long": 150}),
        ("conservative", {"a": 0, "fits": 3, "head": 100, "long": 150}),
    ],
)
def test_backfill(backfill, expected):
    jobs = [
        Job("a", 0, 100, gpus=2),
        Job("head", 1, 50, gpus=4),
        Job("long", 2, 200, gpus=2),
        Job("fits", 3, 97, gpus=2),
    ]
    assert starts(jobs, {"X": (1, 4)}, backfill) == expected


@pytest.mark.parametrize(("backfill", "second", "late"), [("easy", 203, 3), ("conservative", 100, 150)])
def test_conservative_reserves_for_all_that_wait_easy_for_the_head_alone(backfill, second, late):
    # 8 GPUs: a has 2 until 100, b 4 until 50. head (4) is due from 50 to 100 and leaves 2. second needs
    # all 8 and could have them from 100 to 150. late (2 GPUs, until 203) runs beside head: easy starts
    # it, and second waits for it.
    jobs = [
        Job("a", 0, 100, gpus=2),
        Job("b", 0, 50, gpus=4),
        Job("head", 1, 50, gpus=4),
        Job("second", 2, 50, gpus=8),
        Job("late", 3, 200, gpus=2),
    ]
    expected = {"a": 0, "b": 0, "head": 50, "second": second, "late": late}
    assert starts(jobs, {"X": (1, 8)}, backfill) == expected


def test_a_head_of_one_type_does_not_hold_back_another():
    jobs = [
        Job("a", 0, 100, gpus=4, gpu_type="X"),
        Job("head", 1, 50, gpus=4, gpu_type="X"),
        Job("y", 2, 500, gpus=2, gpu_type="Y"),
        Job("y2", 3, 10, gpus=1, gpu_type="Y"),
    ]
    done = starts(jobs, {"X": (1, 4), "Y": (1, 2)}, "easy")
    assert done == {"a": 0, "head": 100, "y": 2, "y2": 502}


def test_a_timeline_finds_the_earliest_gap():
    # 1 of 4 free now, 3 from 10, 4 from 30.
    timeline = FreeTimeline(0.0, 1, np.array([10.0, 30.0]), np.array([2, 1]))
    assert timeline.earliest(1, 1e9) == 0.0
    assert timeline.earliest(3, 5.0) == 10.0
    assert timeline.earliest(5, 1.0) == np.inf
    timeline.reserve(10.0, 3, 8.0)
    # Free: 1, then 0 from 10 to 18, 3 until 30, 4.
    assert timeline.earliest(1, 10.0) == 0.0
    assert timeline.earliest(1, 10.1) == 18.0
    assert timeline.earliest(2, 1.0) == 18.0
    assert timeline.earliest(4, 1.0) == 30.0


_jobs = st.lists(
    st.tuples(st.integers(0, 100), st.integers(1, 100), st.sampled_from([1, 2, 4])), min_size=2, max_size=10
)


@given(_jobs, st.sampled_from(["easy", "conservative"]))
@settings(max_examples=120, deadline=None)
def test_backfill_with_true_run_times_delays_no_head(rows, backfill):
    # The first that waits starts no later than if nothing behind it had come at all.
    jobs = [Job(f"j{i}", s, n, gpus) for i, (s, n, gpus) in enumerate(sorted(rows))]
    plain = starts(jobs, {"X": (1, 4)}, "none")
    waiting = [job.job_id for job in jobs if plain[job.job_id] > job.submit_s]
    if not waiting:
        return
    head = waiting[0]
    upto = [job for job in jobs if int(job.job_id[1:]) <= int(head[1:])]
    alone = starts(upto, {"X": (1, 4)}, "none")[head]
    assert starts(jobs, {"X": (1, 4)}, backfill)[head] <= alone + 1e-5


@given(_jobs)
@settings(max_examples=80, deadline=None)
def test_conservative_backfill_delays_nobody(rows):
    jobs = [Job(f"j{i}", s, n, gpus) for i, (s, n, gpus) in enumerate(sorted(rows))]
    plain, filled = (starts(jobs, {"X": (1, 4)}, how) for how in ("none", "conservative"))
    assert all(filled[job] <= plain[job] + 1e-5 for job in plain)


@given(random_scenarios(), st.sampled_from(["gpu_type", "cluster"]))
@settings(max_examples=80, deadline=None)
def test_plain_fcfs_decides_as_without_any_option(scenario, queue):
    plain, none = (made(queue=queue) for made in (FirstComeFirstServed, FcfsWithOptions))
    digests = {simulate(scenario, policy, Buddy()).simulation.log.digest for policy in (plain, none)}
    assert len(digests) == 1


@given(random_scenarios(), st.sampled_from(["none", "aggressive", "easy", "conservative"]), st.booleans())
@settings(max_examples=80, deadline=None)
def test_decisions_are_legal_and_all_jobs_end(scenario, backfill, one_queue):
    queue = "cluster" if one_queue else "gpu_type"
    assert all_left(simulate(scenario, FcfsWithOptions(queue=queue, backfill=backfill), Buddy()))


def test_only_reservations_need_run_times():
    known = {how: FcfsWithOptions(backfill=how).information_class for how in ("none", "aggressive", "easy")}
    none, clairvoyant = InformationClass.NONE, InformationClass.CLAIRVOYANT
    assert known == {"none": none, "aggressive": none, "easy": clairvoyant}
