"""`report`: measures the figures of the accuracy page and writes it."""

from __future__ import annotations

import argparse
from pathlib import Path

from clustergym.commands.oracle import common
from clustergym.common.writing import write_json, write_text

SUMMARY = "measure every figure and write the table of ours beside the papers'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `clustergym oracle report` to a parser."""
    data, output = Path("../shared/data"), Path("docs/oracle-accuracy.md")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", default=data, help=f"with arena/ and sia/ ({data})"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", default=output, help=f"({output})")
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run `clustergym oracle report`: measure the oracle's errors, and write the accuracy page."""
    from clustergym.commands.oracle.accuracy_page import page
    from clustergym.commands.oracle.measured_page import measure_steps
    from clustergym.commands.oracle.placements_page import measure_placements
    from clustergym.commands.oracle.stack_page import PICTURE, draw_stacks, measure_stacks
    from clustergym.oracle.calibration.accuracy import measure_figures

    common.check_target(options.json, "--json")
    common.check_target(options.output, "--output")
    with common.telling() as tell:
        shown = dict(measure_figures(options.data, tell))
        throughput = options.data / "modern" / "throughput.csv"
        if throughput.exists():
            shown["stacks"] = measure_stacks(throughput, tell)
            draw_stacks(options.data, options.output.parent / PICTURE)
        shown["steps"] = measure_steps()
        shown["placements"] = measure_placements(options.data / "morphling", tell)
    write_text(options.output, page(shown), "--output")
    write_json(options.json, shown)
    common.print_written(options.output, options.json)
    return 0
