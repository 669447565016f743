"""Episodes on the compiled simulation in which an agent scores the moves of an auction."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.envs.auction_actions import AuctionActions, checked_numbers
from clustergym.envs.scheduling import SchedulingEnv
from clustergym.envs.vector import auction_step
from clustergym.envs.vector import step as steps
from clustergym.envs.vector.auction_step import AuctionRules
from clustergym.envs.vector.core import Core
from clustergym.sim.compiled.numba_cache import Direct


class AuctionCore(Core):
    """Episodes whose actions are vectors of numbers; parameters as of `Core`."""

    def __init__(self, single: SchedulingEnv, size: int, logged: bool, threads: int = 1) -> None:
        super().__init__(single, size, logged, threads)
        self._step = Direct(auction_step.step)
        actions, parts = single.actions, single.features.parts
        assert isinstance(actions, AuctionActions)
        self._numbers, self._bound = np.zeros((size, actions.number)), actions.bound
        usual = parts["scored_moves"].start if "scored_moves" in parts else single.features.size
        self._own = AuctionRules(actions.by_weights, usual)

    def checked(self, actions: npt.ArrayLike) -> Ints | Floats:
        """Return an action for each episode; raise an InputError if one is not valid."""
        return checked_numbers(actions, self._numbers.shape, self._bound)

    def legal(self, taken: Any) -> Bools:
        """Return in which episodes an action is legal: in all."""
        return np.ones(self.size, dtype=np.bool_)

    def take(self, taken: Any, over: Bools, *copies: npt.NDArray[Any]) -> None:
        """Take an action in each episode that is not over; write observations and masks to any `copies`."""
        self._numbers[:] = taken
        self.step(np.where(over, steps.LEAVE, 0), *copies)

    def draw(self, states: npt.NDArray[np.uint64]) -> Ints | Floats:
        """Draw an action for each episode: numbers from -1 to 1."""
        numbers = np.empty_like(self._numbers)
        auction_step.draw_numbers(states, numbers)
        return numbers

    def _call(self, actions: Ints) -> Callable[[int, int], None]:
        return partial(
            self._step,
            self._batch.episodes,
            self._cluster,
            self._desks.arrays,
            self._desks.rules,
            self._own,
            actions,
            self._numbers,
            self.terms,
            self.rewards,
            self.outcomes,
        )


def core_of(single: SchedulingEnv, size: int, logged: bool, threads: int = 1) -> Core:
    """Return the core for a single environment's actions."""
    made = AuctionCore if isinstance(single.actions, AuctionActions) else Core
    return made(single, size, logged, threads)
