"""`clustergym trace import|validate|describe|generate|slice`: read, check and write traces."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from clustergym.commands.trace.convert import import_trace, slice_trace, validate_traces
from clustergym.common.errors import InputError, Parser, exits_on_bad_input, nearest
from clustergym.trace.describe import add_log_arguments
from clustergym.trace.formats import COLUMNS_HELP

DELEGATED = {
    "describe": (
        "clustergym.trace.describe",
        "print counts, span, percentiles, burstiness and offered load",
    ),
    "generate": (
        "clustergym.commands.trace.generate",
        "write a synthetic trace like one of the published ones",
    ),
}
"""Commands of other modules, which are imported when they are asked for."""


def _read_arguments(parser: argparse.ArgumentParser) -> None:
    add_log_arguments(parser)
    add = parser.add_argument
    add("--reference-gpu", default="A100", help="GPU type that jobs of any type are timed on")
    add("--reference-cluster", default="arena-sim", help="cluster of the reference times")
    add("--gpu-types", metavar="A,B", help="draw requests among these GPU types; any: leave them open")
    add("--gavel-steps", default="job", help="whose steps and batch a Gavel trace has: job or worker")


def _write_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OUT.csv", help="trace to write")
    parser.add_argument("--force", action="store_true", help="overwrite OUT.csv")


def _parser(command: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog="clustergym trace",
        description="Read, check and write traces.",
        epilog=COLUMNS_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    imported = commands.add_parser("import", help="write a trace of any format in the native one")
    imported.add_argument("source", type=Path, metavar="SRC", help="trace or log to read")
    validate = commands.add_parser("validate", help="check traces of any format")
    validate.add_argument("files", type=Path, nargs="+", metavar="FILE", help="trace to check")
    sliced = commands.add_parser("slice", help="write a part of a trace")
    sliced.add_argument("source", type=Path, metavar="FILE", help="trace to read")
    _slice_arguments(sliced)
    for subparser in (imported, validate, sliced):
        _read_arguments(subparser)
        subparser.add_argument(
            "--json", type=Path, metavar="FILE", help="write the printed figures, unrounded"
        )
    for subparser in (imported, sliced):
        _write_arguments(subparser)
    add = imported.add_argument
    add("--timezone", metavar="NAME", help="of times that name none, in sacct's table (default: as they are)")
    words = "replace users by a hash of them and TEXT, in sacct's table"
    add("--hash-users", metavar="TEXT", help=words)
    words = "what scontrol show node prints: GPU types of jobs that name none, by partition"
    add("--nodes", type=Path, metavar="FILE", help=words)
    for name, (_, summary) in DELEGATED.items():
        delegated = commands.add_parser(name, help=summary)
        if name == command:
            _module(name).add_arguments(delegated)
    return parser


def _slice_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--start-s", type=float, help="first submission to keep, seconds")
    parser.add_argument("--end-s", type=float, help="submissions from here on go, seconds")
    parser.add_argument(
        "--skip", type=int, default=0, metavar="N", help="leave out the first N jobs (of those)"
    )
    parser.add_argument("--first", type=int, metavar="N", help="keep N jobs at most")
    parser.add_argument("--rebase", action="store_true", help="start the clock at the first submission kept")


def _module(name: str) -> Any:
    return importlib.import_module(DELEGATED[name][0])


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "import": import_trace,
    "validate": validate_traces,
    "slice": slice_trace,
}


def _check_command(given: Sequence[str]) -> None:
    names = [*_COMMANDS, *DELEGATED]
    if not given:
        raise InputError("no command given", remedy=f"give one of {', '.join(names)}")
    if given[0] not in names and not given[0].startswith("-"):
        raise InputError(f"unknown command {given[0]!r}", remedy=nearest(given[0], names))


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run a sub-command of `clustergym trace`; return the exit status."""
    given = sys.argv[1:] if argv is None else argv
    _check_command(given)
    args = _parser(given[0]).parse_args(given)
    if args.command in DELEGATED:
        status: int = _module(args.command).run(args)
        return status
    return _COMMANDS[args.command](args)


if __name__ == "__main__":
    sys.exit(main())
