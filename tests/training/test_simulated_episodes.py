"""Auctions played in the simulator where compiled episodes do not cover a scenario."""

from dataclasses import replace

import numpy as np
import pytest

from clustergym.agents import auction_features as features
from clustergym.agents import beliefs
from clustergym.scenario.disturbances.failures import Failures
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.scenario import Scenario
from clustergym.sim.compiled.scenario_arrays import UncoveredError
from clustergym.training import simulated_episodes
from clustergym.training.auction_evolution import start
from clustergym.training.distribution import Distribution, draw_scenario
from clustergym.training.simulated_episodes import AuctionEpisode

SMALL = Distribution(origin="synthetic", jobs=(20, 25), gpus=16, types=(2,), load=(2.0, 2.0))


def refuse(*given: object) -> None:
    raise UncoveredError("none", field="engine", remedy="none")


def failing(scenario: Scenario) -> Scenario:
    """Return a scenario whose nodes fail, and of whose jobs every third is killed half way."""
    asked = scenario.trace.iterations
    killed = np.arange(len(asked)) % 3 == 0
    outcome = tuple("killed" if early else "completed" for early in killed)
    ends = np.where(killed, np.maximum(1, asked // 2), asked)
    trace = replace(scenario.trace, outcome=outcome, end_iterations=ends)
    return replace(scenario, trace=trace, disturbances=(Failures(mtbf_s=40_000.0, mttr_s=600.0, seed=4),))


@pytest.mark.parametrize("known", [InformationClass.NONE, InformationClass.DATA_PARALLEL])
def test_the_simulator_plays_what_compiled_episodes_do(monkeypatch, known):
    scenario = draw_scenario(SMALL, "train", 3, 0)
    weights = start() + np.random.default_rng(0).normal(size=features.COUNT) / 5
    if known == InformationClass.NONE:
        weights = np.concatenate([weights, beliefs.START])
    compiled = simulated_episodes.auction_episodes(scenario, known)(weights)
    monkeypatch.setattr(AuctionEpisode, "from_scenario", refuse)
    assert simulated_episodes.auction_episodes(scenario, known)(weights) == pytest.approx(compiled, abs=1e-6)
