"""AlloX: matchings solved by hand and by enumeration, preemption where it pays, legal runs."""

from itertools import product

import numpy as np
import pytest
from clustergym.policies.allox import AlloX, Releases, match
from clustergym.policies.placers.buddy import Buddy
from hypothesis import given, settings
from hypothesis import strategies as st
from round_scenarios import assert_counts_jobs_without_profiles, first_view, random_scenarios, run_to_the_end
from scenarios import Job, ends, small_scenario

from clustergym.sim.drive import simulate

SECOND = {"m": {"X": {1: 1.0, 2: 1.0, 4: 1.0}}}


def run(scenario, **parameters):
    return simulate(scenario, AlloX(round_s=None, **parameters), Buddy())


def test_the_matching_leaves_the_fast_type_to_the_job_that_needs_it():
    # Both are fastest on X. a on Y (12 s) and b on X (20 s): 32. Both on X, a first: 10 + 30 = 40.
    times = {"m": {"X": {1: 10.0}, "Y": {1: 12.0}}, "n": {"X": {1: 20.0}, "Y": {1: 100.0}}}
    jobs = [Job("a", 0, 1), Job("b", 0, 1, family="n")]
    assert ends(run(small_scenario(jobs, {"X": (1, 1), "Y": (1, 1)}, times))) == {"a": 12.0, "b": 20.0}


def test_on_one_machine_it_is_shortest_first():
    jobs = [Job("a", 0, 30), Job("b", 0, 10), Job("c", 0, 20)]
    assert ends(run(small_scenario(jobs, {"X": (1, 1)}, SECOND))) == {"b": 10.0, "c": 30.0, "a": 60.0}


def test_a_gang_counts_by_its_width():
    # 4 GPUs. a: 4 GPUs for 10 s; b to e: 1 GPU for 12 s. The mean is 8/5 of a GPU; a delays what
    # is behind it 2.5 times as much, so the small ones go first: 4 x 12 + 22, not 10 + 4 x 22.
    jobs = [Job("a", 0, 10, gpus=4), *(Job(name, 0, 12) for name in "bcde")]
    done = ends(run(small_scenario(jobs, {"X": (1, 4)}, SECOND)))
    assert done == {"a": 22.0, "b": 12.0, "c": 12.0, "d": 12.0, "e": 12.0}


@pytest.mark.parametrize(
    ("checkpoint_s", "preempt", "expected"),
    [
        # short waits 900 s otherwise; long loses 100 s, resumes at once with 50 s of restart.
        (50.0, True, {"short": 200.0, "long": 1150.0}),
        # The restart would cost more than the wait of 900 s.
        (850.0, True, {"long": 1000.0, "short": 1100.0}),
        (50.0, False, {"long": 1000.0, "short": 1100.0}),
    ],
)
def test_it_preempts_where_that_pays(checkpoint_s, preempt, expected):
    jobs = [Job("long", 0, 1000, gpus=2), Job("short", 100, 100, gpus=2)]
    scenario = small_scenario(jobs, {"X": (1, 2)}, SECOND, checkpoint_s={"m": checkpoint_s})
    assert ends(run(scenario, preempt=preempt)) == expected


def test_a_running_job_moves_to_an_idle_type_if_that_repays_the_restart():
    # c and then a on X, b on Y: 10 + 110 + 150 is least. At 110, X is idle and b has 26.67 of 100
    # iterations left: 40 s on Y; 26.67 s on X and the restart.
    times = {"m": {"X": {1: 1.0}, "Y": {1: 1.5}}}
    jobs = [Job("a", 0, 100), Job("b", 0, 100), Job("c", 0, 10)]
    for checkpoint_s, end_s in ((20.0, 150.0), (5.0, 110 + 5 + 80 / 3)):
        scenario = small_scenario(jobs, {"X": (1, 1), "Y": (1, 1)}, times, checkpoint_s={"m": checkpoint_s})
        assert ends(run(scenario)) == {"c": 10.0, "a": 110.0, "b": pytest.approx(end_s, abs=1e-5)}


def test_fairness_considers_the_least_served_first():
    # Both wait at 360 s, unserved; half of them: the one that came first.
    jobs = [Job("long", 5, 500), Job("short", 10, 10)]
    scenario = small_scenario(jobs, {"X": (1, 1)}, SECOND, rounds=360.0)
    for fairness, first in ((1.0, "short"), (0.5, "long")):
        done = ends(simulate(scenario, AlloX(fairness=fairness, preempt=False), Buddy()))
        assert min(done, key=done.__getitem__) == first


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_matching_is_the_best_of_all_schedules(seed):
    # One-GPU jobs on machines that become free at given times: enumerate who goes where; on each
    # machine shortest first is best.
    rng = np.random.default_rng(seed)
    jobs, types = int(rng.integers(1, 5)), int(rng.integers(1, 3))
    sizes = rng.integers(1, 3, types)
    kinds = [f"T{kind}" for kind in range(types)]
    left_s = np.round(rng.uniform(1, 100, (jobs, types)), 2)
    times = {
        f"f{job}": {kind: {1: float(left_s[job, t])} for t, kind in enumerate(kinds)} for job in range(jobs)
    }
    scenario = small_scenario(
        [Job(f"j{job}", 0, 1, family=f"f{job}") for job in range(jobs)],
        {kind: (1, int(size)) for kind, size in zip(kinds, sizes, strict=True)},
        times,
    )
    view = first_view(scenario, AlloX())
    opens = [np.round(rng.uniform(0, 50, size) * (rng.random(size) < 0.6), 2) for size in sizes]
    releases = [Releases(0, busy, np.ones(len(busy), dtype=np.int64)) for busy in opens]
    _, total_s = match(view, left_s, np.arange(jobs), releases)
    machines = [(t, at) for t in range(types) for at in opens[t]]
    best = np.inf
    for where in product(range(len(machines)), repeat=jobs):
        total = 0.0
        for m, (kind, at) in enumerate(machines):
            runs = sorted((left_s[job, kind] for job in range(jobs) if where[job] == m), reverse=True)
            total += sum(at + place * run_s for place, run_s in enumerate(runs, 1))
        best = min(best, total)
    assert total_s == pytest.approx(best)


@settings(max_examples=25, deadline=None)
@given(random_scenarios(), st.sampled_from([0.3, 1.0]), st.booleans(), st.sampled_from([2, 256]))
def test_it_is_legal_and_ends(scenario, fairness, preempt, window):
    run_to_the_end(scenario, AlloX(fairness=fairness, preempt=preempt, window=window))


@settings(max_examples=10, deadline=None)
@given(random_scenarios())
def test_jobs_without_profiles_run_and_are_counted(scenario):
    policy = AlloX()
    assert_counts_jobs_without_profiles(scenario, policy)
