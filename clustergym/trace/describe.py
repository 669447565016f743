"""`clustergym trace describe FILE`: print statistics of a trace and the load it offers to a cluster.

A trace whose jobs ask for parts of GPUs has statistics of its own, and a load on a divisible cluster.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import InputError
from clustergym.common.writing import write_json
from clustergym.trace.drawn_outcomes import with_outcomes
from clustergym.trace.outcomes import CHOICES
from clustergym.trace.records import make_options
from clustergym.trace.trace import OUTCOMES, Trace
from clustergym.trace.trace_checks import RECORDED, WHOLE
from clustergym.trace.trace_statistics import build_tables, correlations, percentiles, trace_statistics

if TYPE_CHECKING:
    from rich.table import Table


RESOURCES = ("gpu", "cpu", "memory")


def part_statistics(trace: Trace, cluster: ClusterSpec) -> dict[str, Any]:
    """Return statistics of a trace whose jobs request parts of GPUs, overall and by class of requests.

    A job of `recorded` models runs a second an iteration; run times of others are not known here, and count
    nothing.

    Parameters
    ----------
    trace : Trace
        Of jobs that ask for parts of GPUs; at least one job.
    cluster : ClusterSpec
        Its nodes state CPU and memory.
    """
    from clustergym.cluster.parts import DivisibleCluster

    if not isinstance(cluster, DivisibleCluster):
        raise InputError(
            f"{cluster.name} has no nodes with cpu_milli and memory_mib",
            field="--cluster",
            remedy="name one for parts of GPUs, as openb-like",
        )
    milli = _column(trace.gpu_milli) * trace.gpus
    gpus = milli / WHOLE
    figures = trace_statistics(trace)
    figures["gpus"] = _counts(gpus)
    figures["requests"] = {name: _class(trace, milli, mine) for name, mine in _classes(trace) if mine.any()}
    recorded = np.array([family == RECORDED for family in trace.model_family])
    ran_s = np.where(recorded, trace.iterations, 0).astype(np.float64)
    durations = {"mean": float(ran_s.mean()), **percentiles(ran_s)} if recorded.all() else {"mean": None}
    nodes = cluster.empty_nodes()
    installed = nodes.installed_milli, int(nodes.cpu_milli.sum()), int(nodes.memory_mib.sum())
    asked = milli, _column(trace.cpu_milli), _column(trace.memory_mib)
    load = {
        name: _load_of_parts(column, ran_s, there, trace.span_s)
        for name, column, there in zip(RESOURCES, asked, installed, strict=True)
    }
    return figures | {
        "cluster": cluster.name,
        "duration_s": durations,
        "gpu_hours": float((gpus * ran_s).sum()) / 3600.0,
        "correlation": correlations(np.maximum(gpus, 1.0 / WHOLE), ran_s),
        "offered_load": {
            "overall": load["gpu"],
            "by_gpu_type": {"GPU": load["gpu"]},
            "cpu": load["cpu"],
            "memory": load["memory"],
            "infeasible_requests": 0,
            "fits_nowhere": 0,
        },
    }


def _column(values: Ints | None) -> Ints:
    assert values is not None
    return values


def _counts(gpus: Floats) -> dict[str, Any]:
    values, number = np.unique(gpus, return_counts=True)
    share = dict(zip((f"{value:g}" for value in values), (number / len(gpus)).tolist(), strict=True))
    return {"share": share, "mean": float(gpus.mean()), "max": float(gpus.max()), **percentiles(gpus)}


def _classes(trace: Trace) -> list[tuple[str, Bools]]:
    milli, several = _column(trace.gpu_milli), trace.gpus > 1
    return [
        ("no GPU", milli == 0),
        ("a part of a GPU", (milli > 0) & (milli < WHOLE)),
        ("one GPU", (milli == WHOLE) & ~several),
        ("several GPUs", several),
    ]


def _class(trace: Trace, milli: Ints, mine: Bools) -> dict[str, Any]:
    return {
        "jobs": int(mine.sum()),
        "job_share": float(mine.mean()),
        "gpu_share": float(milli[mine].sum() / max(int(milli.sum()), 1)),
        "gpus": float(milli[mine].mean()) / WHOLE,
        "cores": float(_column(trace.cpu_milli)[mine].mean()) / 1000,
        "memory_gib": float(_column(trace.memory_mib)[mine].mean()) / 1024,
    }


def _load_of_parts(asked: Ints, ran_s: Floats, installed: int, span_s: float) -> float | None:
    """Return demand over capacity from the first to the last submission; None if these are at one time."""
    demand = float((asked * ran_s).sum())
    if demand == 0.0:
        return 0.0
    return demand / (installed * span_s) if span_s > 0 and installed > 0 else None


SHOWN_PERCENTILES = ("p5", "p25", "p50", "p75", "p95", "p99")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command that describes a trace."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a trace of any known format")
    parser.add_argument(
        "--cluster",
        metavar="NAME",
        help="cluster to load, by name or file (arena-a; openb-like for jobs that ask for parts of GPUs)",
    )
    parser.add_argument(
        "--oracle",
        metavar="NAME",
        default="roofline",
        help="whose iteration times: roofline, grid, or stack, as scenario=llm-2026 has (roofline)",
    )
    parser.add_argument("--any-type", action="store_true", help="leave open which GPU type a job asks for")
    add_log_arguments(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the same figures, unrounded")


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that all commands share which read a trace or a cluster's log."""
    from clustergym.trace.formats import FORMATS

    add = parser.add_argument
    add("--format", default="auto", help=f"auto: found out; {', '.join(FORMATS)}")
    add("--rule", default="arena", help="how models are drawn where there are none: arena or ares")
    add("--seed", type=int, default=0, help="seed of what is drawn")
    add(
        "--outcomes",
        metavar="HOW",
        help=f"how jobs end: {', '.join(CHOICES)} (keep: as the log says; a cluster: drawn by its shares; "
        "default: a native trace as it is, a log ignored)",
    )
    add("--keep-counts", action="store_true", help="do not round GPU counts up to powers of two")
    add("--keep-shares", action="store_true", help="keep parts of GPUs that PAI's jobs ask for")


