"""Proved bounds: by hand, beside a linear programme, and never beaten, whatever the prices."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from queue_quotas import with_quotas
from random_scenarios import all_left, random_scenarios
from scenarios import Job, Script, small_scenario
from scipy.optimize import linprog

from clustergym.common.errors import InputError
from clustergym.results.bounds import price_search
from clustergym.results.bounds.bounds import BOUNDED, Certificate, build_programme, proven
from clustergym.results.bounds.price_search import search
from clustergym.results.bounds.priced_jobs import PricedJobs, PriceList, least_costs, least_payments
from clustergym.results.measured_run import measure_run
from clustergym.scenario.costs import Costs
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.sim.drive import simulate

LINEAR = {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0}}}
ONE_GPU = {"m": {"X": {1: 1.0}}}


def found(scenario, metric="jct_mean"):
    return search(build_programme(scenario, metric)).value


def test_a_job_alone_takes_its_least_time():
    # 10 iterations of 1 s on all 4 GPUs.
    scenario = small_scenario([Job("a", 3, 10, gpus=4)], {"X": (1, 4)}, LINEAR)
    assert found(scenario) == pytest.approx(10.0, abs=1e-4)


def test_a_shorter_job_preempts():
    # 10 s of work from 0, 2 s from 4: the short one ends at 6, the long one at 12; (12 + 2) / 2.
    jobs = [Job("long", 0, 10, gpus=4), Job("short", 4, 2, gpus=4)]
    bound = found(small_scenario(jobs, {"X": (1, 4)}, {"m": {"X": {4: 1.0}}}))
    assert 6.8 < bound <= 7.0


def test_a_restart_costs_its_checkpoint():
    # As before, but whoever is launched again stands still for 3 s. Preempted, the long job works from 0 to
    # 4, is back at 6 and ends at 15: (15 + 2) / 2 = 8.5. Not preempted, the short one waits till 10 and ends
    # at 12: (10 + 8) / 2 = 9. Idle until 6, the long one ends at 16: (16 + 2) / 2 = 9. The best is 8.5.
    jobs = [Job("long", 0, 10, gpus=4), Job("short", 4, 2, gpus=4)]
    times = {"m": {"X": {4: 1.0}}}
    bound = found(small_scenario(jobs, {"X": (1, 4)}, times, checkpoint_s={"m": 3.0}))
    assert 7.2 < bound <= 8.5


def test_elastic_jobs_share_the_work():
    # Eight jobs of 4 GPU-seconds on 4 GPUs, one after the other on all of them: 1 + 2 + ... + 8 s.
    scenario = small_scenario([Job(f"{i}", 0, 1) for i in range(8)], {"X": (1, 4)}, LINEAR)
    assert 4.3 < found(scenario) <= 36 / 8


def test_two_types_share_the_jobs():
    # X is twice as fast: two jobs of 10 and 20 s on one GPU each of X and Y. On X one after the other,
    # 10 and 20 s; apart, 10 and 20 s too: 15. Changing to X when it is free: the second has done half by 10
    # and does the other half on X in 5 s: (10 + 15) / 2 = 12.5, as moving is free.
    times = {"m": {"X": {1: 1.0}, "Y": {1: 2.0}}}
    scenario = small_scenario([Job("a", 0, 10), Job("b", 0, 10)], {"X": (1, 1), "Y": (1, 1)}, times)
    assert 11.8 < found(scenario) <= 12.5


def test_fairness_weighs_the_same_seconds():
    # Two jobs of 10 s on one GPU end together at 20 in the fluid reference: (10 / 20 + 20 / 20) / 2.
    scenario = small_scenario([Job("a", 0, 10), Job("b", 0, 10)], {"X": (1, 1)}, ONE_GPU)
    assert 0.72 < found(scenario, "ftf_mean") <= 0.75


@pytest.mark.slow
@pytest.mark.parametrize(("until", "share"), [(12.0, 1 / 3), (20.0, 2 / 3), (30.0, 1.0), (9.0, 0.0)])
def test_deadlines_that_one_gpu_can_meet(until, share):
    # Three jobs of 10 s on one GPU, all to end by the same time.
    jobs = [Job(name, 0, 10, deadline_s=until) for name in "abc"]
    assert found(small_scenario(jobs, {"X": (1, 1)}, ONE_GPU), "deadline_satisfaction") == pytest.approx(
        share
    )


def test_a_launch_that_is_cut_short_takes_the_place_of_a_search():
    # A search takes 10 s and a checkpoint 4. Launched at 0, stopped at 1 (when b arrives) and launched again
    # at 2 (when c does), job a needs no search: 4 s of standstill and 30 of work, until 36 instead of 40.
    jobs = [Job("a", 0, 30), Job("b", 1, 1), Job("c", 2, 1)]
    costs = Costs(search="pruned", profile={})
    scenario = small_scenario(jobs, {"X": (1, 4)}, ONE_GPU, checkpoint_s={"m": 4.0}, costs=costs)
    script = Script(
        scenario,
        {
            0.0: {"a": ("X", 1)},
            1.0: {"b": ("X", 1)},
            2.0: {"a": ("X", 1), "b": ("X", 1), "c": ("X", 1)},
        },
    )
    metrics = measure_run(simulate(scenario, script, make_placer({"name": "buddy"})).simulation).metrics
    # b and c: 10 s of search, 1 s of work.
    assert metrics["jct_mean"] == pytest.approx((36 + 11 + 11) / 3)
    # Each alone: 34, 5, 5.
    assert found(scenario) == pytest.approx((34 + 5 + 5) / 3, abs=1e-3)


@pytest.mark.slow
def test_prices_of_a_part_of_the_jobs_prove_a_bound_of_all(monkeypatch):
    # Sixteen jobs of 4 GPU-seconds on 4 GPUs, 1 + 2 + ... + 16 s; eight on 2 GPUs are the same, coarser.
    scenario = small_scenario([Job(f"{i}", 0, 1) for i in range(16)], {"X": (1, 4)}, LINEAR)
    programme = build_programme(scenario, "jct_mean")
    part, share = price_search.sample_programme(programme, 2)
    assert (part.capacity.tolist(), part.jobs.weight.tolist(), share) == ([2.0], [1 / 8] * 8, 0.5)
    monkeypatch.setattr(price_search, "MANY_JOBS", 15)
    monkeypatch.setattr(price_search, "SOME_JOBS", 8)
    bound = search(programme)
    assert 0.85 * 136 / 16 < bound.value <= 136 / 16
    assert bound.value == proven(programme, bound.certificate)


def test_jobs_that_are_not_scored_count_for_nothing(monkeypatch):
    # Four scored jobs of 4 GPU-seconds on 4 GPUs: 1 + 2 + 3 + 4 s. The twelve others may come after them.
    jobs = [Job(f"{i}", float(i >= 4), 1) for i in range(16)]
    scenario = replace(small_scenario(jobs, {"X": (1, 4)}, LINEAR), scored_s=(0.0, 0.5))
    monkeypatch.setattr(price_search, "MANY_JOBS", 10)
    monkeypatch.setattr(price_search, "SOME_JOBS", 1)
    assert 0.95 * 10 / 4 < search(build_programme(scenario, "jct_mean")).value <= 10 / 4


def test_a_part_has_the_allotments_of_its_own_jobs():
    times = {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0}}, "n": {"X": {1: 3.0}}}
    jobs = [Job(f"{i}", 0, 1 + i, family="mnmn"[i]) for i in range(4)]
    programme = build_programme(small_scenario(jobs, {"X": (1, 4)}, times), "jct_mean")
    for every, kept in ((2, (0, 2)), (3, (0, 3))):
        own = [slice(*programme.jobs.first[row : row + 2]) for row in kept]
        part, share = price_search.sample_programme(programme, every)
        assert share == 0.5
        assert np.diff(part.jobs.first).tolist() == [one.stop - one.start for one in own]
        for name in ("gpus", "rate"):
            expected = np.concatenate([getattr(programme.jobs, name)[one] for one in own])
            assert getattr(part.jobs, name).tolist() == expected.tolist()


@pytest.mark.slow
def test_nothing_to_bound():
    scenario = small_scenario([Job("a", 0, 10, gpus=4)], {"X": (1, 4)}, {"m": {"X": {}}})
    scenario = with_quotas(scenario, {"a": 1}, "a")
    assert [found(scenario, metric) for metric in BOUNDED] == [0.0, 0.0, 0.0, 1.0]


def random_prices(rng):
    """Return one job, prices, and the job's allotments as (type, GPUs)."""
    kinds, intervals = int(rng.integers(1, 3)), int(rng.integers(2, 7))
    edges_s = np.append(0, np.cumsum(rng.uniform(1, 6, intervals)))
    price = np.pad(rng.uniform(0, 2, (kinds, intervals)), ((0, 0), (0, 1)))
    kind, gpus = np.repeat(np.arange(kinds), 3), np.tile([1.0, 2.0, 4.0], kinds)
    rate = gpus ** rng.uniform(0.3, 1, len(gpus)) / rng.uniform(4, 20, len(gpus))
    arrival = rng.uniform(0, 0.7 * edges_s[-1], 1)
    deadline = arrival + rng.uniform(0.5, 20, 1)
    first = np.array([0, len(gpus)])
    weight = rng.uniform(0.2, 3, 1)
    return PricedJobs(arrival, weight, deadline, np.zeros(1), first, kind, gpus, rate), PriceList(
        edges_s, price
    )


