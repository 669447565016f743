"""`memory`: compares predicted with recorded memory of pure data parallelism."""

from __future__ import annotations

import argparse
from pathlib import Path

from clustergym.commands.oracle import common
from clustergym.commands.oracle.common import print_figures
from clustergym.common.writing import write_json

SUMMARY = "hold data-parallel memory against recorded values"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "csv", metavar="CSV", type=Path, help="with the columns of Arena's arena_dp_memory.csv"
    )
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the error; return the exit status."""
    from clustergym.oracle.calibration.measured_memory import validate_memory

    common.check_target(options.json, "--json")
    shown = validate_memory(options.csv)
    write_json(options.json, shown)
    print_figures(f"memory of pure data parallelism, {options.csv}", shown)
    common.print_written(options.json)
    return 0
