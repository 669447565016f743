"""Pictures and tables: what is drawn where, nothing over anything else, at any size."""

import sys

import numpy as np
import pytest

from clustergym.cluster.cluster_files import load_cluster
from clustergym.common.errors import InputError
from clustergym.envs.cluster_picture import DOWN, FREE, PROFILING, fill_squares, make_layout, node_columns
from clustergym.envs.families import ElasticEnv
from clustergym.envs.placement.environment import PlacementEnv
from clustergym.envs.rendering import INK, PALETTE, WHITE, Picture, Size, choose_ink, clock, table
from clustergym.envs.scheduling_picture import MARGIN, TOP

CLUSTERS = ["arena-16", "arena-a", "arena-b", "arena-sim", "ares-16", "ares-64", "ares-384", "ares-1280"]
CLUSTERS += ["arnold-i", "arnold-ii", "arnold-iii", "gavel-48", "sia-64"]
MOST = Size(660, 464)


@pytest.fixture(autouse=True)
def _pillow():
    pytest.importorskip("PIL", reason="Pillow is not installed: pip install 'clustergym[render]'")


def apart(boxes):
    """Whether no two rectangles (left, top, right, bottom) share a pixel."""
    left, top, right, bottom = np.array(boxes).T[:, :, None]
    across = (left < right.T) & (right > left.T)
    down = (top < bottom.T) & (bottom > top.T)
    return np.count_nonzero(across & down) == len(boxes)


def corners(boxes):
    return [(box.left, box.top, box.left + box.size.width, box.top + box.size.height) for box in boxes]


def inside(inner, outer):
    """Whether each rectangle is inside one of others."""
    return all(
        any(a[0] <= b[0] and a[1] <= b[1] and b[2] <= a[2] and b[3] <= a[3] for a in outer) for b in inner
    )


@pytest.mark.parametrize("name", CLUSTERS)
def test_nothing_overlaps_in_any_cluster(name):
    cluster = load_cluster(name)
    layout = make_layout(cluster, MOST)
    side = layout.square - 1
    left, top = layout.left.tolist(), layout.top.tolist()
    squares = [(x, y, x + side, y + side) for x, y in zip(left, top, strict=True)]
    assert len(squares) == cluster.capacity.sum()
    nodes, leaves, spines = map(corners, (layout.nodes, layout.leaves, layout.spines))
    assert (len(nodes), len(leaves), len(spines)) == (
        len(cluster.node_type),
        cluster.node_leaf[-1] + 1,
        cluster.node_minipod[-1] + 1,
    )
    for boxes in (squares, nodes, leaves, spines):
        assert apart(boxes)
    assert all(
        inside(*pair) for pair in ((nodes, leaves), (leaves, spines), (spines, [(0, 0, *layout.size)]))
    )
    assert layout.size.width <= MOST.width
    assert layout.size.height <= MOST.height or cluster.capacity.sum() > 1280
    held = np.array(nodes)[layout.node]
    assert (np.array(squares)[:, :2] > held[:, :2]).all()
    assert (np.array(squares)[:, 2:] < held[:, 2:] + 1).all()


def test_a_cluster_that_does_not_fit_makes_the_picture_higher():
    layout = make_layout(load_cluster("ares-1280"), Size(660, 100))
    assert layout.size.height > 100
    assert layout.size.width <= 660


def test_switches_are_named_while_there_is_room():
    small = make_layout(load_cluster("arena-a"), MOST)
    assert [box.label for box in small.leaves] == ["leaf 0: A40", "leaf 1: A10"]
    assert [box.label for box in small.spines] == ["spine 0"]
    middle = make_layout(load_cluster("ares-384"), MOST)
    assert (middle.leaves[0].label, middle.spines[3].label) == ("", "spine 3: RTX2080Ti")


def test_columns_of_a_node():
    assert [node_columns(gpus) for gpus in (1, 2, 3, 4, 8, 16)] == [1, 2, 2, 2, 4, 4]


def test_squares_have_the_colour_of_who_holds_them():
    layout = make_layout(load_cluster("arena-16"), MOST)
    owners = np.full(16, FREE)
    owners[[0, 5, 9, 12]] = [3, len(PALETTE) + 1, DOWN, PROFILING]
    pixels = np.zeros((500, 700, 3), dtype=np.uint8)
    fill_squares(pixels, layout, owners, 10, 20)
    shown = [
        tuple(pixels[20 + y + 1, 10 + x + 1].tolist()) for x, y in zip(layout.left, layout.top, strict=True)
    ]
    # Of more jobs than colours, the first one after the last colour has the first again.
    assert (shown[0], shown[5], shown[9]) == (PALETTE[3], PALETTE[1], INK)
    assert len({shown[12], WHITE, INK, *PALETTE}) == len({WHITE, INK, *PALETTE}) + 1
    assert [at for at in range(16) if shown[at] == WHITE] == [1, 2, 3, 4, 6, 7, 8, 10, 11, 13, 14, 15]


