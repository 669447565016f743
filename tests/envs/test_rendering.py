"""Pictures and tables, pixel by pixel."""

from __future__ import annotations

import numpy as np
import pytest

from clustergym.envs.families import ElasticEnv
from clustergym.envs.placement import PlacementEnv
from clustergym.envs.rendering import EMPTY, INK, PALETTE, bars, canvas, cells, table, write


def test_cells():
    picture = cells(np.array([[0, -1], [len(PALETTE), 1]]), 3)
    assert picture.shape == (6, 6, 3)
    middle = [[tuple(picture[row, column].tolist()) for column in (0, 3)] for row in (0, 3)]
    # Of more minipods than colours, the first one after the last colour has the first again.
    assert middle == [[PALETTE[0], EMPTY], [PALETTE[0], PALETTE[1]]]
    assert (picture[2] == 255).all()
    assert (picture[:, 5] == 255).all()


def test_bars():
    picture = bars([(1, 1), (0, 4)], [(INK, EMPTY)] * 2, 4, 8)
    assert picture.shape == (8, 8, 3)
    colours = [[tuple(picture[row, column].tolist()) for column in range(8)] for row in (2, 6)]
    white = (255, 255, 255)
    assert colours == [[INK] * 2 + [EMPTY] * 2 + [white] * 4, [EMPTY] * 8]


def test_bars_of_nothing():
    assert (bars([(0, 0)], [(INK, EMPTY)], 4, 8) == 255).all()


def test_digits():
    picture = canvas(5, 7)
    write(picture, 0, 0, "1?7", scale=1)
    dark = (picture[:, :, 0] < 255).astype(int)
    one = [[0, 1, 0], [1, 1, 0], [0, 1, 0], [0, 1, 0], [1, 1, 1]]
    assert dark[:, :3].tolist() == one
    assert dark[:, 3:].sum() == 0


@pytest.mark.parametrize("word", ["DONE", "QUEUED", "DP", "PP", "SCORE"])
def test_every_letter_of_a_headline_is_drawn(word):
    for letter in word:
        picture = canvas(5, 3)
        write(picture, 0, 0, letter, scale=1)
        assert (picture < 255).any(), letter


def test_a_scheduling_picture_has_as_many_squares_as_gpus():
    env = ElasticEnv("rgb_array", cluster="arena-16", jobs=4)
    env.reset(seed=0)
    # Below sixteen lines of pixels that say how many are done: a row for each of two types of 8 GPUs.
    squares = env.render()[16 + 2 :: 6, 2::6]
    free = (squares == EMPTY).all(axis=-1)
    nothing = (squares == 255).all(axis=-1)
    assert free.sum(axis=1).tolist() == [8, 8]
    assert free[:, :8].all()
    assert nothing[:, 8:].all()


def test_table():
    assert table(("a", "long"), [(1, 2), (100, 3)]) == "  a  long\n  1     2\n100     3"


def test_a_placement_has_as_many_coloured_squares_as_nodes():
    env = PlacementEnv("rgb_array", setting="i")
    env.reset(options={"free_nodes": [6, 6, 0]})
    for minipod in (0, 0, 1):
        env.step(minipod)
    # Groups of two nodes are columns of squares: six columns of 24 pixels.
    squares = env.render()[8 : 8 + 2 * 24 : 24, 8 : 8 + 6 * 24 : 24]
    shown = [[tuple(square.tolist()) for square in row] for row in squares]
    first, second = PALETTE[:2]
    assert shown == [[first, second] + [EMPTY] * 4, [first, EMPTY] + [EMPTY] * 4]
