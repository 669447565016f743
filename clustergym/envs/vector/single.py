"""A single scheduling environment on the compiled simulation, where that covers its episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.common.errors import InputError
from clustergym.envs.actions import EditActions
from clustergym.envs.auction_actions import AnyActions, AuctionActions
from clustergym.envs.scheduling import Observation, SchedulingEnv, Step, check_legal
from clustergym.envs.scheduling_costs import Outcomes
from clustergym.envs.vector import step as steps
from clustergym.envs.vector.auction_core import make_core
from clustergym.envs.vector.core import Core
from clustergym.envs.vector.desk import TURN
from clustergym.envs.vector.lazy_info import LazyInfo
from clustergym.envs.vector.scenarios import PreparedScenarios, UncoveredError, fall_back
from clustergym.envs.vector.views import collect_edits
from clustergym.results.metrics.metrics import Metrics
from clustergym.scenario.policy import View
from clustergym.scenario.scenario import Scenario
from clustergym.sim.compiled.episode_views import EpisodeViews
from clustergym.sim.engine import Simulation
from clustergym.sim.log import EventLog

OF_COMPILED = frozenset({"_core", "_prepared", "_on_core", "_views", "_shown_view"})
"""Attributes of compiled episodes, which a copy makes anew."""


class EngineEnv(SchedulingEnv):
    """A scheduling environment with a choice of engines, which have the same results.

    An episode stays in the engine that it began in. `view`, `actions`, `outcomes`, `log` and `metrics()` are
    built from a compiled episode when they are asked for. It does not have a `simulation`, which is refused;
    and to draw pictures, episodes are those of the SimPy engine.
    """

    def _make_parts(self) -> None:
        self._on_core = False
        self._shown_view: View | None = None
        self._views: EpisodeViews | None = None
        self._core: Core | None = None
        self._prepared: PreparedScenarios | None = None
        super()._make_parts()
        if self.parameters.engine == "simpy":
            return
        try:
            self._check_pictures()
            self._prepared = PreparedScenarios(self)
            self._core = make_core(self, 1, logged=True)
        except UncoveredError as refusal:
            fall_back(refusal, self.parameters.engine)

    def _check_pictures(self) -> None:
        if self.render_mode is not None:
            message, remedy = "compiled episodes draw no pictures", "give engine='simpy', or no render_mode"
            raise UncoveredError(message, field="render_mode", remedy=remedy)

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the simulations: replaying the actions taken restores them."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in OF_COMPILED}

    def _start(self, scenario: Scenario, run_seed: int) -> tuple[Observation, dict[str, Any]]:
        self._complete_view()
        self._on_core, self._shown_view = False, None
        if self._core is None or self._prepared is None:
            return super()._start(scenario, run_seed)
        try:
            prepared = self._prepared.prepare(scenario, run_seed)
        except UncoveredError as refusal:
            fall_back(refusal, self.parameters.engine)
            return super()._start(scenario, run_seed)
        self._begun, self._explain_taken, self._on_core = (scenario, run_seed), [], True
        self._simulation = self._view = None
        self._views = None
        self._core.begin([0], [prepared])
        if self._core.outcomes[0] != steps.DECIDED:
            raise InputError("no job comes to a decision", field="env", remedy="choose another trace")
        return self._copy_observation(), self._core.info(0, False)

    def _checked(self, action: Any) -> Any:
        return self._own_actions.check_action(action)

    def _act(self, action: Any) -> Step:
        core = self._core
        if core is None or not self._on_core:
            return super()._act(action)
        self._complete_view()
        taken = np.asarray(action)[None]
        legal = bool(core.legal(taken)[0])
        check_legal(self.parameters, self._own_actions, action, legal)
        core.take(taken, np.zeros(1, dtype=np.bool_))
        info, outcome = core.info(0, not legal), int(core.outcomes[0])
        if outcome != steps.EDITED:
            self._shown_view = None
        over = outcome >= steps.TERMINATED
        if over:
            summary, stalled = core.summary(0), {"stalled": core.is_stalled(0)}
            makers = {"metrics": summary.get_metrics, "digest": summary.get_digest}
            info = LazyInfo(info | stalled, makers)
        truncated = outcome == steps.TRUNCATED
        return self._copy_observation(), float(core.rewards[0]), over and not truncated, truncated, info

    def _complete_view(self) -> None:
        """Complete the View that was last shown, before the episode goes on."""
        if self._views is not None:
            self._views.complete()

    def _copy_observation(self) -> Observation:
        """Return a copy of the observation."""
        assert self._core is not None
        return self.as_observation(self._core.desks.observation[0].copy())

    def action_masks(self) -> npt.NDArray[np.int8]:
        """Return 1 for each legal action, else 0, as `SchedulingEnv.action_masks`."""
        if self._core is None or not self._on_core:
            return super().action_masks()
        return self._core.desks.mask[0].copy()

    @property
    def _goes_on(self) -> bool:
        if self._core is None or not self._on_core:
            return super()._goes_on
        return bool(self._core.outcomes[0] < steps.TERMINATED)

    def metrics(self) -> Metrics:
        """Return the metrics of the episode so far, as `result.json` has them."""
        if self._core is not None and self._on_core:
            return self._core.summary(0).get_metrics()
        return super().metrics()

    @property
    def actions(self) -> AnyActions:
        """The actions, with the allotments as edited at the present decision point.

        What is done to them does nothing to a compiled episode.
        """
        view = self.view if self._on_core else None
        if view is not None:
            self._catch_up(view)
        return self._own_actions

    @actions.setter
    def actions(self, made: AnyActions) -> None:
        self._own_actions = made

    def _catch_up(self, view: View) -> None:
        """Bring the actions to the present step of the compiled episode."""
        assert self._core is not None
        own, (episode, desk) = self._own_actions, self._core.episode(0)
        if isinstance(own, EditActions):
            own.adopt_allotments(view, collect_edits(episode, desk, view, own))
        elif isinstance(own, AuctionActions):
            own.begin_decision(view, int(desk.state[TURN]) - 1)
        else:
            own.begin(view)

    @property
    def simulation(self) -> Simulation:
        """The simulation of the episode, with its logs; of the SimPy engine alone."""
        if self._on_core:
            remedy = "make the environment with engine='simpy'"
            raise InputError("a compiled episode has no Simulation", field="env.engine", remedy=remedy)
        return super().simulation

    @property
    def log(self) -> EventLog:
        """The event log of the episode so far."""
        if self._core is not None and self._on_core:
            return self._core.log(0)
        return super().log

    @property
    def view(self) -> View | None:
        """What a policy would see at the present decision point; None when the episode is over."""
        if self._core is None or not self._on_core:
            return super().view
        if not self._goes_on:
            return None
        if self._views is None:
            information, episode = self.parameters.information_class, self._core.episode(0)[0]
            self._views = EpisodeViews(self.scenario, episode, information, self.setting)
        if self._shown_view is None:
            self._shown_view = self._views.view_of_now()
        return self._shown_view

    @property
    def outcomes(self) -> Outcomes:
        """When each job left, in the episode so far."""
        if self._core is not None and self._on_core:
            return self._core.get_outcomes(0)
        return super().outcomes
