"""The terms of the objective are the metrics of the engine, and deadlines are drawn as they are meant."""

from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.learned import Learned
from compiled_entries import plain
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from scenarios import Job, small_scenario

from clustergym.agents import auction_features as features
from clustergym.agents.auction_checkpoints import save
from clustergym.common.errors import InputError
from clustergym.results.measured_run import measure_run
from clustergym.scenario.costs import Costs
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.registry import make_placer
from clustergym.sim.drive import simulate
from clustergym.training.auction_evolution import TERMS, Objective
from clustergym.training.distribution import Distribution, draw_scenario
from clustergym.training.simulated_episodes import AuctionEpisode

KNOWN = InformationClass.DATA_PARALLEL
SMALL = Distribution(
    origin="synthetic", jobs=(20, 40), gpus=16, types=(1, 2), load=(0.8, 2.0), deadline_slack=(0.5, 1.5)
)


def of(metrics: dict) -> dict[str, float]:
    """Return the terms as the metrics have them."""
    return {
        "jct_mean": np.log(metrics["jct_mean"]),
        "jct_p99": np.log(metrics["jct_p99"]),
        "ftf_mean": np.log(metrics["ftf_mean"]),
        "unfair_fraction": metrics["unfair_fraction"],
        "deadline_missed": 1 - metrics["deadline_satisfaction"],
    }


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**20))
def test_terms_are_the_metrics_of_the_engine(tmp_path_factory, seed):
    drawn = replace(SMALL, search=("proxy", "pruned")[seed % 2])
    scenario = draw_scenario(drawn, "train", seed, 0)
    weights = np.random.default_rng(seed).normal(size=features.COUNT)
    path = tmp_path_factory.mktemp("c") / "some.safetensors"
    save(path, weights, KNOWN, {})
    run = simulate(scenario, Learned(str(path)), make_placer({"name": "buddy", "defragment_s": None}))
    expected = of(measure_run(run.simulation).metrics)
    jct_s = AuctionEpisode.from_scenario(scenario, KNOWN).run(weights)
    assert set(expected) == set(TERMS)
    for name, value in expected.items():
        assert Objective({name: 1.0}).judge(scenario)(jct_s) == pytest.approx(value, abs=1e-6), name


def test_terms_by_hand():
    # Two GPUs; a and b ask for one each, of 10 s an iteration: 30 and 60 s alone, as in the capped fluid
    # reference. They end after 30 and 90 s: fairness 1 and 1.5, one of two unfair. Deadlines at 20 s for a
    # (missed); b has none, so that one of one is missed.
    jobs = [Job("a", 0.0, 3, family="m", deadline_s=20.0), Job("b", 0.0, 6, family="m")]
    scenario = small_scenario(
        jobs, {"X": (1, 2)}, {"m": {"X": {1: 10.0}}}, costs=Costs(search="proxy", profile={})
    )
    jct_s = np.array([30.0, 90.0])
    terms = {name: Objective({name: 1.0}).judge(scenario)(jct_s) for name in TERMS}
    assert terms == pytest.approx(
        {
            "jct_mean": np.log(60.0),
            "jct_p99": np.log(30.0 + 0.99 * 60.0),
            "ftf_mean": np.log(1.25),
            "unfair_fraction": 0.5,
            "deadline_missed": 1.0,
        }
    )
    both = Objective({"jct_mean": 2.0, "unfair_fraction": 3.0, "ftf_mean": 0.0})
    assert both.judge(scenario)(jct_s) == pytest.approx(2 * np.log(60.0) + 1.5)


@refused("objectives")
def test_a_bad_objective_is_refused(given, said):
    with said.of_error():
        Objective(given)


def test_deadlines_are_drawn_after_all_else():
    with_none = draw_scenario(replace(SMALL, deadline_slack=()), "train", 4, 1)
    drawn = draw_scenario(SMALL, "train", 4, 1)
    assert np.isnan(with_none.trace.deadline_s).all()
    assert replace(drawn, trace=replace(drawn.trace, deadline_s=with_none.trace.deadline_s)).sha256 == (
        with_none.sha256
    )
    run_s = drawn.reference_iteration_time_s * drawn.trace.iterations
    slack = (drawn.trace.deadline_s - drawn.trace.submit_s) / run_s
    assert ((slack > 0.5 - 1e-3) & (slack < 1.5 + 1e-3)).all()
    assert slack.max() - slack.min() > 0.7
    assert draw_scenario(SMALL, "train", 4, 1).sha256 == drawn.sha256


