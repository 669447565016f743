"""`validate`: compares an oracle's iteration times, or throughput, with measured ones."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from clustergym.commands.oracle import common
from clustergym.commands.oracle.common import print_figures
from clustergym.common.errors import InputError
from clustergym.common.writing import write_json
from clustergym.oracle.base import check_choice

SUMMARY = "hold an oracle against measured iteration times"

ORACLES = ("grid", "roofline")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    text = "iteration times with the columns of Arena's arena_profile.csv"
    parser.add_argument("csv", metavar="CSV", type=Path, nargs="?", help=text)
    common.add_throughput(parser)
    text = "with --data: one software stack for all rows (that of each row's source and date)"
    parser.add_argument("--stack", metavar="NAME", help=text)
    text = "with --data: also leave out one model x GPU type x precision at a time, and fit to the rest"
    parser.add_argument("--cross-validate", action="store_true", help=text)
    text = "with --data: draw predicted against measured (.svg, .png, .pdf)"
    parser.add_argument("--plot", type=Path, metavar="FILE", help=text)
    parser.add_argument("--oracle", metavar="|".join(ORACLES), default=ORACLES[0], help="which one (grid)")
    common.add_calibration(parser)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print errors in all and by family, device and GPU count; return the exit status."""
    if (options.csv is None) == (options.data is None):
        raise InputError("give either CSV or --data", remedy="as in `validate --data modern`")
    if options.data is not None:
        return _validate_throughput(options)
    for option in ("stack", "plot"):
        if getattr(options, option) is not None:
            raise InputError("is for --data", field=f"--{option}", remedy="leave it out")
    from clustergym.oracle.calibration.validation import validate
    from clustergym.oracle.grid.grid_oracle import GridOracle
    from clustergym.oracle.models.catalog import load_catalog
    from clustergym.oracle.roofline.roofline_oracle import RooflineOracle

    check_choice(options.oracle, ORACLES, "--oracle")
    common.check_target(options.json, "--json")
    if options.calibration is not None and options.oracle != "grid":
        message = f"the {options.oracle} oracle has no constants"
        raise InputError(message, field="--calibration", remedy="leave it out, or say --oracle grid")
    catalog = load_catalog(extra=options.models)
    grid = options.oracle == "grid"
    oracle = GridOracle(catalog, options.calibration) if grid else RooflineOracle(catalog)
    shown = validate(options.csv, oracle)
    write_json(options.json, shown)
    print_figures(f"oracle {options.oracle} against {options.csv}", shown)
    common.print_written(options.json)
    return 0


def _validate_throughput(options: argparse.Namespace) -> int:
    from clustergym.common.figures import check_figure
    from clustergym.oracle.stacks.validation import (
        cross_validate,
        draw,
        errors_without_parts,
        figures,
        predict_rows,
    )

    if options.oracle != ORACLES[0] or options.calibration is not None or options.models is not None:
        message = "--oracle, --calibration and --models are of iteration times"
        raise InputError(message, remedy="leave them out with --data")
    common.check_target(options.json, "--json")
    common.check_target(options.plot, "--plot")
    check_figure(options.plot, "--plot")
    rows = common.throughput_rows(options)
    predictions = predict_rows(rows, options.stack)
    shown = figures(rows, predictions)
    shown["without_a_part"] = errors_without_parts(rows)
    if options.cross_validate:
        with common.telling() as tell:
            shown["left_out"] = cross_validate(rows, tell)
    write_json(options.json, {"rows": predictions, **shown})
    if options.plot is not None:
        draw(options.plot, rows, predictions)
    print_figures(f"software stacks against {options.data}", shown)
    _print_unknown(predictions)
    common.print_written(options.plot, options.json)
    return 0


def _print_unknown(predictions: list[dict[str, Any]]) -> None:
    missing = [f"{row['id']} {row['reason']}" for row in predictions if row["predicted"] is None]
    if missing:
        print(
            f"\n{len(missing)} rows have no prediction: {'; '.join(missing[:8])}{' …' * (len(missing) > 8)}"
        )
