"""The core of all scheduling environments: an agent decides at the decision points of a simulation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Unpack

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.error import ResetNeeded

from clustergym.common import random_streams
from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import InputError
from clustergym.common.parameter_types import NonNegativeInt
from clustergym.common.parameters import build_from_keywords, check_value
from clustergym.envs.actions import Actions
from clustergym.envs.auction_actions import NAMES as OF_AUCTIONS
from clustergym.envs.auction_actions import AuctionActions, make_actions
from clustergym.envs.episodes import Episodes
from clustergym.envs.observations import FEATURES, times_known
from clustergym.envs.rendering import check_mode
from clustergym.envs.rewards import Reward
from clustergym.envs.scheduling_costs import COSTS, OF_QUEUES, Outcomes, ReferenceCosts, ReferenceCostTimes
from clustergym.envs.scheduling_parameters import SchedulingKeywords, SchedulingParameters
from clustergym.envs.scheduling_picture import as_pixels, as_text
from clustergym.results.metrics.metrics import Metrics, measure_scenario
from clustergym.scenario.policy import Decision, InformationClass, Setting, View
from clustergym.scenario.registry import make_placer
from clustergym.scenario.scenario import Scenario
from clustergym.sim.engine import Simulation, StalledError
from clustergym.sim.log import EventLog
from clustergym.sim.state import make_setting
from clustergym.trace.trace import Trace

Observation = dict[str, npt.NDArray[np.float32]] | npt.NDArray[np.float32]
Step = tuple[Observation, float, bool, bool, dict[str, Any]]

MOST_ILLEGAL = 1000
"""Illegal actions in a row after which an episode counts as stalled."""

UNPICKLED = frozenset(
    {"_simulation", "_view", "_outcomes", "_known", "_illegal_in_a_row", "_stalled", "_reference"}
    | {"placer", "actions", "_own_actions", "features", "_reward", "_reference_reward", "_references"}
)
"""Attributes that a copy makes anew, from the parameters, the scenario and the actions taken."""


class SchedulingEnv(gymnasium.Env[Observation, Any]):
    """An agent schedules a simulated GPU cluster; `clustergym.envs.families` has the variants.

    Parameters
    ----------
    render_mode : {"ansi", "rgb_array"}, optional
    **parameters
        Fields of `clustergym.envs.scheduling_parameters.SchedulingParameters`.

    Attributes
    ----------
    parameters : SchedulingParameters
    actions : EditActions, MetaActions or AuctionActions
    features : Summary, JobRows or MoveRows
    defaults : mapping
        Parameters that a subclass changes.

    Raises
    ------
    InputError
        If a parameter, an option of `reset` or an action is not valid.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 8}  # noqa: RUF012
    defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def __init__(self, render_mode: str | None = None, **parameters: Unpack[SchedulingKeywords]) -> None:
        self.render_mode = check_mode(render_mode, self.metadata["render_modes"])
        self.parameters: SchedulingParameters = build_from_keywords(
            SchedulingParameters, {**self.defaults, **parameters}, "env"
        )
        chosen = self.parameters
        if chosen.features != "summary" and chosen.actions == "meta":
            raise InputError(
                f"{chosen.features!r} needs rows", field="env.features", remedy="give features=summary"
            )
        if chosen.features in ("moves", "ranked") and chosen.actions not in OF_AUCTIONS:
            message = f"{chosen.features!r} needs an auction"
            raise InputError(message, field="env.features", remedy="give features=jobs")
        self._simulation: Simulation | None = None
        self._view: View | None = None
        self._begun: tuple[Scenario, int] | None = None
        self._explain_taken: list[Any] = []
        self.episodes = Episodes(chosen)
        if chosen.actions in OF_AUCTIONS:
            self.episodes.check_times()
        self._make_parts()
        self.action_space = self.actions.space
        self.observation_space = self._observation_space()

    def _make_parts(self) -> None:
        """Make the parts that have a state during an episode."""
        chosen, setting = self.parameters, self.episodes.setting
        self.placer = make_placer({"name": chosen.placer})
        self.actions = make_actions(chosen, setting)
        self.features = FEATURES[chosen.features](setting, chosen.rows)
        self._reward: Reward[Outcomes] = Reward(COSTS, chosen.reward)
        self._reference_reward: Reward[Outcomes] = Reward(COSTS, chosen.reward)
        self._references = None if chosen.baseline is None else ReferenceCosts(chosen.baseline, self.placer)
        self._no_terms = dict.fromkeys(chosen.reward, 0.0)

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the simulation, which cannot be pickled: replaying `_explain_taken` restores it."""
        return {name: value for name, value in self.__dict__.items() if name not in UNPICKLED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Replay the episode up to the step at which the environment was pickled."""
        self.__dict__.update(state)
        self._simulation = self._view = None
        self._make_parts()
        if self._begun is not None:
            taken = self._explain_taken
            self._start(*self._begun)
            for action in taken:
                self._act(action)
            self._explain_taken = taken

    def _observation_space(self) -> spaces.Space[Any]:
        low, high = self.features.bounds()
        if self.parameters.observation == "flat":
            return spaces.Box(low, high, dtype=np.float32)
        parts = self.features.parts.items()
        return spaces.Dict(
            {name: spaces.Box(low[part], high[part], dtype=np.float32) for name, part in parts}
        )

    @property
    def simulation(self) -> Simulation:
        """The simulation of the episode, with its logs."""
        if self._simulation is None:
            raise ResetNeeded("there is no episode yet: call reset() first")
        return self._simulation

    @property
    def scenario(self) -> Scenario:
        """The scenario of the episode."""
        if self._begun is None:
            raise ResetNeeded("there is no episode yet: call reset() first")
        return self._begun[0]

    @property
    def setting(self) -> Setting:
        """The constants of the episode, as its Views have them."""
        return make_setting(self.scenario, self.scenario.round_s(self.parameters.round_s))

    @property
    def known_trace(self) -> Trace:
        """The trace as a policy may check it: where its log ends jobs, a clairvoyant one alone."""
        clairvoyant = self.parameters.information_class == InformationClass.CLAIRVOYANT
        return self.scenario.trace if clairvoyant else self.scenario.trace.as_asked()

    @property
    def log(self) -> EventLog:
        """The event log of the episode so far."""
        return self.simulation.log

    @property
    def _goes_on(self) -> bool:
        """Whether there is an episode that is not over."""
        return self._view is not None

    @property
    def view(self) -> View | None:
        """What a policy would see at the present decision point; None when the episode is over."""
        return self._view

    @property
    def outcomes(self) -> Outcomes:
        """When each job left, in the episode so far."""
        return self._outcomes

    def action_masks(self) -> npt.NDArray[np.int8]:
        """Return 1 for each legal action, else 0, shape (number of actions,); all 1 when the episode is over.

        `action_space.sample(mask=…)` takes it.
        """
        if not self._goes_on:
            return np.ones(self.actions.number, dtype=np.int8)
        return self.actions.mask().view(np.int8)

    def row_jobs(self) -> Ints:
        """Return the job of each row that is shown, by its place in the trace, shape (R,); -1: none."""
        found, view = np.full(self.parameters.rows, -1), self.view
        if view is not None:
            shown = self.actions.shown
            found[: len(shown)] = view.job[shown]
        return found

    def time_in_system_s(self, jobs: Ints) -> Floats:
        """Return the seconds that jobs, shape (m,), have been in the system so far; NaN for -1."""
        spent: Floats = np.where(jobs < 0, np.nan, self.outcomes.age_s()[jobs])
        return spent

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode at its first decision point.

        Parameters
        ----------
        seed : int, optional
        options : dict, optional
            `trace_seed` and `load` choose a drawn trace, `trace` a file or a name of traces/,
            `scenario` is a Scenario of the same GPU types and counts; `run_seed` is the seed that
            `clustergym.simulate` takes, by default 0.
        """
        super().reset(seed=seed)
        options = options or {}
        run_seed = read_run_seed(options)
        return self._start(self.episodes.choose(options, self.np_random), run_seed)

    def _start(self, scenario: Scenario, run_seed: int) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode of a scenario."""
        chosen = self.parameters
        check_queues(scenario, chosen)
        simulation = Simulation(scenario, self.placer, chosen.information_class, chosen.round_s, run_seed)
        yardsticks = ReferenceCostTimes.from_scenario(scenario)
        self.features.queues = yardsticks.queues
        self._simulation, self._outcomes = simulation, Outcomes(yardsticks)
        self._begun, self._explain_taken = (scenario, run_seed), []
        self._known = times_known(chosen.information_class)
        self.actions.reset(
            simulation.known_trace, simulation.setting, random_streams.POLICY.generator(run_seed)
        )
        self._illegal_in_a_row, self._stalled = 0, False
        self._reward.reset()
        self._reference_reward.reset()
        self._reference = self.reference_outcomes(scenario, run_seed)
        self._view = simulation.advance()
        if self._view is None:
            raise InputError("no job comes to a decision", field="env", remedy="choose another trace")
        self._begin()
        return self.as_observation(self.features.values()), self._info(self._no_terms, False)

    def reference_outcomes(self, scenario: Scenario, run_seed: int) -> Outcomes | None:
        """Return when each job leaves under the baseline; None: there is none."""
        if self._references is None:
            return None
        return self._references.outcomes(scenario, ReferenceCostTimes.from_scenario(scenario), run_seed)

    def _begin(self) -> None:
        """Read the new events, and begin the decision point."""
        simulation, view = self.simulation, self._view
        self._outcomes.read(simulation.log.events, simulation.now_s)
        if view is not None:
            self.actions.begin(view)
            self.features.begin(view, self.actions, self._outcomes.left, self._known)

    def step(self, action: Any) -> Step:
        """Take an action; the clock moves only if it ends the decision point."""
        if not self._goes_on:
            begun = "there is no episode yet" if self._begun is None else "the episode is over"
            raise ResetNeeded(f"{begun}: call reset() first")
        taken = self._checked(action)
        result = self._act(taken)
        self._explain_taken.append(taken)
        return result

    def _checked(self, action: Any) -> Any:
        """Return an action of the action space as `_act` takes it."""
        return self.actions.check_action(action)

    def _act(self, action: Any) -> Step:
        if not self.actions.legal(action):
            return self._illegal(action)
        self._illegal_in_a_row = 0
        decision = self.actions.act(action)
        if decision is not None:
            return self._decide(decision, action)
        self.features.update_edited(self.actions, action)
        return (
            self.as_observation(self.features.values()),
            0.0,
            False,
            False,
            self._info(self._no_terms, False),
        )

    def _illegal(self, action: Any) -> Step:
        check_legal(self.parameters, self.actions, action, False)
        self._illegal_in_a_row += 1
        if self._illegal_in_a_row >= MOST_ILLEGAL:
            return self._finish_step(stalled=True, illegal=True)
        return (
            self.as_observation(self.features.values()),
            0.0,
            False,
            False,
            self._info(self._no_terms, True),
        )

    def _decide(self, decision: Decision, action: Any) -> Step:
        """Apply a decision, and go on deciding by the same action for as many decision points as it holds."""
        simulation, actions, decided = self.simulation, self.actions, 1
        try:
            simulation.apply(decision)
            self._view = simulation.advance()
            while isinstance(actions, AuctionActions) and decided != actions.hold and self._view is not None:
                simulation.apply(actions.act_again(self._view, action))
                self._view = simulation.advance()
                decided += 1
        except StalledError:
            return self._finish_step(stalled=True)
        return self._finish_step()

    def _finish_step(self, stalled: bool = False, illegal: bool = False) -> Step:
        """Return the result of a step that moved the clock or ended the episode."""
        simulation, self._stalled = self.simulation, stalled
        if stalled:
            self._view, simulation.end_s = None, simulation.now_s
        self._begin()
        over, jobs = self._view is None, len(simulation.scenario.trace)
        finished = over and simulation.jobs_left == jobs
        if over:
            self._outcomes.now_s = simulation.end_s
        terms = self._terms(finished)
        reward, info = self._reward.total(terms), self._info(terms, illegal)
        if stalled:
            reward -= self.parameters.stall_penalty * (jobs - simulation.jobs_left) / jobs
        if over:
            info |= {"metrics": self.metrics(), "digest": simulation.log.digest, "stalled": stalled}
        terminated = finished or stalled
        return (
            self.as_observation(self.features.values()),
            reward,
            terminated,
            over and not terminated,
            info,
        )

    def _terms(self, finished: bool) -> dict[str, float]:
        terms = self._reward.terms(self._outcomes)
        if self._reference is None:
            return terms
        until_s = math.inf if finished else self._outcomes.now_s
        # A job that left has stopped to cost: at its own end the reference costs what it ever will.
        then = self._reference.rewind(min(until_s, max(self._reference.end_s, self._outcomes.now_s)))
        reference = self._reference_reward.terms(then)
        return {name: value - reference[name] for name, value in terms.items()}

    def metrics(self) -> Metrics:
        """Return the metrics of the episode so far, as `result.json` has them."""
        simulation = self.simulation
        end_s = simulation.now_s if self._goes_on else simulation.end_s
        return measure_scenario(simulation.scenario, simulation.log.events, end_s, self._stalled).metrics

    def as_observation(self, flat: npt.NDArray[np.float32]) -> Observation:
        """Return features, shape (..., number of features), in the form that `observation` chooses."""
        if self.parameters.observation == "flat":
            return flat
        return {name: flat[..., part] for name, part in self.features.parts.items()}

    def _info(self, terms: dict[str, float], illegal: bool) -> dict[str, Any]:
        return {
            "action_mask": self.action_masks(),
            "now_s": self.simulation.now_s,
            "illegal": illegal,
            "rewards": dict(terms),
        }

    def render(self) -> Any:
        """Return a picture of the cluster and the queue, as text or as pixels."""
        if self.render_mode is None:
            return None
        draw = {"ansi": as_text, "rgb_array": as_pixels}[self.render_mode]
        return draw(self.simulation)


