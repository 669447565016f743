"""Turn a log of jobs that ran (time, duration, GPUs) into a trace of jobs to schedule.

Translate model names of published traces to families of the model catalogue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.cluster.cluster_files import canonical_gpu_type
from clustergym.cluster.parts import DivisibleCluster
from clustergym.cluster.spec import ClusterSpec
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.columns import DAY_S, from_first, iso
from clustergym.common.errors import InputError, nearest
from clustergym.common.text_files import TextTable
from clustergym.trace.draw import DrawnJobs, Records, draw, get_reference_times
from clustergym.trace.options import ReadOptions, ReferenceTime, TypeNames, types_to_draw
from clustergym.trace.outcomes import (
    compute_asked_iterations,
    compute_shares,
    draw_asked,
    draw_asked_chances,
    no_outcomes,
)
from clustergym.trace.trace import Trace
from clustergym.trace.trace_checks import Column, build_trace

_TEXTS = ("job_id", "gpu_type", "user", "virtual_cluster", "partition")
"""Columns that are copied as they are in the log, if it has them."""
LATEST_S = 230 * 365.25 * DAY_S
"""Seconds from 1970 to 2200: a log's times beyond it are in another unit."""
MONTH_S = 30 * DAY_S
"""A log whose median duration is longer is likely to be in another unit than seconds."""


@dataclass(frozen=True, kw_only=True)
class RecordedJobs(Records):
    """The jobs in a cluster's log, without models, as columns of length n in the order of the file.

    Attributes
    ----------
    format, sha256 : str
        Format and SHA-256 of the source, for the provenance.
    job_id, user, virtual_cluster : list
    submit_s : ndarray of float
        Seconds on the source's clock: since 1970 if `dated`.
    left_out : Counter
        Rows left out, by reason.
    priority : ndarray of int, optional
    outcome : list of str, optional
        Of `workload.outcomes`; None: the log does not say how jobs ended.
    time_limit_s : ndarray of float, optional
        NaN: none; None: the log has no job's.
    start_s : ndarray of float, optional
        When each job started, on the clock of `submit_s`; None: the log does not say.
    nodes : ndarray of int, optional
        On how many nodes each job asks for its GPUs; 0: any, or not known.
    partition : list of str, optional
    dated : bool
    source_names : mapping
        The source's names of our columns, for error messages.
    facts : dict
        Further entries of the provenance.
    """

    format: str
    sha256: str
    job_id: Sequence[str]
    submit_s: Floats
    left_out: Counter[str]
    user: Sequence[str] | None = None
    virtual_cluster: Sequence[str] | None = None
    priority: Ints | None = None
    outcome: Sequence[str] | None = None
    time_limit_s: Floats | None = None
    start_s: Floats | None = None
    nodes: Ints | None = None
    partition: Sequence[str] | None = None
    dated: bool = True
    source_names: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def make_recorded_jobs(
    table: TextTable,
    form: str,
    names: Mapping[str, str],
    *,
    left_out: Mapping[str, Bools],
    unnamed: str = "job",
    dated: bool = True,
    facts: Mapping[str, Any] | None = None,
    **columns: Column | None,
) -> RecordedJobs:
    """Build recorded jobs from a log with a row for each job, without the rows that are left out.

    Parameters
    ----------
    table : TextTable
    form : str
        Name of the format.
    names : mapping
        Our column -> the log's, also of texts that the log may lack.
    submit_s, duration_s, gpus : ndarray, shape (n,)
    left_out : mapping
        Reason -> rows that are left out for it, shape (n,); a row counts for its first reason.
    outcome, priority, time_limit_s, start_s, nodes : optional
        Columns of length n; a limit is NaN where there is none.
    unnamed : str
        Jobs of a log without ids are called this and their row.
    dated : bool
    """
    kept = np.ones(len(table), dtype=np.bool_)
    counts: Counter[str] = Counter()
    for reason, out in left_out.items():
        # The order of reasons matters: a row counts for the first only, so that counts add up to the rows
        # left out.
        counts[reason] = int((out & kept).sum())
        kept &= ~out
    rows = np.flatnonzero(kept)
    index = rows.tolist()

    texts = {column: table.columns.get(names.get(column, "")) for column in _TEXTS}
    kept_columns: dict[str, Any] = {
        column: cells[rows] if isinstance(cells, np.ndarray) else [cells[row] for row in index]
        for column, cells in (texts | columns).items()
        if cells is not None
    }
    if "time_limit_s" in kept_columns and np.isnan(kept_columns["time_limit_s"]).all():
        del kept_columns["time_limit_s"]
    return RecordedJobs(
        path=table.path,
        row=rows,
        line=[table.line[row] for row in index],
        format=form,
        sha256=table.sha256,
        left_out=+counts,
        dated=dated,
        source_names=names,
        facts=facts or {},
        **{"job_id": [f"{unnamed}-{row}" for row in index], **kept_columns},
    )


