"""`clustergym trace import|validate|describe|generate|slice`: read, check and write traces."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.inputs.arguments import Parser
from clustergym.inputs.errors import InputError, exits_on_bad_input, nearest
from clustergym.workload.formats import COLUMNS_HELP, FORMATS, ReadOptions, find_format, load_trace
from clustergym.workload.native import provenance_path, write_files, write_trace
from clustergym.workload.trace import Trace

DELEGATED = {
    "describe": "print counts, span, percentiles, burstiness and offered load",
    "generate": "write a synthetic trace like one of the published ones",
}
"""Commands of the modules of that name in `clustergym.workload`."""


def _read_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", default="auto", help=f"auto, {', '.join(FORMATS)}")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of what is drawn for records without a model"
    )
    parser.add_argument("--rule", default="arena", help="how it is drawn: arena or ares")
    parser.add_argument("--reference-gpu", default="A100", help="GPU type that jobs of any type are timed on")
    parser.add_argument("--reference-cluster", default="arena-sim", help="cluster of the reference times")
    parser.add_argument(
        "--gpu-types", metavar="A,B", help="draw requests among these GPU types; any: leave them open"
    )
    parser.add_argument(
        "--gavel-steps", default="job", help="whose steps and batch a Gavel trace has: job or worker"
    )
    parser.add_argument(
        "--keep-counts", action="store_true", help="do not round GPU counts up to powers of two"
    )


def _write_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OUT.csv")
    parser.add_argument("--force", action="store_true", help="overwrite OUT.csv")


def _parser(command: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog="clustergym trace",
        description="Read, check and write traces.",
        epilog=COLUMNS_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    imported = commands.add_parser("import", help="write a trace of any format in the native one")
    imported.add_argument("source", type=Path, metavar="SRC")
    validate = commands.add_parser("validate", help="check traces of any format")
    validate.add_argument("files", type=Path, nargs="+", metavar="FILE")
    sliced = commands.add_parser("slice", help="write a part of a trace")
    sliced.add_argument("source", type=Path, metavar="FILE")
    _slice_arguments(sliced)
    for subparser in (imported, validate, sliced):
        _read_arguments(subparser)
        subparser.add_argument(
            "--json", type=Path, metavar="FILE", help="write the printed figures, unrounded"
        )
    for subparser in (imported, sliced):
        _write_arguments(subparser)
    for name, summary in DELEGATED.items():
        delegated = commands.add_parser(name, help=summary)
        if name == command:
            _module(name).add_arguments(delegated)
    return parser


def _slice_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--start-s", type=float, help="first submission to keep, seconds")
    parser.add_argument("--end-s", type=float, help="submissions from here on go, seconds")
    parser.add_argument(
        "--skip", type=int, default=0, metavar="N", help="leave out the first N jobs (of those)"
    )
    parser.add_argument("--first", type=int, metavar="N", help="keep N jobs at most")
    parser.add_argument("--rebase", action="store_true", help="start the clock at the first submission kept")


def _module(name: str) -> Any:
    return importlib.import_module(f"clustergym.workload.{name}")


def _options(args: argparse.Namespace) -> ReadOptions:
    types = args.gpu_types
    chosen = (
        None
        if types is None
        else ()
        if types == "any"
        else tuple(_canonical(name) for name in types.split(","))
    )
    return ReadOptions(
        seed=args.seed,
        rule=args.rule,
        reference_gpu=_canonical(args.reference_gpu, "--reference-gpu"),
        reference_cluster=args.reference_cluster,
        gpu_types=chosen,
        gavel_steps=args.gavel_steps,
        power_of_two=not args.keep_counts,
    )


def _canonical(name: str, option: str = "--gpu-types") -> str:
    from clustergym.cluster.cluster_files import canonical_gpu_type

    try:
        return canonical_gpu_type(name.strip())
    except InputError as error:
        raise InputError(error.message, field=option, remedy=error.remedy) from error


def _refuse_overwrite(output: Path, force: bool) -> None:
    if force:
        return
    for path in (output, provenance_path(output)):
        if path.exists():
            raise InputError(
                "exists already", file=path, field="--output", remedy="choose another name, or --force"
            )


def _load(path: Path, args: argparse.Namespace) -> tuple[Trace, str]:
    """Read a trace, check that the catalogue knows its models, and return it with its format's name."""
    name = find_format(path).name if args.format == "auto" else args.format
    trace = load_trace(path, name, _options(args))
    _check_models(trace)
    return trace, name


def _check_models(trace: Trace) -> None:
    from clustergym.models.catalog import load_catalog

    catalog = load_catalog()
    known = set()
    for row in range(len(trace)):
        model = trace.model_class(row)
        if model not in known:
            line = int(trace.line[row]) or None
            field = "model_family" if model.family not in catalog.families else "model_size"
            catalog.get(model, file=trace.path, line=line, field=field)
            known.add(model)


def _figures(trace: Trace, **more: Any) -> dict[str, Any]:
    return {
        "name": trace.name,
        "rows": len(trace),
        "span_s": trace.span_s,
        "sha256": trace.sha256,
        "left_out": trace.provenance.get("left_out", {}),
        **more,
    }


