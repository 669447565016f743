"""The index of commands, and the help of each, to stand below what docs/commands/ says of it."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
SUBCOMMANDS = re.compile(r"^  COMMAND\n((?: {4}.*\n?)+)", re.MULTILINE)
INDEX = """\
# Commands

All run as `clustergym COMMAND`, or as `python -m clustergym.COMMAND`; `--help` tells what each takes.
`run`, `train` and `evaluate` take `KEY=VALUE` for any key of their configuration, the others options.

| command | what it does |
| --- | --- |
{rows}

The exit status is 0 if all went well, 2 for bad input, with one line on stderr that names the file, the
key and what to do about it, and 130 if it was interrupted. Where 1 or 2 mean more, the page of the
command says so. A file is written whole or not at all.
"""


def command_index() -> str:
    """Return the page that lists the commands."""
    from clustergym.__main__ import list_commands

    rows = [f"| [`{name}`](commands/{name}.md) | {summary} |" for name, summary in list_commands().items()]
    return INDEX.format(rows="\n".join(rows))


def help_section(command: str) -> str:
    """Return the section that has the help of a command and of its subcommands."""
    whole = help_of([command])
    parts = ["## Help", f"```text\n{whole}\n```"]
    for name in subcommands(whole):
        parts += [f"### {command} {name}", f"```text\n{help_of([command, name])}\n```"]
    return "\n\n".join(parts) + "\n"


def subcommands(text: str) -> list[str]:
    """Return the subcommands that a help lists."""
    found = SUBCOMMANDS.search(text)
    return re.findall(r"^ {4}([a-z]\S*)", found[1], re.MULTILINE) if found else []


def help_of(words: list[str]) -> str:
    """Return what `clustergym WORDS --help` prints, 100 columns wide."""
    from clustergym.__main__ import find_command

    module = importlib.import_module(str(find_command(words[0])))
    shown, columns = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    try:
        with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
            module.main([*words[1:], "--help"])
    finally:
        if columns is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = columns
    return shown.getvalue().strip().replace(str(ROOT), ".")
