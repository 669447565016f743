"""A single scheduling environment on the compiled simulation, where that covers its episodes.

An episode is that of a vector of one.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.common.errors import InputError
from clustergym.envs.actions import EditActions, Edits
from clustergym.envs.auction_actions import Actions
from clustergym.envs.scheduling import SchedulingEnv
from clustergym.envs.scheduling_costs import Outcomes
from clustergym.envs.simpy_episode import EpisodeParts, FlatStep, PlayedEpisode, check_legal
from clustergym.envs.vector import episode_state as d
from clustergym.envs.vector import step as steps
from clustergym.envs.vector.auction_batch import make_episode_batch
from clustergym.envs.vector.episode_batch import EpisodeBatch
from clustergym.envs.vector.episode_state import EpisodeState
from clustergym.envs.vector.episode_states import PreparedScenario
from clustergym.envs.vector.lazy_info import LazyInfo
from clustergym.envs.vector.scenarios import PreparedScenarios, UncoveredError, fall_back
from clustergym.results.metrics.metrics import Metrics
from clustergym.scenario.policy import InformationError, View
from clustergym.scenario.scenario import Scenario
from clustergym.sim import columns as c
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.episode_views import EpisodeViews
from clustergym.sim.engine import Simulation
from clustergym.sim.log import EventLog
from clustergym.sim.state import make_setting

NOT_OVER, ILLEGAL = np.zeros(1, dtype=np.bool_), np.ones(1, dtype=np.bool_)


class CompiledEpisode:
    """An episode that runs on the compiled simulation engine, with the interface of `SimPyEpisode`.

    Parameters
    ----------
    batch : EpisodeBatch
        Of one episode, which ends the one before.
    parts : EpisodeParts
    scenario, prepared
        What is played.
    """

    engine = "compiled"

    def __init__(
        self, batch: EpisodeBatch, parts: EpisodeParts, scenario: Scenario, prepared: PreparedScenario
    ) -> None:
        self._batch, self._parts = batch, parts
        batch.begin([0], [(scenario, prepared)])
        if batch.outcomes[0] != steps.DECIDED:
            raise InputError("no job comes to a decision", field="env", remedy="choose another trace")
        chosen = parts.parameters
        setting = make_setting(scenario, scenario.round_s(chosen.round_s))
        self._views = EpisodeViews(scenario, batch.episode(0)[0], chosen.information_class, setting)
        self._shown: View | None = None
        self._left = False

    @property
    def goes_on(self) -> bool:
        """Whether the episode continues."""
        return bool(self._batch.outcomes[0] < steps.TERMINATED)

    @property
    def simulation(self) -> Simulation:
        """Raise an InputError, since a compiled episode has no SimPy simulation."""
        remedy = "make the environment with engine='simpy'"
        raise InputError("a compiled episode has no Simulation", field="env.engine", remedy=remedy)

    @property
    def view(self) -> View | None:
        """What a policy would see at the present decision point; None when the episode is over."""
        if self.goes_on and self._shown is None:
            self._shown, self._left = self._views.view_of_now(), False
        return self._shown if self.goes_on else None

    @property
    def log(self) -> EventLog:
        """All events of the episode so far."""
        return self._batch.log(0)

    @property
    def outcomes(self) -> Outcomes:
        """When each job has left the cluster so far, and whether it had completed."""
        return self._batch.get_outcomes(0)

    def find_mask(self) -> npt.NDArray[np.int8]:
        """Return a mask that is 1 for each legal action, else 0; all 1 when the episode is over."""
        return self._batch.episode_states.mask[0].copy()

    def measure(self) -> Metrics:
        """Return the metrics of the episode so far, named as in a run's `result.json`."""
        return self._batch.summary(0).get_metrics()

    def begin(self) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Return the flat observation and the info at the first decision point."""
        return self._batch.episode_states.observation[0].copy(), self._batch.info(0, False)

    def leave(self) -> None:
        """Compute all of the last View (what a policy saw), before the episode leaves that decision point."""
        self._views.complete()
        if self._shown is not None and not self._left:
            self._left = True
            keep_answers(self._shown)

    def act(self, action: Any) -> FlatStep:
        """Apply an action and return the step's result; time passes only if it ends the decision point."""
        batch, taken = self._batch, np.asarray(action)[None]
        self.leave()
        legal = batch.is_legal(0, action)
        check_legal(self._parts.parameters, self._parts.actions, action, legal)
        batch.take(taken if legal else batch.answer_illegal(taken, ILLEGAL), NOT_OVER)
        if not legal:
            batch.charge_illegal(ILLEGAL)
        info, outcome = batch.info(0, not legal), int(batch.outcomes[0])
        if outcome != steps.EDITED:
            self._shown = None
        over = outcome >= steps.TERMINATED
        if over:
            summary, stalled = batch.summary(0), {"stalled": batch.is_stalled(0)}
            makers = {"metrics": summary.get_metrics, "digest": summary.get_digest}
            info = LazyInfo(info | stalled, makers)
        truncated = outcome == steps.TRUNCATED
        seen = batch.episode_states.observation[0].copy()
        return seen, float(batch.rewards[0]), over and not truncated, truncated, info

    def catch_up(self) -> None:
        """Copy the episode's state at this decision point into the environment's `actions` object."""
        own, view, (episode, episode_state) = self._parts.actions, self.view, self._batch.episode(0)
        if view is None:
            return
        if isinstance(own, EditActions):
            own.adopt_allotments(view, collect_edits(episode, episode_state, view, own))
        else:
            own.begin_decision(view, int(episode_state.state[d.TURN]) - 1)


