"""Episodes on the compiled simulation in which an agent scores an auction's moves, or chooses who decides.

Who decides is one of the policies of a menu.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.agents import auction
from clustergym.agents import auction_features as features
from clustergym.common import random_streams
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.envs.actions import MetaActions
from clustergym.envs.auction_actions import AuctionActions, check_numbers
from clustergym.envs.scheduling import SchedulingEnv
from clustergym.envs.scheduling_parameters import SchedulingParameters
from clustergym.envs.vector import auction_step
from clustergym.envs.vector import step as steps
from clustergym.envs.vector.auction_step import HELD, AuctionRules
from clustergym.envs.vector.core import Core
from clustergym.envs.vector.episode_states import PreparedScenario
from clustergym.envs.vector.tenants_core import TenantsCore
from clustergym.scenario.policy import Decision
from clustergym.scenario.scenario import Scenario
from clustergym.sim import columns as c
from clustergym.sim.compiled.coverage import UncoveredError
from clustergym.sim.compiled.episode_views import EpisodeViews
from clustergym.sim.compiled.numba_cache import Direct
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


class AuctionCore(Core):
    """A batch of compiled episodes whose actions are numbers for an auction of the GPUs."""

    def __init__(self, single: SchedulingEnv, size: int, logged: bool, threads: int = 1) -> None:
        super().__init__(single, size, logged, threads)
        self._step = Direct(auction_step.step)
        actions, parts = single.actions, single.features.parts
        assert isinstance(actions, AuctionActions)
        self._actions, self._numbers = actions, np.zeros((size, actions.numbers))
        added = [name for name in ("scored_moves", "ranked") if name in parts]
        usual = parts[added[0]].start if added else single.features.size
        weights = auction.make_weights(features.OF_PRIORITIES)
        self._own = AuctionRules(actions.decides_by, usual, added == ["ranked"], actions.hold, weights)

    def check_actions(self, actions: npt.ArrayLike) -> Ints | Floats:
        """Check the actions, one row of numbers within bounds per episode, and return them as float64."""
        return check_numbers(actions, (self.size, self._actions.number), self._actions.bound)

    def legal(self, taken: Any) -> Bools:
        """Return a mask of the episodes whose action is legal: true for all."""
        return np.ones(self.size, dtype=np.bool_)

    def is_legal(self, row: int, action: Any) -> bool:
        """Return whether an action is legal in the episode in row `row`: all are."""
        return True

    def take(self, taken: Any, over: Bools, *copies: npt.NDArray[Any]) -> None:
        """Apply actions where an episode is not over, at all points they hold for, and fill `copies`."""
        self._numbers[:] = self._actions.deciding(taken)
        self.step(np.where(over, steps.LEAVE, 0), *copies)
        while (held := ~over & (self.outcomes == HELD)).any():
            self.step(np.where(held, 0, steps.LEAVE), *copies)

    def draw(self, states: npt.NDArray[np.uint64]) -> Ints | Floats:
        """Return a random action for each episode, uniform from -1 to 1; advance the generators' `states`."""
        numbers = np.empty((self.size, self._actions.number))
        auction_step.draw_numbers(states, numbers)
        return numbers

    def prepare_step(self, actions: Ints) -> Callable[[int, int], None]:
        """Return a function (first, last) that steps these episodes; `actions`: BEGIN, LEAVE or 0 (act)."""
        return partial(
            self._step,
            *self.arrays,
            self._own,
            actions,
            self._numbers,
            self.terms,
            self.rewards,
            self.outcomes,
        )


def make_core(single: SchedulingEnv, size: int, logged: bool, threads: int = 1) -> Core:
    """Make a batch of `size` compiled episodes, of the class that the environment's actions need."""
    if single.parameters.features == "tenants":
        return TenantsCore(single, size, logged, threads)
    made: type[Core] = AuctionCore if isinstance(single.actions, AuctionActions) else Core
    if isinstance(single.actions, MetaActions):
        made = MenuCore
    return made(single, size, logged, threads)
