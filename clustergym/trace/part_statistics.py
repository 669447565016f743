"""Statistics of a trace whose jobs ask for parts of GPUs, and the load it offers to a divisible cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import InputError
from clustergym.trace.part_columns import RECORDED, WHOLE
from clustergym.trace.trace import Trace
from clustergym.trace.trace_statistics import correlations, percentiles, trace_statistics

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
        name: _load(column, ran_s, there, trace.span_s)
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


def _load(asked: Ints, ran_s: Floats, installed: int, span_s: float) -> float | None:
    """Return demand over capacity from the first to the last submission; None if these are at one time."""
    demand = float((asked * ran_s).sum())
    if demand == 0.0:
        return 0.0
    return demand / (installed * span_s) if span_s > 0 and installed > 0 else None
