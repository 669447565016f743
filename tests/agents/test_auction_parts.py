"""Parts of the auction that compiled functions alone call, run as Python on cases worked by hand."""

import math

import numpy as np
import pytest

from clustergym.agents import auction, auction_features


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    for name in ("advantages", "first_levels", "first_level", "rank_sizes"):
        compiled = getattr(auction, name)
        monkeypatch.setattr(auction, name, getattr(compiled, "py_func", compiled))


def test_advantages_are_of_speed_per_gpu_beside_other_jobs():
    # By seconds of GPU time an iteration at the least count that fits: 4 and nothing, 4 and 8, 8 and 2.
    inf = math.inf
    time_s = np.array([[[4.0, 3.0], [inf, inf]], [[inf, 2.0], [8.0, 7.0]], [[8.0, inf], [inf, 1.0]]])
    mean, own = auction.advantages(time_s, np.array([1, 2]))
    # Beside its best type: 1 and nothing, 1 and 1/2, 1/4 and 1.
    on_x, on_y = -math.log(4) / 3, -math.log(2) / 2
    assert mean.tolist() == pytest.approx([on_x, on_y])
    assert own[0].tolist() == pytest.approx([-on_x, 0.0])
    assert own[1].tolist() == pytest.approx([-on_x, -math.log(2) - on_y])
    assert own[2].tolist() == pytest.approx([-math.log(4) - on_x, -on_y])


def test_a_type_on_which_nothing_fits():
    time_s = np.array([[[4.0], [math.inf]]])
    mean, own = auction.advantages(time_s, np.array([1]))
    assert (mean.tolist(), own.tolist()) == ([0.0, 0.0], [[0.0, 0.0]])


def test_ranks_of_sizes():
    assert auction.rank_sizes(np.array([5.0, 1.0, 5.0, 9.0, 2.0])).tolist() == [0.0, -1.0, 0.5, 1.0, -0.5]
    assert auction.rank_sizes(np.array([3.0])).tolist() == [-1.0]


def test_a_hidden_unit_has_a_bias_of_its_own():
    values, point = np.zeros(auction_features.COUNT), np.zeros(auction_features.POINT_FACTS)
    first, second = np.zeros((2, auction.INPUTS + 2))
    # Weight 2 and bias 1: 2 * 1 / (1 + |1|) = 1. Weight 4 and bias -3: 4 * -3 / (1 + |-3|) = -3.
    first[:2], second[:2] = (2.0, 1.0), (4.0, -3.0)
    score = getattr(auction.score_move, "py_func", auction.score_move)
    weights = np.concatenate([np.zeros(auction_features.COUNT), first, second])
    assert score(weights, values, point) == pytest.approx(1.0 - 3.0)
