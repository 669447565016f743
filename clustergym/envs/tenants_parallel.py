"""Tenants as agents of a PettingZoo game: each weighs the priority of its own jobs in one auction.

PettingZoo is imported here alone (the extra `pettingzoo`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding

from clustergym.agents import auction
from clustergym.agents.auction_features import PRIOR
from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import InputError, nearest
from clustergym.common.parameters import build_from_keywords
from clustergym.common.paths import require_extra
from clustergym.envs.episodes import Episodes
from clustergym.envs.families import TenantsEnv
from clustergym.envs.observations import logarithm, share
from clustergym.envs.scheduling import read_run_seed
from clustergym.envs.scheduling_costs import Outcomes, ReferenceCostTimes
from clustergym.envs.scheduling_parameters import SchedulingParameters
from clustergym.results.metrics.metrics import measure_scenario
from clustergym.results.metrics.tenants import compute_fair_shares
from clustergym.scenario.environments import ENVIRONMENTS
from clustergym.scenario.policy import Decision, View
from clustergym.scenario.registry import make_placer
from clustergym.scenario.scenario import Scenario
from clustergym.sim.engine import Simulation

with require_extra("needs the package pettingzoo", "pettingzoo", "tenants_parallel"):
    from pettingzoo import ParallelEnv

LARGEST_WEIGHT = 4.0
"""A weight is at most that, and at least its inverse."""
FEATURES = (
    *("jobs", "waiting", "held", "asked", "quota", "fair_share", "mean_age"),
    *("all_jobs", "all_asked", "free"),
)
"""What an agent observes, of its own queue and then of the cluster."""

Single = npt.NDArray[np.float32]


class TenantsParallelEnv(ParallelEnv):
    """A multi-agent environment in which each tenant weights its own jobs in an auction of a cluster's GPUs.

    At each decision point every agent, a queue of the scenario, gives one weight. The score of a move of
    its jobs in the auction `clustergym.agents.auction_features.PRIOR`, a logarithm of priority, has the
    logarithm of the weight added, so that the weight multiplies the priority. Weights count by their
    ratios: each is divided by the geometric mean of those of queues with jobs, so that equal weights
    change nothing.

    An agent's reward is minus the increase of the time of its own jobs in the system, hours, by their
    number in the episode: its return is minus the mean JCT of its jobs.

    Parameters
    ----------
    name : str
        Gymnasium's id of an environment of tenants.
    **parameters
        Fields of `clustergym.envs.scheduling_parameters.SchedulingParameters`, in place of that id's.

    Attributes
    ----------
    possible_agents : list of str
        The queues that take jobs, in the order of their file.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "clustergym_tenants_v0",
        "render_modes": [],
        "is_parallelizable": True,
    }

    def __init__(self, name: str = "ClusterGym/Tenants-16-v1", **parameters: Any) -> None:
        rows = {row.id: row for row in ENVIRONMENTS if row.entry_point.endswith(":TenantsEnv")}
        if name not in rows:
            remedy = nearest(name, rows)
            raise InputError(f"{name!r} is no environment of tenants", field="env.id", remedy=remedy)
        given = {**TenantsEnv.defaults, **rows[name].kwargs, **parameters}
        self.parameters: SchedulingParameters = build_from_keywords(SchedulingParameters, given, "env")
        self.episodes = Episodes(self.parameters)
        self.episodes.check_times()
        self.placer = make_placer({"name": self.parameters.placer})
        self.render_mode = None
        # PettingZoo wants the agents before the first reset: they are the queues of any trace.
        first = self.episodes.choose({"trace_seed": 0}, seeding.np_random(0)[0])
        if first.tenants is None or self.parameters.queues in ("virtual_cluster", "user"):
            remedy = "give queues= a name of conf/queues, or a file"
            message = "has no queues that are the same in all episodes"
            raise InputError(message, field="env.queues", remedy=remedy)
        self.possible_agents: list[str] = list(first.tenants.tree.leaves)
        self.agents: list[str] = []
        seen = spaces.Box(0.0, 1.0, (len(FEATURES),), np.float32)
        weight = spaces.Box(1 / LARGEST_WEIGHT, LARGEST_WEIGHT, (1,), np.float32)
        self.observation_spaces = dict.fromkeys(self.possible_agents, seen)
        self.action_spaces = dict.fromkeys(self.possible_agents, weight)
        self._prior, self._rng = auction.make_weights(PRIOR), seeding.np_random()[0]
        self._simulation: Simulation | None = None

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Return the Gymnasium space of an agent's observations."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Return the Gymnasium space of an agent's actions: one weight for its tenant's queue."""
        return self.action_spaces[agent]

    @property
    def scenario(self) -> Scenario:
        """The scenario (cluster, jobs and tenants) of the present episode."""
        return self._running().scenario

    def _running(self) -> Simulation:
        if self._simulation is None:
            raise ResetNeeded("there is no episode yet: call reset() first")
        return self._simulation

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Single], dict[str, dict[str, Any]]]:
        """Begin an episode; return each agent's observation and info at its first decision point."""
        if seed is not None:
            self._rng, _ = seeding.np_random(seed)
        chosen, given = self.parameters, dict(options or {})
        # PettingZoo's own test gives this one, and expects that it does nothing.
        given.pop("options", None)
        scenario = self.episodes.choose(given, self._rng)
        if scenario.tenants is None or list(scenario.tenants.tree.leaves) != self.possible_agents:
            remedy = "give a scenario of the same queues"
            raise InputError(f"scenario {scenario.name} has other queues", field="options", remedy=remedy)
        yardsticks = ReferenceCostTimes.from_scenario(scenario)
        simulation = Simulation(
            scenario, self.placer, chosen.information_class, chosen.round_s, read_run_seed(given)
        )
        assert yardsticks.queues is not None
        self._simulation, self._outcomes, self._queues = simulation, Outcomes(yardsticks), yardsticks.queues
        self._counts = simulation.setting.counts.astype(np.int64)
        self._jobs = self._by_queue(np.ones(len(scenario.trace)))
        self._view = simulation.advance()
        self._cost_h = self._costs_h()
        self.agents = list(self.possible_agents)
        return self._observations(), {agent: {} for agent in self.agents}

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[
        dict[str, Single], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]
    ]:
        """Auction GPUs with agents' weights, go to the next decision point; return five dicts by agent."""
        simulation, before_h = self._running(), self._cost_h
        if self._view is None:
            raise ResetNeeded("the episode is over: call reset() first")
        simulation.apply(self._decide(self._view, self._weights(actions)))
        self._view = simulation.advance()
        self._cost_h = self._costs_h()
        over = self._view is None
        finished = over and simulation.jobs_left == len(simulation.scenario.trace)
        infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        if over:
            metrics = measure_scenario(simulation.scenario, simulation.log.events, simulation.end_s).metrics
            for agent in self.agents:
                infos[agent] = {"metrics": metrics, "digest": simulation.log.digest}
        rewards = dict(zip(self.agents, (before_h - self._cost_h).tolist(), strict=True))
        ends = dict.fromkeys(self.agents, finished), dict.fromkeys(self.agents, over and not finished)
        result = self._observations(), rewards, *ends, infos
        if over:
            self.agents = []
        return result

    def render(self) -> None:
        """Do nothing, since this environment has no picture."""

    def close(self) -> None:
        """Do nothing, since this environment holds nothing that needs closing."""

    def _weights(self, actions: Mapping[str, Any]) -> Floats:
        """Check the agents' actions, and return the weight of each queue, shape (L,)."""
        weights = np.empty(len(self.possible_agents))
        for at, agent in enumerate(self.possible_agents):
            if agent not in actions:
                raise InputError(f"there is none of agent {agent}", field="action", remedy="give all weights")
            weight = np.asarray(actions[agent])
            if not self.action_spaces[agent].contains(weight.astype(np.float32)):
                remedy = f"give one number from {1 / LARGEST_WEIGHT:g} to {LARGEST_WEIGHT:g}, shape (1,)"
                raise InputError(f"{weight} of agent {agent}", field="action", remedy=remedy)
            weights[at] = weight[0]
        return weights

    def _decide(self, view: View, weights: Floats) -> Decision:
        """Return the decision of the auction with the queues' weights."""
        if not len(view):
            return Decision.keep(view)
        there = weights[np.unique(view.queue)]
        # Equal weights add nothing, not even what rounding leaves of it.
        equal = np.all(there == there[0])
        # log w_q - mean of log w over queues with jobs: a factor common to all would not cancel, as doublings
        # are made while their score is above 0.
        added = np.zeros_like(weights) if equal else np.log(weights) - np.log(there).mean()
        bias = np.repeat(added[view.queue], 2 * len(view.available)).reshape(len(view), -1, 2)
        bids = auction.make_bids(view, view.iteration_time_s())
        available = view.available.astype(np.int64)
        gpu_type, level = auction.decide_biased(self._prior, bias, available, self._counts, bids)
        runs = np.flatnonzero(level >= 0)
        return Decision(view.job[runs], gpu_type[runs], self._counts[level[runs]])

    def _by_queue(self, values: Floats) -> Floats:
        """Sum values of all jobs by the jobs' queues, shape (L,)."""
        summed: Floats = np.bincount(self._queues.leaf, values, len(self.possible_agents)).astype(np.float64)
        return summed

    def _costs_h(self) -> Floats:
        """Return the mean hours since submission of each queue's jobs, until they left or now, shape (L,)."""
        simulation = self._running()
        now_s = simulation.end_s if self._view is None else simulation.now_s
        self._outcomes.read(simulation.log.events, now_s)
        return self._by_queue(self._outcomes.age_s()) / (3600.0 * np.maximum(self._jobs, 1))

    def _observations(self) -> dict[str, Single]:
        """Return the observation of each agent."""
        total, number = self._queues.total, len(self.possible_agents)
        table = np.zeros((number, len(FEATURES)), dtype=np.float32)
        table[:, 4] = self._queues.quota / total
        if (view := self._view) is not None:

            def count(values: Floats | Ints) -> Floats:
                return np.bincount(view.queue, values, number).astype(np.float64)

            jobs, held, asked = count(np.ones(len(view))), count(view.gpus), count(view.requested_gpus)
            wanted = count(np.maximum(view.gpus, view.requested_gpus)).astype(np.int64)
            age_s = count(view.now_s - view.submit_s) / np.maximum(jobs, 1)
            table[:, 0], table[:, 1] = share(jobs, 5.0), share(count(view.gpus == 0), 5.0)
            table[:, 2], table[:, 3] = held / total, share(asked, total)
            table[:, 5] = compute_fair_shares(self._queues.tree, wanted[None], total)[0] / total
            table[:, 6], table[:, 7] = logarithm(age_s), share(len(view), 50.0)
            table[:, 8], table[:, 9] = share(asked.sum(), total), view.free.sum() / total
        return dict(zip(self.possible_agents, table.clip(0.0, 1.0), strict=True))
