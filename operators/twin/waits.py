"""Waiting times of jobs by size, team, partition and hour: quantiles, and a log's beside a replay's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.trace.trace import Trace

CLOSE_S = 60.0
"""A start within so many seconds of the logged one counts as the same."""
SHORT_S = 10.0
"""Least run time in a bounded slowdown (Feitelson, JSSPP '97)."""
QUANTILES = {"p50_s": 50.0, "p90_s": 90.0, "p99_s": 99.0}
BY = {
    "all": "all jobs",
    "size": "GPUs of a job",
    "team": "team",
    "partition": "partition",
    "hour": "hour of submission",
}
"""Groups of jobs, and their titles."""
MOST_GROUPS = 12
"""Groups shown of each grouping in `BY`: those with most GPU time first; the rest is one."""


class JobTable(NamedTuple):
    """Size, team, partition and times of n jobs, as columns of length n.

    Attributes
    ----------
    gpus : ndarray of int
        GPUs asked for.
    gpu_s : ndarray of float
        GPU-seconds held.
    submit_s : ndarray of float
        On a clock that begins at `origin_s`, seconds since 1970 (or any midnight).
    origin_s : float
    team, partition : sequence of str
        Empty where unknown.
    """

    gpus: Ints
    gpu_s: Floats
    submit_s: Floats
    origin_s: float
    team: Sequence[str]
    partition: Sequence[str]

    @classmethod
    def of(cls, trace: Trace) -> JobTable:
        """Return the table of a trace's jobs; assume, without a check, that iterations last one second."""
        gpu_s = trace.gpus.astype(np.float64) * trace.work_iterations
        partition = trace.partition or ("",) * len(trace)
        return cls(trace.gpus, gpu_s, trace.submit_s, trace.clock_start_s, trace.virtual_cluster, partition)


def list_groups(jobs: JobTable, by: str) -> Iterator[tuple[str, Bools]]:
    """Divide jobs into groups, such as teams; yield each group's name and a mask of its jobs, shape (n,)."""
    names = _names(jobs, by)
    found: dict[str, float] = {}
    for name, gpu_s in zip(names, jobs.gpu_s.tolist(), strict=True):
        found[name] = found.get(name, 0.0) + gpu_s
    column = np.array(names, dtype=object)
    if by in ("size", "hour"):
        for name in sorted(found, key=lambda name: int(name.split(":")[0].split("-")[0])):
            yield name, column == name
        return
    first = sorted(found, key=lambda name: (-found[name], name))[:MOST_GROUPS]
    for name in first:
        yield name or "(none)", column == name
    if len(found) > len(first):
        yield f"{len(found) - len(first)} others", ~np.isin(names, first)


def _names(jobs: JobTable, by: str) -> list[str]:
    if by == "all":
        return [BY["all"]] * len(jobs.gpus)
    if by == "size":
        # 1, 2, 3-4, 5-8, 9-16 and so on: up to the next power of two.
        most = [1 << int(gpus - 1).bit_length() for gpus in jobs.gpus.tolist()]
        return [f"{top // 2 + 1}-{top}" if top > 2 else str(top) for top in most]
    if by == "hour":
        hours = ((jobs.origin_s + jobs.submit_s) % 86_400 // 10_800 * 3).astype(int).tolist()
        return [f"{hour:02d}:00-{hour + 3:02d}:00" for hour in hours]
    return list(jobs.team if by == "team" else jobs.partition)


def waits(wait_s: Floats, run_s: Floats) -> dict[str, Any]:
    """Return mean, quantiles and bounded slowdown of waiting times by name; None without a job."""
    known = np.isfinite(wait_s) & np.isfinite(run_s)
    wait_s, run_s = wait_s[known], run_s[known]
    if not len(wait_s):
        return {"jobs": 0, "mean_s": None, **dict.fromkeys(QUANTILES), "slowdown": None}
    slowdown = float(np.maximum((wait_s + run_s) / np.maximum(run_s, SHORT_S), 1.0).mean())
    quantiles = {name: float(np.percentile(wait_s, share)) for name, share in QUANTILES.items()}
    return {"jobs": len(wait_s), "mean_s": float(wait_s.mean()), **quantiles, "slowdown": slowdown}


def compare(trace: Trace, start_s: Floats) -> dict[str, Any]:
    """Compare a log's start times with simulated ones, shape (n,); NaN marks a job that never started.

    Returns
    -------
    dict
        `waits`, by grouping and name of group: `logged` and `simulated` as `waits`, and `close`, the share of
        starts within `CLOSE_S` of the log's; `unexplained`: what the replay does not account for.
    """
    assert trace.start_s is not None
    run_s = trace.work_iterations.astype(np.float64)
    logged, simulated = trace.start_s - trace.submit_s, start_s - trace.submit_s
    late, jobs = simulated - logged, JobTable.of(trace)
    tables: dict[str, dict[str, dict[str, Any]]] = {}
    for by in BY:
        tables[by] = {}
        for name, mine in list_groups(jobs, by):
            close = np.abs(late[mine]) <= CLOSE_S
            tables[by][name] = {
                "logged": waits(logged[mine], run_s[mine]),
                "simulated": waits(simulated[mine], run_s[mine]),
                "close": float(close.mean()) if mine.any() else None,
            }
    known = np.isfinite(late)
    mean = float(np.nanmean(np.abs(late))) if known.any() else None
    unexplained = {
        "mean_error_of_starts_s": mean,
        "earlier_than_logged": float((late[known] < -CLOSE_S).mean()) if known.any() else None,
        "later_than_logged": float((late[known] > CLOSE_S).mean()) if known.any() else None,
        "never_started": int((~np.isfinite(start_s)).sum()),
        "largest": _largest(trace, late),
    }
    return {"waits": tables, "unexplained": unexplained}


def _largest(trace: Trace, late: Floats, most: int = 10) -> list[Mapping[str, Any]]:
    """Return the jobs whose starts differ most."""
    order = np.argsort(-np.abs(np.nan_to_num(late)), kind="stable")[:most].tolist()
    return [
        {"job_id": trace.job_id[row], "gpus": int(trace.gpus[row]), "late_s": float(late[row])}
        for row in order
        if abs(late[row]) > CLOSE_S
    ]
