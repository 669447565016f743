"""The base of all scheduling environments: an agent decides at the decision points of a simulation.

What `step(action)` calls, on the compiled engine:

1. `SchedulingEnv.step`, here, checks the action.
2. `CompiledEpisode.act` (vector/compiled_episode.py) plays an episode as a batch of one.
   `SchedulingVectorEnv.step` (vector/base.py, environment.py) comes here directly, with many.
3. `EpisodeBatch.take` and `apply` (vector/episode_batch.py) hand the rows of common arrays to threads.
4. `apply_actions` and `play` (vector/step.py), compiled, do the rest for each row: an action that ends no
   decision point is an edit (`edits.edit`); one that does is enacted (`clock.enact`), and the clock moves to
   the next decision point (`clock.advance` of sim/compiled). `charge` then computes the reward.

With `Auction`'s actions the fourth is `apply_auctions` (auction_step.py), with queues
`apply_actions_with_queues` (tenants_step.py). On the SimPy engine `SimPyEpisode.act` (simpy_episode.py) comes
second and last: `Actions.act` turns the action into a Decision for `Simulation.apply` and `advance`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.error import ResetNeeded

from clustergym.common.arrays import Ints
from clustergym.common.errors import InputError
from clustergym.common.parameter_types import NonNegativeInt
from clustergym.common.parameters import build_from_keywords, check_value
from clustergym.envs.auction_actions import NAMES as OF_AUCTIONS
from clustergym.envs.auction_actions import Actions, make_actions
from clustergym.envs.episodes import Episodes
from clustergym.envs.observations import FEATURES
from clustergym.envs.rendering import check_mode
from clustergym.envs.rewards import Reward
from clustergym.envs.scheduling_costs import COSTS, Outcomes, ReferenceCosts, ReferenceCostTimes
from clustergym.envs.scheduling_parameters import SchedulingParameters
from clustergym.envs.scheduling_picture import as_pixels, as_text
from clustergym.envs.simpy_episode import EpisodeParts, PlayedEpisode, SimPyEpisode
from clustergym.results.metrics.metrics import Metrics
from clustergym.scenario.policy import InformationClass, Setting, View
from clustergym.scenario.registry import make_placer
from clustergym.scenario.scenario import Scenario
from clustergym.sim.engine import Simulation
from clustergym.sim.log import EventLog
from clustergym.sim.state import make_setting
from clustergym.trace.trace import Trace

Observation = dict[str, npt.NDArray[np.float32]] | npt.NDArray[np.float32]
Step = tuple[Observation, float, bool, bool, dict[str, Any]]

UNPICKLED = frozenset({"_batch", "_episode", "_prepared", "_references", "features", "parts", "placer"})
"""Attributes that a copy makes anew, from the parameters, the scenario and the actions taken."""


class SchedulingEnv(gymnasium.Env[Observation, Any]):
    """Base of the environments whose agent schedules the jobs of a simulated GPU cluster.

    Parameters
    ----------
    render_mode : {"ansi", "rgb_array"}, optional
    **parameters
        Fields of `clustergym.envs.scheduling_parameters.SchedulingParameters`.

    Attributes
    ----------
    parameters : SchedulingParameters
    actions : EditActions or AuctionActions
    features : Summary, JobRows or MoveRows
    defaults : mapping
        Parameters that a subclass changes.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 8}  # noqa: RUF012
    defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def __init__(self, render_mode: str | None = None, **parameters: Any) -> None:
        self.render_mode = check_mode(render_mode, self.metadata["render_modes"])
        self.parameters: SchedulingParameters = build_from_keywords(
            SchedulingParameters, {**self.defaults, **parameters}, "env"
        )
        if self.parameters.features in ("moves", "ranked") and self.parameters.actions not in OF_AUCTIONS:
            message = f"{self.parameters.features!r} needs an auction"
            raise InputError(message, field="env.features", remedy="give features=jobs")
        self._episode: PlayedEpisode | None = None
        self._begun: tuple[Scenario, int] | None = None
        self._taken: list[Any] = []
        self.episodes = Episodes(self.parameters)
        if self.parameters.actions in OF_AUCTIONS:
            # Here, not in `reset`: what no episode of these parameters could do is said before one begins.
            self.episodes.check_times()
        self.make_parts()
        self.action_space = self.parts.actions.space
        self.observation_space = self.features.make_space(self.parameters.observation)

    def make_parts(self) -> None:
        """Make what all episodes share: placer, actions, observation, and any baseline of rewards."""
        chosen, setting = self.parameters, self.episodes.setting
        self.placer = make_placer({"name": chosen.placer})
        self.features = FEATURES[chosen.features](setting, chosen.rows)
        self.parts = EpisodeParts(chosen, self.placer, make_actions(chosen, setting), self.features)
        # So that a term that there is not is refused here.
        Reward(COSTS, chosen.reward)
        self._references = None if chosen.baseline is None else ReferenceCosts(chosen.baseline, self.placer)

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the simulation, which cannot be pickled: replaying `_taken` restores it."""
        return {name: value for name, value in self.__dict__.items() if name not in UNPICKLED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Replay the episode up to the step at which the environment was pickled."""
        self.__dict__.update(state)
        self._episode = None
        self.make_parts()
        if self._begun is not None:
            taken = self._taken
            self._start(*self._begun)
            for action in taken:
                self.episode.act(action)
            self._taken = taken

    @property
    def actions(self) -> Actions:
        """The object that interprets actions, with the changes to jobs' GPUs made at this decision point."""
        return self.parts.actions

    @property
    def episode(self) -> PlayedEpisode:
        """The present episode, or the last one if it is over; an error if none has begun."""
        if self._episode is None:
            raise ResetNeeded("there is no episode yet: call reset() first")
        return self._episode

    @property
    def simulation(self) -> Simulation:
        """The simulation in which the present episode runs; an error on the compiled engine."""
        found: Simulation = self.episode.simulation
        return found

    @property
    def scenario(self) -> Scenario:
        """The scenario (cluster, jobs, costs and oracle) of the present episode."""
        if self._begun is None:
            raise ResetNeeded("there is no episode yet: call reset() first")
        return self._begun[0]

    @property
    def setting(self) -> Setting:
        """Constants of the episode that a policy may use, such as GPU types and seconds between decisions."""
        return make_setting(self.scenario, self.scenario.round_s(self.parameters.round_s))

    @property
    def known_trace(self) -> Trace:
        """The jobs as the agent may know them: only a clairvoyant one knows which jobs will end early."""
        clairvoyant = self.parameters.information_class == InformationClass.CLAIRVOYANT
        return self.scenario.trace if clairvoyant else self.scenario.trace.as_asked()

    @property
    def log(self) -> EventLog:
        """All events of the episode so far."""
        found: EventLog = self.episode.log
        return found

    @property
    def view(self) -> View | None:
        """What a policy would see at the present decision point; None when the episode is over."""
        return None if self._episode is None else self._episode.view

    @property
    def outcomes(self) -> Outcomes:
        """The times at which jobs have left the cluster in the episode so far."""
        found: Outcomes = self.episode.outcomes
        return found

    def action_masks(self) -> npt.NDArray[np.int8]:
        """Return a mask that is 1 for each legal action, else 0, shape (number of actions,).

        All 1 when the episode is over. `action_space.sample(mask=…)` takes it.
        """
        if self._episode is None:
            return np.ones(self.parts.actions.number, dtype=np.int8)
        found: npt.NDArray[np.int8] = self._episode.find_mask()
        return found

    def row_jobs(self) -> Ints:
        """Return the position in the trace of each observed row's job, -1 for an empty row, shape (R,)."""
        found, view = np.full(self.parameters.rows, -1), self.view
        if view is not None:
            shown = self.actions.shown
            found[: len(shown)] = view.job[shown]
        return found

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; return the observation and info at its first decision point.

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
        """Begin an episode of a scenario; return the first observation and info."""
        check_queues(scenario, self.parameters)
        self._episode = self.begin_episode(scenario, run_seed)
        # From these three a copy or a pickle is made again: neither SimPy's generators nor compiled
        # arrays can be copied half way.
        self._begun, self._taken = (scenario, run_seed), []
        seen, info = self._episode.begin()
        return self.as_observation(seen), info

    def begin_episode(self, scenario: Scenario, run_seed: int) -> PlayedEpisode:
        """Make a new episode of a scenario, at its first decision point."""
        reference = self.reference_outcomes(scenario, run_seed)
        return SimPyEpisode(self.parts, scenario, run_seed, reference)

    def reference_outcomes(self, scenario: Scenario, run_seed: int) -> Outcomes | None:
        """Return when each job leaves if the baseline policy schedules; None if there is no baseline."""
        if self._references is None:
            return None
        return self._references.outcomes(scenario, ReferenceCostTimes.from_scenario(scenario), run_seed)

    def step(self, action: Any) -> Step:
        """Apply an action; simulated time passes only if it ends the decision point."""
        if self._episode is None or not self._episode.goes_on:
            begun = "there is no episode yet" if self._begun is None else "the episode is over"
            raise ResetNeeded(f"{begun}: call reset() first")
        taken = self.parts.actions.check_action(action)
        seen, reward, terminated, truncated, info = self._episode.act(taken)
        # After `act`: an action that raised has changed nothing, and a copy must not repeat it.
        self._taken.append(taken)
        return self.as_observation(seen), reward, terminated, truncated, info

    def metrics(self) -> Metrics:
        """Return the metrics of the episode so far, named as in a run's `result.json`."""
        found: Metrics = self.episode.measure()
        return found

    def as_observation(self, flat: npt.NDArray[np.float32]) -> Observation:
        """Return flat observations in the form of the observation space: unchanged, or as a dict of parts."""
        if self.parameters.observation == "flat":
            return flat
        return {name: flat[..., part] for name, part in self.features.parts.items()}

    def render(self) -> Any:
        """Return a picture of the cluster and the queue, as text or as pixels; None without a render mode."""
        if self.render_mode is None:
            return None
        draw = {"ansi": as_text, "rgb_array": as_pixels}[self.render_mode]
        return draw(self.simulation)


def check_queues(scenario: Scenario, parameters: SchedulingParameters) -> None:
    """Raise an `InputError` if a scenario has queues that the observation hides, or lacks queues it needs."""
    if scenario.tenants is not None and parameters.features != "tenants":
        message = f"scenario {scenario.name} has queues of tenants, which features={parameters.features} hide"
        remedy = "make ClusterGym/Tenants-v1, or give features=tenants"
        raise InputError(message, field="env.features", remedy=remedy)
    if scenario.tenants is None and parameters.features == "tenants":
        remedy = "give queues=virtual_cluster, or a scenario with scenario.queues"
        raise InputError(f"scenario {scenario.name} has no queues", field="env.queues", remedy=remedy)
    if scenario.tenants is None and "owed" in parameters.reward:
        message, remedy = "is of queues, and the scenario has none", "make ClusterGym/Tenants-v1"
        raise InputError(message, field="env.reward.owed", remedy=remedy)


def read_run_seed(options: Mapping[str, Any]) -> int:
    """Return the option `run_seed` of `reset`, a whole number, 0 by default."""
    run_seed: int = check_value(options.get("run_seed", 0), NonNegativeInt, "options.run_seed")
    return run_seed