def provenance(source: Path, name: str, sha256: str, origin: Any, **more: Any) -> dict[str, Any]:
    """Return what all imported traces say about their source: file, format, digest and time origin."""
    return {"source": source.name, "format": name, "sha256": sha256, "origin": origin, **more}


def make_empty_error(log: RecordedJobs) -> InputError:
    """Return the error for a log of which no job is left."""
    why = ", ".join(f"{count} {reason}" for reason, count in sorted(log.left_out.items()))
    message = f"no job is left ({why})" if why else "no job is left"
    return InputError(message, file=log.path, remedy="give a log with GPU jobs that ran")


def build_recorded_trace(log: RecordedJobs, options: ReadOptions) -> Trace:
    """Build a trace from a log's jobs: choose models at random, and start the clock at the first submission.

    With `options.outcomes=keep` jobs that failed or were killed end where they did in the log.
    """
    if not len(log.row):
        raise make_empty_error(log)
    # First, as a type that the reference cluster lacks says nothing of how long a job takes there.
    log = _with_type_names(log, options)
    # After type names are resolved: which models fit depends on the types.
    drawn = draw(log, options)
    long = _find_long_durations(log)
    submit_s, origin = from_first(log.submit_s)
    kept, outcomes = _select_outcomes(log, drawn, options)
    return build_trace(
        path=log.path,
        line=log.line,
        job_id=log.job_id,
        submit_s=submit_s,
        **drawn.columns | kept,
        asked_gpus=log.gpus,
        priority=log.priority,
        user=log.user,
        virtual_cluster=log.virtual_cluster,
        time_limit_s=log.time_limit_s,
        start_s=None if log.start_s is None else log.start_s - origin,
        nodes=_list_asked_nodes(log, drawn.gpus, options),
        partition=log.partition,
        source_names=log.source_names,
        canonical=options.type_name,
        provenance=provenance(
            log.path,
            log.format,
            log.sha256,
            iso(origin) if log.dated else origin,
            left_out=dict(sorted(log.left_out.items())),
            draw=drawn.facts,
            **long,
            **outcomes,
            **log.facts,
        ),
    )


def _find_long_durations(log: RecordedJobs) -> dict[str, float]:
    """Return figures on durations that are too long for seconds; raise an InputError for such submissions."""
    latest = float(log.submit_s.max())
    if latest >= LATEST_S:
        column = log.source_names.get("submit_s", "submit_s")
        message = f"{latest:.0f} s since 1970 lies after the year 2200"
        remedy = "if these are milliseconds, divide them by 1000"
        raise InputError(message, file=log.path, field=column, remedy=remedy)
    median_s, last_s = float(np.median(log.duration_s)), latest - float(log.submit_s.min())
    if median_s > MONTH_S:
        return {"median_duration_s": median_s}
    # In a log of a day or more most jobs end before its last submission. Where they do not, but would with a
    # thousandth of their durations, these are likely to be milliseconds.
    since = log.submit_s - latest
    late, late_of_milli = (float(np.mean(since + log.duration_s / unit > 0)) for unit in (1, 1000))
    if last_s >= DAY_S and len(log.row) >= 10 and late > 0.5 and late_of_milli < 0.1:
        return {"median_duration_s": median_s, "ended_after_last_submission": late}
    return {}


def _list_asked_nodes(log: RecordedJobs, gpus: Ints, options: ReadOptions) -> Ints | None:
    """Return how many nodes each job asks for, 0: any; None: none asks.

    A job asks for any whose GPUs cannot be equally many on each, or are more on one than a node has.
    """
    if log.nodes is None or options.node_gpus is None:
        return None
    largest = max(options.node_gpus.values(), default=0)
    types = [""] * len(gpus) if log.gpu_type is None else log.gpu_type
    most = np.array([options.node_gpus.get(name, largest) for name in types], dtype=np.int64)
    # Of the count that the job has now: one that was rounded up may no longer divide by the nodes it asked
    # for.
    each, left = np.divmod(gpus, np.maximum(log.nodes, 1))
    nodes: Ints = np.where((left == 0) & (each <= most), log.nodes, 0)
    return nodes if nodes.any() else None