def run(args: argparse.Namespace) -> int:
    """Read a trace as a run on the cluster would, and print its statistics; return the exit status."""
    from clustergym.cluster.cluster_files import gpu_type_names, load_cluster
    from clustergym.oracle.oracle_config import oracle_from_config
    from clustergym.oracle.table_cache import table_source
    from clustergym.trace.draw import ReferenceTimes
    from clustergym.trace.formats import load_trace

    cluster = load_cluster(args.cluster or "arena-a")
    tables_of = table_source(oracle_from_config({"name": args.oracle}))
    options = make_options(
        cluster,
        ReferenceTimes(cluster, tables_of),
        rule=args.rule,
        any_type=args.any_type,
        type_name=gpu_type_names(cluster),
        seed=args.seed,
        outcomes=args.outcomes or "ignore",
        power_of_two=not args.keep_counts,
        keep_shares=args.keep_shares,
    )
    # A log may be described for a cluster that lacks its GPU types.
    options = replace(options, recorded_types=None)
    trace = load_trace(args.file, format=args.format, options=options)
    check_models(trace)
    if args.outcomes is not None:
        trace = with_outcomes(trace, args.outcomes, cluster, args.seed, "--outcomes", tables_of)
    figures = {"name": trace.name, "file": str(args.file), "sha256": trace.sha256}
    if trace.gpu_milli is None:
        figures |= trace_statistics(trace, cluster, build_tables(trace, cluster, tables_of))
    else:
        figures |= part_statistics(trace, load_cluster(args.cluster or "openb-like"))
    write_json(args.json, figures)
    print_statistics(figures)
    print_drawn(trace, "--rule, --any-type")
    print_outcomes(trace, "--outcomes")
    return 0


def print_outcomes(trace: Trace, key: str) -> None:
    """Print how a trace's jobs end, or that its log's outcomes are ignored and how to change it (`key`)."""
    found = trace.provenance.get("outcomes", {})
    if trace.outcome is None:
        if found:
            print(f"note: how jobs ended in the log is ignored, all complete (change: {key}=keep)")
        return
    counts = Counter(trace.outcome)
    told = ", ".join(f"{counts[name]} {name}" for name in OUTCOMES)
    source = f", drawn by the shares of {found['drawn_by']}" if found.get("drawn_by") in CHOICES else ""
    print(f"note: jobs end as their log says{source}: {told}; only a clairvoyant policy knows when")


