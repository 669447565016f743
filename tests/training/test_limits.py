"""Bounds are what they claim: worked out by hand, and below every policy."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenarios import Job, small_scenario

from clustergym.agents.auction_checkpoints import load
from clustergym.common.errors import InputError
from clustergym.scenario.costs import Costs
from clustergym.scenario.policy import InformationClass
from clustergym.training.comparison import compute_proved_bound, hindsight, lower_bound
from clustergym.training.distribution import Distribution, draw_scenario
from clustergym.training.simulated_episodes import AuctionEpisode

SMALL = Distribution(origin="synthetic", jobs=(15, 25), gpus=16, types=(1, 2))


def test_the_bound_by_hand():
    # Fastest for m: 4 s an iteration on 4 GPUs. Two jobs of 10 and 100 iterations: alone 40 and 400 s.
    times = {"m": {"X": {1: 10.0, 2: 5.0, 4: 4.0}}}
    jobs = [Job("small", 0.0, 10, family="m"), Job("large", 0.0, 100, family="m")]
    scenario = small_scenario(jobs, {"X": (1, 4)}, times, costs=Costs(search="proxy", profile={}))
    alone_s, mean_s = lower_bound(scenario, 0, {})
    assert (alone_s.tolist(), mean_s) == ([40.0, 400.0], pytest.approx(220.0))
    # On 2 GPUs each the small job ends at 50 s; the large one has 90 iterations left, and ends at 410.
    assert 220.0 < compute_proved_bound(scenario, 0, {})[1] <= (50 + 410) / 2


@given(index=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_no_schedule_is_below_the_bound(index):
    scenario = draw_scenario(SMALL, "train", 9, index)
    trained = load("elastic-linear").weights
    jct_s = AuctionEpisode.from_scenario(scenario, InformationClass.CLAIRVOYANT).run(trained).jct_s
    alone, mean_s = lower_bound(scenario, 0, {})
    assert (jct_s >= alone * (1 - 1e-9) - 1e-5).all()
    assert jct_s.mean() >= mean_s * (1 - 1e-9) - 1e-5


def test_hindsight_is_no_worse_than_where_it_began():
    scenario = draw_scenario(SMALL, "train", 9, 1)
    start = load("elastic-linear")
    before = AuctionEpisode.from_scenario(scenario, start.information_class).run(start.weights).jct_s.mean()
    jct_s, mean_s = hindsight(scenario, 0, {"generations": 3})
    assert jct_s.mean() == mean_s <= before
    assert hindsight(scenario, 0, {"generations": 3})[1] == mean_s


def test_an_unknown_parameter_is_one_line():
    scenario = draw_scenario(SMALL, "train", 9, 1)
    with pytest.raises(InputError, match="did you mean generations"):
        hindsight(scenario, 0, {"generation": 3})
    with pytest.raises(InputError, match=r"policies\.sigma"):
        lower_bound(scenario, 0, {"sigma": 3})
