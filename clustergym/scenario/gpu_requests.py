"""Turns what jobs ask for into counts and types of GPUs on which they run, or into parts of GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from clustergym.cluster.parts import (
    WHOLE,
    DivisibleCluster,
    Parts,
    Requests,
    distinct,
    encode_models,
    fitting,
)
from clustergym.cluster.spec import ClusterSpec
from clustergym.common.arrays import Bools, Ints
from clustergym.common.errors import InputError, nearest
from clustergym.trace.trace import Trace


class GpuRequests(NamedTuple):
    """All jobs' requests: GPU type index (-1: any), GPUs (0 if none fits), and whether they were changed."""

    gpu_type: Ints
    gpus: Ints
    changed: Bools


def index_named_types(trace: Trace, cluster: ClusterSpec) -> Ints:
    """Return the index of the GPU type that each job requests by name, shape (n,); -1 for any type."""
    index = {name: cluster.gpu_types.index(name) if name else -1 for name in set(trace.gpu_type)}
    return np.array([index[name] for name in trace.gpu_type], dtype=np.int64)


def fit_requests(
    named: Ints, asked: Ints, oversize: Bools, feasible: Bools, class_of: Ints, counts: Ints
) -> GpuRequests:
    """Return all jobs' requests (type `named`, GPUs `asked`), with infeasible ones changed to feasible ones.

    Parameters
    ----------
    named, asked, class_of : ndarray of int, shape (n,)
        Type index, GPUs and row of the model class of each job.
    oversize : ndarray of bool, shape (n,)
        Whether a job asks for more than it can have.
    feasible : ndarray of bool, shape (C, T, K)
        Whether a class fits on (type, count).
    counts : ndarray of int, shape (K,)
    """
    # A request is raised on its own type first, and moved to another only if none of that type's counts fits.
    every, nowhere = np.arange(len(asked)), len(counts)
    least = _least_level(feasible)[class_of, :, np.searchsorted(counts, asked)]
    lowest = least.min(axis=1)
    level = np.where(named < 0, lowest, least[every, named])
    moved = (level == nowhere) | oversize
    wanted = np.where(moved & (lowest < nowhere) & (named >= 0), least.argmin(axis=1), named)
    wanted[moved & (lowest == nowhere)] = -1
    gpus = np.append(counts, 0)[np.where(moved, lowest, level)]
    # An oversize request is dropped (0 GPUs), even where fewer GPUs would do.
    wanted, gpus = np.where(oversize, named, wanted), np.where(oversize, 0, gpus)
    return GpuRequests(wanted, gpus, oversize | (gpus != asked) | (wanted != named))


def _least_level(feasible: Bools) -> Ints:
    """Return the least index, from each on, of a count at which a class fits, (C, T, K + 1); K: none."""
    levels = feasible.shape[-1]
    # A running minimum from the right; the last place is for requests above all counts.
    level = np.full((*feasible.shape[:2], levels + 1), levels)
    level[..., :-1] = np.where(feasible, np.arange(levels), levels)
    return np.minimum.accumulate(level[..., ::-1], axis=-1)[..., ::-1]


def make_oversize_error(trace: Trace, cluster: ClusterSpec, allowed: int, row: int, named: int) -> InputError:
    """Return the error for a job that requests more GPUs of type index `named` than exist or are allowed."""
    type_text = "of one type" if named < 0 else cluster.gpu_types[named]
    most = int(cluster.capacity.max() if named < 0 else cluster.capacity[named])
    read = int(trace.gpus[row])
    asked = read if trace.asked_gpus is None else int(trace.asked_gpus[row])
    rounded = f" (rounded up to {read})" * (asked != read)
    limit = f", and the scenario allows no more than {allowed} to a job" * (asked == read > allowed)
    keep = "keep counts with trace.counts=keep, " * (asked <= most)
    return InputError(
        f"job {trace.job_id[row]} asks for {asked} GPUs{rounded}, cluster "
        f"{cluster.name} has {most} {type_text}{limit * (asked <= most)}",
        file=trace.path or None,
        line=int(trace.line[row]) or None,
        field="gpus",
        remedy=f"{keep}name a larger cluster, or drop such jobs with scenario.oversize=drop",
    )


REMEDY = "name a cluster whose nodes have cpu_milli and memory_mib, as cluster=openb-like"


