"""A single scheduling environment on the compiled simulation, where that covers its episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.envs.actions_by_name import AnyActions
from clustergym.envs.scheduling import Observation, SchedulingEnv, Step, check_legal
from clustergym.envs.scheduling_costs import Outcomes
from clustergym.envs.vector import step as steps
from clustergym.envs.vector.auction_core import core_of
from clustergym.envs.vector.core import Core
from clustergym.envs.vector.scenarios import PreparedScenarios, UncoveredError, fall_back
from clustergym.inputs.errors import InputError
from clustergym.interface.policy import View
from clustergym.metrics.metrics import Metrics
from clustergym.scenarios.scenario import Scenario
from clustergym.sim.engine import Simulation


class EngineEnv(SchedulingEnv):
    """A scheduling environment with a choice of engines, which have the same results.

    Where `simulation`, `view` or `actions` are asked for, and to draw a picture, the episode goes
    on in the SimPy engine, which first takes the actions taken so far.
    """

    def __init__(self, render_mode: str | None = None, **parameters: Any) -> None:
        self._core: Core | None = None
        self._on_core = False
        super().__init__(render_mode, **parameters)
        self._prepared: PreparedScenarios | None = None
        self._make_core()

    def _make_core(self) -> None:
        if self.parameters.engine == "simpy":
            return
        try:
            self._prepared = PreparedScenarios(self)
            self._core = core_of(self, 1, logged=True)
        except UncoveredError as refusal:
            fall_back(refusal, self.parameters.engine)

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the simulations: replaying the actions taken restores them."""
        return {**super().__getstate__(), "_core": None, "_prepared": None, "_on_core": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Replay the episode up to the step at which the environment was pickled."""
        super().__setstate__(state)
        self._make_core()

    def _start(self, scenario: Scenario, run_seed: int) -> tuple[Observation, dict[str, Any]]:
        self._on_core = False
        if self._core is None or self._prepared is None:
            return super()._start(scenario, run_seed)
        try:
            prepared = self._prepared.prepare(scenario, run_seed)
        except UncoveredError as refusal:
            fall_back(refusal, self.parameters.engine)
            return super()._start(scenario, run_seed)
        self._begun, self._taken, self._on_core = (scenario, run_seed), [], True
        self._core.begin([0], [prepared])
        if self._core.outcomes[0] != steps.DECIDED:
            raise InputError("no job comes to a decision", field="env", remedy="choose another trace")
        return self._seen(), self._core.info(0, False)

    def _checked(self, action: Any) -> Any:
        return self._own_actions.checked(action)

    def _act(self, action: Any) -> Step:
        core = self._core
        if core is None or not self._on_core:
            return super()._act(action)
        taken = np.asarray(action)[None]
        legal = bool(core.legal(taken)[0])
        check_legal(self.parameters, self._own_actions, action, legal)
        core.take(taken, np.zeros(1, dtype=np.bool_))
        info, outcome = core.info(0, not legal), int(core.outcomes[0])
        over = outcome >= steps.TERMINATED
        if over:
            info |= core.end(0)
        truncated = outcome == steps.TRUNCATED
        return self._seen(), float(core.rewards[0]), over and not truncated, truncated, info

    def _seen(self) -> Observation:
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
        if self._core is not None and self._on_core and not self._goes_on:
            return self._core.metrics(0)
        self._go_on_in_simpy()
        return super().metrics()

    @property
    def actions(self) -> AnyActions:
        """The actions, with the allotments as edited at the present decision point."""
        self._go_on_in_simpy()
        return self._own_actions

    @actions.setter
    def actions(self, made: AnyActions) -> None:
        self._own_actions = made

    @property
    def simulation(self) -> Simulation:
        """The simulation of the episode in the SimPy engine, with its logs."""
        self._go_on_in_simpy()
        return super().simulation

    @property
    def view(self) -> View | None:
        """What a policy would see at the present decision point; None when the episode is over."""
        self._go_on_in_simpy()
        return super().view

    @property
    def outcomes(self) -> Outcomes:
        """When each job left, in the episode so far."""
        if self._core is not None and self._on_core:
            return self._core.left(0)
        return super().outcomes

    def _go_on_in_simpy(self) -> None:
        """Bring the SimPy engine to the present step, and go on there."""
        if not self._on_core or self._begun is None:
            return
        self._on_core, taken = False, self._taken
        super()._start(*self._begun)
        for action in taken:
            super()._act(action)
        self._taken = taken
