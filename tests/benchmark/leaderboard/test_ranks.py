"""Ranks by the paired difference to the best of a rank, on scores made by hand."""

import shutil

import numpy as np
import yaml

from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.score import ranks, standings

HARD = np.arange(8.0) / 4  # Some cells are harder than others, for everybody.


def test_a_clear_difference_is_another_rank_though_intervals_overlap():
    # 0.1 better in every cell: over whatever cells are drawn, the difference is 0.1.
    assert ranks([[HARD + 0.1], [HARD]], "a") == [1, 2]


def test_a_difference_that_is_not_clear_shares_a_rank():
    # Better by 0.6 in five cells, worse by 0.8 in three.
    swing = np.array([0.6, -0.8, 0.6, -0.8, 0.6, 0.6, -0.8, 0.6])
    assert ranks([[HARD + swing], [HARD]], "a") == [1, 1]


def test_equal_scores_share_a_rank_and_the_next_rank_counts_both():
    assert ranks([[HARD], [HARD], [HARD - 1.0], [HARD - 1.0], [HARD - 2.0]], "a") == [1, 1, 3, 3, 5]
    assert ranks([], "a") == []


def test_it_is_the_best_of_a_rank_that_counts_not_the_one_before():
    # Each is not clear of the one before; the third is clear of the first.
    swing = np.array([0.3, -0.3, 0.3, -0.3, 0.3, -0.3, 0.3, -0.3])
    first, second, third = HARD + 0.2, HARD + swing, HARD - 0.2
    assert ranks([[second], [third]], "a") == [1, 1]
    assert ranks([[first], [second]], "a") == [1, 1]
    assert ranks([[first], [second], [third]], "a") == [1, 1, 3]


def test_ranks_over_all_divisions(root):
    # Of three divisions: srtf twice with the best score, then fcfs twice.
    for copy, of, trained in (("peeked", "short", ["test"]), ("again", "first", [])):
        shutil.copytree(root / "small" / of, root / "small" / copy)
        path = root / "small" / copy / "entry.yaml"
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"trained_on": trained}))
    found = {one.name: (one.division, one.rank, one.rank_all) for one in standings(load_board("small", root))}
    assert found == {
        "short": ("clairvoyant, closed", 1, 1),
        "peeked": ("clairvoyant, open", 1, 1),
        "first": ("none, closed", 1, 3),
        "again": ("none, closed", 1, 3),
    }