def whole_gpus_alone(trace: Trace, cluster: ClusterSpec) -> None:
    """Raise an `InputError` for the first job that requests a part of a GPU, a GPU model, CPU or memory."""
    if trace.gpu_milli is None or trace.cpu_milli is None or trace.memory_mib is None:
        return
    what = (
        ("gpu_milli", trace.gpu_milli == 0, "no GPU, but CPU or memory"),
        ("gpu_milli", trace.gpu_milli < WHOLE, "a part of a GPU"),
        ("cpu_milli", (trace.cpu_milli > 0) | (trace.memory_mib > 0), "CPU or memory"),
        ("gpu_models", np.array([bool(names) for names in trace.gpu_models or ()]), "models of GPUs"),
    )
    for column, asks, wish in what:
        if asks.any():
            row = int(np.argmax(asks))
            message = (
                f"job {trace.job_id[row]} asks for {wish}, which cluster {cluster.name} does not tell of"
            )
            raise _make_column_error(trace, row, column, message, REMEDY)


def with_parts(trace: Trace, cluster: DivisibleCluster, other_models: str) -> tuple[Trace, Parts]:
    """Return a trace that names no GPU types, and its jobs' requests for parts of GPUs, CPU and memory.

    Parameters
    ----------
    trace : Trace
    cluster : DivisibleCluster
    other_models : str
        `error`, or `any`: a job that accepts only models that the cluster does not have accepts any.
    """
    n = len(trace)
    accepted = tuple(
        models or gpu_type
        for models, gpu_type in zip(trace.gpu_models or ("",) * n, trace.gpu_type, strict=True)
    )
    bits = {text: _bits(trace, cluster, accepted.index(text), text, other_models) for text in set(accepted)}
    milli = np.full(n, WHOLE) if trace.gpu_milli is None else trace.gpu_milli
    zeros = np.zeros(n, dtype=np.int64)
    rows = Requests(
        cpu_milli=zeros if trace.cpu_milli is None else trace.cpu_milli,
        memory_mib=zeros if trace.memory_mib is None else trace.memory_mib,
        # A job of CPUs alone has 1 in the trace, as every job has there.
        gpus=np.where(milli == 0, 0, trace.gpus),
        gpu_milli=milli,
        models=np.array([bits[text] for text in accepted]),
    )
    requests, gpu_type = distinct(rows)
    fits = fitting(cluster.empty_nodes(), requests)[gpu_type]
    return replace(trace, gpu_type=("",) * n), Parts(requests, gpu_type, accepted, fits)


def _bits(trace: Trace, cluster: DivisibleCluster, row: int, text: str, other_models: str) -> int:
    names = [name for name in text.split("|") if name]
    unknown = [name for name in names if name not in cluster.models]
    if unknown and other_models == "error":
        message = f"job {trace.job_id[row]} asks for {unknown[0]}, which cluster {cluster.name} does not have"
        remedy = f"{nearest(unknown[0], cluster.models)}; or scenario.other_types=any"
        raise _make_column_error(trace, row, "gpu_models", message, remedy)
    return encode_models([name for name in names if name not in unknown], cluster.models)


def fits_nowhere(trace: Trace, cluster: ClusterSpec, parts: Parts, row: int) -> InputError:
    """Return the error for a job whose request fits on no empty node."""
    cpu, memory, gpus, milli, _ = parts.requests.unpack_row(int(parts.request[row]))
    asked = f"{gpus} x {milli} thousandths of a GPU, {cpu} of a core and {memory} MiB"
    message = f"job {trace.job_id[row]} asks for {asked}, which no node of cluster {cluster.name} has"
    return _make_column_error(
        trace, row, "gpus", message, "name another cluster, or drop such jobs with scenario.oversize=drop"
    )


def _make_column_error(trace: Trace, row: int, column: str, message: str, remedy: str) -> InputError:
    line = int(trace.line[row]) or None
    return InputError(message, file=trace.path or None, line=line, field=column, remedy=remedy)


def sum_requested_milli(parts: Parts, rows: Ints) -> Ints:
    """Return the thousandths of GPUs that each of the given jobs requests, in the shape of `rows`."""
    milli: Ints = (parts.requests.gpus * parts.requests.gpu_milli)[parts.request[rows]]
    return milli
