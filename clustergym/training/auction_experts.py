"""Weights of an auction as actions of the environments that score moves, rank jobs or turn knobs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from clustergym.agents import auction
from clustergym.agents import auction_features as features
from clustergym.common.arrays import Floats
from clustergym.envs.auction_actions import (
    BASE_OF_DOUBLING,
    PER_PRIORITY,
    PRIORITIES,
    SCORES,
    AuctionActions,
)

_START, _DOUBLE = features.NAMES.index("start"), features.NAMES.index("double")


def choose_action(actions: AuctionActions, weights: Floats) -> npt.NDArray[np.float32]:
    """Return the environment action that comes closest to an auction's decision with the given weights.

    Parameters
    ----------
    actions : AuctionActions
        At a decision point.
    weights : ndarray of float, shape (features.COUNT,)
    """
    if actions.knobs:
        prior = auction.make_weights(features.PRIOR)
        knob = [features.NAMES.index(name) for name in features.KNOBS]
        chosen = (weights - prior)[knob]
    elif actions.decides_by == SCORES:
        scores = (actions.described @ weights).ravel()
        # Order and sign of scores are all that counts.
        chosen = scores / max(float(np.abs(scores).max()), 1.0)
    elif actions.decides_by == PRIORITIES:
        chosen = rank_as_priorities(actions.described.astype(np.float64), weights)
    else:
        chosen = weights
    clipped: npt.NDArray[np.float32] = np.clip(chosen, -actions.bound, actions.bound).astype(np.float32)
    return clipped


def rank_as_priorities(moves: Floats, weights: Floats) -> Floats:
    """Return jobs' priorities to start and to double their GPUs, from `weights` of features of such `moves`.

    Parameters
    ----------
    moves : ndarray of float, shape (R, T, K, features.COUNT)
        Of each row's job, as `AuctionActions.described`.
    weights : ndarray of float, shape (features.COUNT,)

    Returns
    -------
    ndarray of float, shape (2 R,)
        A job whose best doubling scores 0 or less has -1 as its second priority, and is not doubled.
    """
    flat = moves.reshape(len(moves), -1, features.COUNT)
    scores, added = flat @ weights, flat @ auction.make_weights(features.OF_PRIORITIES)
    chosen = np.empty((len(flat), 2))
    for place, (feature, base) in enumerate(((_START, 0.0), (_DOUBLE, BASE_OF_DOUBLING))):
        there = flat[..., feature] > 0
        best = np.where(there, scores, -np.inf).argmax(axis=1)[:, None]
        some = np.take_along_axis(there, best, 1)[:, 0]
        score: Floats = np.take_along_axis(scores, best, 1)[:, 0]
        rest: Floats = np.take_along_axis(added, best, 1)[:, 0]
        priority = (score - rest - base) / PER_PRIORITY
        if feature == _DOUBLE:
            priority = np.where(some & (score > 0), np.maximum(priority, 0.0), -1.0)
        chosen[:, place] = np.where(some, priority, -1.0)
    return chosen.ravel()
