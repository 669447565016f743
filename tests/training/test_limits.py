"""Bounds are what they claim: worked out by hand, and below every policy."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenarios import Job, small_scenario

from clustergym.agents.auction_checkpoints import load
from clustergym.common.errors import InputError
from clustergym.results.bounds.bounds import least_work
from clustergym.scenario.costs import Costs
from clustergym.scenario.policy import InformationClass
from clustergym.training.comparison import BOUNDS, full_parameters
from clustergym.training.distribution import Distribution, draw_scenario
from clustergym.training.simulated_episodes import AuctionEpisode

SMALL = Distribution(origin="synthetic", jobs=(15, 25), gpus=16, types=(1, 2))


def test_the_bound_by_hand():
    # Fastest for m: 4 s an iteration on 4 GPUs. Two jobs of 10 and 100 iterations: alone 40 and 400 s.
    times = {"m": {"X": {1: 10.0, 2: 5.0, 4: 4.0}}}
    jobs = [Job("small", 0.0, 10, family="m"), Job("large", 0.0, 100, family="m")]
    scenario = small_scenario(jobs, {"X": (1, 4)}, times, costs=Costs(search="proxy", profile={}))
    assert least_work(scenario)[0].tolist() == [40.0, 400.0]
    assert BOUNDS["lower_bound"](scenario) == pytest.approx(220.0)
    # On 2 GPUs each the small job ends at 50 s; the large one has 90 iterations left, and ends at 410.
    assert 220.0 < BOUNDS["proved_bound"](scenario) <= (50 + 410) / 2


@given(index=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_no_schedule_is_below_the_bound(index):
    scenario = draw_scenario(SMALL, "train", 9, index)
    trained = load("elastic-linear").weights
    jct_s = AuctionEpisode.from_scenario(scenario, InformationClass.CLAIRVOYANT).run(trained)
    alone, mean_s = least_work(scenario)[0], BOUNDS["lower_bound"](scenario)
    assert (jct_s >= alone * (1 - 1e-9) - 1e-5).all()
    assert jct_s.mean() >= mean_s * (1 - 1e-9) - 1e-5


def test_a_parameter_of_a_bound_is_one_line():
    with pytest.raises(InputError, match=r"policies\.sigma"):
        full_parameters({"name": "lower_bound", "sigma": 3})