def warn_of_unit(trace: Trace) -> None:
    """Warn on stderr if a log's durations are so long that they are probably not in seconds."""
    median_s = trace.provenance.get("median_duration_s")
    late = trace.provenance.get("ended_after_last_submission")
    if median_s and trace.path:
        what = f"the median duration is {median_s / 86_400.0:,.{0 if median_s > 864_000 else 1}f} days"
        what += f" and {late:.0%} of the jobs end after the last submission" if late else ""
        remedy = "durations are read as seconds: if they are milliseconds, divide them by 1000"
        print(f"warning: {trace.path}: {what}; {remedy}", file=sys.stderr)


def print_drawn(trace: Trace, keys: str) -> None:
    """Print which of a trace's columns were sampled, and `keys`, the configuration keys to change it."""
    drawn = trace.provenance.get("draw")
    if not drawn or not trace.path:
        return
    warn_of_unit(trace)
    types = ", ".join(drawn["gpu_types"])
    what = f"models, batches and GPU types (among {types})" if types else "models and batches"
    where = drawn["reference_cluster"]
    holds = f"; recorded durations hold on cluster {where}" if where else ""
    how = f"by the rule {drawn['rule']} with seed {drawn['seed']}"
    print(f"note: {what} were drawn {how}{holds} (change: {keys})")
    if drawn["gpu_type_not_kept"]:
        changed = f"{drawn['gpu_type_not_kept']:,} jobs have another GPU type than recorded"
        print(f"note: {changed}: no model of the rule fits on theirs")


def check_models(trace: Trace) -> None:
    """Raise an `InputError` unless the catalogue of models has every job's model."""
    from clustergym.oracle.models.catalog import load_catalog

    catalog, known = load_catalog(), set()
    for row in range(len(trace)):
        model = trace.model_class(row)
        if model not in known and model.family != RECORDED:
            field = "model_size" if model.family in catalog.families else "model_family"
            catalog.get(model, file=trace.path or None, line=int(trace.line[row]) or None, field=field)
            known.add(model)


def print_statistics(figures: dict[str, Any]) -> None:
    """Print the figures of `trace_statistics` as tables, and warn of high load and jobs that do not fit."""
    from rich.console import Console
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)
    for title, table in (
        (figures["name"], _overview(figures)),
        ("Percentiles", _percentile_table(figures)),
        ("Arrivals", _bursts(figures)),
        ("Shares of jobs", _shares(figures)),
        ("Requests by what they ask for", _requests(figures)),
        (f"Offered load on {figures['cluster']}", _loads(figures)),
        *([("Outcomes in the log", _outcomes(figures["outcomes"]))] if "outcomes" in figures else []),
    ):
        if table is None:
            continue
        console.print(title, style="bold", markup=False)
        console.print(table)
        console.print()
    for line in warnings(figures):
        console.print(Text.assemble(("warning: ", "bold yellow"), line))


def warnings(figures: dict[str, Any]) -> list[str]:
    """Return warnings about an offered load above 1 and about jobs that do not fit, one line each."""
    load, cluster = figures["offered_load"], figures["cluster"]
    lines = [
        f"offered load on {gpu_type} of {cluster} is {_load(value)}, above 1: "
        "its queue grows as long as jobs arrive"
        for gpu_type, value in load["by_gpu_type"].items()
        if value is None or value > 1.0
    ]
    if load["overall"] is None or load["overall"] > 1.0:
        lines.append(f"offered load on the whole of {cluster} is {_load(load['overall'])}, above 1")
    if load["infeasible_requests"]:
        count = load["infeasible_requests"]
        lines.append(f"{count:,} jobs do not fit as requested; they count at another GPU count or type")
    if load["fits_nowhere"]:
        lines.append(f"{load['fits_nowhere']:,} jobs fit nowhere on {cluster}; they count nothing")
    return lines


def _plain(*headings: str, show_header: bool = True) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_header=show_header, show_edge=False, pad_edge=False)
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if index else "left", no_wrap=True)
    return table


