"""ElasticFlow on cases solved by hand, and its reservations against a plain loop."""

import numpy as np
import pytest
from clustergym.policies.elasticflow import ElasticFlow
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.shared.reservations import Reservations, demands
from hypothesis import given, settings
from hypothesis import strategies as st
from random_scenarios import all_left, random_scenarios
from round_scenarios import first_decided, without_profiles
from scenarios import Job, ends, price, small_scenario, times_of

from clustergym.common.errors import InputError
from clustergym.scenario.costs import Costs
from clustergym.sim.drive import simulate
from clustergym.sim.log import EventType

LINEAR = {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0}, "Y": {1: 4.0, 2: 2.0, 4: 1.0}}}


def first_decision(scenario, **parameters):
    return first_decided(scenario, ElasticFlow(**parameters))


# a needs all 4 GPUs for its 100 iterations to end by 110 (on 2 it would take 200 s). From 100 on,
# b would end at 200: too late for 150. c may end by 210.
THREE = [
    Job("a", 0, 100, gpus=4, deadline_s=110),
    Job("b", 0, 100, gpus=4, deadline_s=150),
    Job("c", 0, 100, gpus=4, deadline_s=210),
]


def test_admission_drops_what_cannot_meet_its_deadline_beside_the_admitted():
    run = simulate(small_scenario(THREE, {"X": (1, 4)}, LINEAR), ElasticFlow(round_s=None), Buddy())
    assert ends(run) == {"a": 100.0, "c": 200.0}
    assert times_of(run, EventType.DROP) == {"b": 0.0}


def test_a_new_job_must_not_cost_an_admitted_one_its_deadline():
    # late comes at 50 with the earliest deadline: it would take 4 GPUs for 50 s, and a, which
    # is half done, would end at 150.
    jobs = [Job("a", 0, 100, gpus=4, deadline_s=110), Job("late", 50, 50, gpus=4, deadline_s=105)]
    run = simulate(small_scenario(jobs, {"X": (1, 4)}, LINEAR), ElasticFlow(round_s=None), Buddy())
    assert ends(run) == {"a": 100.0}
    assert times_of(run, EventType.DROP) == {"late": 50.0}


def test_loosened_drops_nothing():
    # b's 150 s are doubled: by 300. From 100 on, 2 GPUs would do, and it gets the 2 left over as well.
    policy = ElasticFlow(mode="loosened", least_slack=0.5, round_s=None)
    run = simulate(small_scenario(THREE[:2], {"X": (1, 4)}, LINEAR), policy, Buddy())
    assert ends(run) == {"a": 100.0, "b": 200.0}


def test_without_a_deadline_a_job_is_allowed_a_multiple_of_its_run_time():
    # As requested on 2 GPUs both need 200 s. Allowed 2 x 200 s, 1 GPU (400 s) is enough for each;
    # the other 2 GPUs go one to each. Allowed 1 x, 2 GPUs each. Allowed 0.5 x, a needs all 4.
    jobs = [Job("a", 0, 100, gpus=2), Job("b", 0, 100, gpus=2)]
    scenario = small_scenario(jobs, {"X": (1, 4)}, LINEAR)
    both = {"a": ("X", 2), "b": ("X", 2)}
    assert first_decision(scenario, mode="loosened", least_slack=2.0) == both
    assert first_decision(scenario, mode="loosened", least_slack=1.0) == both
    assert first_decision(scenario, mode="loosened", least_slack=0.5) == {"a": ("X", 4)}


def test_what_is_left_goes_by_marginal_return():
    # Both meet their deadlines on 1 GPU; 4 of 6 are left. Doubling from 1 gains, per GPU and over
    # the speed of 1: b (1/2 - 1/4) / (1/4) = 1, a (1/10 - 1/18) / (1/18) = 0.8; from 2 to 4, b again
    # (1 - 1/2) / 2 / (1/4) = 1. So b takes 1 + 2, a the last one.
    times = {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0}}, "concave": {"X": {1: 18.0, 2: 10.0, 4: 6.0}}}
    jobs = [
        Job("a", 0, 100, gpus=1, family="concave", deadline_s=9000),
        Job("b", 0, 100, gpus=1, deadline_s=9500),
    ]
    scenario = small_scenario(jobs, {"X": (1, 6)}, times)
    assert first_decision(scenario) == {"a": ("X", 2), "b": ("X", 4)}


@pytest.mark.parametrize(("checkpoint_s", "end_s"), [(49.0, 199.0), (51.0, 200.0)])
def test_scaling_up_must_repay_its_restart(checkpoint_s, end_s):
    # Each runs on 2; b ends at 100, when a has 50 iterations left: 100 s on 2, 50 s on 4.
    jobs = [Job("a", 0, 100, deadline_s=9000), Job("b", 0, 50, deadline_s=9000)]
    scenario = small_scenario(jobs, {"X": (1, 4)}, LINEAR, checkpoint_s={"m": checkpoint_s})
    run = simulate(scenario, ElasticFlow(round_s=None), Buddy())
    assert ends(run) == {"a": end_s, "b": 100.0}


