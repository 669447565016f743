"""Figures of entries under a board's other conditions: measured, shown, and checked."""

from __future__ import annotations

import pytest
from boards import found, frozen, kinds, small_board

from clustergym.benchmark.leaderboard.add import add
from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.cell_replay import FlagReason
from clustergym.benchmark.leaderboard.conditions import FILE, list_points, read_conditions
from clustergym.benchmark.leaderboard.entry import read_results
from clustergym.benchmark.leaderboard.render import pages
from clustergym.benchmark.leaderboard.score import standings
from clustergym.commands.leaderboard import main
from clustergym.common.errors import InputError

CONDITIONS = {
    "common clock": ["scenario.rounds=event", "scenario.apart_s=60"],
    "free profiles": ["costs=profiled-free"],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("conditions")
    board = frozen(root, small_board((5, 6)) | {"conditions": CONDITIONS})
    add(board, "first", {"name": "fcfs"}, title="First come")
    add(board, "dear", {"name": "ares", "alpha": 0.75}, title="Ares")
    return root


def values(root, name, condition):
    board = load_board("small", root)
    read = read_conditions(board, board.folder / name)
    assert list(read) == list_points(board)
    usual = {row.cell: row.metrics["jct_mean"] for row in read_results(board.folder / name)}
    return [(usual[at.cell], value) for at, value in read.items() if at.condition == condition]


def test_who_pays_nothing_has_the_same_figure_where_profiles_are_free(root):
    assert all(free == usual for usual, free in values(root, "first", "free profiles"))
    assert all(free < usual for usual, free in values(root, "dear", "free profiles"))
    # Ares decides each minute, and first come, first served at every event.
    assert any(clock != usual for usual, clock in values(root, "dear", "common clock"))


def test_figures_stand_on_the_page_over_the_same_baseline(root):
    board = load_board("small", root)
    by_name = {one.name: one for one in standings(board)}
    first = by_name["first"].conditions["free profiles"]
    assert first is not None
    assert first.value == 1.0
    readme = pages(board)[board.folder / "README.md"]
    assert "| common clock | free profiles |" in readme
    assert "*Free profiles*: the same of a run with `costs=profiled-free`, over that baseline." in readme


def test_a_check_flags_missing_and_false_figures(root):
    path = load_board("small", root).folder / "dear" / FILE
    text = path.read_text()
    assert found(root, "dear") == []
    assert main(["--root", str(root), "check", "small", "dear", "--strict", "2"]) == 0
    lines = text.splitlines()
    head, _, value = lines[-1].rpartition(",")
    path.write_text("\n".join([*lines[:-1], f"{head},{float(value) / 2}"]) + "\n")
    # Without --strict they are the entry's word.
    assert found(root, "dear") == []
    assert main(["--root", str(root), "check", "small", "dear", "--strict", "2"]) == 2
    path.write_text("\n".join(lines[:-1]) + "\n")
    assert kinds(root, "dear") == {FlagReason.CONDITIONS}
    for wrong in (f"{lines[-1]}\n{lines[-1]}", lines[-1].replace("free profiles", "other"), f"{head},nan"):
        path.write_text("\n".join([*lines[:-1], wrong]) + "\n")
        with pytest.raises(InputError, match="is no condition, cell and figure"):
            read_conditions(load_board("small", root), path.parent)
    path.write_text(text)


def test_a_run_that_was_stopped_is_no_figure(root):
    path = load_board("small", root).folder / "dear" / FILE
    text = path.read_text()
    head, _, _ = text.rstrip().rpartition(",")
    path.write_text(f"{head},stopped\n")
    assert main(["--root", str(root), "check", "small", "dear", "--strict", "2"]) == 0
    board = load_board("small", root)
    by_name = {one.name: one for one in standings(board)}
    assert by_name["dear"].conditions["free profiles"] is None
    assert by_name["dear"].conditions["common clock"] is not None
    # Nothing is missing, so nothing is measured, and the file stays as it is.
    add(board, "dear", {"name": "ares", "alpha": 0.75}, title="Ares")
    assert path.read_text() == f"{head},stopped\n"
    path.write_text(text)


def test_what_an_entry_says_by_hand_stays_when_it_is_added_again(root):
    board = load_board("small", root)
    path = board.folder / "dear" / "entry.yaml"
    text = path.read_text()
    by_hand = text.replace("search_budget: none", "search_budget: 12 settings by hand")
    path.write_text(by_hand)
    add(board, "dear", {"name": "ares", "alpha": 0.75})
    assert path.read_text() == by_hand != text
    add(board, "dear", {"name": "ares", "alpha": 0.75}, title="Ares, again")
    assert path.read_text() == by_hand.replace("title: Ares\n", "title: Ares, again\n")
    assert (board.folder / "dear" / "README.md").read_text().startswith("# Ares, again\n")
    add(board, "dear", {"name": "ares", "alpha": 0.75}, title="Ares")
    path.write_text(text)