def cheapest_by(jobs, prices, end_s):
    """Return the least payment for the whole job by `end_s`, by a linear programme; inf: not possible."""
    edges = np.append(prices.edges_s, np.inf)
    start, stop = np.maximum(edges[:-1], jobs.arrival_s[0]), np.minimum(edges[1:], end_s)
    rows = len(jobs.gpus)
    cost = (jobs.gpus[:, None] * prices.price[jobs.gpu_type]).T.ravel()
    one = np.kron(np.eye(len(start)), np.ones(rows))
    limits = np.vstack([one, -np.tile(jobs.rate, len(start))])
    solved = linprog(cost, limits, np.append(np.maximum(stop - start, 0), -1.0))
    return solved.fun if solved.status == 0 else np.inf


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_one_job_beside_a_linear_programme(seed):
    jobs, prices = random_prices(np.random.default_rng(seed))
    value, use = np.zeros(1), np.zeros((len(prices.price), len(prices.edges_s) - 1))
    least_payments(jobs, prices, value, use)
    assert value[0] == pytest.approx(cheapest_by(jobs, prices, jobs.deadline_s[0]), rel=1e-6)
    least_costs(jobs._replace(deadline_s=np.array([np.inf])), prices, value, use)
    arrival, weight = jobs.arrival_s[0], jobs.weight[0]
    first, last = arrival, prices.edges_s[-1] + arrival + 1 / jobs.rate.max()
    for _ in range(2):  # Coarsely, and then about the least.
        ends = np.linspace(first, last, 50)
        paid = [weight * (end - arrival) + cheapest_by(jobs, prices, end) for end in ends]
        step_s, best_s = ends[1] - ends[0], ends[np.argmin(paid)]
        first, last = max(arrival, best_s - step_s), best_s + step_s
    assert min(paid) - weight * step_s - 1e-9 <= value[0] <= min(paid) + 1e-9


