"""`fit`: fits the constants of a software stack to measurements."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustergym.commands.oracle import common
from clustergym.common.errors import InputError
from clustergym.common.writing import write_json, write_text
from clustergym.oracle.base import check_choice

if TYPE_CHECKING:
    from clustergym.oracle.stacks.catalog import Stack

SUMMARY = "fit a software stack's constants to measured throughput"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `clustergym oracle fit` to a parser."""
    common.add_data(parser, required=True)
    parser.add_argument("--stack", required=True, metavar="NAME", help="as in megatron-2026, or all")
    text = "where the constants go (conf/stack/NAME.yaml)"
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=text)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run `clustergym oracle fit`: fit a software stack's constants to measurements; return the exit status.

    It writes the constants to YAML files.
    """
    from clustergym.common.paths import conf_dir
    from clustergym.oracle.calibration.step_fit import FREE

    names = list(FREE) if options.stack == "all" else [options.stack]
    if options.stack != "all":
        check_choice(options.stack, FREE, "--stack")
    if options.output is not None and len(names) > 1:
        message, remedy = "is one file for several stacks", "leave it out, or name one stack"
        raise InputError(message, field="--output", remedy=remedy)
    common.check_target(options.json, "--json")
    targets = {name: options.output or conf_dir() / "stack" / f"{name}.yaml" for name in names}
    for target in targets.values():
        common.check_target(target, "--output")
    shown = _fit_steps(options, targets)
    write_json(options.json, shown)
    common.print_written(*(targets[name] for name in shown), options.json)
    return 0


def _fit_steps(options: argparse.Namespace, targets: Mapping[str, Path]) -> dict[str, Any]:
    """Fit, write and print the constants of steps of each stack; return the fitted ones."""
    from clustergym.oracle.calibration.step_fit import FREE, fit_stack, fitted_stack, usable_rows

    rows, found = common.throughput_rows(options), {}
    for name, target in targets.items():
        if options.stack == "all" and not usable_rows(rows, name):
            continue
        free = [one for names in FREE[name] for one in names]
        stack = fitted_stack(rows, name, fit_stack(rows, name))
        note = {"Fitted": f"{', '.join(free[:6])},", "": f"{', '.join(free[6:])}; the others are not."}
        shown = _write(stack, target, note)
        found[name] = {one: shown[one] for one in free}
    return found


def _write(stack: Stack, target: Path, notes: Mapping[str, str]) -> dict[str, Any]:
    """Write and print a stack; return its constants, rounded as in its file."""
    from clustergym.common.tables import print_table, text_table
    from clustergym.oracle.stacks.catalog import round_constants, stack_yaml

    about = [
        "Constants of a software stack, written by `clustergym oracle fit`; what each is stands in",
        "clustergym/oracle/stacks/step_time.py.",
        *(f"{name}: {text}" if name else text for name, text in notes.items()),
    ]
    write_text(target, stack_yaml(stack, about), "--output")
    shown: dict[str, Any] = asdict(round_constants(stack.constants))
    rows = [(name, f"{value:g}") for name, value in shown.items()]
    print_table(text_table(f"{stack.name}, fitted to {stack.fitted_to}", ("constant", "value"), rows))
    return shown
