"""JCTs of auctions on a scenario: compiled where that covers it, else in the simulator, more slowly.

Failures and the outcomes of jobs are such that compiled episodes do not cover. Queues of tenants are as well,
but no plan looks at them and the simulator does not enforce them: a plan is played without.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from clustergym.agents.auction_checkpoints import save
from clustergym.agents.plan import Plan, Planned
from clustergym.common.arrays import Floats
from clustergym.scenario.policy import InformationClass, Policy
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim.compiled.scenario_arrays import UncoveredError
from clustergym.sim.drive import simulate
from clustergym.sim.log import EventKind
from clustergym.training.compiled_episodes import AuctionEpisode


def auction_episodes(scenario: Scenario, information: InformationClass) -> Callable[[Floats], Floats]:
    """Return a function from an auction's weights to the JCTs of `EpisodeOutcome`."""
    try:
        episode = AuctionEpisode.of(scenario, information)
    except UncoveredError:
        return lambda weights: _jct_s(scenario, _learned(weights, information))
    return lambda weights: episode.run(weights).jct_s


def plan_episodes(scenario: Scenario) -> Callable[[Plan], Floats]:
    """Return a function from a plan to the JCTs of `EpisodeOutcome`."""
    try:
        episode = AuctionEpisode.of(replace(scenario, tenants=None), InformationClass.CLAIRVOYANT)
    except UncoveredError:
        return lambda plan: _jct_s(scenario, Planned(plan))
    return lambda plan: episode.run_biased(plan.weights, plan.bias).jct_s


def _learned(weights: Floats, information: InformationClass) -> Policy:
    """Return the policy `learned` with these weights."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "weights.safetensors")
        save(path, weights, information, {})
        return make_policy({"name": "learned", "checkpoint": str(path)})


def _jct_s(scenario: Scenario, policy: Policy) -> Floats:
    simulation = simulate(scenario, policy, make_placer({"name": "buddy"})).simulation
    submit_s = scenario.trace.submit_s
    left_s = np.full(len(submit_s), simulation.end_s if scenario.horizon_s is None else scenario.horizon_s)
    for event in simulation.log.events:
        if event.kind == EventKind.COMPLETE:
            left_s[event.job] = event.time_s
    return np.where(submit_s <= left_s, left_s - submit_s, np.nan)