def with_tenants(scenario):
    """Return a scenario whose jobs are of three tenants in turn, the last without quota."""
    names = [("a", "b", "c")[row % 3] for row in range(len(scenario.trace))]
    return with_quotas(scenario, {"a": 4, "b": 0.5, "c": 0}, names)


def for_metric(scenario, metric):
    """Return a scenario without deadlines for a mean, as no mean is bounded where jobs may be dropped."""
    if metric == "deadline_satisfaction":
        return scenario
    return replace(scenario, trace=replace(scenario.trace, deadline_s=np.full(len(scenario.trace), np.nan)))


def figures(scenario, names):
    """Yield the metrics of runs of policies that know everything or nothing and pay for no profile."""
    for name in names:
        run = simulate(scenario, make_policy({"name": name}), make_placer({"name": "buddy"}))
        assert all_left(run)
        yield measure_run(run.simulation).metrics


def assert_not_beaten(metrics, metric, bound):
    if metrics[metric] is not None and metric == "deadline_satisfaction":
        assert metrics[metric] <= bound + 1e-12
    elif metrics[metric] is not None:
        assert metrics[metric] >= bound


@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(random_scenarios(), st.sampled_from(BOUNDED))
def test_no_policy_beats_a_bound(scenario, metric):
    scenario = for_metric(with_tenants(scenario), metric)
    bound = found(scenario, metric)
    for metrics in figures(scenario, ("srtf", "hesrpt", "ares", "optimus")):
        assert_not_beaten(metrics, metric, bound)


@settings(max_examples=30, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(random_scenarios(), st.integers(0, 2**32 - 1), st.floats(1e-6, 0.1))
def test_no_policy_beats_a_bound_of_random_prices(scenario, seed, height):
    rng, scenario = np.random.default_rng(seed), with_tenants(scenario)
    edges_s = np.append(-1.0, np.sort(rng.uniform(0, 2000, 9)))
    certificate = Certificate(edges_s, height * rng.exponential(size=(2, 9)))
    bounds = {
        metric: proven(build_programme(for_metric(scenario, metric), metric), certificate)
        for metric in BOUNDED
    }
    for metrics in figures(scenario, ("hesrpt", "ares")):
        for metric, bound in bounds.items():
            assert_not_beaten(metrics, metric, bound)


def test_a_malformed_certificate_is_refused():
    programme = build_programme(small_scenario([Job("a", 3, 10)], {"X": (1, 4)}, LINEAR), "jct_mean")
    edges, price = np.array([0.0, 10.0, 20.0]), np.zeros((1, 2))
    for wrong in (
        Certificate(edges[::-1].copy(), price),
        Certificate(edges + 4, price),
        Certificate(edges, price - 1),
        Certificate(edges, np.zeros((2, 2))),
        Certificate(np.array([0.0, np.nan, 20.0]), price),
    ):
        with pytest.raises(InputError, match="certificate"):
            proven(programme, wrong)


def test_metrics_and_horizons_without_a_bound():
    jobs = [Job("a", 3, 10)]
    with pytest.raises(InputError, match="has no bound"):
        build_programme(small_scenario(jobs, {"X": (1, 4)}, LINEAR), "makespan")
    with pytest.raises(InputError, match="horizon"):
        build_programme(small_scenario(jobs, {"X": (1, 4)}, LINEAR, horizon_s=5.0), "jct_mean")
