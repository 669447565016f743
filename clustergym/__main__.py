"""The command line `clustergym COMMAND …`, which lists and runs every command."""

from __future__ import annotations

import importlib
import sys
from importlib import metadata

from clustergym.common.errors import InputError, exits_on_bad_input, nearest

COMMANDS = {
    "run": "run a policy on a scenario and compare it with a reference policy",
    "train": "train an agent and write its checkpoint",
    "evaluate": "compare policies and checkpoints on the windows of a split",
    "bound": "prove what no schedule of a scenario can beat",
    "replay": "rebuild a result from its decision log and compare digests",
    "leaderboard": "fill, print and check the tables of boards",
    "study": "run scenarios x policies x seeds of a file; write tables and plots",
    "tune": "search for the values of keys that better a metric",
    "offline": "write episodes of an environment for offline learning",
    "collect": "tabulate the results under one or more folders",
    "report": "draw the results under one or more folders in one page",
    "trace": "import, validate, describe, generate or slice traces",
    "cluster": "describe or draw a cluster",
    "oracle": "explain, fit and validate the performance oracle",
}
"""The core's commands, which are modules of `clustergym.commands`, and what each does."""


def client_commands() -> dict[str, str]:
    """Return the module of each command of a client, such as `papers/`, by the command's name.

    A client names its commands in entry points; the docstring of a module is "`CALL`: what it does."
    """
    return {point.name: point.value for point in sorted(metadata.entry_points(group="clustergym.commands"))}


def find_command(name: str) -> str | None:
    """Return the module of a command; None if there is none of that name."""
    return f"clustergym.commands.{name}" if name in COMMANDS else client_commands().get(name)


def list_commands() -> dict[str, str]:
    """Return what each command does, by its name."""
    docs = {name: str(importlib.import_module(one).__doc__) for name, one in client_commands().items()}
    return COMMANDS | {
        name: doc.splitlines()[0].partition("`: ")[2].rstrip(".") for name, doc in docs.items()
    }


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command that `argv` (default: `sys.argv[1:]`) names; return its exit status."""
    given = sys.argv[1:] if argv is None else argv
    if not given or given[0] in ("-h", "--help"):
        told = {name: str(importlib.import_module(one).__doc__) for name, one in client_commands().items()}
        clients = {
            name: text.partition("`: ")[2].partition(".\n")[0].rstrip(".") for name, text in told.items()
        }
        print("usage: clustergym COMMAND …\n")
        for name, summary in (COMMANDS | clients).items():
            print(f"  {name:<12}{summary}")
        print("\n`clustergym COMMAND --help` tells more; `python -m clustergym.COMMAND` is the same.")
        return 0
    if given[0] in ("-V", "--version"):
        print(f"clustergym {importlib.import_module('clustergym').__version__}")
        return 0
    module = find_command(given[0])
    if module is None:
        names = [*COMMANDS, *client_commands()]
        raise InputError(f"unknown command {given[0]!r}", remedy=nearest(given[0], names))
    status: int = importlib.import_module(module).main(given[1:])
    return status


if __name__ == "__main__":
    sys.exit(main())
