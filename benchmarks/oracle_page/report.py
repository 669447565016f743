"""`python -m benchmarks.oracle_page.report`: measure and write the oracle's accuracy page."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.oracle_page.accuracy import measure_figures
from benchmarks.oracle_page.accuracy_page import page
from benchmarks.oracle_page.measured_page import measure_steps
from benchmarks.oracle_page.placements_page import measure_placements
from benchmarks.oracle_page.stack_page import PICTURE, draw_stacks, measure_stacks
from clustergym.commands.oracle import common
from clustergym.common.errors import Parser, exits_on_bad_input
from clustergym.common.paths import data_folder
from clustergym.common.writing import write_json, write_text


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Measure the oracle's errors, and write the accuracy page."""
    summary = "Measure every figure and write the table of ours beside the papers'."
    parser = Parser(prog="python -m benchmarks.oracle_page.report", description=summary)
    output = Path("docs/oracle-accuracy.md")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        default=data_folder(),
        help="with arena/ and sia/ (the public data)",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", default=output, help=f"({output})")
    common.add_json(parser)
    options = parser.parse_args(argv)
    common.check_target(options.json, "--json")
    common.check_target(options.output, "--output")
    shown = dict(measure_figures(options.data, common.tell))
    if (options.data / "modern" / "throughput.csv").exists():
        shown["stacks"] = measure_stacks(options.data, common.tell)
        draw_stacks(options.data, options.output.parent / PICTURE)
    shown["steps"] = measure_steps()
    shown["placements"] = measure_placements(options.data / "morphling", common.tell)
    write_text(options.output, page(shown), "--output")
    write_json(options.json, shown)
    common.print_written(options.output, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
