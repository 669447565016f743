"""`clustergym trace import|validate|slice`: read traces of any format, and write them in the native one."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.cluster.cluster_files import canonical_gpu_type, load_cluster
from clustergym.cluster.node_lists import read_nodes, types_of_partitions
from clustergym.common.errors import InputError
from clustergym.common.text_files import check_path
from clustergym.common.writing import refuse_overwrite, write_json
from clustergym.trace.describe import check_models, warn_of_unit
from clustergym.trace.drawn_outcomes import with_outcomes
from clustergym.trace.formats import ReadOptions, find_format, load_trace
from clustergym.trace.log_files import OPERATORS, read_operators_log, summarise_log, write_log
from clustergym.trace.native import provenance_path, write_trace
from clustergym.trace.slurm_fields import CellRules, find_zone
from clustergym.trace.trace import Trace, cut_trace


def import_trace(args: argparse.Namespace) -> int:
    """Convert a trace of any format to the native one; return the exit status."""
    name = find_format(args.source).name if args.format == "auto" else args.format
    if name in OPERATORS:
        refuse_overwrite((args.output,), args.force)
        return _import_log(name, args)
    refuse_overwrite((args.output, provenance_path(args.output)), args.force)
    trace, form = _load(args.source, args)
    return _save(trace, form, args)


def _import_log(name: str, args: argparse.Namespace) -> int:
    """Write a log of an operator's own table of jobs: when they were submitted, started and ended."""
    rules = CellRules(find_zone(args.timezone), args.hash_users)
    nodes = None if args.nodes is None else types_of_partitions(read_nodes(args.nodes)[0])
    check_path(args.source)
    log = read_operators_log(name, args.source, rules, nodes)
    write_log(log, args.output)
    report = summarise_log(log) | {"output": str(args.output)}
    write_json(args.json, report)
    print(f"wrote    {args.output}")
    print(f"format   {name}")
    print(f"read     {report['rows']:,} rows, {report['jobs']:,} jobs that ran on GPUs")
    for what, counts in (("left out", report["left_out"]), ("guessed", report["guessed"])):
        for reason, count in counts.items():
            print(f"{what:<9}{count:,} {reason}")
    return 0


def validate_traces(args: argparse.Namespace) -> int:
    """Check traces of any format; return the exit status, 2 if a trace is not valid."""
    shown, problems = [], []
    for path in args.files:
        try:
            trace, form = _load(path, args)
        except InputError as error:
            problems.append(str(error))
            print(f"error: {error}", file=sys.stderr)
            continue
        shown.append(_figures(trace, file=str(path), format=form))
        size = f"{len(trace):,} jobs over {trace.span_s / 3600:,.1f} h"
        print(f"OK {path}: {form}, {size}, sha256 {trace.sha256}")
    write_json(args.json, {"valid": shown, "errors": problems})
    return 2 if problems else 0


def slice_trace(args: argparse.Namespace) -> int:
    """Write a part of a trace to a file; return the exit status."""
    refuse_overwrite((args.output, provenance_path(args.output)), args.force)
    trace, form = _load(args.source, args)
    bounds = {name: getattr(args, name) for name in ("start_s", "end_s", "skip", "first", "rebase")}
    return _save(replace(cut_trace(trace, **bounds), name=args.output.stem), form, args)


def _load(path: Path, args: argparse.Namespace) -> tuple[Trace, str]:
    """Return a trace whose models the catalogue knows, and the name of its format."""
    name = find_format(path).name if args.format == "auto" else args.format
    trace = load_trace(path, name, _options(args))
    warn_of_unit(trace)
    check_models(trace)
    if args.outcomes is not None:
        cluster = load_cluster(args.reference_cluster)
        trace = with_outcomes(trace, args.outcomes, cluster, args.seed, "--outcomes")
    return trace, name


def _options(args: argparse.Namespace) -> ReadOptions:
    chosen: tuple[str, ...] | None = None if args.gpu_types is None else ()
    if args.gpu_types not in (None, "any"):
        chosen = tuple(_canonical(name) for name in args.gpu_types.split(","))
    return ReadOptions(
        seed=args.seed,
        rule=args.rule,
        reference_gpu=_canonical(args.reference_gpu, "--reference-gpu"),
        reference_cluster=args.reference_cluster,
        gpu_types=chosen,
        gavel_steps=args.gavel_steps,
        outcomes=args.outcomes or "ignore",
        power_of_two=not args.keep_counts,
        keep_shares=args.keep_shares,
    )


def _canonical(name: str, option: str = "--gpu-types") -> str:
    try:
        return canonical_gpu_type(name.strip())
    except InputError as error:
        raise InputError(error.message, field=option, remedy=error.remedy) from error


def _figures(trace: Trace, **more: Any) -> dict[str, Any]:
    return {
        "name": trace.name,
        "rows": len(trace),
        "span_s": trace.span_s,
        "sha256": trace.sha256,
        "left_out": trace.provenance.get("left_out", {}),
        **more,
    }


def _save(trace: Trace, form: str, args: argparse.Namespace) -> int:
    write_trace(trace, args.output)
    figures = _figures(
        trace, format=form, output=str(args.output), provenance_file=str(provenance_path(args.output))
    )
    write_json(args.json, figures | {"provenance": trace.provenance})
    print(f"wrote    {args.output}")
    print(f"         {provenance_path(args.output)}")
    print(f"format   {form}")
    print(f"jobs     {len(trace):,} over {trace.span_s / 3600:,.1f} h")
    if trace.time_limit_s is not None:
        print(f"limits   {np.isfinite(trace.time_limit_s).sum():,} of {len(trace):,} jobs have one")
    print(f"sha256   {trace.sha256}")
    return 0
