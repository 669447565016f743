"""Episodes on the compiled simulation in which an agent chooses who decides: the policies of a menu."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.common import random_streams
from clustergym.common.arrays import Bools, Ints
from clustergym.envs.actions import MetaActions
from clustergym.envs.scheduling import SchedulingEnv
from clustergym.envs.scheduling_parameters import SchedulingParameters
from clustergym.envs.vector.core import Core
from clustergym.envs.vector.episode_states import PreparedScenario
from clustergym.scenario.policy import Decision
from clustergym.scenario.scenario import Scenario
from clustergym.sim import columns as c
from clustergym.sim.compiled.coverage import UncoveredError
from clustergym.sim.compiled.episode_views import EpisodeViews
from clustergym.sim.decision_checks import Limits, check_decision, coerce_decision
from clustergym.sim.state import make_setting


class _RowViews:
    """The objects that make the Views of each row's episode, kept while its arrays are the same."""

    def __init__(self, core: Core, chosen: SchedulingParameters) -> None:
        self._core, self._chosen = core, chosen
        self._views: list[EpisodeViews | None] = [None] * core.size
        self._seen_in: tuple[Any, ...] = ()

    def drop(self, row: int) -> None:
        """Compute the rest of the last View of a row, before another episode begins there."""
        views = self._views[row]
        if views is not None:
            views.complete()
        self._views[row] = None

    def find(self, row: int) -> EpisodeViews:
        """Return the object that makes the Views of a row's episode; make it if arrays were replaced."""
        core, scenario = self._core, self._core.scenarios[row]
        arrays = core.batch.episodes.job, core.batch.episodes.profile
        if len(self._seen_in) == 0 or any(
            one is not other for one, other in zip(arrays, self._seen_in, strict=True)
        ):
            self._seen_in, self._views = arrays, [None] * core.size
        views = self._views[row]
        if views is None:
            assert scenario is not None
            chosen = self._chosen
            setting = make_setting(scenario, scenario.round_s(chosen.round_s))
            episode = core.episode(row)[0]
            views = self._views[row] = EpisodeViews(scenario, episode, chosen.information_class, setting)
        return views


def _set_targets(job: Ints, shown: Ints, decision: Decision, counts: Ints) -> None:
    """Write the GPUs that a decision gives each job into the columns of an episode's jobs."""
    job[shown, c.TARGET_TYPE] = job[shown, c.TARGET_LEVEL] = c.NONE
    job[decision.job, c.TARGET_TYPE] = decision.gpu_type
    job[decision.job, c.TARGET_LEVEL] = np.searchsorted(counts, decision.gpus)
    job[decision.drop, c.REJECTED] = 1


class MenuCore(Core):
    """A batch of compiled episodes whose actions choose the scheduling policy that decides next.

    Raises
    ------
    UncoveredError
        If a policy asks where jobs are, or moves them.
    """

    def __init__(self, single: SchedulingEnv, size: int, logged: bool, threads: int = 1) -> None:
        super().__init__(single, size, logged, threads)
        own = single.actions
        assert isinstance(own, MetaActions)
        for policy in own.policies:
            if policy.needs_places:
                message = f"policy {policy.name} asks where jobs are, which compiled episodes do not say"
                raise UncoveredError(message, field="env.policies", remedy="give engine='simpy'")
        self._chosen = single.parameters
        self._menus = [own, *(copy.deepcopy(own) for _ in range(1, size))]
        self._views = _RowViews(self, self._chosen)

    def begin(self, rows: Sequence[int], scenarios: Sequence[tuple[Scenario, PreparedScenario]]) -> None:
        """Begin new episodes of scenarios in some rows of the batch, and reset their menus of policies."""
        for row in rows:
            self._views.drop(row)
        super().begin(rows, scenarios)
        for row, (scenario, prepared) in zip(rows, scenarios, strict=True):
            setting = make_setting(scenario, scenario.round_s(self._chosen.round_s))
            stream = random_streams.POLICY.generator(prepared.run_seed)
            self._menus[row].reset(scenario.trace, setting, stream)

    def take(self, taken: Any, over: Bools, *copies: npt.NDArray[Any]) -> None:
        """Let the chosen policies decide; copy observations and masks to `copies`, if given."""
        for row in np.flatnonzero(~over).tolist():
            views, menu, scenario = self._views.find(row), self._menus[row], self.scenarios[row]
            assert scenario is not None
            view = views.view_of_now()
            menu.begin(view)
            decision = coerce_decision(menu.act(int(taken[row])))
            check_decision(decision, Limits(view.job, view.available, views.jobs.hidden), scenario)
            _set_targets(self.batch.episodes.job[row], view.job, decision, self.cluster.counts)
            # A View that no policy keeps need not make the columns that nobody has read.
            del view, menu.view
            views.complete()
        super().take(taken, over, *copies)

    def prepare_step(self, actions: Ints) -> Callable[[int, int], None]:
        """Return a function (first, last) that enacts policies' decisions in episodes first..last - 1."""
        # A policy decides all edits: what is left of the decision point is its end, the last action.
        mask = self.episode_states.mask
        end = super().prepare_step(np.where(actions >= 0, mask.shape[1] - 1, actions))

        def step(first: int, last: int) -> None:
            mask[first:last, -1] = 1
            end(first, last)
            mask[first:last] = 1

        return step
