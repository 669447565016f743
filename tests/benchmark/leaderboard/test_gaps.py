"""The gap of an entry to the optimum."""

import json

import pytest
from error_lines import error_line

from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.entry import read_results
from clustergym.benchmark.leaderboard.render import pages
from clustergym.benchmark.leaderboard.score import Gap, Optimum, cell_bounds, gap_text, optimum, standings
from clustergym.commands.leaderboard import main


def with_means(board, name, values):
    """Return an entry's rows with other values of the board's metric."""
    rows = read_results(board.folder / name)
    return [
        row._replace(metrics=row.metrics | {board.metric: value})
        for row, value in zip(rows, values, strict=True)
    ]


def test_a_gap_is_a_share_of_the_optimum(root):
    board = load_board("small", root)
    # A mean of 120 s, where 100 s are known to be possible and less than 80 s are not.
    rows = with_means(board, "first", [90.0, 150.0])
    assert Optimum(100.0, 80.0).gap(board, rows) == pytest.approx((0.2, 0.5))
    assert Optimum(100.0, None).gap(board, rows) == (pytest.approx(0.2), None)
    assert gap_text(Gap(0.2, 0.5)) == "20.0 to 50.0 %"
    assert gap_text(Gap(0.2, None)) == "20.0 % or more"
    # Of deadlines more is better: 60 % are met, 80 % are known to be possible, and more than 90 % are not.
    shares = board.with_keys(metric="deadline_satisfaction", better="higher")
    rows = with_means(shares, "first", [0.5, 0.7])
    assert Optimum(0.8, 0.9).gap(shares, rows) == pytest.approx((0.25, 1 / 3), abs=1e-6)


def test_the_best_known_is_the_best_of_all_entries_in_each_cell(root):
    board = load_board("small", root)
    values = [
        [row.metrics["jct_mean"] for row in read_results(board.folder / name)] for name in ("first", "short")
    ]
    assert optimum(board).known == pytest.approx(sum(map(min, zip(*values, strict=True))) / 2)
    best = min(standings(board), key=lambda one: one.raw["jct_mean"])
    assert optimum(board).gap(board, best.rows).least == 0.0


def test_bounds_are_those_of_the_file_or_frozen_with_the_board(root):
    board = load_board("small", root)
    five, six = board.cells
    frozen = {cell: board.constants(cell).jct_bound for cell in board.cells}
    assert cell_bounds(board) == frozen
    path = board.folder / "bounds.json"
    mine = {"metric": "jct_mean", "bound": 300.0, "method": "prices", "scenario": "0" * 64}
    mine |= {"refinements": [], "edges_s": [0.0, 1.0], "price": [[1.0]]}
    path.write_text(json.dumps({"philly-5": mine, "philly-6": mine | {"metric": "ftf_mean"}}))
    assert cell_bounds(board) == {five: 300.0, six: frozen[six]}
    # Of other metrics, or where jobs may be dropped, the bound of the mean JCT says nothing.
    assert cell_bounds(board.with_keys(drops=True)) == {five: 300.0}
    assert cell_bounds(board.with_keys(metric="ftf_mean")) == {six: 300.0}
    assert optimum(board.with_keys(metric="ftf_mean")).bound is None
    readme = pages(board)[board.folder / "README.md"]
    assert "| gap to optimum |" in readme
    assert "| 0.0 to " in readme


@pytest.mark.parametrize("content", ["{", '{"philly-5": {"metric": "jct_mean"}}', '{"philly-5": 3}'])
def test_malformed_bounds_are_one_line(root, capsys, content):
    (root / "small" / "bounds.json").write_text(content)
    assert main(["--root", str(root), "render", "small"]) == 2
    assert "bounds.json" in error_line(capsys)
