"""Boards: what is read of one, and that those of the repository are whole, small and as their pages say."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from boards import small_board, write_board
from error_lines import error_line

from clustergym.benchmark.leaderboard.board import BoardScenario, board_names, boards_dir, load_board
from clustergym.benchmark.leaderboard.cells import BOUND, load_table
from clustergym.benchmark.leaderboard.entries import is_published
from clustergym.benchmark.leaderboard.fill import load_fresh_table
from clustergym.benchmark.leaderboard.table_text import render_table
from clustergym.commands.leaderboard import main
from clustergym.common.errors import InputError
from clustergym.scenario.by_name import compose


@pytest.mark.parametrize("words", [["check", "fair"], ["check"], ["render"], ["table", "fair"]])
def test_without_any_board_it_says_where_they_are_expected(words, tmp_path, monkeypatch, capsys):
    # An installed package has no boards beside it.
    monkeypatch.setattr("clustergym.benchmark.leaderboard.board.PACKAGE", tmp_path / "clustergym")
    assert main(words) == 2
    remedy = "boards are in a checkout: `clustergym leaderboard --root CHECKOUT/leaderboards …`"
    assert capsys.readouterr().err == f"error: {tmp_path / 'leaderboards'}: holds no board ({remedy})\n"


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "another name": ({"name": "other"}, "name: 'other' is not its folder's"),
    "an unknown metric": ({"metric": "jct_meen"}, "metric: unknown metric 'jct_meen'"),
    "a scenario twice": ({"scenarios": small_board()["scenarios"] * 2}, "scenarios: names one twice"),
    "an interpolation": ({"placer": {"name": "${oc.env:HOME}"}}, "placer: '${oc.env:HOME}' is an interpol"),
    "a further key": ({"seeds": [5]}, "seeds"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_board_is_one_line(name, tmp_path, capsys):
    changes, expected = BAD[name]
    write_board(tmp_path)
    (tmp_path / "small/board.yaml").write_text(yaml.safe_dump(small_board() | changes))
    assert main(["--root", str(tmp_path), "table", "small"]) == 2
    assert expected in error_line(capsys)


def test_bad_words_are_one_line(tmp_path, capsys):
    write_board(tmp_path)
    for words, expected in (
        (["check", "--rows", "0"], "--rows: 0 rows"),
        (["check", "--workers", "0"], "--workers: 0 processes (give at least 1, or ray)"),
        (["fill", "small", "--hours", "0"], "--hours: 0.0 hours"),
        (["fill", "small", "--policy", "frtf"], "--policy: unknown policy 'frtf' (did you mean srtf"),
        (["seal", "small", "fcfs"], "'fcfs' is no learned or tuned policy of small"),
    ):
        assert main(["--root", str(tmp_path), *words]) == 2
        assert expected in error_line(capsys)


def test_a_table_has_the_metric_of_its_board(tmp_path):
    with pytest.raises(InputError, match="metrics: unknown name 'jct_mean'"):
        write_board(tmp_path, metrics=["ftf_mean"])


@pytest.mark.parametrize("name", board_names())
def test_a_committed_board_names_what_there_is(name):
    table = load_table(load_board(name))
    for row in table.keys.policies:
        if row != BOUND:
            policy, placer = table.contestants(row)
            assert is_published("policy", policy.name)
            assert is_published("placer", placer.name)
            assert table.policies[row].rules != "entered"
    for scenario in table.board.scenarios:
        compose([*scenario.overrides])
        for condition in table.keys.conditions:
            compose([*scenario.overrides, *table.keys.conditions[condition].overrides])
    assert table.keys.least >= 12


@pytest.mark.parametrize("name", board_names())
def test_committed_pages_are_what_render_writes(name):
    table = load_fresh_table(load_board(name))
    assert (table.board.folder / "README.md").read_text(encoding="utf-8") == render_table(table)


def test_the_boards_are_small():
    files = [path for path in boards_dir().rglob("*") if path.is_file()]
    assert len(files) <= 800
    assert sum(path.stat().st_size for path in files) <= 15_000_000


def test_the_file_of_a_group_is_the_chosen_one_or_the_scenarios_own():
    own = BoardScenario(name="a", overrides=["scenario=testbed", "trace=pai-like"])
    assert own.find_chosen_file("trace") == "pai-like"
    assert own.find_chosen_file("oracle") == "roofline"
