"""The parsers that commands make."""

import argparse
from importlib import import_module

import pytest

from clustergym.__main__ import COMMANDS, client_commands, find_command
from clustergym.commands.trace import DELEGATED

WORDS = (
    *([name] for name in [*COMMANDS, *client_commands()] if name not in ("run", "live", "train", "evaluate")),
    *(["trace", name] for name in DELEGATED),
    ["evaluate", "--policy-file"],
)
"""Words that lead to each parser; the other commands read KEY=VALUE alone."""


class ParsedError(Exception):
    """Ends a command once it has made its parser."""


def parser_of(words: list[str], monkeypatch: pytest.MonkeyPatch) -> argparse.ArgumentParser:
    """Return the parser that a command makes for some words."""
    made: list[argparse.ArgumentParser] = []

    def parse_args(parser: argparse.ArgumentParser, *_: object) -> None:
        made.append(parser)
        raise ParsedError

    for name in ("parse_args", "parse_known_args", "parse_intermixed_args"):
        monkeypatch.setattr(argparse.ArgumentParser, name, parse_args)
    with pytest.raises(ParsedError):
        import_module(find_command(words[0])).main([*words[1:], "--help"])
    return made[0]
