"""Bounds of the mean over tenants of finish-time fairness: by hand, and beside all schedules."""

import pytest
from all_schedules import all_schedules
from queue_quotas import with_quotas
from scenarios import Job, small_scenario

from clustergym.common.errors import InputError
from clustergym.results.bounds.bounds import build_programme, compute_weights
from clustergym.results.bounds.price_search import search
from clustergym.results.measured_run import measure_run
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.sim.drive import simulate

METRIC = "tenant_ftf_mean"
TIMES = {"m": {"X": {1: 2.0, 2: 1.0}}, "unfit": {"X": {}}}


@pytest.mark.slow
def test_no_schedule_of_a_small_case_beats_its_bound():
    # Two GPUs, 2 s an iteration on one and 1 s on both; a and b have one each to themselves in the reference.
    # a's job of 3 iterations takes 6 s there, b's two of 2 iterations, 4 s each, share it until 8 s.
    # A second of a's job counts 1 / 6 / 2 = 1 / 12, one of b's 1 / 8 / 2 / 2 = 1 / 32; by GPU-seconds of work
    # 1 / 72 and 1 / 128: on both GPUs a ends at 3 s, b at 5 and 7: (3 / 6 + (5 / 8 + 7 / 8) / 2) / 2 = 0.625.
    # For mean JCT a, the longest, would be last, at 7 s: (7 / 6 + (2 / 8 + 4 / 8) / 2) / 2 = 0.771.
    jobs = [Job("a", 0, 3), Job("b1", 0, 2), Job("b2", 0, 2)]
    plain = small_scenario(jobs, {"X": (2, 1)}, TIMES)
    scenario = with_quotas(plain, {"a": 1, "b": 1}, ["a", "b", "b"])
    assert compute_weights(scenario, METRIC).tolist() == pytest.approx([1 / 12, 1 / 32, 1 / 32])
    assert min(all_schedules(scenario, METRIC)) == pytest.approx(0.625)
    assert 0.55 < search(build_programme(scenario, METRIC)).value <= 0.625


def test_who_has_no_quota_or_no_job_that_fits_does_not_count():
    # c has no quota, d no job, e only one that fits nowhere: the mean is over a and b.
    jobs = [Job("a", 0, 3), Job("b", 0, 2), Job("c", 0, 1), Job("e", 0, 1, family="unfit")]
    plain = small_scenario(jobs, {"X": (2, 1)}, TIMES)
    scenario = with_quotas(plain, {"a": 1, "b": 0.5, "c": 0, "d": 0.25, "e": 0.25}, "abce")
    weight = compute_weights(scenario, METRIC)
    # Alone, a takes 6 s on its GPU and b 8 s on its half of one.
    assert weight.tolist() == pytest.approx([1 / 12, 1 / 16, 0, 0])
    measured = measure_run(
        simulate(scenario, make_policy({"name": "fcfs"}), make_placer({"name": "buddy"})).simulation
    )
    assert measured.metrics[METRIC] == pytest.approx((weight * measured.records.jct_s)[:3].sum())


def test_without_tenants_there_is_no_bound_of_theirs():
    scenario = small_scenario([Job("a", 0, 3)], {"X": (2, 1)}, TIMES)
    with pytest.raises(InputError, match=r"metric tenant_ftf_mean: there are no tenants.*scenario\.queues"):
        build_programme(scenario, METRIC)
