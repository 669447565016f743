"""`fit-stack`: fits the constants of a software stack to measured throughput."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from clustergym.commands.oracle import common
from clustergym.common.writing import write_json, write_text

if TYPE_CHECKING:
    from clustergym.oracle.stacks.throughput import ThroughputRow

SUMMARY = "fit a software stack's constants to measured training throughput"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common.add_throughput(parser, required=True)
    parser.add_argument("--stack", required=True, metavar="NAME", help="as in megatron-2026, or all")
    text = "where the constants go (conf/stack/NAME.yaml)"
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=text)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Fit, write and print the constants; return the exit status."""
    from clustergym.common.errors import InputError
    from clustergym.common.paths import conf_dir
    from clustergym.oracle.stacks.fit import FREE

    names = list(FREE) if options.stack == "all" else [options.stack]
    if options.output is not None and len(names) > 1:
        raise InputError(
            "is one file for several stacks", field="--output", remedy="leave it out, or name one stack"
        )
    common.check_target(options.json, "--json")
    targets = {name: options.output or conf_dir() / "stack" / f"{name}.yaml" for name in names}
    for target in targets.values():
        common.check_target(target, "--output")
    rows = common.throughput_rows(options)
    shown = {name: _fit(rows, name, target) for name, target in targets.items()}
    write_json(options.json, shown)
    common.print_written(*targets.values(), options.json)
    return 0


def _fit(rows: list[ThroughputRow], name: str, target: Path) -> dict[str, float]:
    """Fit, write and print one stack; return its fitted constants."""
    from clustergym.common.tables import print_table, text_table
    from clustergym.oracle.stacks.catalog import Stack, stack_yaml
    from clustergym.oracle.stacks.fit import FREE, fit_stack, usable_rows

    constants = fit_stack(rows, name)
    used = usable_rows(rows, name)
    free = [one for names in FREE[name] for one in names]
    rounded = replace(constants, **{one: float(f"{getattr(constants, one):.4g}") for one in free})
    releases = sorted({row.release for row in used})
    sources = ", ".join(sorted({row.source for row in used}))
    fitted_to = f"{len(used)} rows of {sources}, {releases[0]} to {releases[-1]}"
    about = [
        "Constants of a software stack, written by `clustergym oracle fit-stack`; what each is stands in",
        "clustergym/oracle/stacks/step_time.py.",
        f"Fitted: {', '.join(free[:6])},",
        f"{', '.join(free[6:])}; the others are not.",
    ]
    write_text(target, stack_yaml(Stack(name, rounded, fitted_to), about), "--output")
    shown = {one: getattr(rounded, one) for one in free}
    print_table(
        text_table(
            f"{name}, fitted to {fitted_to}", ("constant", "value"), [(k, f"{v:g}") for k, v in shown.items()]
        )
    )
    return shown
