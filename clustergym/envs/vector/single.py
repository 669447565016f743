"""A single scheduling environment on the compiled simulation, where that covers its episodes."""

from __future__ import annotations

from clustergym.envs.auction_actions import AnyActions
from clustergym.envs.scheduling import SchedulingEnv
from clustergym.envs.simpy_episode import PlayedEpisode
from clustergym.envs.vector.auction_core import make_core
from clustergym.envs.vector.compiled_episode import CompiledEpisode
from clustergym.envs.vector.core import Core
from clustergym.envs.vector.scenarios import PreparedScenarios, UncoveredError, fall_back
from clustergym.scenario.scenario import Scenario


class EngineEnv(SchedulingEnv):
    """Base of the scheduling environments that run on a compiled or a SimPy engine, with equal results.

    An episode stays in the engine that it began in. `view`, `actions`, `outcomes`, `log` and `metrics()` are
    built from a compiled episode when they are asked for. It does not have a `simulation`, which is refused;
    and to draw pictures, episodes are those of the SimPy engine.
    """

    def make_parts(self) -> None:
        """Make the environment's parts, and a compiled engine if it can run what the parameters ask for."""
        self._core: Core | None = None
        self._prepared: PreparedScenarios | None = None
        super().make_parts()
        if self.parameters.engine == "simpy":
            return
        try:
            if self.render_mode is not None:
                remedy = "give engine='simpy', or no render_mode"
                raise UncoveredError("compiled episodes draw no pictures", field="render_mode", remedy=remedy)
            self._prepared = PreparedScenarios(self)
            self._core = make_core(self, 1, logged=True)
        except UncoveredError as refusal:
            fall_back(refusal, self.parameters.engine)

    def begin_episode(self, scenario: Scenario, run_seed: int) -> PlayedEpisode:
        """Begin an episode on the compiled engine if it can run the scenario, else on SimPy."""
        if isinstance(self._episode, CompiledEpisode):
            self._episode.leave()
            self._episode = None
        if self._core is not None and self._prepared is not None:
            try:
                prepared = self._prepared.prepare(scenario, run_seed)
                return CompiledEpisode(self._core, self.parts, *prepared)
            except UncoveredError as refusal:
                fall_back(refusal, self.parameters.engine)
        return super().begin_episode(scenario, run_seed)

    @property
    def actions(self) -> AnyActions:
        """The object that interprets actions, with the changes to jobs' GPUs made at this decision point.

        What is done to it does nothing to a compiled episode.
        """
        if isinstance(self._episode, CompiledEpisode):
            self._episode.catch_up()
        return self.parts.actions
