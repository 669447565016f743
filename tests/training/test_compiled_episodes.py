"""The compiled episode is the engine's, job by job, and decides as worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.learned import Learned
from compiled_entries import plain
from hypothesis import given, settings
from hypothesis import strategies as st
from random_scenarios import random_scenarios
from scenarios import Job, price, small_scenario

from clustergym.agents import auction, beliefs
from clustergym.agents import auction_features as features
from clustergym.common.errors import InputError
from clustergym.scenario.costs import Costs
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.registry import make_placer
from clustergym.scenario.scenario import Scenario
from clustergym.sim import columns
from clustergym.sim.drive import simulate
from clustergym.training.auction_evolution import start
from clustergym.training.distribution import Distribution, draw_scenario
from clustergym.training.simulated_episodes import AuctionEpisode

KNOWN = InformationClass.DATA_PARALLEL


def learned(folder, weights, round_s=None, known=KNOWN) -> Learned:
    from clustergym.agents.auction_checkpoints import save

    path = folder / "some.safetensors"
    save(path, weights, known, {})
    return Learned(str(path), round_s)


def simulated(scenario: Scenario, policy: Learned) -> tuple[np.ndarray, list[int]]:
    """Return completion ticks and restarts of each job in the engine."""
    simulation = simulate(scenario, policy, make_placer({"name": "buddy"})).simulation
    finish = np.zeros(len(scenario.trace), dtype=np.int64)
    for event in simulation.log.events:
        if event.event_type.value == "complete":
            finish[event.job] = round(event.time_s * 1e6)
    return finish, simulation.jobs.restarts.tolist()


def restarts_of(episode: AuctionEpisode) -> list[int]:
    return episode.batch.episodes.job[0, : len(episode.scenario.job), columns.RESTARTS].tolist()


def agrees(scenario: Scenario, policy: Learned, weights: np.ndarray) -> None:
    episode = AuctionEpisode.from_scenario(scenario, policy.information_class, policy.round_s)
    outcome = episode.run(weights)
    finish, restarts = simulated(scenario, policy)
    submit = np.array([round(t * 1e6) for t in scenario.trace.submit_s.tolist()])
    assert np.rint(outcome * 1e6).astype(np.int64).tolist() == (finish - submit).tolist()
    assert restarts_of(episode) == restarts


@pytest.mark.parametrize("known", [KNOWN, InformationClass.NONE])
@settings(max_examples=40, deadline=None)
@given(scenario=random_scenarios(), seed=st.integers(0, 2**20))
def test_agrees_with_the_engine_on_small_scenarios(tmp_path_factory, known, scenario, seed):
    rng = np.random.default_rng(seed)
    hidden = seed % 2 * 3 * (auction.INPUTS + 2)
    weights = rng.normal(size=features.COUNT + hidden)
    if known == InformationClass.NONE:
        weights = np.concatenate([weights, beliefs.START + rng.normal(size=beliefs.COUNT)])
    agrees(scenario, learned(tmp_path_factory.mktemp("c"), weights, known=known), weights)


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("rounds", ["event", 300.0])
def test_agrees_with_the_engine_on_training_scenarios(tmp_path, index, rounds):
    drawn = Distribution(origin="synthetic", jobs=(60, 80), gpus=24)
    scenario = replace(draw_scenario(drawn, "train", 5, index), rounds=rounds)
    weights = start() + np.random.default_rng(index).normal(size=features.COUNT) / 3
    agrees(scenario, learned(tmp_path, weights), weights)


BELIEFS = {"": (), "none": beliefs.START, "measures": beliefs.START_TOLD}


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize(
    ("known", "believes"),
    [
        ("none", "none"),
        ("bootstrap", ""),
        ("data_parallel", ""),
        ("data_parallel", "measures"),
        ("profiled", ""),
    ],
)
def test_agrees_with_the_engine_where_jobs_are_profiled(tmp_path, index, known, believes):
    # Prices of profiles as on the boards; of class none there is none.
    drawn = Distribution(origin="synthetic", jobs=(60, 80), gpus=24)
    scenario = replace(draw_scenario(drawn, "train", 5, index), costs=Costs())
    if believes == "measures":  # Every third job has no data-parallel profile, others have none on one GPU.
        told = scenario.tables.data_parallel.copy()
        told[::3], told[1::3, :, 0] = np.inf, np.inf
        scenario = replace(scenario, tables=replace(scenario.tables, data_parallel=told))
    weights = start() + np.random.default_rng(index).normal(size=features.COUNT) / 3
    weights = np.concatenate([weights, BELIEFS[believes]])
    agrees(scenario, learned(tmp_path, weights, known=InformationClass(known)), weights)


def weights_of(**given: float) -> np.ndarray:
    assert set(given) <= set(features.NAMES)
    return np.array([given.get(name, 0.0) for name in features.NAMES])


TIMES = {"m": {"X": {1: 10.0, 2: 5.0, 4: 4.0}}}


def test_auction_by_hand():
    # Four GPUs, two jobs of 10 and 100 iterations. Weight on `rank` only: the larger job's moves score 1,
    # the smaller's -1. The larger starts, doubles to 2, doubles to 4 (scores 1, 1, 1); the smaller starts
    # last and finds no room. It ends after 100 x 4 = 400 s, the other after 10 x 4 s on all four GPUs
    # (alone, its rank is -1, so no doubling scores above 0: it has 1 GPU and takes 100 s): 500 s.
    jobs = [Job("small", 0.0, 10), Job("large", 0.0, 100)]
    scenario = small_scenario(jobs, {"X": (1, 4)}, TIMES)
    outcome = AuctionEpisode.from_scenario(scenario, KNOWN).run(weights_of(rank=1.0))
    assert outcome.tolist() == [500.0, 400.0]
    # Against it: the smaller job takes all four GPUs for 40 s, then the larger, alone and of rank -1,
    # doubles as well: 40 + 400 s.
    outcome = AuctionEpisode.from_scenario(scenario, KNOWN).run(weights_of(rank=-1.0))
    assert outcome.tolist() == [40.0, 440.0]
    # No doubling scores above 0: both start with one GPU, 10 x 10 s and 100 x 10 s.
    outcome = AuctionEpisode.from_scenario(scenario, KNOWN).run(weights_of(double=-1.0))
    assert outcome.tolist() == [100.0, 1000.0]


@pytest.mark.parametrize(("iterations", "jct_s"), [(300, [3000.0, 2950.0]), (1000, [10050.0, 50.0])])
@pytest.mark.parametrize("unit", [1, 5])
def test_what_is_measured_decides_by_hand(iterations, jct_s, unit):
    # One GPU; the smallest job goes first; a job that has not run is believed to take an hour. At 100 s the
    # first has done 10 iterations of 10 s. Of 300 it then has 2,900 s left, less than an hour, and goes on to
    # 3,000 s; the second ends at 3,050 s, 2,950 s after it came. Of 1,000 it has 9,900 s left: the second
    # runs first, 50 s, and the first ends at 10,050 s. So too if five iterations are called one.
    times = {"m": {"X": {1: 10.0 * unit}}}
    jobs = [Job("a", 0.0, iterations // unit), Job("b", 100.0, 5 // unit, family="m")]
    scenario = small_scenario(jobs, {"X": (1, 1)}, times)
    weights = np.concatenate([weights_of(rank=-1.0), beliefs.START])
    outcome = AuctionEpisode.from_scenario(scenario, InformationClass.NONE).run(weights)
    assert outcome.tolist() == jct_s


@pytest.mark.parametrize(
    ("believes", "jct_s"), [((), [3000.0, 3900.0]), (beliefs.START_TOLD, [4000.0, 1000.0])]
)
def test_what_is_measured_corrects_a_profile_by_hand(believes, jct_s):
    # One GPU; the smallest job goes first. The profile of a says 1 s an iteration, it takes 10. At 100 s it
    # has done 10 of 300 and b comes, 1,000 s long: by the profile a has 290 s left, goes on to 3,000 s, and b
    # ends at 4,000 s. As measured a has 2,900 s left: b runs to 1,100 s, and a ends at 4,000 s.
    jobs = [Job("a", 0.0, 300, family="a"), Job("b", 100.0, 100, family="b")]
    scenario = small_scenario(jobs, {"X": (1, 1)}, {"a": {"X": {1: 10.0}}, "b": {"X": {1: 10.0}}})
    told = scenario.tables.data_parallel.copy()
    told[scenario.class_of[0]] = 1.0
    scenario = replace(scenario, tables=replace(scenario.tables, data_parallel=told))
    weights = np.concatenate([weights_of(rank=-1.0), believes])
    assert AuctionEpisode.from_scenario(scenario, KNOWN).run(weights).tolist() == jct_s


@pytest.mark.parametrize(("checkpoint_s", "jct_s", "restarts"), [(299.0, 800.0, 1), (301.0, 900.0, 0)])
def test_an_enlargement_must_repay_its_restart(checkpoint_s, jct_s, restarts):
    # Two GPUs; both jobs start with one, as each start comes before a doubling (score 2 against 1). Job a
    # ends at 300 s; b has 60 of 90 iterations left: 600 s on one GPU, 300 s and the restart on two.
    # With 299 s it restarts and ends at 300 + 299 + 300 = 899 s; with 301 s it stays and ends at 900 s.
    jobs = [Job("a", 0.0, 30, family="m"), Job("b", 0.0, 90, family="m")]
    scenario = small_scenario(jobs, {"X": (1, 2)}, TIMES, checkpoint_s={"m": checkpoint_s})
    episode = AuctionEpisode.from_scenario(scenario, KNOWN)
    outcome = episode.run(weights_of(start=2.0, double=1.0))
    expected = 899.0 if restarts else jct_s
    assert outcome.tolist() == [300.0, expected]
    assert restarts_of(episode) == [0, restarts]


@settings(max_examples=40, deadline=None)
@given(
    scenario=random_scenarios(data_parallel_fits=False), seed=st.integers(0, 2**20), profiled=st.booleans()
)
def test_agrees_with_the_engine_where_times_are_guessed(tmp_path_factory, scenario, seed, profiled):
    if profiled:
        scenario = replace(scenario, costs=replace(scenario.costs, profile=price("data_parallel", 20.0)))
    weights = np.random.default_rng(seed).normal(size=features.COUNT)
    agrees(scenario, learned(tmp_path_factory.mktemp("c"), weights), weights)


def test_jobs_that_do_not_complete_count_until_the_end():
    # One GPU, a horizon of 100 s. Job a needs 9 x 10 s; b is submitted at 20 s and is not done by the end:
    # 80 s; c asks for more GPUs than there are, and is dropped at once: 100 - 30 s; d comes too late.
    jobs = [
        Job("a", 0.0, 9),
        Job("b", 20.0, 50, family="m"),
        Job("c", 30.0, 5, 4, family="m"),
        Job("d", 200.0, 5, family="m"),
    ]
    scenario = replace(small_scenario(jobs, {"X": (1, 1)}, TIMES), horizon_s=100.0, oversize="drop")
    outcome = AuctionEpisode.from_scenario(scenario, KNOWN).run(weights_of(rank=-1.0))
    np.testing.assert_array_equal(outcome, [90.0, 80.0, 70.0, np.nan])


def test_hidden_units_by_hand():
    # Features (start 1, size 2, others 0), queue 0.5, backlog 0; weights 3 on start, 1 on size: 3 + 2 = 5.
    # Unit one: bias 1, weight 2 on size, -4 on the queue: 1 + 4 - 2 = 3, squashed 3/4, times 8: +6.
    # Unit two: bias -1, no other weight: squashed -1/2, times 1: -0.5.
    values = weights_of(start=1.0, size=2.0)
    point = np.zeros(features.POINT_FACTS)
    point[features.QUEUE] = 0.5
    one = [8.0, 1.0, *weights_of(size=2.0), -4.0, 7.0]
    two = [1.0, -1.0, *np.zeros(auction.INPUTS)]
    weights = np.array([*weights_of(start=3.0, size=1.0), *one, *two])
    assert auction.count_hidden_units(weights) == 2
    assert plain(auction.score_move)(weights, values, point) == pytest.approx(5.0 + 6.0 - 0.5)
    with pytest.raises(ValueError, match="shape"):
        auction.count_hidden_units(weights[1:])


@pytest.mark.parametrize("count", [0, 3, features.COUNT - 1, features.COUNT + 1, 3 + beliefs.COUNT])
def test_weights_that_no_auction_has_are_refused(count):
    scenario = small_scenario([Job("a", 0.0, 10)], {"X": (1, 1)}, {"m": {"X": {1: 10.0}}})
    with pytest.raises(InputError, match=rf"weights: .*shape \({count},\) \(give those of"):
        AuctionEpisode.from_scenario(scenario, KNOWN).run(np.zeros(count))


@given(seed=st.integers(0, 2**20))
@settings(max_examples=30, deadline=None)
def test_every_feature_is_finite_and_moderate(seed):
    rng = np.random.default_rng(seed)
    out = np.full(features.COUNT, np.nan)
    gpus_before, doubling = int(2 ** rng.integers(0, 6)), bool(rng.integers(2))
    before_s = 10 ** rng.uniform(-4, 4)
    time_s = before_s * rng.uniform(0.3, 0.99)
    remaining = 10 ** rng.uniform(-6, 7)
    least_gpu_s = remaining * time_s * rng.uniform(0.1, 1)
    slack_s = rng.choice([np.nan, 50.0, -1e9])
    age_s, attained_gpu_s = 10 ** rng.uniform(-6, 8, size=2)
    job, point = np.full(features.JOB_FACTS, np.nan), np.full(features.POINT_FACTS, np.nan)
    sizes = remaining, least_gpu_s, least_gpu_s / 64
    job[:8] = *sizes, rng.uniform(-1, 1), age_s, attained_gpu_s, slack_s, sizes[2] + rng.uniform(0, 300)
    point[:4] = rng.integers(1, 1000), 64, 5.0, 10 ** rng.uniform(-3, 3)
    plain(features.derive_point)(point)
    plain(features.derive_job)(job, point)
    before = (before_s, 2 * gpus_before, gpus_before) if doubling else (np.inf, gpus_before, 0)
    flags = True, bool(rng.integers(2))
    plain(features.fill)(out, job, point, time_s, *before, *flags, rng.uniform(0, 300), -0.5, 0.2)
    assert np.isfinite(out).all()
    assert (np.abs(out) < 40).all()