def check_legal(parameters: SchedulingParameters, actions: Actions, action: Any, legal: bool) -> None:
    """Raise an InputError if an illegal action is an error."""
    if not legal and parameters.on_illegal == "raise":
        raise InputError(
            f"{action} ({actions.describe(action)}) is illegal now",
            field="action",
            remedy="choose where action_masks() is 1, or make with on_illegal='ignore'",
        )


def check_queues(scenario: Scenario, parameters: SchedulingParameters) -> None:
    """Raise an InputError if a scenario has queues that are not shown, or none where they would be."""
    if scenario.tenants is not None and parameters.features != "tenants":
        message = f"scenario {scenario.name} has queues of tenants, which features={parameters.features} hide"
        remedy = "make ClusterGym/Tenants-v1, or give features=tenants"
        raise InputError(message, field="env.features", remedy=remedy)
    if scenario.tenants is None and parameters.features == "tenants":
        remedy = "give queues=virtual_cluster, or a scenario with scenario.queues"
        raise InputError(f"scenario {scenario.name} has no queues", field="env.queues", remedy=remedy)
    for term in OF_QUEUES:
        if scenario.tenants is None and term in parameters.reward:
            message, remedy = "is of queues, and the scenario has none", "make ClusterGym/Tenants-v1"
            raise InputError(message, field=f"env.reward.{term}", remedy=remedy)


def read_run_seed(options: Mapping[str, Any]) -> int:
    """Return the option `run_seed` of `reset`."""
    run_seed: int = check_value(options.get("run_seed", 0), NonNegativeInt, "options.run_seed")
    return run_seed