def test_jobs_stay_on_the_type_they_request_and_any_goes_where_least_waits():
    # On Y nothing waits: c goes there. Each takes all 4 of its type it can use.
    jobs = [Job("a", 0, 100, gpus=4, gpu_type="X"), Job("c", 0, 100, gpus=4)]
    scenario = small_scenario(jobs, {"X": (1, 4), "Y": (1, 4)}, LINEAR)
    assert first_decision(scenario, mode="loosened") == {"a": ("X", 4), "c": ("Y", 4)}


def test_a_job_without_a_profile_runs_as_requested():
    scenario = small_scenario([Job("a", 0, 100, gpus=2)], {"X": (1, 4)}, LINEAR)
    scenario = without_profiles(scenario, "m")
    policy = ElasticFlow(mode="loosened", round_s=None)
    run = simulate(scenario, policy, Buddy())
    assert [e.gpus for e in run.simulation.log.events if e.iteration_time_s] == [2]
    assert policy.counters() == {"jobs_without_profile": 1}


def test_strict_needs_deadlines_by_name():
    scenario = small_scenario([Job("a", 0, 100)], {"X": (1, 4)}, LINEAR)
    with pytest.raises(InputError, match=r"deadline_s: policy elasticflow with mode=strict needs deadlines"):
        simulate(scenario, ElasticFlow(), Buddy())
    simulate(scenario, ElasticFlow(mode="loosened"), Buddy())


@settings(max_examples=60, deadline=None)
@given(scenario=random_scenarios(data_parallel_fits=False), slack=st.sampled_from([0.5, 1.0, 4.0]))
def test_loosened_finishes_every_job(scenario, slack):
    policy = ElasticFlow(mode="loosened", least_slack=slack, round_s=None)
    assert all_left(simulate(scenario, policy, Buddy()))


@settings(max_examples=60, deadline=None)
@given(scenario=random_scenarios(data_parallel_fits=False))
def test_strict_drops_a_job_at_its_first_decision_or_never(scenario):
    if not np.isfinite(scenario.trace.deadline_s).any():
        return
    run = simulate(scenario, ElasticFlow(round_s=None), Buddy())
    assert all_left(run, drops=True)
    assert not times_of(run, EventType.START).keys() & times_of(run, EventType.DROP).keys()


COUNTS = np.array([1, 2, 4, 8])


@settings(max_examples=200, deadline=None)
@given(
    rates=st.lists(
        st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0]), min_size=4, max_size=4), min_size=1, max_size=6
    ),
    work=st.lists(st.integers(1, 60), min_size=6, max_size=6),
    free=st.integers(1, 12),
)
def test_reservations_agree_with_a_plain_loop(rates, work, free):
    book = Reservations(free, COUNTS)
    for rate, iterations in zip(rates, work, strict=False):
        rate = np.array(rate)
        (job,) = demands(rate[None, :], np.array([float(iterations)]), np.zeros((1, 4)))
        plans = book.plans(job)
        expected = [plain_finish(book.start_s, book.free, rate[: cap + 1], iterations) for cap in range(4)]
        assert plans.finish_s == pytest.approx(expected)
        if np.isfinite(plans.finish_s).any():
            cap = int(np.argmin(plans.finish_s))
            book.take(cap, job, float(plans.finish_s[cap]))
        assert (book.free >= 0).all()


def plain_finish(start_s, free, rate, left):
    for at, here in enumerate(free):
        speed = max((r for r, count in zip(rate, COUNTS, strict=False) if count <= here), default=0.0)
        if at + 1 == len(free):
            return start_s[at] + left / speed if speed else np.inf
        lasts = start_s[at + 1] - start_s[at]
        if speed * lasts >= left:
            return start_s[at] + left / speed
        left -= speed * lasts
    return np.inf


def test_a_job_that_fits_only_with_more_gpus_than_requested_goes_where_it_fits():
    # Requested on 2 GPUs of X, where some plan fits but pure data parallelism nowhere; on Y anything
    # takes 4. There it is sent, and ends after 100 iterations of 1 s.
    table = {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0}, "Y": {1: np.inf, 2: np.inf, 4: 1.0}}}
    scenario = small_scenario([Job("a", 0, 100, gpus=2, gpu_type="X")], {"X": (1, 4), "Y": (1, 4)}, table)
    scenario = without_profiles(scenario, "m", ("X",))
    run = simulate(scenario, ElasticFlow(mode="loosened", round_s=None), Buddy())
    assert ends(run) == {"a": 100.0}


def test_a_guess_before_all_types_are_profiled_does_not_bind_a_job():
    # One count of X is profiled in 10 s, two of Y in 20 s. Pure data parallelism fits on Y alone: a is
    # guessed to run on X at 10, and goes to Y when that is known.
    costs = Costs(search="proxy", profile=price("data_parallel", 10.0, per="configuration"))
    times = {"n": {"X": {1: 10.0}, "Y": {1: 10.0, 2: 5.0}}}
    jobs = [Job("a", 0, 100, family="n")]
    scenario = small_scenario(jobs, {"X": (1, 1), "Y": (1, 2)}, times, costs=costs)
    run = simulate(without_profiles(scenario, "n", ("X",)), ElasticFlow(mode="loosened"), Buddy())
    starts = [(e.time_s, e.gpu_type) for e in run.simulation.log.events if e.gpus and e.iteration_time_s]
    assert starts[0] == (10.0, 0)
    assert starts[-1][1] == 1
    assert run.simulation.log.events[-1].event_type == EventType.COMPLETE
