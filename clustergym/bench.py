"""`clustergym bench placement`: compare placement algorithms, and measure what placement is worth."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from clustergym.inputs.arguments import Parser
from clustergym.inputs.errors import InputError, exits_on_bad_input, require
from clustergym.inputs.paths import atomic_path

STATES, QUICK_STATES, FEWEST_STATES = 20, 3, 3


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="clustergym bench", description="Run benchmarks.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    placement = commands.add_parser("placement", help="spread and step time of LLM pre-training jobs")
    placement.add_argument("--quick", action="store_true", help=f"{QUICK_STATES} states and 5 alphas")
    placement.add_argument("--states", type=int, metavar="N", help=f"random states (default {STATES})")
    placement.add_argument("--seed", type=int, default=0, metavar="N", help="of the random states (0)")
    placement.add_argument("--json", type=Path, metavar="FILE", help="write all figures, unrounded")
    placement.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the report (Markdown)")
    placement.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw score against alpha (PNG, SVG or PDF)"
    )
    return parser


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run a benchmark; return the exit status."""
    options = _parser().parse_args(argv)
    states = options.states if options.states is not None else (QUICK_STATES if options.quick else STATES)
    require(states >= FEWEST_STATES, "--states", states, f"give a number from {FEWEST_STATES}")
    require(options.seed >= 0, "--seed", options.seed, "give a number from 0")
    _check_files(options)
    figures = placement_figures(options.quick, states, options.seed)
    _write(figures, options)
    return 0


def _check_files(options: argparse.Namespace) -> None:
    """Refuse output files that cannot be written, before minutes of work are lost."""
    from clustergym.placement.benchmark_plot import SUFFIXES

    for flag in ("json", "output", "plot"):
        path: Path | None = getattr(options, flag)
        if path is not None and path.is_dir():
            raise InputError("is a folder", file=path, field=f"--{flag}", remedy="give a file")
    if options.plot is not None and options.plot.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"{options.plot.suffix!r} is not a format of plots",
            field="--plot",
            remedy=f"give a file that ends in {', '.join(SUFFIXES)}",
        )


def placement_figures(quick: bool, states: int, seed: int) -> dict[str, Any]:
    """Run the placement benchmark; return all its figures as plain values."""
    from clustergym.placement.ablation import ablate
    from clustergym.placement.benchmark import ALPHAS, QUICK_ALPHAS, run_benchmark
    from clustergym.placement.characterisation import characterise
    from clustergym.placement.fullness import by_fullness

    figures = run_benchmark(QUICK_ALPHAS if quick else ALPHAS, states, seed, _say)
    figures["fullness"] = by_fullness(states, seed, quick)
    _say("fullness")
    figures["characterisation"] = characterise(states, seed)
    figures["ablation"] = ablate(states, seed)
    return figures


def _say(step: str) -> None:
    if sys.stderr.isatty():
        print(f"done: {step}", file=sys.stderr)


def _write(figures: dict[str, Any], options: argparse.Namespace) -> None:
    from clustergym.placement.benchmark_plot import draw
    from clustergym.placement.benchmark_report import report

    text = report(figures)
    if options.json is not None:
        _save(options.json, "--json", json.dumps(figures, indent=1, allow_nan=False) + "\n")
    if options.output is not None:
        _save(options.output, "--output", text)
    if options.plot is not None:
        try:
            draw(figures, options.plot)
        except OSError as error:
            raise InputError(
                f"cannot be written: {error.strerror}", file=options.plot, field="--plot"
            ) from None
    if options.output is None:
        print(text, end="")


def _save(path: Path, field: str, text: str) -> None:
    try:
        with atomic_path(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=path, field=field) from None


if __name__ == "__main__":
    sys.exit(main())
