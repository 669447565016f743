"""`validate`: compares predicted times, throughput, memory or steps with measured ones."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from clustergym.commands.oracle import common
from clustergym.commands.oracle.common import print_figures
from clustergym.common.errors import InputError
from clustergym.common.writing import write_json
from clustergym.oracle.base import check_choice

SUMMARY = "hold an oracle against measured times, throughput, memory, steps or plans"

ORACLES = ("stack", "roofline")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `clustergym oracle validate` to a parser."""
    common.add_data(parser, required=True)
    text = "one software stack, or a file, for all rows (throughput: that of each row's source and date)"
    parser.add_argument("--stack", metavar="NAME", help=text)
    text = "throughput: also leave out one model x GPU type x precision at a time, and fit to the rest"
    parser.add_argument("--cross-validate", action="store_true", help=text)
    text = "throughput: draw predicted against measured (.svg, .png, .pdf)"
    parser.add_argument("--plot", type=Path, metavar="FILE", help=text)
    parser.add_argument("--oracle", metavar="|".join(ORACLES), default=ORACLES[0], help="of times (stack)")
    parser.add_argument("--models", metavar="PATH", help="a folder of further model files, or one file")
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run `clustergym oracle validate`: compare predictions with measurements; return the exit status.

    The file of `--data` says which: throughput, times, memory or training steps.
    """
    from clustergym.common.figures import check_figure

    check_choice(options.oracle, ORACLES, "--oracle")
    for path, option in ((options.json, "--json"), (options.plot, "--plot")):
        common.check_target(path, option)
    check_figure(options.plot, "--plot")
    measured = common.what_is_measured(options.data)
    _check_absent(options, measured)
    shown = VALIDATIONS[measured](options)
    write_json(options.json, shown)
    common.print_written(options.plot, options.json)
    return 0


def _check_absent(options: argparse.Namespace, measured: str) -> None:
    """Raise an InputError if an option is given that does not go with these measurements."""
    of: dict[str, tuple[str, ...]] = {
        "throughput": ("stack", "cross_validate", "plot", "shapes", "accelerators")
    }
    of |= {"times": ("stack", "oracle", "models"), "memory": ()}
    of |= {"steps": ("shapes", "accelerators"), "placements": ("cross_validate",)}
    for names in of.values():
        for name in names:
            given = getattr(options, name)
            if name not in of[measured] and given not in (None, False, ORACLES[0]):
                option, message = f"--{name.replace('_', '-')}", f"is not for measurements of {measured}"
                raise InputError(message, field=option, remedy="leave it out")
    if options.stack is not None and options.oracle != ORACLES[0]:
        message = f"the {options.oracle} oracle has no stacks"
        raise InputError(message, field="--stack", remedy="leave it out, or --oracle")


def _times(options: argparse.Namespace) -> dict[str, Any]:
    from clustergym.oracle.base import Oracle
    from clustergym.oracle.calibration.validation import figures, predict_measured, rows_as_plain
    from clustergym.oracle.models.catalog import load_catalog
    from clustergym.oracle.roofline.roofline_oracle import RooflineOracle
    from clustergym.oracle.stacks.stack_oracle import AUTO, StackOracle

    catalog = load_catalog(extra=options.models)
    oracle: Oracle = RooflineOracle(catalog)
    if options.oracle == ORACLES[0]:
        oracle = StackOracle(catalog, options.stack or AUTO)
    rows, seconds = predict_measured(Path(options.data), oracle)
    shown = figures(rows, seconds)
    print_figures(f"oracle {options.oracle} against {options.data}", shown)
    return {**shown, "predictions": rows_as_plain(rows, seconds)}


def _memory(options: argparse.Namespace) -> dict[str, Any]:
    from clustergym.oracle.calibration.validation import validate_memory

    shown = validate_memory(Path(options.data))
    print_figures(f"memory of pure data parallelism, {options.data}", shown)
    return shown


def _steps(options: argparse.Namespace) -> dict[str, Any]:
    from clustergym.oracle.calibration.measured_steps import validate_steps

    shown = validate_steps(common.data_path(options.data), options.shapes, options.accelerators)
    print_figures(f"steps of one GPU against {options.data}", shown)
    return shown


def _placements(options: argparse.Namespace) -> dict[str, Any]:
    from clustergym.oracle.calibration.placements import validate_placements

    shown = validate_placements(common.data_path(options.data), options.cross_validate, common.tell)
    for name, found in shown.items():
        print_figures(f"plans and placements of {options.data}, {name}", found)
    return shown


def _throughput(options: argparse.Namespace) -> dict[str, Any]:
    from clustergym.oracle.calibration.throughput_validation import (
        cross_validate,
        draw,
        figures,
        predict_rows,
    )

    rows = common.throughput_rows(options)
    predictions = predict_rows(rows, options.stack)
    shown = figures(rows, predictions)
    if options.cross_validate:
        shown["left_out"] = cross_validate(rows, common.tell)
    if options.plot is not None:
        draw(options.plot, rows, predictions)
    printed = {name: value for name, value in shown.items() if name != "per_gpu_curves"}
    print_figures(f"software stacks against {options.data}", printed)
    _print_unknown(predictions)
    return {"rows": predictions, **shown}


def _print_unknown(predictions: list[dict[str, Any]]) -> None:
    missing = [f"{row['id']} {row['reason']}" for row in predictions if row["predicted"] is None]
    if missing:
        print(
            f"\n{len(missing)} rows have no prediction: {'; '.join(missing[:8])}{' …' * (len(missing) > 8)}"
        )


VALIDATIONS = {
    "throughput": _throughput,
    "times": _times,
    "memory": _memory,
    "steps": _steps,
    "placements": _placements,
}
"""What validates each type of measurement."""