def test_searches_cost_and_long_jobs_are_cut():
    drawn = replace(SMALL, max_duration_s=100.0, search="pruned", load=(1.0, 1.0), types=(1,))
    scenario = draw_scenario(drawn, "train", 4, 1)
    run_s = scenario.reference_iteration_time_s * scenario.trace.iterations
    assert run_s.max() == pytest.approx(100.0)
    # Pruned search: 10 s a GPU up to 40 s.
    assert scenario.costs.search_s(scenario.tables.counts).tolist() == [10.0, 20.0, 40.0, 80.0, 90.0]
    gpu_s = float((run_s * scenario.trace.gpus).sum())
    assert gpu_s / (16 * scenario.trace.span_s) == pytest.approx(1.0, rel=1e-2)
    with pytest.raises(InputError, match="did you mean pruned"):
        replace(SMALL, search="prunde")
    with pytest.raises(InputError, match="max_duration_s"):
        replace(SMALL, max_duration_s=0.0)


def test_slack_is_a_pair_in_order():
    for bad in ((1.0,), (1.5, 0.5), (0.0, 1.0)):
        with pytest.raises(InputError, match="deadline_slack"):
            replace(SMALL, deadline_slack=bad)


def test_deadlines_decide_the_auction():
    # One GPU, two jobs of 100 s from 0 on; b's deadline is at 120 s, a's at 500 s. Urgency 100/500 and
    # 100/120: weighed by it alone, b goes first. Ends at 200 and 100 s.
    times = {"m": {"X": {1: 10.0}}}
    jobs = [
        Job("a", 0.0, 10, family="m", deadline_s=500.0), Job("b", 0.0, 10, family="m", deadline_s=120.0),
    ]  # fmt: skip
    scenario = small_scenario(jobs, {"X": (1, 1)}, times, costs=Costs(search="proxy", profile={}))
    weights = np.zeros(features.COUNT)
    weights[features.NAMES.index("urgency")] = 1.0
    assert AuctionEpisode.from_scenario(scenario, KNOWN).run(weights).tolist() == [200.0, 100.0]
    # At 90 s b could not meet its own any more: late, of urgency 0, it waits if that counts against it.
    weights[features.NAMES.index("late")] = -1.0
    late = replace(scenario, trace=replace(scenario.trace, deadline_s=np.array([500.0, 90.0])))
    assert AuctionEpisode.from_scenario(late, KNOWN).run(weights).tolist() == [100.0, 200.0]


@pytest.mark.parametrize(
    ("slack_s", "cost_s", "expected"),
    [
        # 100 iterations left; at best 1 s each (100 s in all), after this doubling 2 s, before it 4 s.
        (np.nan, 0.0, [0.0, 0.0, 0.0, 0.0, 0.0]),
        (90.0, 0.0, [1.0, 1.0, 0.0, 0.0, 0.0]),
        (160.0, 0.0, [0.0, 0.0, 0.625, 0.625, 0.0]),
        (250.0, 0.0, [0.0, 0.0, 0.4, 0.4, 1.0]),
        (250.0, 60.0, [0.0, 0.0, 0.4, 0.4, 0.0]),
        (500.0, 0.0, [0.0, 0.0, 0.2, 0.2, 0.0]),
    ],
)
def test_features_of_a_deadline_by_hand(slack_s, cost_s, expected):
    job, point = np.zeros(features.JOB_FACTS), np.zeros(features.POINT_FACTS)
    job[features.REMAINING], job[features.LEAST_GPU_S], job[features.LEAST_S] = 100.0, 400.0, 100.0
    job[features.SLACK_S], job[features.SOONEST_S] = slack_s, 100.0
    point[features.JOBS], point[features.GPUS] = 2, 8
    plain(features.derive_point)(point)
    plain(features.derive_job)(job, point)
    out = np.full(features.COUNT, np.nan)
    plain(features.fill)(out, job, point, 2.0, 4.0, 2, 1, True, False, cost_s, 0.0, 0.0)
    names = ("late", "late_double", "urgency", "urgency_double", "rescue")
    assert [out[features.NAMES.index(name)] for name in names] == pytest.approx(expected)
