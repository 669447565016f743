"""What users' scripts rely on: every argument of every command, with its values and its default.

`arguments.txt` has a line for each argument: the command, what is typed, what it takes and what it is when it
is left out. A line that changes breaks somebody's script, so it is changed there by hand, and told in the
changelog.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_parsers import WORDS, parser_of

TABLE = Path(__file__).with_name("arguments.txt")


def describe(action: argparse.Action) -> str:
    """Return what an argument takes, and what it is without."""
    typed = "/".join(action.option_strings) or action.dest
    shown = action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar or ())
    number = {None: "one", 0: "no"}.get(action.nargs, str(action.nargs))
    kind = getattr(action.type, "__name__", "str")
    words = [f"{number} value" if action.nargs == 0 else f"{number} {kind}", f"as {action.dest}"]
    words += [f"shown as {shown}"] * bool(shown) + ["required"] * action.required
    words += [f"of {', '.join(map(str, action.choices or ()))}"] * (action.choices is not None)
    words += [f"else {action.default}"] * (action.default not in (None, argparse.SUPPRESS))
    words += ["may be repeated"] * isinstance(action, argparse._AppendAction)
    words += [f"sets {action.const}"] * (action.nargs == 0 and action.const is not None)
    return f"{typed}: {', '.join(words)}"


def lines_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield a line for each argument of a parser and of its sub-commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from lines_of(inner)
        elif not isinstance(action, argparse._HelpAction):
            yield f"{parser.prog} {describe(action)}"
    for group in parser._mutually_exclusive_groups:
        names = " or ".join(action.option_strings[-1] for action in group._group_actions)
        yield f"{parser.prog} takes {names}, {'exactly' if group.required else 'at most'} one"


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_the_arguments_of_a_command(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    known = TABLE.read_text(encoding="utf-8").splitlines()
    found = list(lines_of(parser_of(words, monkeypatch)))
    assert [line for line in found if line not in known] == []
    commands = {command_of(line) for line in found}
    assert [line for line in known if command_of(line) in commands and line not in found] == []


def command_of(line: str) -> str:
    """Return the command of a line of the table."""
    return line.partition(": ")[0].rpartition(" ")[0]