def _write_json(path: Path | None, figures: Any) -> None:
    if path is not None:
        write_files({path: (json.dumps(figures, indent=2) + "\n").encode()})


def _left_out(trace: Trace) -> str:
    counts = trace.provenance.get("left_out", {})
    return ", ".join(f"{count} {reason}" for reason, count in counts.items())


def _say_written(trace: Trace, output: Path, form: str) -> None:
    print(f"wrote    {output}")
    print(f"         {provenance_path(output)}")
    print(f"format   {form}")
    print(f"jobs     {len(trace):,} over {trace.span_s / 3600:,.1f} h")
    if _left_out(trace):
        print(f"left out {_left_out(trace)}")
    print(f"sha256   {trace.sha256}")


def _save(trace: Trace, form: str, args: argparse.Namespace) -> int:
    write_trace(trace, args.output)
    figures = _figures(
        trace, format=form, output=str(args.output), provenance_file=str(provenance_path(args.output))
    )
    _write_json(args.json, figures | {"provenance": trace.provenance})
    _say_written(trace, args.output, form)
    return 0


def _import(args: argparse.Namespace) -> int:
    _refuse_overwrite(args.output, args.force)
    trace, form = _load(args.source, args)
    return _save(trace, form, args)


def _validate(args: argparse.Namespace) -> int:
    shown, problems = [], []
    for path in args.files:
        try:
            trace, form = _load(path, args)
        except InputError as error:
            problems.append(str(error))
            print(f"error: {error}", file=sys.stderr)
            continue
        shown.append(_figures(trace, file=str(path), format=form))
        left_out = f"; left out {_left_out(trace)}" if _left_out(trace) else ""
        size = f"{len(trace):,} jobs over {trace.span_s / 3600:,.1f} h"
        print(f"OK {path}: {form}, {size}, sha256 {trace.sha256}{left_out}")
    _write_json(args.json, {"valid": shown, "errors": problems})
    return 2 if problems else 0


def sliced(
    trace: Trace,
    *,
    start_s: float | None = None,
    end_s: float | None = None,
    skip: int = 0,
    first: int | None = None,
    rebase: bool = False,
) -> Trace:
    """Return a part of a trace: of the jobs submitted in [start_s, end_s) `first` jobs after `skip`.

    Parameters
    ----------
    trace : Trace
    start_s, end_s : float, optional
    skip : int
    first : int, optional
    rebase : bool
        Whether to start the clock at the first submission kept; deadlines move with it.

    Raises
    ------
    InputError
        If nothing is left, or a bound is not a number or negative.
    """
    _check_bounds({"--start-s": start_s, "--end-s": end_s, "--skip": skip, "--first": first})
    low = -np.inf if start_s is None else start_s
    high = np.inf if end_s is None else end_s
    rows = np.flatnonzero((trace.submit_s >= low) & (trace.submit_s < high))[skip:][:first]
    if not len(rows):
        raise InputError(
            "no job lies in that part",
            file=trace.path or None,
            remedy=f"it has {len(trace)} jobs in {trace.span_s:g} s",
        )
    part = trace.take(rows)
    origin = float(part.submit_s[0]) if rebase else 0.0
    chosen = {"start_s": start_s, "end_s": end_s, "skip": skip, "first": first, "rebased_by_s": origin}
    return replace(
        part,
        submit_s=np.round(part.submit_s - origin, 6) if rebase else part.submit_s,
        deadline_s=np.round(part.deadline_s - origin, 6) if rebase else part.deadline_s,
        provenance={
            **trace.provenance,
            "slices": [*trace.provenance.get("slices", []), {"of": trace.sha256, **chosen}],
        },
    )


def _check_bounds(bounds: dict[str, float | None]) -> None:
    for name, value in bounds.items():
        if value is not None and not value >= 0:
            raise InputError(f"{value} is negative or no number", field=name, remedy="give 0 or more")


def _slice(args: argparse.Namespace) -> int:
    _refuse_overwrite(args.output, args.force)
    trace, form = _load(args.source, args)
    bounds = {name: getattr(args, name) for name in ("start_s", "end_s", "skip", "first", "rebase")}
    return _save(replace(sliced(trace, **bounds), name=args.output.stem), form, args)


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "import": _import,
    "validate": _validate,
    "slice": _slice,
}


def _check_command(given: Sequence[str]) -> None:
    names = [*_COMMANDS, *DELEGATED]
    if not given:
        raise InputError("no command given", remedy=f"give one of {', '.join(names)}")
    if given[0] not in names and not given[0].startswith("-"):
        raise InputError(f"unknown command {given[0]!r}", remedy=nearest(given[0], names))


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run a trace command; return the exit status."""
    given = sys.argv[1:] if argv is None else argv
    _check_command(given)
    args = _parser(given[0]).parse_args(given)
    if args.command in DELEGATED:
        status: int = _module(args.command).run(args)
        return status
    return _COMMANDS[args.command](args)


if __name__ == "__main__":
    sys.exit(main())