def squares_of(env):
    """Return the colour of a corner of each GPU's square."""
    layout = make_layout(env.scenario.cluster, MOST)
    picture = env.render()
    return [
        tuple(picture[TOP + y + 1, MARGIN + x + 1].tolist())
        for x, y in zip(layout.left.tolist(), layout.top.tolist(), strict=True)
    ]


def test_a_picture_of_an_episode():
    env = ElasticEnv("rgb_array", cluster="arena-16", jobs=4)
    env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (540, 960, 3)
    assert squares_of(env) == [WHITE] * 16
    at = int(np.flatnonzero(env.action_masks())[0])
    job = int(env.view.job[env.actions.shown[0]])
    env.step(at)
    env.step(env.actions.stop)
    gpus = int(env.simulation.jobs.gpus[job])
    assert gpus
    assert squares_of(env).count(PALETTE[job]) == gpus
    assert (env.render() != picture).any()


@pytest.mark.parametrize("cluster", ["arena-16", "ares-384", "arena-10240"])
def test_the_size_is_the_cluster_s_and_even(cluster):
    env = ElasticEnv("rgb_array", cluster=cluster, jobs=4, rule="ares")
    env.reset(seed=0)
    first = env.render()
    assert first.shape[0] >= 540
    assert (first.shape[0] % 2, first.shape[1]) == (0, 960)
    for _ in range(5):
        env.step(env.action_space.sample(mask=env.action_masks()))
    assert env.render().shape == first.shape


def test_text_is_drawn_once_and_the_same_again():
    pictures = []
    for _ in range(2):
        picture = Picture((40, 200))
        picture.text(100, 20, "Queue: 8 jobs", 13, INK, "mm")
        pictures.append(picture.pixels())
    dark = np.argwhere((pictures[0] < 255).any(axis=2))
    assert (pictures[0] == pictures[1]).all()
    (top, left), (bottom, right) = dark.min(axis=0), dark.max(axis=0)
    assert abs((left + right) / 2 - 100) < 3
    assert abs((top + bottom) / 2 - 20) < 4
    assert 60 < right - left < 120


def test_a_bar_shares_its_width():
    picture = Picture((4, 10))
    picture.bar(0, 0, 10, 4, [(0.3, INK), (0.2, PALETTE[0])])
    shown = [tuple(pixel) for pixel in picture.pixels()[1].tolist()]
    assert shown[:5] == [INK] * 3 + [PALETTE[0]] * 2
    assert len({*shown[5:]} - {INK, PALETTE[0], WHITE}) == 1


def test_the_clock():
    assert clock(0.0) == "day 0  00:00:00"
    assert clock(2 * 86400 + 3 * 3600 + 4 * 60 + 5.9) == "day 2  03:04:05"


def test_table():
    assert table(("a", "long"), [(1, 2), (100, 3)]) == "  a  long\n  1     2\n100     3"


def test_a_placement_has_as_many_coloured_squares_as_nodes():
    env = PlacementEnv("rgb_array", setting="i")
    env.reset(options={"free_nodes": [6, 6, 0]})
    for minipod in (0, 0, 1):
        env.step(minipod)
    # Groups of two nodes are columns of squares: six columns of 48 pixels.
    picture = env.render()
    squares = picture[66 : 66 + 2 * 48 : 48, 14 : 14 + 6 * 48 : 48]
    shown = [[tuple(square.tolist()) for square in row] for row in squares]
    first, second = PALETTE[:2]
    empty = shown[0][5]
    assert empty not in PALETTE
    assert shown == [[first, second] + [empty] * 4, [first, empty] + [empty] * 4]
    assert picture.shape == (540, 960, 3)


@pytest.mark.parametrize(
    "made", [lambda mode: PlacementEnv(mode, setting="i"), lambda mode: ElasticEnv(mode)]
)
def test_without_pillow_one_line_names_the_extra(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    pictures, text = made("rgb_array"), made("ansi")
    for env in (pictures, text):
        env.reset(seed=0)
    assert isinstance(text.render(), str)
    with pytest.raises(InputError, match=r"Pillow, which is not installed .*pip install .*\[render\]'"):
        pictures.render()


@pytest.mark.parametrize(
    ("colour", "ink"),
    [
        *(((0, 0, 0), WHITE), ((0, 0, 255), WHITE), ((120, 0, 120), WHITE)),
        *(((255, 255, 255), INK), ((255, 255, 0), INK), ((170, 220, 255), INK)),
    ],
)
def test_ink_is_white_on_dark_colours_and_dark_on_light_ones(colour, ink):
    assert choose_ink(colour) == ink
