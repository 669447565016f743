"""Every command that reads its arguments by argparse complains in one line and says where help is."""

from __future__ import annotations

import contextlib
from importlib import import_module

import pytest
from error_lines import error_line

from clustergym.__main__ import COMMANDS as CONSOLE
from clustergym.__main__ import main as console

COMMANDS = (
    *("commands.bench", "commands.collect", "commands.reproduce", "commands.replay", "commands.trace"),
    *("commands.report", "commands.cluster", "commands.leaderboard", "commands.oracle"),
)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option_is_one_line(name, capsys):
    assert import_module(f"clustergym.{name}").main(["--no-such-option"]) == 2
    printed = error_line(capsys)
    assert "clustergym" in printed
    assert "--help" in printed


@pytest.mark.parametrize("name", CONSOLE)
def test_help_has_one_program_name(name, capsys):
    """`clustergym COMMAND` and `python -m clustergym.COMMAND` show the same help, of the former."""
    shown = []
    for call in (lambda: console([name, "--help"]), lambda: import_module(CONSOLE[name][0]).main(["--help"])):
        with contextlib.suppress(SystemExit):
            call()
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert shown[0].startswith(f"usage: clustergym {name} ")
    assert "python -m clustergym" not in shown[0]
    assert "__main__" not in shown[0]
