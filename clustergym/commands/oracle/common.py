"""Arguments, output files and printed tables of the sub-commands of `clustergym oracle`."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustergym.common import errors
from clustergym.common.errors import InputError
from clustergym.common.paths import data_folder
from clustergym.common.tables import print_table, text_table

if TYPE_CHECKING:
    from clustergym.oracle.stacks.throughput import ThroughputRow


class StrictParser(errors.Parser):
    """A parser of arguments that raises `InputError` and accepts no abbreviated options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option `--json` to a parser."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the same figures, unrounded")


def add_shapes(parser: argparse.ArgumentParser) -> None:
    """Add the options `--shapes` and `--accelerators` to a parser: files of transformers and of GPUs."""
    text = "a YAML file of further {}, in the form of {}"
    parser.add_argument(
        "--shapes",
        type=Path,
        metavar="FILE",
        help=text.format("transformers", "conf/transformer/shapes.yaml"),
    )
    parser.add_argument(
        "--accelerators",
        type=Path,
        metavar="FILE",
        help=text.format("GPUs", "conf/hardware/accelerators.yaml"),
    )


def add_data(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Add the option `--data`, a file of measurements, and the options of `add_shapes` to a parser."""
    text = (
        "measured throughput, iteration times, memory or steps, by its columns: a CSV file,"
        " `modern` (all tables of throughput in $CLUSTERGYM_DATA) or"
        " `measured` (benchmarks/measured/h100-steps.csv);"
        " step times by plan and placement: a folder, or `morphling` ($CLUSTERGYM_DATA/morphling)"
    )
    parser.add_argument("--data", metavar="FILE", required=required, help=text)
    add_shapes(parser)


def what_is_measured(data: str) -> str:
    """Return which measurements a file holds, as a word such as `throughput`, `memory` or `steps`.

    `times` are of iterations; `steps` have both time and memory.
    """
    from clustergym.common.text_files import first_lines, header

    if data_path(data).is_dir():
        return "placements"
    names = set() if data == "modern" else header(first_lines(data_path(data)))
    if names & {"peak_allocated_bytes", "peak_reserved_bytes"}:
        return "steps"
    if names & {"memory_gb", "dp_degree"}:
        return "memory"
    return "times" if "model_family" in names else "throughput"


def data_path(data: str) -> Path:
    """Return the path that the value of `--data` stands for: `measured`, `morphling`, or itself a path."""
    from clustergym.oracle.calibration.measured_steps import MEASURED
    from clustergym.oracle.calibration.placements import MORPHLING

    return {"measured": MEASURED, "morphling": data_folder() / MORPHLING}.get(data, Path(data))


def throughput_rows(options: argparse.Namespace) -> list[ThroughputRow]:
    """Read the measured throughputs in the file that the option `--data` names."""
    from clustergym.oracle.calibration.placements import read_placements
    from clustergym.oracle.calibration.throughput_validation import read_published
    from clustergym.oracle.stacks.throughput import read_throughput

    if options.data == "modern":
        return read_published(data_folder())
    if what_is_measured(options.data) == "placements":
        return read_placements(data_path(options.data))
    return read_throughput(data_path(options.data), options.shapes, options.accelerators)


def check_target(path: Path | None, option: str) -> None:
    """Raise an `InputError` if an output file could not be written, before any work is done."""
    if path is None:
        return
    if path.is_dir():
        raise InputError("is a folder", file=path, field=option, remedy="name a file")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise InputError("does not lie in a folder", file=path, field=option, remedy="name another file")
    if not os.access(folder, os.W_OK):
        message = f"cannot be written: no permission to write in {folder}"
        raise InputError(message, file=path, field=option, remedy="name another file")


def percent(share: float | None, digits: int = 1) -> str:
    """Format a share from 0 to 1 in percent; `-` where there is none."""
    return "-" if share is None or not math.isfinite(share) else f"{100 * share:.{digits}f} %"


def print_notes(notes: Iterable[str]) -> None:
    """Print notes on how to read the figures to stderr; skip empty notes."""
    for note in filter(None, notes):
        print(f"note: {note}", file=sys.stderr)


def print_written(*paths: Path | None) -> None:
    """Print the names of the files that were written."""
    for path in paths:
        if path is not None:
            print(f"wrote {path}")


def tell(message: str) -> None:
    """Show a message on the progress of long work on stderr."""
    print(message, file=sys.stderr, flush=True)


Figures = Mapping[str, Any]

SHARES = {"mape", "ape", "p90", "regret", "agreement", "recall", "share"}
"""Figures whose names have such a word are shares and shown in percent."""


def human(name: str, value: float | None) -> str:
    """Format a figure as text: in percent if its name says it is a share, else as a number; `-` for None."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return percent(value, 2) if SHARES & {*name.split("_")} else f"{value:.4g}"


def print_figures(title: str, figures: Figures) -> None:
    """Print figures: single ones in one table, and each group of them in another.

    A mapping of plain figures (as of a group of its own) is a table of one row.
    """
    print(title)
    single = {name: value for name, value in figures.items() if not isinstance(value, Mapping)}
    if single:
        print_table(text_table("", ("figure", "value"), [(n, human(n, v)) for n, v in single.items()]))
    for name, group in figures.items():
        if isinstance(group, Mapping) and group:
            _print_group(name.replace("_", " "), group)


def _print_group(title: str, group: Figures) -> None:
    rows = {name: row for name, row in group.items() if isinstance(row, Mapping)} or {"": group}
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    cells = [[name, *(human(c, row.get(c)) for c in columns)] for name, row in rows.items()]
    print()
    print_table(text_table(title, ("", *columns), cells))
