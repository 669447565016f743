"""`validate`: compares an oracle's iteration times with measured ones."""

from __future__ import annotations

import argparse
from pathlib import Path

from clustergym.commands.oracle import common
from clustergym.commands.oracle.validation_tables import print_figures
from clustergym.common.errors import InputError
from clustergym.common.writing import write_json
from clustergym.oracle.base import check_choice

SUMMARY = "hold an oracle against measured iteration times"

ORACLES = ("grid", "roofline")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("csv", metavar="CSV", type=Path, help="with the columns of Arena's arena_profile.csv")
    parser.add_argument("--oracle", metavar="|".join(ORACLES), default=ORACLES[0], help="which one (grid)")
    common.add_calibration(parser)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print errors in all and by family, device and GPU count; return the exit status."""
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