def keep_answers(view: View) -> None:
    """Store what the methods of a View (what a policy sees) return now, so that it stays the same later."""
    costs, stops = view.costs(), view.stops()
    answers: dict[str, Any] = {"costs": costs.copy, "stops": lambda: stops}
    # A policy that knows no times is refused them, now as later.
    with suppress(InformationError):
        batches, times = view.batches(), view.times()
        answers |= {"batches": lambda: batches, "times": lambda: times}
    view.__dict__.update(answers)


def collect_edits(episode: Episode, episode_state: EpisodeState, view: View, actions: EditActions) -> Edits:
    """Return the agent's edits at this decision point: jobs' GPU types and counts, and which edits are legal.

    Parameters
    ----------
    episode, episode_state
        At the decision point of the View.
    actions : EditActions
        Those of the environment.
    """
    job, shown = episode.job[view.job], episode_state.shown[: episode_state.state[d.SHOWN]]
    level = job[:, c.TARGET_LEVEL]
    decided = job[:, c.DECIDED] != 0
    return Edits(
        shown=np.searchsorted(view.job, shown).astype(np.int64),
        target_type=job[:, c.TARGET_TYPE].copy(),
        target_gpus=np.where(level == c.NONE, 0, view.setting.counts[level]),
        free=episode_state.free.copy(),
        assigned=job[:, c.ASSIGNED] != 0,
        preempted=job[:, c.PREEMPTED] != 0,
        rejected=job[:, c.REJECTED] != 0,
        undecided=actions.rejects & ~(actions.binding & decided),
        assignable=episode_state.assignable.reshape(actions.rows, actions.width)[
            : len(shown), : actions.options
        ]
        .reshape(len(shown), actions.types, actions.levels)
        .copy(),
        legal=episode_state.mask > 0,
    )


class EngineEnv(SchedulingEnv):
    """Base of the scheduling environments that run on a compiled or a SimPy engine, with equal results.

    An episode stays in the engine that it began in. `view`, `actions`, `outcomes`, `log` and `metrics()` are
    built from a compiled episode when they are asked for. It does not have a `simulation`, which is refused;
    and to draw pictures, episodes are those of the SimPy engine.
    """

    def make_parts(self) -> None:
        """Make the environment's parts, and a compiled engine if it can run what the parameters ask for."""
        self._batch: EpisodeBatch | None = None
        self._prepared: PreparedScenarios | None = None
        super().make_parts()
        if self.parameters.engine == "simpy":
            return
        try:
            if self.render_mode is not None:
                remedy = "give engine='simpy', or no render_mode"
                raise UncoveredError("compiled episodes draw no pictures", field="render_mode", remedy=remedy)
            self._prepared = PreparedScenarios(self)
            self._batch = make_episode_batch(self, 1, logged=True)
        except UncoveredError as refusal:
            fall_back(refusal, self.parameters.engine)

    def begin_episode(self, scenario: Scenario, run_seed: int) -> PlayedEpisode:
        """Begin an episode on the compiled engine if it can run the scenario, else on SimPy."""
        if isinstance(self._episode, CompiledEpisode):
            self._episode.leave()
            self._episode = None
        if self._batch is not None and self._prepared is not None:
            try:
                prepared = self._prepared.prepare(scenario, run_seed)
                return CompiledEpisode(self._batch, self.parts, *prepared)
            except UncoveredError as refusal:
                fall_back(refusal, self.parameters.engine)
        return super().begin_episode(scenario, run_seed)

    @property
    def actions(self) -> Actions:
        """The object that interprets actions, with the changes to jobs' GPUs made at this decision point.

        What is done to it does nothing to a compiled episode.
        """
        if isinstance(self._episode, CompiledEpisode):
            self._episode.catch_up()
        return self.parts.actions
