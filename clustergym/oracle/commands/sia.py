"""`sia`: step times by two constants per model and GPU type against Sia's measured scalability."""

from __future__ import annotations

import argparse
from pathlib import Path

from clustergym.oracle.commands import common
from clustergym.oracle.commands.figures import as_shares, print_figures

NAME, SUMMARY = "sia", "hold the data-parallel view against the profiles published with Sia"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "folder", metavar="DIR", type=Path, help="a folder per model: placements, scalability"
    )
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the error; return the exit status."""
    from clustergym.oracle.sia_profiles import validate_sia

    common.check_target(options.json, "--json")
    errors = as_shares(validate_sia(options.folder))
    shown = {**errors.pop("overall"), **errors}
    common.write_json(shown, options.json)
    print_figures(f"step times of the data-parallel view, {options.folder}", shown)
    common.print_written(options.json)
    return 0
