"""Episodes on the compiled simulation in which an agent scores an auction's moves."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.agents import auction
from clustergym.agents import auction_features as features
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.envs.auction_actions import AuctionActions, check_numbers
from clustergym.envs.scheduling import SchedulingEnv
from clustergym.envs.vector import auction_step
from clustergym.envs.vector import step as steps
from clustergym.envs.vector.auction_step import HELD, AuctionRules
from clustergym.envs.vector.episode_batch import EpisodeBatch
from clustergym.envs.vector.tenants_batch import TenantsBatch


class AuctionBatch(EpisodeBatch):
    """A batch of compiled episodes whose actions are numbers for an auction of the GPUs."""

    compiled = staticmethod(auction_step.apply_auctions)

    def __init__(self, single: SchedulingEnv, size: int, logged: bool, threads: int = 1) -> None:
        super().__init__(single, size, logged, threads)
        actions, parts = single.actions, single.features.parts
        assert isinstance(actions, AuctionActions)
        self._auctions, self._numbers = actions, np.zeros((size, actions.numbers))
        added = [name for name in ("scored_moves", "ranked") if name in parts]
        usual = parts[added[0]].start if added else single.features.size
        weights = auction.make_weights(features.OF_PRIORITIES)
        self._own = AuctionRules(actions.decides_by, usual, added == ["ranked"], actions.hold, weights)

    def check_actions(self, actions: npt.ArrayLike) -> Ints | Floats:
        """Check the actions, one row of numbers within bounds per episode, and return them as float64."""
        return check_numbers(actions, (self.size, self._auctions.number), self._auctions.bound)

    def find_legal(self, taken: Any) -> Bools:
        """Return a mask of the episodes whose action is legal: true for all."""
        return np.ones(self.size, dtype=np.bool_)

    def is_legal(self, row: int, action: Any) -> bool:
        """Return whether an action is legal in the episode in row `row`: all are."""
        return True

    def take(self, taken: Any, over: Bools, *copies: npt.NDArray[Any]) -> None:
        """Apply actions where an episode is not over, at all points they hold for, and fill `copies`."""
        self._numbers[:] = self._auctions.deciding(taken)
        self.apply(np.where(over, steps.LEAVE, 0), *copies)
        while (held := ~over & (self.outcomes == HELD)).any():
            self.apply(np.where(held, 0, steps.LEAVE), *copies)

    def draw(self, states: npt.NDArray[np.uint64]) -> Ints | Floats:
        """Return a random action for each episode, uniform from -1 to 1; advance the generators' `states`."""
        numbers = np.empty((self.size, self._auctions.number))
        auction_step.draw_numbers(states, numbers)
        return numbers

    def arguments(self, actions: Ints) -> tuple[Any, ...]:
        """Return what the compiled function takes; `actions`: BEGIN, LEAVE or 0 (act)."""
        return self._own, actions, self._numbers


def make_episode_batch(single: SchedulingEnv, size: int, logged: bool, threads: int = 1) -> EpisodeBatch:
    """Make a batch of `size` compiled episodes, of the class that the environment's actions need."""
    if single.parameters.features == "tenants":
        return TenantsBatch(single, size, logged, threads)
    made: type[EpisodeBatch] = AuctionBatch if isinstance(single.actions, AuctionActions) else EpisodeBatch
    return made(single, size, logged, threads)
