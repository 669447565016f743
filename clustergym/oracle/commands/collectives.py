"""`collectives`: predicted against measured latencies, and fitting the constants anew."""

from __future__ import annotations

import argparse
from pathlib import Path

from clustergym.oracle.commands import common
from clustergym.oracle.commands.figures import all_first, as_shares, print_figures

NAME, SUMMARY = "collectives", "hold collectives against a table of measured latencies, or fit them to it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("csv", metavar="CSV", type=Path, help="with the columns of Arena's arena_comm.csv")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="fit, and write the constants here")
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print errors by hardware; return the exit status."""
    from clustergym.oracle.communication.fit import fit_table, write_constants
    from clustergym.oracle.communication.measured import read_collectives
    from clustergym.oracle.communication.validate import validate_collectives

    common.check_target(options.json, "--json")
    common.check_target(options.output, "--output")
    fitted = None if options.output is None else fit_table(table := read_collectives(options.csv))
    by_hardware = as_shares(validate_collectives(options.csv, fitted))
    shown = all_first(by_hardware, "all", "by_hardware")
    if fitted is not None:
        with common.writes(options.output, "--output"):
            write_constants(fitted, options.output, options.csv.name, table.rows)
    common.write_json(shown, options.json)
    print_figures(f"all-reduce and all-gather over 1 MB, median error, {options.csv}", shown)
    common.print_written(options.output, options.json)
    return 0
