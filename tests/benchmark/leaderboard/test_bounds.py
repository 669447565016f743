"""Bounds of a board's cells: found, proved anew by the check, and shown."""

import json
import shutil

import pytest
from boards import found, frozen, small_board

from clustergym.benchmark.leaderboard.add import add
from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.bounds import FILE, read_bounds
from clustergym.benchmark.leaderboard.entry import entry_names, read_results
from clustergym.benchmark.leaderboard.score import cell_bounds
from clustergym.commands.leaderboard import main
from clustergym.common.errors import InputError


@pytest.fixture(scope="module")
def bounded_once(tmp_path_factory):
    root = tmp_path_factory.mktemp("bounds")
    add(frozen(root, small_board((5, 6), jobs=18)), "first", {"name": "fcfs"})
    assert main(["--root", str(root), "bound", "small", "--workers", "1"]) == 0
    return root


@pytest.fixture
def bounded(bounded_once, tmp_path):
    """A copy of the board with bounds that a test may change."""
    return shutil.copytree(bounded_once, tmp_path / "bounded")


def change(root, cell, **values):
    path = root / "small" / FILE
    content = json.loads(path.read_text())
    content[cell] |= values
    path.write_text(json.dumps(content))


def test_bounds_are_proved_and_shown(bounded):
    board = load_board("small", bounded)
    bounds = read_bounds(board.folder)
    assert list(bounds) == [str(cell) for cell in board.cells]
    for name in entry_names(board):
        assert found(bounded, name) == []
        for row in read_results(board.folder / name):
            assert board.constants(row.cell).jct_bound < bounds[str(row.cell)].bound < row.metrics["jct_mean"]
    assert cell_bounds(board) == {cell: bounds[str(cell)].bound for cell in board.cells}


def test_only_missing_bounds_are_searched_for(bounded):
    board = load_board("small", bounded)
    before = (board.folder / FILE).read_bytes()
    content = json.loads(before)
    gone = str(board.cells[0])
    (board.folder / FILE).write_text(json.dumps({cell: one for cell, one in content.items() if cell != gone}))
    assert main(["--root", str(bounded), "bound", "small", "--workers", "1"]) == 0
    assert (board.folder / FILE).read_bytes() == before


def test_a_bound_that_its_prices_do_not_prove_is_flagged(bounded):
    board = load_board("small", bounded)
    cell = str(board.cells[0])
    bound = read_bounds(board.folder)[cell].bound
    name = entry_names(board)[0]
    for values, message in (
        ({"bound": bound + 1}, "proves"),
        ({"price": [[-1.0] * len(row) for row in read_bounds(board.folder)[cell].price]}, "not below 0"),
        ({"metric": "ftf_mean", "bound": 0.1}, "another metric"),
    ):
        before = (board.folder / FILE).read_bytes()
        change(bounded, cell, **values)
        assert [message in str(flag) for flag in found(bounded, name) if flag.where == cell] == [True]
        (board.folder / FILE).write_bytes(before)


def test_a_malformed_file_is_one_line(bounded):
    change(bounded, str(load_board("small", bounded).cells[0]), bound="low")
    with pytest.raises(InputError, match=r"bounds\.json"):
        read_bounds(bounded / "small")
    assert read_bounds(bounded) == {}
