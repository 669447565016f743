"""Gandiva's packing and Lucid's binder on cases solved by hand, and legal runs to the end."""

import pytest
from clustergym.policies.gandiva import Gandiva
from clustergym.policies.lucid import Lucid
from clustergym.policies.placers.buddy import Buddy
from pairs import with_pairs
from scenarios import Job, small_scenario

from clustergym.results.measured_run import make_result
from clustergym.results.metrics.intervals import Outcome
from clustergym.sim.drive import simulate

TIMES = {"a": {"X": {1: 1.0, 2: 0.5}}, "b": {"X": {1: 2.0, 2: 1.2}}}


def ran(jobs, kept, policy, groups=None):
    scenario = small_scenario(jobs, groups or {"X": (1, 1)}, TIMES, rounds=10.0)
    result = make_result(simulate(with_pairs(scenario, kept), policy, Buddy()))
    return dict(zip(scenario.trace.job_id, result.jobs.end_s.tolist(), strict=True)), result


def test_gandiva_packs_a_job_that_waits_and_keeps_a_pair_that_gains():
    # As tests/sim/test_pairs.py: a does 10 iterations alone and 90 at 0.8, b 28.125 at half of its speed.
    jobs = [Job("a", 0, 100, family="a"), Job("b", 5, 100, family="b")]
    policy = Gandiva(pack=True)
    ends, _ = ran(jobs, {("a", "b"): (0.8, 0.5)}, policy)
    assert ends == pytest.approx({"a": 122.5, "b": 266.25}, abs=1e-9)
    assert (policy.counters()["pairs"], policy.counters()["pairs_undone"]) == (1, 0)
    assert ran(jobs, {("a", "b"): (0.8, 0.5)}, Gandiva())[0] == {"a": 100.0, "b": 300.0}


def test_gandiva_parts_a_pair_that_loses_and_does_not_try_it_again():
    # From 10 to 20 a keeps 0.4, and b counts with 0.5. a does 10 + 4 of its 100 and ends at 106; b does 2.5,
    # and the rest from the round at 110 on: 195 s.
    jobs = [Job("a", 0, 100, family="a"), Job("b", 5, 100, family="b")]
    policy = Gandiva(pack=True)
    ends, _ = ran(jobs, {("a", "b"): (0.4, 0.5)}, policy)
    assert ends == pytest.approx({"a": 106.0, "b": 305.0}, abs=1e-9)
    assert (policy.counters()["pairs"], policy.counters()["pairs_undone"]) == (1, 1)


def test_gandiva_ends_the_slice_of_a_pair_together():
    # a and b share from 10 on; c may share with neither, and at 10 + 30 both give way to it.
    jobs = [Job("a", 0, 200, family="a"), Job("b", 5, 50, family="a"), Job("c", 5, 10, family="b")]
    policy = Gandiva(pack=True, slice_s=30.0)
    ends, result = ran(jobs, {("a", "a"): (0.8, 0.8)}, policy)
    assert ends["c"] == 60.0
    assert result.jobs.preemptions[:2].tolist() == [1, 1]
    assert (result.jobs.outcome == Outcome.FINISHED).all()


@pytest.mark.parametrize(
    ("kept", "iterations", "ends"),
    [
        # Labels 1 and 0: b joins a at 10. a: 10 + 90 / 0.9; b does 48 at 0.48 a second, and 2 alone.
        ((0.9, 0.96), 50, {"a": 110.0, "b": 114.0}),
        # Both are heavy: b waits for a.
        ((0.8, 0.8), 50, {"a": 100.0, "b": 200.0}),
        # b takes 200 s, more than twice the 90 s that a has left.
        ((0.9, 0.96), 100, {"a": 100.0, "b": 300.0}),
    ],
)
def test_lucid_lets_light_jobs_share(kept, iterations, ends):
    jobs = [Job("a", 0, 100, family="a"), Job("b", 10, iterations, family="b")]
    policy = Lucid(pack=True, profiler_gpus=0)
    assert ran(jobs, {("a", "b"): kept}, policy)[0] == pytest.approx(ends, abs=1e-9)


def test_lucid_estimates_run_times_from_jobs_that_have_ended():
    # h ends at 100. By exact times short (5 s) goes before long (50 s); by records both take as long as h.
    jobs = [Job("h", 0, 100, family="a"), Job("long", 1, 50, family="a"), Job("short", 2, 5, family="a")]
    exact, records = (
        ran(jobs, {("a", "a"): (0.0, 0.0)}, Lucid(profiler_gpus=0, estimator=name))[0]
        for name in ("exact", "records")
    )
    assert exact == {"h": 100.0, "short": 105.0, "long": 160.0}
    assert records == {"h": 100.0, "long": 150.0, "short": 155.0}


@pytest.mark.parametrize("policy", [Gandiva(pack=True, slice_s=100.0), Lucid(pack=True, estimator="records")])
def test_packing_policies_decide_legally_and_all_jobs_end(policy):
    jobs = [
        Job(f"j{at}", 7.0 * at, 40 + 37 * (at % 7), gpus=1 + (at % 4 == 0), family="ab"[at % 3 == 0])
        for at in range(30)
    ]
    kept = {("a", "a"): (0.9, 0.9), ("a", "b"): (0.97, 0.7), ("b", "b"): (0.4, 0.4)}
    _, result = ran(jobs, kept, policy, {"X": (2, 2)})
    assert (result.jobs.outcome == Outcome.FINISHED).all()
    assert result.run.simulation.sharing.launches["table"] > 0
