"""`clustergym trace generate SOURCE -o OUT.csv`: write a synthetic trace."""

from __future__ import annotations

import argparse
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from clustergym.common.errors import InputError
from clustergym.common.writing import refuse_overwrite, write_json
from clustergym.trace.describe import print_statistics
from clustergym.trace.options import GeneratorOptions
from clustergym.trace.trace import Trace

if TYPE_CHECKING:
    from clustergym.cluster.spec import ClusterSpec


OPTIONS: tuple[tuple[str, type, str | None, str], ...] = (
    ("--span-s", float, "S", "seconds from first to last job (default: at the source's own rate)"),
    ("--cluster", str, "NAME", "its GPU types are requested, its iteration times fix the iterations"),
    ("--load", float, "X", "offered load on the cluster: scales the span, or with --span-s the jobs"),
    ("--rule", str, None, "how models are drawn: arena (default) or ares"),
    (
        "--requests",
        str,
        None,
        "GPU counts like the source's (default), arena's traces', or of pretraining",
    ),
    ("--max-gpus", int, "N", "draw no larger GPU count (default: the largest type's GPUs)"),
    ("--min-duration-s", float, "S", "draw no shorter duration"),
    ("--max-duration-s", float, "S", "draw no longer duration"),
    ("--start-hour", int, "H", "hour of the week of the first job; 0 is Monday 00:00"),
)
"""Options of what is drawn: each with its type, what stands for its value, and its help."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `clustergym trace generate` to a parser."""
    from clustergym.trace.generators import source_names

    add = parser.add_argument
    known = f"{', '.join(source_names())}, or a YAML file like conf/generator/philly.yaml"
    add("source", metavar="SOURCE", help=known)
    add("-o", "--output", type=Path, required=True, metavar="OUT.csv", help="trace to write")
    add("--force", action="store_true", help="overwrite OUT.csv")
    add("--jobs", type=int, required=True, metavar="N", help="how many jobs")
    for option, value, metavar, words in OPTIONS:
        add(option, type=value, metavar=metavar, help=words)
    add("--seed", type=int, default=0, help="seed of what is drawn (default: 0)")
    add("--any-type", action="store_true", help="request no GPU type")
    add("--gpu-type", action="append", metavar="TYPE", help="request this type only (may be repeated)")
    add("--keep-counts", action="store_true", help="do not round GPU counts up to powers of two")
    add("--deadlines", action="store_true", help="give each job a deadline, as in ElasticFlow's trace")
    add("--json", type=Path, metavar="FILE", help="write the same figures, unrounded")


def run(args: argparse.Namespace) -> int:
    """Run `clustergym trace generate`: write a synthetic trace; return the exit status."""
    from clustergym.cluster.cluster_files import load_cluster
    from clustergym.trace.native import provenance_path, write_trace
    from clustergym.trace.trace_statistics import trace_statistics

    refuse_overwrite((args.output, provenance_path(args.output)), args.force)
    cluster = load_cluster(args.cluster or "arena-sim")
    trace = replace(_generate(args, cluster), name=args.output.stem)
    figures = {"name": trace.name, "file": str(args.output), "sha256": trace.sha256}
    figures |= trace_statistics(trace, cluster) | {"provenance": trace.provenance}
    write_trace(trace, args.output)
    write_json(args.json, figures)
    print_statistics(figures)
    print(f"wrote    {args.output}")
    print(f"         {provenance_path(args.output)}")
    print(f"sha256   {trace.sha256}")
    return 0


def _generate(args: argparse.Namespace, cluster: ClusterSpec) -> Trace:
    from clustergym.trace.generators import DeadlineOptions, generate

    given, names = vars(args), [option.name for option in fields(GeneratorOptions)]
    options = {name: given[name] for name in names if given.get(name) is not None}
    return generate(
        args.source,
        seed=args.seed,
        cluster=cluster if args.cluster else None,
        gpu_types=_gpu_types(args, cluster),
        deadlines=DeadlineOptions() if args.deadlines else None,
        power_of_two=not args.keep_counts,
        **options,
    )


def _gpu_types(args: argparse.Namespace, cluster: ClusterSpec) -> tuple[str, ...]:
    """Return the GPU types to request: those named, else the cluster's; empty with --any-type."""
    if args.gpu_type and args.any_type:
        raise InputError("any type or a certain one, not both", field="--any-type", remedy="drop one")
    if args.any_type:
        return ()
    return tuple(args.gpu_type) if args.gpu_type else cluster.gpu_types
