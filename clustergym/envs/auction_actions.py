"""Actions that score the moves of an auction, which then decides; see `clustergym.agents.auction`."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from clustergym.agents import auction
from clustergym.agents import auction_features as features
from clustergym.agents.auction import Bids, make_bids
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import InputError, require
from clustergym.envs.actions import EditActions, choose_rows
from clustergym.envs.scheduling_parameters import SchedulingParameters
from clustergym.scenario.policy import Decision, InformationClass, Setting, View
from clustergym.sim.compiled.numba_cache import entry_in_place
from clustergym.trace.trace import Trace

NAMES = ("scores", "weights", "priorities", "knobs")
"""Of the parameter `actions`."""
SCORES, WEIGHTS, PRIORITIES = range(3)
"""What decides: a score for each move, weights of all features, or two priorities for each job."""
BOUNDS = {"scores": 1.0, "weights": 100.0, "priorities": 1.0, "knobs": 2.0}
"""Largest absolute value of a number of an action."""
PER_PRIORITY = 3.0
"""What priorities are multiplied by: they then outweigh the features that they are added to."""
BASE_OF_DOUBLING = 0.5
"""What a doubling scores besides; one of a job whose second priority is below 0 is barred."""
BARRED = -1e9
RANKED = (features.SIZE, features.RANK, features.LOG_AGE, features.STRETCH, features.LOG_ATTAINED)
"""Facts of a job that `features=ranked` shows."""


class AuctionActions:
    """Actions that each set the scores, weights or job priorities by which an auction allots all GPUs.

    Parameters
    ----------
    parameters : SchedulingParameters
    setting : Setting

    Attributes
    ----------
    decides_by : int
        SCORES, WEIGHTS or PRIORITIES.
    bound : float
        Largest absolute value of a number of an action.
    hold : int
        Decision points for which an action holds; 0: to the end of the episode.
    view : View
    described : ndarray of float32, shape (R, T, K, features.COUNT)
        Features of the moves of each row's job; 0: there is no such move.
    """

    def __init__(self, parameters: SchedulingParameters, setting: Setting) -> None:
        known = parameters.information_class != InformationClass.NONE
        require(known, "env.information", parameters.information, "an auction needs iteration times")
        name = parameters.actions
        self.rows, self.knobs = parameters.rows, name == "knobs"
        self.decides_by = WEIGHTS if self.knobs else NAMES.index(name)
        self.hold = 0 if parameters.hold is None else parameters.hold
        holds = self.hold == 1 or self.decides_by == WEIGHTS
        require(
            holds, "env.hold", parameters.hold, "give 1, or actions=weights or knobs: others are of one view"
        )
        self._shape = (self.rows, len(setting.gpu_types), len(setting.counts))
        self._counts = setting.counts.astype(np.int64)
        self.number = len(features.KNOBS) if self.knobs else self.numbers
        self.bound = BOUNDS[name]
        self._prior = auction.make_weights(features.PRIOR)
        self._knob = np.array([features.NAMES.index(knob) for knob in features.KNOBS])
        self._of_priorities = auction.make_weights(features.OF_PRIORITIES)
        self.described = np.zeros((*self._shape, features.COUNT), dtype=np.float32)
        self._turn = 0

    @property
    def numbers(self) -> int:
        """Number of values that an action passes to the auction: scores, weights, or priorities."""
        return (int(np.prod(self._shape)), features.COUNT, 2 * self.rows)[self.decides_by]

    @property
    def space(self) -> spaces.Space[Any]:
        """The Gymnasium space of the actions: vectors of numbers between -`bound` and `bound`."""
        return spaces.Box(-self.bound, self.bound, (self.number,), np.float32)

    def check_action(self, action: Any) -> Floats:
        """Check that an action is in the action space, and return it as float64 numbers."""
        return check_numbers(action, (self.number,), self.bound)

    def deciding(self, actions: Floats) -> Floats:
        """Return the numbers for the auction: the actions or, if `self.knobs`, default weights plus actions.

        Shape (..., numbers).
        """
        if not self.knobs:
            return actions
        weights = np.broadcast_to(self._prior, (*actions.shape[:-1], features.COUNT)).copy()
        weights[..., self._knob] += actions
        return weights

    def reset(self, trace: Trace) -> None:
        """Prepare for a new episode."""
        self._turn = 0

    def begin(self, view: View) -> None:
        """Prepare for a new decision point's action: compute features of possible changes of jobs' GPUs."""
        self._bid(view)
        self.shown = choose_rows(view, self.rows, self._turn)
        self._turn += 1
        # Auctions reject nothing; rows of jobs have a column that asks.
        self.undecided = np.zeros(len(view), dtype=np.bool_)
        if not len(view):
            self.described[:] = 0.0
            return
        shown, gpus = len(self.shown), int(view.available.sum())
        moves = np.zeros((len(view), *self.described.shape[1:]), dtype=np.float32)
        auction.write_move_features(gpus, self._counts, self._bids, moves)
        self.described[:shown], self.described[shown:] = moves[self.shown], 0.0

    def rank_jobs(self) -> Floats:
        """Return the features by which an auction ranks the m jobs in the observation, (m, features)."""
        if not len(self.view):
            return np.zeros((0, len(RANKED)))
        facts = auction.job_facts(int(self.view.available.sum()), self._counts, self._bids)
        return facts[self.shown][:, RANKED]

    def _bid(self, view: View) -> None:
        """Make the auction's inputs for the jobs in a View; raise an InputError if iteration times lack."""
        time_s = view.iteration_time_s()
        enough = view.setting.counts >= view.requested_gpus[:, None, None]
        if not (np.isfinite(time_s) & enough).any(axis=(1, 2)).all():
            message, remedy = "leaves jobs without times, and an auction needs them", "choose profiled"
            raise InputError(message, field="env.information", remedy=remedy)
        self.view, self._bids = view, make_bids(view, time_s)

    def begin_decision(self, view: View, turn: int) -> None:
        """Prepare for the action at decision point number `turn` of the episode, counted from 0."""
        self._turn = turn
        self.begin(view)

    def mask(self) -> Bools:
        """Return a mask of an action's numbers, true for those that can affect this decision."""
        if self.decides_by == WEIGHTS:
            return np.ones(self.number, dtype=np.bool_)
        if self.decides_by == PRIORITIES:
            return np.arange(self.number) < 2 * len(self.shown)
        moves: Bools = self.described[..., :2].any(axis=-1).ravel()
        return moves

    def legal(self, action: Any) -> bool:
        """Return True, as every action is legal at all times."""
        return True

    def act(self, action: Any) -> Decision:
        """Return the auction's decision: on all jobs if actions are weights, else on those in observed rows.

        A row is one of the observation; jobs without one keep their allotment, unless actions are weights.
        """
        view, bids, numbers = self.view, self._bids, self.deciding(action)
        gpu_type, level = bids.held_type.copy(), bids.held_level.copy()
        available = view.available.astype(np.int64)
        # Weights are of features that every job has, so that jobs without a row take part.
        if self.decides_by == WEIGHTS:
            gpu_type, level = auction.decide(numbers, available, self._counts, bids)
        else:
            shown = self.shown
            # Jobs without a row keep their GPUs, which are therefore not up for auction.
            for at in np.setdiff1d(np.flatnonzero(level >= 0), shown):
                available[gpu_type[at]] -= view.gpus[at]
            gpu_type[shown], level[shown] = self._decide(
                numbers, available, Bids._make(part[shown] for part in bids)
            )
        runs = np.flatnonzero(level >= 0)
        return Decision(view.job[runs], gpu_type[runs], self._counts[level[runs]])

    def _decide(self, numbers: Floats, available: Ints, bids: Bids) -> tuple[Ints, Ints]:
        """Return the GPU type and count index that the auction gives the jobs with a row."""
        jobs = len(bids.remaining)
        if self.decides_by == SCORES:
            scores = numbers.reshape(self._shape)[:jobs]
            return auction.decide_by_scores(scores, available, self._counts, bids)
        bias = np.empty((jobs, self._shape[1], 2))
        fill_bias(numbers, bias)
        return auction.decide_biased(self._of_priorities, bias, available, self._counts, bids)

    def act_again(self, view: View, action: Any) -> Decision:
        """Return the auction's decision at a later decision point, with the weights of an earlier action."""
        self._bid(view)
        return self.act(action)

    def describe(self, action: Any) -> str:
        """Return what the numbers of an action are, such as `weights of features` or `priorities of jobs`."""
        return ("scores of moves", "weights of features", "priorities of jobs")[self.decides_by]


@entry_in_place
def fill_bias(priorities: Floats, bias: Floats) -> None:
    """Write into `bias` what jobs' priorities (to start, to double their GPUs) add to the auction's scores.

    Parameters
    ----------
    priorities : ndarray of float, shape (2 R,)
        Of each row's job: that of its start, and that of its doublings.
    """
    for at in range(len(bias)):
        start, doubling = priorities[2 * at], priorities[2 * at + 1]
        bias[at, :, 0] = PER_PRIORITY * start
        bias[at, :, 1] = PER_PRIORITY * doubling + BASE_OF_DOUBLING if doubling >= 0.0 else BARRED


def check_numbers(action: Any, shape: tuple[int, ...], bound: float) -> Floats:
    """Check the shape of an action and that no number exceeds `bound` in size; return it as float64."""
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


Actions = EditActions | AuctionActions
"""Of one interface, as `clustergym.envs.actions` says."""


def make_actions(parameters: SchedulingParameters, setting: Setting) -> Actions:
    """Make the object that interprets an environment's actions, of the type that `parameters` name."""
    if parameters.actions in NAMES:
        return AuctionActions(parameters, setting)
    return EditActions(parameters, setting)
