"""Actions that score the moves of an auction, which then decides; see `clustergym.agents.auction`."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from clustergym.agents import auction_features as features
from clustergym.agents.auction import Bids, bids_of, decide, decide_by_scores, described_moves
from clustergym.common.arrays import Bools, Floats
from clustergym.common.errors import InputError, require
from clustergym.envs.actions import Actions
from clustergym.envs.candidates import choose_rows
from clustergym.envs.scheduling_parameters import SchedulingParameters
from clustergym.scenario.policy import Decision, InformationClass, Setting, View
from clustergym.trace.trace import Trace

LARGEST_SCORE, LARGEST_WEIGHT = 1.0, 100.0


class AuctionActions(Actions):
    """An action is a whole decision: scores of moves, or weights of their features.

    Parameters
    ----------
    parameters : SchedulingParameters
    setting : Setting

    Attributes
    ----------
    by_weights : bool
    bound : float
        Largest absolute value of a number of an action.
    view : View
    described : ndarray of float32, shape (R, T, K, features.COUNT)
        Features of the moves of each row's job; 0: there is no such move.
    """

    def __init__(self, parameters: SchedulingParameters, setting: Setting) -> None:
        known = parameters.information_class != InformationClass.NONE
        require(known, "env.information", parameters.information, "an auction needs iteration times")
        self.rows, self.by_weights = parameters.rows, parameters.actions == "weights"
        self._shape = (self.rows, len(setting.gpu_types), len(setting.counts))
        self._counts = setting.counts.astype(np.int64)
        self.number = features.COUNT if self.by_weights else int(np.prod(self._shape))
        self.bound = LARGEST_WEIGHT if self.by_weights else LARGEST_SCORE
        self.described = np.zeros((*self._shape, features.COUNT), dtype=np.float32)
        self._turn = 0

    @property
    def space(self) -> spaces.Space[Any]:
        """The numbers of an action."""
        return spaces.Box(-self.bound, self.bound, (self.number,), np.float32)

    def checked(self, action: Any) -> Floats:
        """Return the numbers of an action, with their precision."""
        return checked_numbers(action, (self.number,), self.bound)

    def reset(self, trace: Trace, setting: Setting, rng: np.random.Generator) -> None:
        """Begin an episode."""
        self._turn = 0

    def begin(self, view: View) -> None:
        """Begin a decision point."""
        time_s = view.iteration_time_s()
        enough = view.setting.counts >= view.requested_gpus[:, None, None]
        if not (np.isfinite(time_s) & enough).any(axis=(1, 2)).all():
            message, remedy = "leaves jobs without times, and an auction needs them", "choose profiled"
            raise InputError(message, field="env.information", remedy=remedy)
        self.view, self.shown = view, choose_rows(view, self.rows, self._turn)
        self._turn += 1
        self.undecided = np.zeros(len(view), dtype=np.bool_)
        self._bids, shown = bids_of(view, time_s), len(self.shown)
        moves = np.zeros((len(view), *self.described.shape[1:]), dtype=np.float32)
        described_moves(int(view.available.sum()), self._counts, self._bids, moves)
        self.described[:shown], self.described[shown:] = moves[self.shown], 0.0

    def begin_at(self, view: View, turn: int) -> None:
        """Begin a decision point with `turn` others before it."""
        self._turn = turn
        self.begin(view)

    def mask(self) -> Bools:
        """Return which numbers count now, shape (number,): scores of moves that there are; all weights."""
        if self.by_weights:
            return np.ones(self.number, dtype=np.bool_)
        moves: Bools = self.described[..., :2].any(axis=-1).ravel()
        return moves

    def legal(self, action: Any) -> bool:
        """Return whether an action is legal now: always."""
        return True

    def act(self, action: Any) -> Decision | None:
        """Hold the auction; a job without a row takes no part in one by scores, and keeps what it has."""
        view, bids = self.view, self._bids
        kind, level = bids.held_type.copy(), bids.held_level.copy()
        if self.by_weights:
            kind, level = decide(action, view.available.astype(np.int64), self._counts, bids)
        else:
            shown, available = self.shown, view.available.astype(np.int64)
            for at in np.setdiff1d(np.flatnonzero(level >= 0), shown):
                available[kind[at]] -= view.gpus[at]
            scores = action.reshape(self._shape)[: len(shown)]
            taking_part = Bids._make(part[shown] for part in bids)
            kind[shown], level[shown] = decide_by_scores(scores, available, self._counts, taking_part)
        runs = np.flatnonzero(level >= 0)
        return Decision(view.job[runs], kind[runs], self._counts[level[runs]])

    def describe(self, action: Any) -> str:
        """Return what an action does."""
        return "weights of features" if self.by_weights else "scores of moves"


def checked_numbers(action: Any, shape: tuple[int, ...], bound: float) -> Floats:
    """Return numbers of a shape, each of them at most `bound` in absolute value.

    Raises
    ------
    InputError
        If they are anything else.
    """
    given = np.asarray(action)
    if given.shape != shape or given.dtype.kind not in "iuf":
        message = f"has shape {given.shape} and type {given.dtype}"
        raise InputError(message, field="action", remedy=f"give numbers of shape {shape}")
    numbers: Floats = given.astype(np.float64)
    good = np.abs(numbers) <= bound
    if not good.all():
        wrong = np.argwhere(~good)[0].tolist()
        message, remedy = (
            f"has {numbers[tuple(wrong)]} at {wrong}",
            f"give numbers from -{bound:g} to {bound:g}",
        )
        raise InputError(message, field="action", remedy=remedy)
    return numbers