def _with_type_names(log: RecordedJobs, options: ReadOptions) -> RecordedJobs:
    """Return a log with the names of its GPU types; raise an `InputError` for one that cannot be timed."""
    if log.gpu_type is None:
        return log
    name_of, known = options.type_name or canonical_gpu_type, {"": ""}
    for row, given in enumerate(log.gpu_type):
        if given in known:
            continue
        column = log.source_names.get("gpu_type", "gpu_type")
        place: dict[str, Any] = {"file": log.path, "line": int(log.line[row]) or None, "field": column}
        try:
            known[given] = name_of(given)
        except InputError as error:
            raise InputError(error.message, **place, remedy=error.remedy) from error
        if options.recorded_types is not None and known[given] not in options.recorded_types:
            message = (
                f"job {log.job_id[row]} ran on {known[given]}, which cluster {options.reference_cluster} "
                f"lacks (it has {', '.join(options.recorded_types)}), so its duration says nothing there"
            )
            remedy = "name the cluster that the log was recorded on: trace.reference_cluster=NAME or FILE"
            raise InputError(message, **place, remedy=remedy)
    return replace(log, gpu_type=[known[given] for given in log.gpu_type])


def _select_outcomes(
    log: RecordedJobs, drawn: DrawnJobs, options: ReadOptions
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the columns and the facts of the outcomes that a log has; the columns only if they are kept."""
    if log.outcome is None:
        if options.outcomes == "keep":
            raise no_outcomes(log.path)
        return {}, {}
    facts: dict[str, Any] = {"shares": compute_shares(log.outcome, log.duration_s * log.gpus)}
    if options.outcomes != "keep":
        return {}, {"outcomes": {"kept": False, **facts}}
    chances = draw_asked_chances(options.seed, log.row)
    asked_s, counts = draw_asked(log.outcome, log.duration_s, drawn.gpus, chances)
    columns = {
        "outcome": log.outcome,
        "end_iterations": drawn.iterations,
        "iterations": compute_asked_iterations(drawn.iterations, log.duration_s, asked_s),
    }
    return columns, {"outcomes": {"kept": True, **counts, **facts}}


FAMILIES = {
    "a3c": "a3c",
    "bert": "bert",
    "cifar10": "resnet18",
    "cyclegan": "cyclegan",
    "deepspeech2": "deepspeech2",
    "gpt2": "gpt2",
    "imagenet": "resnet50",
    "inception3": "inception3",
    "lm": "lm",
    "ncf": "neumf",
    "neumf": "neumf",
    "recommendation": "recommendation",
    "resnet-18": "resnet18",
    "resnet-50": "resnet50",
    "resnet18": "resnet18",
    "resnet50": "resnet50",
    "resnet50_cifar10": "resnet50",
    "transformer": "transformer",
    "vgg16": "vgg16",
    "yolov3": "yolov3",
}
"""Model names of Sia, Gavel and ElasticFlow -> families; Sia names ResNet-18 and -50 by data set."""


def families(
    names: Sequence[str], table: Mapping[str, str], path: Path, line: Sequence[int | None], field: str
) -> list[str]:
    """Return the catalogue's model family for each model name, whose case does not matter."""
    known: dict[str, str] = {}
    for name, row in zip(names, line, strict=True):
        if name in known:
            continue
        family = table.get(name.lower())
        if family is None:
            message = f"unknown model {name[:60]!r}" if name else "is empty"
            raise InputError(message, file=path, line=row, field=field, remedy=nearest(name.lower(), table))
        known[name] = family
    return [known[name] for name in names]


def make_options(
    cluster: ClusterSpec,
    times: ReferenceTime | None = None,
    *,
    rule: str,
    any_type: bool,
    type_name: TypeNames | None = None,
    **more: Any,
) -> ReadOptions:
    """Return options for reading a log such that jobs run as long on the cluster as in the log.

    A job that names no GPU type, and for which none is drawn, takes that long on the type of the cluster on
    which it is fastest. A log that names a type which the cluster lacks is refused.

    Parameters
    ----------
    cluster : ClusterSpec
        The cluster that the log was recorded on, or is taken to be.
    times : callable, optional
        Seconds per iteration there; by default the roofline oracle's.
    rule, any_type
        How models are drawn, and whether GPU types are left open.
    type_name : callable, optional
        Names of the GPU types in the file.
    **more
        Other fields of `ReadOptions`.
    """
    times, types = times or get_reference_times(cluster), cluster.gpu_types
    where = {"reference_gpu": "", "reference_cluster": cluster.name}
    given = {"rule": rule, "type_name": type_name, **where, **more}
    if isinstance(cluster, DivisibleCluster):
        # Its GPUs are one pool to the oracle, whatever their model; requests name models.
        return ReadOptions(
            reference_time_s=lambda model, gpu_type, gpus: times(model, "", gpus),
            recorded_types=cluster.named_types,
            gpu_types=(),
            **given,
        )
    return ReadOptions(
        reference_time_s=times,
        recorded_types=types,
        gpu_types=types_to_draw(rule, any_type, types) or (),
        most_gpus=dict(zip(types, cluster.capacity.tolist(), strict=True)),
        **given,
    )
