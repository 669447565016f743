"""An episode of a scheduling environment on the SimPy engine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.common.errors import InputError
from clustergym.envs.actions import EditActions, find_nearest_legal
from clustergym.envs.auction_actions import Actions, AuctionActions
from clustergym.envs.observations import Summary, times_known
from clustergym.envs.rewards import Reward
from clustergym.envs.scheduling_costs import COSTS, Outcomes, ReferenceCostTimes, find_stall_end_s
from clustergym.envs.scheduling_parameters import SchedulingParameters
from clustergym.results.metrics.metrics import Metrics, measure_scenario
from clustergym.scenario.clock import ticks
from clustergym.scenario.policy import Decision, Placer, View
from clustergym.scenario.scenario import Scenario
from clustergym.sim.engine import Simulation, StalledError
from clustergym.sim.log import EventLog

FlatStep = tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]
"""As of `gymnasium.Env.step`, with an observation of one axis."""

MOST_ILLEGAL = 1000
"""Illegal actions in a row after which an episode counts as stalled."""


@dataclass(eq=False)
class EpisodeParts:
    """The objects that all episodes of an environment share: parameters, placer, actions and observation."""

    parameters: SchedulingParameters
    placer: Placer
    actions: Actions
    features: Summary


PlayedEpisode = Any
"""An episode that is being played: a `SimPyEpisode` or a `CompiledEpisode`, of one interface."""


class SimPyEpisode:
    """An episode that runs on the simulation engine written with SimPy.

    Parameters
    ----------
    parts : EpisodeParts
    scenario : Scenario
    run_seed : int
    reference : Outcomes or None
        When each job leaves under the baseline; None: there is none.

    Attributes
    ----------
    simulation : Simulation
    outcomes : Outcomes
    view : View or None
        None when the episode is over.
    """

    engine = "simpy"

    def __init__(
        self, parts: EpisodeParts, scenario: Scenario, run_seed: int, reference: Outcomes | None
    ) -> None:
        chosen, yardsticks = parts.parameters, ReferenceCostTimes.from_scenario(scenario)
        self._parts, self._reference = parts, reference
        self._known = times_known(chosen.information_class)
        self._reward: Reward[Outcomes] = Reward(COSTS, chosen.reward)
        self._reference_reward: Reward[Outcomes] = Reward(COSTS, chosen.reward)
        self._no_terms = dict.fromkeys(chosen.reward, 0.0)
        self._illegal_in_a_row, self._stalled = 0, False
        simulation = self.simulation = Simulation(
            scenario, parts.placer, chosen.information_class, chosen.round_s, run_seed
        )
        parts.features.queues, self.outcomes = yardsticks.queues, Outcomes(yardsticks)
        parts.actions.reset(simulation.known_trace)
        self.view: View | None = simulation.advance()
        if self.view is None:
            raise InputError("no job comes to a decision", field="env", remedy="choose another trace")
        self._begin(self.view)

    @property
    def goes_on(self) -> bool:
        """Whether the episode continues."""
        return self.view is not None

    @property
    def log(self) -> EventLog:
        """All events of the episode so far."""
        return self.simulation.log

    def find_mask(self) -> npt.NDArray[np.int8]:
        """Return a mask that is 1 for each legal action, else 0; all 1 when the episode is over."""
        if not self.goes_on:
            return np.ones(self._parts.actions.number, dtype=np.int8)
        return self._parts.actions.mask().view(np.int8)

    def begin(self) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Return the flat observation and the info at the first decision point."""
        return self._parts.features.values(), self._info(self._no_terms, False)

    def _begin(self, view: View) -> None:
        """Read the new events, and prepare actions and observation for the decision point, or the end."""
        parts, simulation = self._parts, self.simulation
        self.outcomes.read(simulation.log.events, simulation.now_s)
        parts.actions.begin(view)
        parts.features.begin(view, parts.actions, self.outcomes.left, self._known)

    def act(self, action: Any) -> FlatStep:
        """Apply an action and return the step's result; time passes only if it ends the decision point."""
        parts, actions = self._parts, self._parts.actions
        if not actions.legal(action):
            if parts.parameters.on_illegal != "repair" or not isinstance(actions, EditActions):
                return self._refuse(action)
            repaired = find_nearest_legal(actions.mask(), actions.width, action)
            seen, reward, terminated, truncated, info = self._act(repaired)
            return seen, reward, terminated, truncated, info | {"illegal": True}
        return self._act(action)

    def _act(self, action: Any) -> FlatStep:
        actions, features = self._parts.actions, self._parts.features
        self._illegal_in_a_row = 0
        decision = actions.act(action)
        if decision is not None:
            return self._decide(decision, action)
        features.update_edited(actions, action)
        return features.values(), 0.0, False, False, self._info(self._no_terms, False)

    def _refuse(self, action: Any) -> FlatStep:
        parameters = self._parts.parameters
        check_legal(parameters, self._parts.actions, action, False)
        penalty = parameters.illegal_penalty if parameters.on_illegal == "penalty" else 0.0
        # Time does not pass: an agent that knows no masks could go on like this for ever.
        self._illegal_in_a_row += 1
        if self._illegal_in_a_row >= MOST_ILLEGAL:
            seen, reward, terminated, truncated, info = self._finish_step(stalled=True, illegal=True)
            return seen, reward - penalty, terminated, truncated, info
        return self._parts.features.values(), -penalty, False, False, self._info(self._no_terms, True)

    def _decide(self, decision: Decision, action: Any) -> FlatStep:
        """Apply a decision, and decide by the same action at as many decision points as the action holds."""
        simulation, actions, decided = self.simulation, self._parts.actions, 1
        try:
            simulation.apply(decision)
            self.view = simulation.advance()
            # `hold` is 0 for an action that decides to the end of the episode: `decided` never equals it.
            while isinstance(actions, AuctionActions) and decided != actions.hold and self.view is not None:
                simulation.apply(actions.act_again(self.view, action))
                self.view = simulation.advance()
                decided += 1
        except StalledError:
            return self._finish_step(stalled=True)
        return self._finish_step()

    def _finish_step(self, stalled: bool = False, illegal: bool = False) -> FlatStep:
        """Return the result of a step that moved the clock or ended the episode."""
        simulation, self._stalled = self.simulation, stalled
        if stalled:
            self.view, simulation.end_s = None, simulation.now_s
        # Illegal actions change nothing, and the last observation stays as well. Every other end is shown as
        # it is: a learner goes on from the value of what it sees at the horizon.
        if not illegal:
            self._begin(simulation.make_view(ticks(simulation.end_s)) if self.view is None else self.view)
        over, jobs = self.view is None, len(simulation.scenario.trace)
        finished = over and simulation.jobs_left == jobs
        if over:
            # The clock stands at the last event; costs count until the end, which may be the horizon.
            self.outcomes.now_s = simulation.end_s
        penalty, times = self._parts.parameters.stall_penalty, self.outcomes.of
        if stalled and penalty is None:
            self.outcomes.now_s = find_stall_end_s(simulation.end_s, times.submit_s, times.run_s)
        terms = self._terms(finished)
        reward, info = self._reward.total(terms), self._info(terms, illegal)
        if stalled:
            self.outcomes.now_s = simulation.end_s
            reward -= (penalty or 0.0) * (jobs - simulation.jobs_left) / jobs
        if over:
            info |= {"metrics": self.measure(), "digest": simulation.log.digest, "stalled": stalled}
        terminated = finished or stalled
        return self._parts.features.values(), reward, terminated, over and not terminated, info

    def _terms(self, finished: bool) -> dict[str, float]:
        terms = self._reward.terms(self.outcomes)
        if self._reference is None:
            return terms
        # After the last job the baseline counts to its own end, however late: compared at the agent's end,
        # a fast agent would meet a baseline with half of its cost still to come.
        until_s = math.inf if finished else self.outcomes.now_s
        # A job that left has stopped to cost: at its own end the reference costs what it ever will.
        then = self._reference.rewind(min(until_s, max(self._reference.end_s, self.outcomes.now_s)))
        reference = self._reference_reward.terms(then)
        return {name: value - reference[name] for name, value in terms.items()}

    def measure(self) -> Metrics:
        """Return the metrics of the episode so far, named as in a run's `result.json`."""
        simulation = self.simulation
        end_s = simulation.now_s if self.goes_on else simulation.end_s
        return measure_scenario(simulation.scenario, simulation.log.events, end_s, self._stalled).metrics

    def _info(self, terms: dict[str, float], illegal: bool) -> dict[str, Any]:
        return {
            "action_mask": self.find_mask(),
            "now_s": self.simulation.now_s if self.goes_on else self.simulation.end_s,
            "illegal": illegal,
            "rewards": dict(terms),
        }


def check_legal(parameters: SchedulingParameters, actions: Actions, action: Any, legal: bool) -> None:
    """Raise an InputError if an action is illegal and the parameter `on_illegal` is `raise`."""
    if not legal and parameters.on_illegal == "raise":
        raise InputError(
            f"{action} ({actions.describe(action)}) is illegal now",
            field="action",
            remedy="choose where action_masks() is 1, or make with another on_illegal",
        )
