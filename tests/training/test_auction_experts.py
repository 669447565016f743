"""Weights of an auction as actions: rankings by hand, and the same play as by the weights themselves."""

import gymnasium
import numpy as np
import pytest

from clustergym.agents import auction
from clustergym.agents import auction_features as features
from clustergym.agents.auction_checkpoints import load
from clustergym.training.offline import choose_action, rank_as_priorities


def move(**values):
    return auction.make_weights(values)


def test_priorities_by_hand():
    """A start scores 2, and is given 0.5 + 0.2 anyhow: (2 - 0.7) / 3; a doubling 2 less 0.5 + 0.25."""
    moves = np.zeros((3, 1, 2, features.COUNT))
    moves[0, 0, 0] = move(start=1.0, rate=2.0, marginal_start=1.0, keep=1.0)
    moves[0, 0, 1] = move(double=1.0, rate=2.0, marginal_double=0.25)
    # The second job's best doubling scores below 0; the third has no move at all.
    moves[1, 0, 0] = move(start=1.0, rate=-1.0)
    moves[1, 0, 1] = move(double=1.0, rate=-2.0)
    found = rank_as_priorities(moves, move(rate=1.0))
    assert found == pytest.approx([1.3 / 3, 1.25 / 3, -1 / 3, -1.0, -1.0, -1.0])


def test_a_doubling_that_pays_is_not_barred():
    """It scores 0.1, less than the 0.5 that every doubling is given: 0, the least that does not bar it."""
    moves = np.zeros((1, 1, 2, features.COUNT))
    moves[0, 0, 0], moves[0, 0, 1] = move(start=1.0), move(double=1.0, rate=0.1)
    assert rank_as_priorities(moves, move(rate=1.0)) == pytest.approx([0.0, 0.0])


def test_knobs_are_what_the_weights_are_beside_the_known_auction():
    env = gymnasium.make("ClusterGym/Knobs-16-v0", engine="simpy", jobs=8)
    env.reset(seed=1)
    assert not choose_action(env.unwrapped.actions, load("prior").weights).any()
    action = choose_action(env.unwrapped.actions, load("elastic").weights)
    assert env.action_space.contains(action)
    at = features.KNOBS.index("rate")
    assert action[at] == np.float32(
        np.clip(load("elastic").weights[features.NAMES.index("rate")] - 1.0, -2, 2)
    )


def test_weights_are_themselves():
    env = gymnasium.make("ClusterGym/Auction-16-v1", engine="simpy", jobs=8, actions="weights")
    env.reset(seed=1)
    weights = load("elastic").weights
    assert choose_action(env.unwrapped.actions, weights) == pytest.approx(weights, rel=1e-6)


def test_priorities_come_near_what_the_weights_reach():
    """On a trace of 30 jobs; random priorities are half as good."""
    env = gymnasium.make("ClusterGym/Priority-16-v0", engine="simpy", jobs=30)
    means = {}
    for name, weights in (("elastic", load("elastic").weights), ("random", None)):
        rng, over = np.random.default_rng(0), False
        _, info = env.reset(seed=1)
        while not over:
            drawn = rng.uniform(-1.0, 1.0, env.action_space.shape).astype(np.float32)
            action = drawn if weights is None else choose_action(env.unwrapped.actions, weights)
            _, _, terminated, truncated, info = env.step(action)
            over = terminated or truncated
        means[name] = info["metrics"]["jct_mean"]
    assert means["elastic"] < 0.8 * means["random"]
