"""Compute statistics of a trace, and the load it offers to a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common.arrays import Floats, Ints
from clustergym.common.writing import plain
from clustergym.oracle.base import OracleTables
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.trace.outcomes import compute_shares
from clustergym.trace.trace import Trace

if TYPE_CHECKING:
    from clustergym.trace.draw import TablesOf

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
WINDOWS_S = {"10min": 600, "1h": 3600, "1d": 86_400}


@dataclass(frozen=True)
class OfferedLoad:
    """The GPU time that a trace's jobs demand, relative to the GPU time that a cluster has.

    Attributes
    ----------
    gpu_types : tuple of str
        Axis T.
    demand_gpu_s : ndarray of float, shape (T,)
        GPU-seconds demanded of each type.
    load : ndarray of float, shape (T,)
        Demand over capacity times span; inf if all jobs are submitted at once.
    overall : float
        The same over all types together.
    job_gpu_s : ndarray of float, shape (n,)
        Demand of each job, over all types.
    duration_s : ndarray of float, shape (n,)
        Run time of each job at its request, compactly placed; for a job without a requested type
        the mean over the types it fits, weighted by capacity. NaN where it fits nowhere.
    infeasible : int
        Jobs that do not fit as requested, counted at another count or on other types.
    nowhere : int
        Jobs that fit on no type at any count; they demand nothing.
    """

    gpu_types: tuple[str, ...]
    demand_gpu_s: Floats
    load: Floats
    overall: float
    job_gpu_s: Floats
    duration_s: Floats
    infeasible: int
    nowhere: int


def build_tables(trace: Trace, cluster: ClusterSpec, tables_of: TablesOf | None = None) -> OracleTables:
    """Build the iteration times of a trace's model classes at all GPU counts needed for its offered load.

    `tables_of` builds them from classes, cluster and counts: by default the roofline oracle's.
    """
    if tables_of is None:
        from clustergym.oracle.roofline.roofline_oracle import RooflineOracle

        tables_of = RooflineOracle().tables
    return tables_of(sorted(set(trace.model_classes)), cluster, list_counts(trace.gpus, cluster))


def list_counts(gpus: Ints, cluster: ClusterSpec) -> list[int]:
    """Return the GPU counts, ascending, at which iteration times are needed to compute the offered load."""
    # Powers of two besides the counts that are asked for: a job that does not fit is costed at the next
    # larger one.
    doubling = {1 << power for power in range(int(cluster.capacity.max()).bit_length())}
    return sorted(doubling.union(gpus.tolist()))


def offer(trace: Trace, cluster: ClusterSpec, tables: OracleTables) -> OfferedLoad:
    """Compute the GPU time that a trace's jobs demand from a cluster, and the resulting offered load.

    A job demands iterations x iteration time x GPUs of the type it requests, compactly placed. A job
    that requests none is spread over the types it fits in proportion to their capacity, at each
    type's own iteration time. A request that does not fit, in memory or in the type's capacity,
    counts at the least count that fits on that type; where none does, or the cluster lacks the type,
    on the other types.
    """
    at_request = RequestCosts(cluster, tables.counts.tolist())
    at_request.learn(tables)
    costs = at_request.of_jobs(trace)
    iterations = trace.work_iterations.astype(np.float64)
    by_job = iterations[:, None] * at_request.gpu_s(costs)
    demand = by_job.sum(axis=0)
    span, capacity = trace.span_s, cluster.capacity.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        load = np.where(demand > 0, demand / (capacity * span), 0.0)
        overall = float(demand.sum() / (capacity.sum() * span)) if demand.sum() > 0 else 0.0
    return OfferedLoad(
        gpu_types=cluster.gpu_types,
        demand_gpu_s=demand,
        load=load,
        overall=overall,
        job_gpu_s=by_job.sum(axis=1),
        duration_s=iterations * np.array([cost.time_s for cost in costs]),
        infeasible=sum(cost.infeasible for cost in costs),
        nowhere=sum(bool(np.isnan(cost.time_s)) for cost in costs),
    )


class _Cost(NamedTuple):
    """The cost of one iteration: GPU-seconds on each of T types, seconds, and whether it does not fit."""

    gpu_s: list[float]
    time_s: float
    infeasible: bool


class RequestCosts:
    """Cached GPU time (seconds x GPUs) of one iteration, by model class, requested GPU type and GPU count.

    Parameters
    ----------
    cluster : ClusterSpec
    counts : sequence of int
        GPU counts, ascending.

    Attributes
    ----------
    times : dict
        Model class -> seconds per iteration, compactly placed, shape (T, K); inf where it does not fit.
    """

    def __init__(self, cluster: ClusterSpec, counts: Sequence[int]) -> None:
        self.cluster, self.counts = cluster, list(counts)
        self.times: dict[ModelClass, Floats] = {}
        self._known: dict[tuple[ModelClass, str, int], _Cost] = {}

    def learn(self, tables: OracleTables) -> None:
        """Add the iteration times of further model classes to the cache."""
        # The most compact placement: what a job offers to a cluster is its work where it runs best, not where
        # a placer might put it.
        tiers = [
            [int(self.cluster.compact_locality(t, min(k, int(room)))) for k in self.counts]
            for t, room in enumerate(self.cluster.capacity.tolist())
        ]
        index = np.array(tiers)[None, :, :, None]
        shape = (*tables.execution.shape[:3], 1)
        times = np.take_along_axis(tables.execution, np.broadcast_to(index, shape), axis=3)[..., 0]
        fits = tables.counts[None, :] <= self.cluster.capacity[:, None]
        self.times |= zip(tables.classes, np.where(fits[None], times, np.inf), strict=True)

    def of_jobs(self, trace: Trace) -> list[_Cost]:
        """Return the GPU time of an iteration of each job as requested; call `learn` for its model first."""
        keys = list(zip(trace.model_classes, trace.gpu_type, trace.gpus.tolist(), strict=True))
        self._known |= {key: self._cost(*key) for key in set(keys) - self._known.keys()}
        return [self._known[key] for key in keys]

    def gpu_s(self, costs: Sequence[_Cost]) -> Floats:
        """Return the GPU-seconds of an iteration of each job on each GPU type, shape (n, T)."""
        return np.array([cost.gpu_s for cost in costs]).reshape(len(costs), -1)

    def _cost(self, model: ModelClass, gpu_type: str, gpus: int) -> _Cost:
        table = self.times[model]
        every = range(len(self.cluster.gpu_types))
        asked = [self.cluster.gpu_types.index(gpu_type)] if gpu_type in self.cluster.gpu_types else []
        others = [gpu_type for gpu_type in every if gpu_type not in asked]
        if gpu_type == "":
            tries = [(others, True), (others, False)]
        else:
            # What a user asked for comes before what fits: first the type at the count, then more GPUs of it,
            # then other types.
            tries = [(asked, True), (asked, False), (others, True), (others, False)]
        for attempt, (gpu_types, exactly) in enumerate(tries):
            found = {
                gpu_type: count
                for gpu_type in gpu_types
                if (count := self._count(table[gpu_type], gpus, exactly))
            }
            if found:
                return self._spread(table, found, infeasible=attempt > 0)
        return _Cost([0.0 for _ in every], float("nan"), infeasible=True)

    def _count(self, times: Floats, gpus: int, exactly: bool) -> int:
        """Return the GPU count to use: `gpus` if `exactly`, else the least that fits; 0 if none fits."""
        for index, count in enumerate(self.counts):
            if np.isfinite(times[index]) and (count == gpus or not exactly):
                return int(count)
        return 0

    def _spread(self, table: Floats, found: dict[int, int], infeasible: bool) -> _Cost:
        total = sum(int(self.cluster.capacity[gpu_type]) for gpu_type in found)
        gpu_s, time_s = [0.0] * len(table), 0.0
        for gpu_type, count in found.items():
            # A job that may run on several types is spread over them by their GPUs; to know better one would
            # have to schedule.
            share = int(self.cluster.capacity[gpu_type]) / total
            seconds = float(table[gpu_type, self.counts.index(count)])
            gpu_s[gpu_type] = share * seconds * count
            time_s += share * seconds
        return _Cost(gpu_s, time_s, infeasible)


def trace_statistics(
    trace: Trace, cluster: ClusterSpec | None = None, tables: OracleTables | None = None
) -> dict[str, Any]:
    """Return statistics of a trace as JSON values (None if undefined), with its load on a cluster.

    Parameters
    ----------
    trace : Trace
        At least one job.
    cluster : ClusterSpec, optional
        Adds durations, their correlation with GPU counts, offered load on it, and shares by outcome where
        the trace keeps outcomes.
    tables : OracleTables, optional
        Of the trace on the cluster; by default the roofline oracle's.

    Notes
    -----
    Counts per window are of whole windows since the first submission, and their Fano factor is the
    sample variance over the mean. Burstiness is (cv - 1) / (cv + 1) of the times between arrivals
    (Goh and Barabasi, 2008): -1 for a clock, 0 for a Poisson process, towards 1 for bursts. The hour
    of day is that of the trace's clock, started at the `start_hour` of its provenance if it has one.
    """
    since_first = trace.submit_s - trace.submit_s[0]
    start_hour = trace.provenance.get("start_hour", 0)
    origin_s = 3600.0 * start_hour if isinstance(start_hour, int) else 0.0
    statistics: dict[str, Any] = {
        "jobs": len(trace),
        "span_s": trace.span_s,
        "rate_per_hour": len(trace) / trace.span_s * 3600.0 if trace.span_s > 0 else None,
        "interarrival": interarrival_statistics(since_first),
        "counts": {name: count_statistics(since_first, width) for name, width in WINDOWS_S.items()},
        "hour_of_day_share": hour_of_day_share(trace.submit_s + origin_s).tolist(),
        "gpus": {
            "share": _shares(trace.gpus.tolist()),
            "mean": float(trace.gpus.mean()),
            "max": int(trace.gpus.max()),
            **percentiles(trace.gpus),
        },
        "gpu_type_share": _shares([gpu_type or "any" for gpu_type in trace.gpu_type]),
        "model_share": _shares([trace.model_class(row).model for row in range(len(trace))]),
        "deadlines": int(np.isfinite(trace.deadline_s).sum()),
    }
    if cluster is not None:
        offered = offer(trace, cluster, tables or build_tables(trace, cluster))
        statistics |= _compare_with_cluster(trace, cluster, offered)
        if trace.outcome is not None:
            statistics["outcomes"] = compute_shares(trace.outcome, offered.job_gpu_s)
    return statistics


def interarrival_statistics(submit_s: Floats) -> dict[str, float | None]:
    """Return mean, median, coefficient of variation and burstiness of the times between submissions (s).

    They are mean (s), median (s), coefficient of variation and burstiness.
    """
    gaps = np.diff(submit_s)
    if not len(gaps):
        return dict.fromkeys(("mean_s", "median_s", "cv", "burstiness"))
    mean = float(gaps.mean())
    cv = float(gaps.std()) / mean if mean > 0 else None
    burstiness = None if cv is None else (cv - 1.0) / (cv + 1.0)
    return {"mean_s": mean, "median_s": float(np.median(gaps)), "cv": cv, "burstiness": burstiness}


def count_statistics(submit_s: Floats, width_s: float) -> dict[str, float | int | None]:
    """Return mean, maximum, Fano factor and autocorrelation of the number of submissions per time window.

    Parameters
    ----------
    submit_s : ndarray of float
        Seconds since the first submission.
    width_s : float
        Width of a window; only whole windows count.
    """
    # Whole windows alone: the last, cut one would look like a quiet time.
    windows = int(submit_s[-1] // width_s)
    counts = np.bincount((submit_s // width_s).astype(np.int64), minlength=windows)[:windows].astype(
        np.float64
    )
    mean = float(counts.mean()) if windows else None
    off = counts - (mean or 0.0)
    square = float((off * off).sum())
    return {
        "windows": windows,
        "mean": mean,
        "max": int(counts.max()) if windows else None,
        # Variance over mean of the counts (unbiased): 1 for a Poisson process, more if arrivals come in
        # bursts.
        "fano": square / (windows - 1) / mean if windows > 1 and mean else None,
        "lag1_autocorrelation": float((off[1:] * off[:-1]).sum()) / square if square > 0 else None,
    }


def hour_of_day_share(submit_s: Floats) -> Floats:
    """Return the share of submissions in each hour of the day, shape (24,)."""
    hours = (submit_s // 3600.0).astype(np.int64) % 24
    return np.bincount(hours, minlength=24) / len(submit_s)


def correlations(gpus: Ints, duration_s: Floats) -> dict[str, float | None]:
    """Return the correlations of jobs' GPU counts with their durations; None if either is constant.

    They are Pearson's, of log2 GPUs with ln duration, and Spearman's rank correlation.
    """
    known = np.isfinite(duration_s) & (duration_s > 0)
    x, y = np.log2(gpus[known]), np.log(duration_s[known])
    if len(x) < 2 or x.min() == x.max() or y.min() == y.max():
        return {"pearson_log2_gpus_ln_duration": None, "spearman": None}
    from scipy.stats import spearmanr

    pearson, rank = float(np.corrcoef(x, y)[0, 1]), float(spearmanr(x, y).statistic)
    return {"pearson_log2_gpus_ln_duration": pearson, "spearman": rank}


def percentiles(values: Floats | Ints) -> dict[str, float]:
    """Return percentiles of values, with keys such as `p50`."""
    return {f"p{rank}": float(np.percentile(values, rank)) for rank in PERCENTILES}


def _shares(values: Sequence[Any]) -> dict[str, float]:
    """Return the share of each value, in ascending order."""
    return {str(value): count / len(values) for value, count in sorted(Counter(values).items())}


def _compare_with_cluster(trace: Trace, cluster: ClusterSpec, offered: OfferedLoad) -> dict[str, Any]:
    known = offered.duration_s[np.isfinite(offered.duration_s)]
    durations: dict[str, float | None] = {"mean": None, "ln_mean": None, "ln_sigma": None}
    if len(known):
        logs = np.log(known)
        durations = {
            "mean": float(known.mean()),
            "ln_mean": float(logs.mean()),
            "ln_sigma": float(logs.std()),
        }
        durations |= percentiles(known)
    return {
        "cluster": cluster.name,
        "duration_s": durations,
        "gpu_hours": float(offered.demand_gpu_s.sum()) / 3600.0,
        "correlation": correlations(trace.gpus, offered.duration_s),
        "offered_load": {
            "overall": plain(offered.overall),
            "by_gpu_type": {
                gpu_type: plain(float(load))
                for gpu_type, load in zip(cluster.gpu_types, offered.load, strict=True)
            },
            "infeasible_requests": offered.infeasible,
            "fits_nowhere": offered.nowhere,
        },
    }
