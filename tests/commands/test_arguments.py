"""Every command that reads its arguments by argparse complains in one line and says where help is."""

import argparse
import contextlib
from collections.abc import Iterator
from importlib import import_module

import pytest
from command_parsers import WORDS, parser_of
from error_lines import error_line

import clustergym
from clustergym.__main__ import COMMANDS as CONSOLE
from clustergym.__main__ import client_commands, find_command
from clustergym.__main__ import main as console

COMMANDS = (
    *("bench.command", "commands.collect", "papers.reproduce", "commands.replay", "commands.trace"),
    *("commands.report", "commands.cluster", "commands.leaderboard", "commands.oracle"),
)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option_is_one_line(name, capsys):
    assert import_module(f"clustergym.{name}").main(["--no-such-option"]) == 2
    printed = error_line(capsys)
    assert "clustergym" in printed
    assert "--help" in printed


@pytest.mark.parametrize("option", ["--price", "--days", "--resamples"])
def test_a_word_for_a_number_is_one_line(option, capsys):
    assert import_module("clustergym.operators.commands.twin").main(["whatif", "folder", option, "much"]) == 2
    assert f"argument {option}: invalid " in error_line(capsys)


@pytest.mark.parametrize("name", [*CONSOLE, *client_commands()])
def test_help_has_one_program_name(name, capsys):
    """`clustergym COMMAND` and `python -m clustergym.COMMAND` show the same help, of the former."""
    shown = []
    for call in (
        lambda: console([name, "--help"]),
        lambda: import_module(find_command(name)).main(["--help"]),
    ):
        with contextlib.suppress(SystemExit):
            call()
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert shown[0].startswith(f"usage: clustergym {name} ")
    assert "python -m clustergym" not in shown[0]
    assert "__main__" not in shown[0]


def list_arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """Yield the arguments of a parser and of its sub-commands, each with the words in front of it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from list_arguments(inner)
        else:
            yield parser.prog, action


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_every_argument_says_what_it_is(words, monkeypatch):
    """But those of commands that read KEY=VALUE alone."""
    arguments = list(list_arguments(parser_of(words, monkeypatch)))
    assert len(arguments) > 1
    assert [
        (prog, action.option_strings or action.dest) for prog, action in arguments if not action.help
    ] == []


def test_an_unknown_command_names_the_nearest(capsys):
    assert console(["rnu"]) == 2
    assert error_line(capsys) == "error: unknown command 'rnu' (did you mean run or train?)\n"


def test_the_commands_are_told_and_the_version(capsys):
    for words in ([], ["-h"], ["--help", "run"]):
        assert console(words) == 0
        assert "\n  run         " in capsys.readouterr().out
    for words in (["-V"], ["--version", "run"]):
        assert console(words) == 0
        assert capsys.readouterr().out == f"clustergym {clustergym.__version__}\n"
