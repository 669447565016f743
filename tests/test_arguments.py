"""Every command that reads its arguments by argparse complains in one line and says where help is."""

from __future__ import annotations

import importlib

import pytest

COMMANDS = (
    *("bench", "collect", "reproduce", "replay", "trace", "report.__main__", "cluster.__main__"),
    *("leaderboard.__main__", "oracle.__main__", "learn.play", "learn.plot", "workload.committed"),
)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option_is_one_line(name, capsys):
    assert importlib.import_module(f"clustergym.{name}").main(["--no-such-option"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    assert printed.count("\n") == 1
    assert "clustergym" in printed
    assert "--help" in printed
