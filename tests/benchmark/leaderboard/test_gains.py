"""What an entry gains over chance, of what the best known schedules gain."""

import shutil

import pytest
import yaml

from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.gains import Chance, compare_with_baseline, read_chance
from clustergym.benchmark.leaderboard.render import pages
from clustergym.benchmark.leaderboard.score import standings


def test_the_share_of_what_chance_leaves(root):
    board = load_board("small", root)
    five, six = board.cells
    chance = Chance({five: 100.0, six: 10.0}, {five: 20.0, six: 4.0})
    # (100 - 40) / (100 - 20) and (10 - 7) / (10 - 4): 0.75 and 0.5.
    found = chance.gained(board, {five: 40.0, six: 7.0})
    assert found == pytest.approx((0.625, 0.5, 0.75))
    assert chance.gained(board, {five: 100.0, six: 10.0}) == (0.0, 0.0, 0.0)
    assert chance.gained(board, chance.best) == (1.0, 1.0, 1.0)
    # Of shares more is better: random meets 20 %, the best known 60 %, the entry 50 %.
    more = Chance({five: 0.2, six: 0.2}, {five: 0.6, six: 0.6})
    assert more.gained(board, {five: 0.5, six: 0.5}) == pytest.approx((0.75, 0.75, 0.75))
    assert Chance(None, chance.best).gained(board, chance.best) is None
    assert Chance(chance.best, chance.best).gained(board, chance.best) is None


def test_the_ratio_is_to_the_baseline_of_the_same_cell(root):
    board = load_board("small", root)
    base = {cell: board.constants(cell).baseline for cell in board.cells}
    halves = {cell: value / 2 for cell, value in base.items()}
    assert compare_with_baseline(board, halves) == pytest.approx((0.5, 0.5, 0.5))


def test_whom_random_play_beats_stands_on_the_page(root):
    board = load_board("small", root)
    assert read_chance(board).random is None
    assert all(one.gained is None for one in standings(board))
    assert "Random play" not in pages(board)[board.folder / "README.md"]
    # srtf under the name of random play: everybody else is beaten by it, and it is no better than itself.
    folder = shutil.copytree(root / "small" / "short", root / "small" / "chance")
    words = yaml.safe_load((folder / "entry.yaml").read_text())
    words["policy"] |= {"name": "random"}
    (folder / "entry.yaml").write_text(yaml.safe_dump(words | {"title": "by chance"}))
    assert "They share rank 1: by chance, " in pages(board)[board.folder / "README.md"]
    shutil.copytree(root / "small" / "short", root / "small" / "known")
    rows = (root / "small" / "known" / "results.csv").read_text().splitlines()
    at = rows[0].split(",").index("jct_mean")
    halved = [row.split(",") for row in rows[1:]]
    for row in halved:
        row[at] = str(float(row[at]) / 2)
    text = "\n".join([rows[0], *(",".join(row) for row in halved)]) + "\n"
    (root / "small" / "known" / "results.csv").write_text(text)
    found = {one.name: one for one in standings(load_board("small", root))}
    assert found["short"].gained == found["chance"].gained == (0.0, 0.0, 0.0)
    assert found["known"].gained == (1.0, 1.0, 1.0)
    assert found["first"].gained is not None
    assert found["first"].gained.high < 0
    readme = pages(load_board("small", root))[board.folder / "README.md"]
    assert "Random play beats, by all of the brackets: " + found["first"].entry.title in readme
    assert "| random play |" in readme
    assert "| best known |" in readme