def _overview(figures: dict[str, Any]) -> Table:
    table = _plain("", "", show_header=False)
    rate, between = figures["rate_per_hour"], figures["interarrival"]
    rows = {
        "jobs": f"{figures['jobs']:,}",
        "span": duration_text(figures["span_s"]),
        "jobs per hour": "-" if rate is None else f"{rate:,.1f}",
        "between jobs, median": "-" if between["median_s"] is None else duration_text(between["median_s"]),
        "between jobs, coefficient of variation": _number(between["cv"]),
        "burstiness": _number(between["burstiness"]),
        "GPU-hours demanded": f"{figures['gpu_hours']:,.0f}",
        "jobs with a deadline": f"{figures['deadlines']:,}",
        "correlation of GPUs with duration": _number(figures["correlation"]["pearson_log2_gpus_ln_duration"]),
        "sha256": figures["sha256"][:16] + "…",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _percentile_table(figures: dict[str, Any]) -> Table:
    table = _plain("", *SHOWN_PERCENTILES, "mean", "max")
    gpus, duration = figures["gpus"], figures["duration_s"]
    digits = 2 if "requests" in figures else 0
    cells = [f"{gpus[rank]:,.{digits}f}" for rank in SHOWN_PERCENTILES]
    table.add_row("GPUs requested", *cells, f"{gpus['mean']:,.2f}", f"{gpus['max']:,.{digits}f}")
    if duration["mean"] is not None:
        cells = [duration_text(duration[rank]) for rank in SHOWN_PERCENTILES]
        table.add_row("duration at the request", *cells, duration_text(duration["mean"]), "")
    return table


def _bursts(figures: dict[str, Any]) -> Table:
    table = _plain("", "mean", "max", "Fano factor", "lag-1 autocorrelation")
    for name, counts in figures["counts"].items():
        most = "-" if counts["max"] is None else f"{counts['max']:,}"
        table.add_row(
            f"jobs per {name}",
            _number(counts["mean"]),
            most,
            _number(counts["fano"]),
            _number(counts["lag1_autocorrelation"]),
        )
    return table


def _shares(figures: dict[str, Any]) -> Table:
    table = _plain("model", "share", "GPUs", "share", "GPU type", "share")
    columns = [
        sorted(figures["model_share"].items(), key=lambda item: (-item[1], item[0])),
        list(figures["gpus"]["share"].items()),
        list(figures["gpu_type_share"].items()),
    ]
    for row in range(max(len(column) for column in columns)):
        cells: list[str] = []
        for column in columns:
            cells += [column[row][0], f"{column[row][1]:.1%}"] if row < len(column) else ["", ""]
        table.add_row(*cells)
    return table


def _requests(figures: dict[str, Any]) -> Table | None:
    """Return the classes of requests of a trace whose jobs ask for parts of GPUs."""
    if "requests" not in figures:
        return None
    table = _plain(
        "", "jobs", "share of jobs", "of the GPUs asked for", "mean GPUs", "mean cores", "mean GiB"
    )
    for name, row in figures["requests"].items():
        shares = [f"{row['jobs']:,}", f"{row['job_share']:.1%}", f"{row['gpu_share']:.1%}"]
        table.add_row(name, *shares, *(_number(row[key]) for key in ("gpus", "cores", "memory_gib")))
    return table


def _loads(figures: dict[str, Any]) -> Table:
    load = figures["offered_load"]
    if "requests" in figures:
        table, rows = _plain("", "load"), [("GPU", load["overall"])]
        rows += [(name, load[name]) for name in ("cpu", "memory")]
    else:
        table, rows = _plain("GPU type", "load"), [*load["by_gpu_type"].items(), ("all", load["overall"])]
    for gpu_type, value in rows:
        table.add_row(gpu_type, _load(value), style="yellow" if value is None or value > 1.0 else None)
    return table


def _outcomes(shares: Mapping[str, Mapping[str, float]]) -> Table:
    table = _plain("outcome", "jobs", "GPU time")
    for name, found in shares.items():
        table.add_row(name, *(f"{found[part]:.1%}" for part in ("share_of_jobs", "share_of_gpu_time")))
    return table


def _load(value: float | None) -> str:
    return "unbounded" if value is None else f"{value:.2f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def duration_text(seconds: float) -> str:
    """Return seconds as text in a unit that suits the size."""
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} s"
