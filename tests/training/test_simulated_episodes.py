"""Auctions played in the simulator where compiled episodes do not cover a scenario."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from queue_quotas import with_quotas

from clustergym.agents import auction_features as features
from clustergym.agents import beliefs
from clustergym.agents.plan import Plan
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


def test_plans_are_played_alike_up_to_a_horizon(monkeypatch):
    scenario = replace(draw_scenario(SMALL, "train", 3, 1), horizon_s=20_000.0)
    bias = np.random.default_rng(1).normal(size=(len(scenario.trace), 2, 2))
    compiled = simulated_episodes.plan_episodes(scenario)(Plan(start(), bias))
    assert np.isnan(compiled).any()
    monkeypatch.setattr(AuctionEpisode, "from_scenario", refuse)
    found = simulated_episodes.plan_episodes(scenario)(Plan(start(), bias))
    assert found == pytest.approx(compiled, abs=1e-6, nan_ok=True)


def test_queues_bind_no_plan(monkeypatch):
    scenario = draw_scenario(SMALL, "train", 3, 3)
    queued = with_quotas(scenario, {"a": 12, "b": 1}, ["ab"[row % 2] for row in range(len(scenario.trace))])
    plan = Plan(start(), np.random.default_rng(2).normal(size=(len(scenario.trace), 2, 2)))
    compiled = simulated_episodes.plan_episodes(queued)(plan)
    monkeypatch.setattr(AuctionEpisode, "from_scenario", refuse)
    assert simulated_episodes.plan_episodes(queued)(plan) == pytest.approx(compiled, abs=1e-6)


def test_a_plan_meets_failures_and_killed_jobs():
    scenario = failing(draw_scenario(SMALL, "train", 3, 2))
    jct_s_of = simulated_episodes.plan_episodes(scenario)
    none = np.zeros((len(scenario.trace), 2, 2))
    first = Plan(start(), none)
    found = Plan(start(), np.random.default_rng(2).normal(size=none.shape))
    assert not np.array_equal(jct_s_of(found), jct_s_of(first))
    # Without failures the same plan makes other JCTs: it was not played without them.
    unfailing = simulated_episodes.plan_episodes(replace(scenario, disturbances=()))
    assert not np.array_equal(unfailing(found), jct_s_of(found))
