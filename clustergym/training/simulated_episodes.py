"""JCTs of auctions on a scenario: compiled where that covers it, else in the simulator, more slowly.

Failures and the outcomes of jobs are such that compiled episodes do not cover. Queues of tenants are as well,
but no plan looks at them and the simulator does not enforce them: a plan is played without.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clustergym.agents import auction, auction_episode
from clustergym.agents import auction_features as features
from clustergym.agents.auction_checkpoints import save
from clustergym.agents.beliefs import nothing_observed, split
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.scenario.policy import InformationClass, Policy
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim import columns as c
from clustergym.sim.compiled.batch import Batch
from clustergym.sim.compiled.scenario_arrays import (
    ScenarioArrays,
    UncoveredError,
    check_covered,
    cluster_arrays,
    scenario_arrays,
)
from clustergym.sim.drive import simulate
from clustergym.sim.log import EventType
from clustergym.sim.stalls import StalledError


def make_auction_policy(weights: Floats, information: InformationClass) -> Policy:
    """Return the policy `learned` with these weights of an auction, and this knowledge of iteration times."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "weights.safetensors")
        save(path, weights, information, {})
        return make_policy({"name": "learned", "checkpoint": str(path)})


def auction_episodes(scenario: Scenario, information: InformationClass) -> Callable[[Floats], Floats]:
    """Return a function that simulates a scenario under an auction with given weights; it returns JCTs."""
    try:
        episode = AuctionEpisode.from_scenario(scenario, information)
    except UncoveredError:
        return lambda weights: _jct_s(scenario, make_auction_policy(weights, information))
    return episode.run


def _jct_s(scenario: Scenario, policy: Policy) -> Floats:
    submit_s = scenario.trace.submit_s
    try:
        simulation = simulate(scenario, policy, make_placer({"name": "buddy"})).simulation
    except StalledError:
        # A search goes on with others; such a plan is the worst that there can be.
        return np.full(len(submit_s), np.inf)
    left_s = np.full(len(submit_s), simulation.end_s if scenario.horizon_s is None else scenario.horizon_s)
    for event in simulation.log.events:
        if event.event_type == EventType.COMPLETE:
            left_s[event.job] = event.time_s
    return np.where(submit_s <= left_s, left_s - submit_s, np.nan)


NO_BIAS = np.empty((0, 0, 0))


@dataclass(frozen=True, eq=False)
class AuctionEpisode:
    """A scenario, prepared so that an auction can be run on it again and again.

    Attributes
    ----------
    batch : Batch
    scenario : ScenarioArrays
    """

    batch: Batch
    scenario: ScenarioArrays

    @classmethod
    def from_scenario(
        cls, scenario: Scenario, information: InformationClass, round_s: float | None = None
    ) -> AuctionEpisode:
        """Prepare a scenario for auctions every `round_s` seconds, with this knowledge of iteration times.

        Parameters
        ----------
        scenario : Scenario
        information : InformationClass
        round_s : float or None
            The policy's round, where the scenario leaves rounds to it.

        Raises
        ------
        UncoveredError
            If compiled episodes do not cover the scenario.
        """
        check_covered(scenario, information, make_placer({"name": "buddy"}))
        batch = Batch(cluster_arrays(scenario.cluster, scenario.tables.counts), 1, logged=False)
        return cls(batch, scenario_arrays(scenario, information, round_s))

    def run(self, weights: Floats, bias: Floats = NO_BIAS) -> Floats:
        """Run the auction with these weights until all jobs have left, and return their JCTs, seconds.

        Of an unfinished job: to the end of the episode; of one that fits nowhere: to the horizon (the end, if
        there is none), as in the metric `jct_mean_censored`; NaN: not submitted by the horizon.

        Parameters
        ----------
        weights : ndarray of float
            Those of an auction that measures jobs end in the numbers of `clustergym.agents.beliefs`.
        bias : ndarray of float, shape (n, T, 2)
            Added to the scores of changes of jobs' GPUs.
        """
        scores, believed = split(weights)
        try:
            auction.count_hidden_units(scores)
        except ValueError as error:
            remedy = f"give those of {features.COUNT} features and {auction.INPUTS + 2} of each hidden unit"
            raise InputError(f"scores have {error}", field="weights", remedy=remedy) from None
        self.batch.load(0, self.scenario)
        n = len(self.scenario.job)
        observed = nothing_observed(n if len(believed) else 0, *self.scenario.known_s.shape[1:])
        auction_episode.run(scores, bias, believed, observed, self.batch.episodes, self.batch.cluster)
        clock, job = self.batch.episodes.clock[0], self.batch.episodes.job[0, :n]
        end, horizon, phase = clock[c.END], clock[c.HORIZON], job[:, c.PHASE]
        # A job that fits nowhere would wait to the horizon or, without one, to the end.
        dropped_at = end if horizon == c.NEVER else horizon
        left = np.select([phase == c.COMPLETED, phase == c.DROPPED], [job[:, c.LEAVE], dropped_at], end)
        return np.where(phase == c.FUTURE, np.nan, (left - job[:, c.SUBMIT]) / c.TICKS_PER_S)
