"""`calibrate`: fits the constants of the grid oracle to measured iteration times."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustergym.commands.oracle import common
from clustergym.commands.oracle.common import print_figures
from clustergym.common.writing import write_json, write_text
from clustergym.oracle.base import check_choice

if TYPE_CHECKING:
    from clustergym.oracle.calibration.fit import Fit

SUMMARY = "fit the grid oracle's constants to measured iteration times"

SCHEMES = {"all": ("leave_one_model_out", "half"), "none": ()} | {
    name: (name,) for name in ("leave_one_model_out", "half")
}
"""Values of `--cross-validate`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("csv", metavar="CSV", type=Path, help="with the columns of Arena's arena_profile.csv")
    text = "where the constants go (conf/calibration/grid.yaml)"
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=text)
    parser.add_argument("--models", metavar="PATH", help="a folder of further model files, or one file")
    parser.add_argument(
        "--cross-validate",
        metavar="SCHEME",
        default="all",
        help="leave_one_model_out, half (of the models), none, or all (the default)",
    )
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Fit, write, print constants and the error on models not fitted; return the exit status."""
    from clustergym.oracle.calibration.fit import as_yaml, fit
    from clustergym.oracle.grid.constants import default_path
    from clustergym.oracle.models.catalog import load_catalog

    check_choice(options.cross_validate, list(SCHEMES), "--cross-validate")
    output = options.output or default_path()
    common.check_target(output, "--output")
    common.check_target(options.json, "--json")
    catalog = load_catalog(extra=options.models)
    with common.telling() as tell:
        found = fit(options.csv, catalog, SCHEMES[options.cross_validate], tell)
    write_text(output, as_yaml(found), "--output")
    shown = figures(found)
    write_json(options.json, shown)
    _print(shown, options.csv)
    common.print_written(output, options.json)
    return 0


def figures(found: Fit) -> dict[str, Any]:
    """Return constants and errors, unrounded, as plain values."""
    return {
        "rows": found.rows,
        "constants": asdict(found.constants),
        "fitted": found.fitted,
        **found.cross_validated,
    }


def _print(shown: Mapping[str, Any], path: Path) -> None:
    from clustergym.common.tables import print_table, text_table

    rows = []
    for name, value in shown["constants"].items():
        by_type = value if isinstance(value, Mapping) else {"": value}
        rows.append((name, "  ".join(f"{gpu} {number:g}".strip() for gpu, number in by_type.items())))
    print(f"constants fitted to {shown['rows']} rows of {path}")
    print_table(text_table("", ("constant", "value"), rows))
    print_figures("\nerror on the rows they were fitted to", shown["fitted"])
    for name in SCHEMES["all"]:
        if name in shown:
            print_figures(f"\nerror on models not fitted, {name.replace('_', ' ')}", shown[name])
