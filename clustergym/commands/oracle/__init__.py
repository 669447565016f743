"""`clustergym oracle COMMAND …`: explain, fit and validate the oracle."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from clustergym.commands.oracle.common import StrictParser
from clustergym.common.errors import exits_on_bad_input

COMMANDS = ("explain", "validate", "fit")
"""Modules of `clustergym.commands.oracle`."""


def _parser(modules: dict[str, ModuleType]) -> StrictParser:
    parser = StrictParser(prog="clustergym oracle", description="Ask the performance oracle.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in modules.items():
        text = module.SUMMARY
        module.add_arguments(
            commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        )
    return parser


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run a sub-command of `clustergym oracle`; return the exit status."""
    modules = {name: importlib.import_module(f"clustergym.commands.oracle.{name}") for name in COMMANDS}
    options = _parser(modules).parse_args(argv)
    status: int = modules[options.command].run(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
