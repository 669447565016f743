"""What each tenant got in a run: its share, its quota, borrowed GPUs, starvation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.results.metrics.fairness import finish_time_fairness
from clustergym.results.metrics.intervals import Intervals, Outcome
from clustergym.results.metrics.preemptions import QueueUsage, list_losses
from clustergym.scenario.tenants.division import divide_among_queues
from clustergym.scenario.tenants.queue_tree import Amount, Queue, QueueTree, Tenants, of_type
from clustergym.sim.log import EventType

Figures = dict[str, float | int | None]


def whole_tree(tree: QueueTree, cluster: ClusterSpec) -> QueueTree:
    """Return a copy of a queue tree in which quotas and limits count GPUs of all types together."""

    def whole(amount: Amount, missing: float = 0.0) -> float:
        types = zip(cluster.gpu_types, cluster.capacity.tolist(), strict=True)
        return sum(min(of_type(amount, gpu_type, missing), float(most)) for gpu_type, most in types)

    def round_queue(queue: Queue) -> Queue:
        most = None if queue.limit is None else whole(queue.limit, np.inf)
        return replace(queue, quota=whole(queue.quota), limit=most, guarantee=0.0)

    settings = replace(tree.settings, oversubscribe=True)
    return QueueTree({name: round_queue(queue) for name, queue in tree.queues.items()}, settings)


def list_quotas(tree: QueueTree) -> Floats:
    """Return the quota of each leaf queue in GPUs, shape (leaves,), for a tree made by `whole_tree`."""
    return np.array([of_type(tree.queues[name].quota, "") for name in tree.leaves])


def compute_fair_shares(tree: QueueTree, wanted: Ints | Floats, total: float) -> Floats:
    """Return the GPUs that are each leaf queue's fair share over time, shape (intervals, leaves).

    Past use is left out of account. Shares are of all that is wanted then, so that a policy that gives out
    fewer GPUs misses them.
    """
    rows, place = np.unique(wanted, axis=0, return_inverse=True)
    found = np.zeros(rows.shape)
    for at, row in enumerate(rows.tolist()):
        shares = divide_among_queues(
            tree, "fair_share", "", total, dict(zip(tree.leaves, row, strict=True)), {}
        )
        found[at] = [shares[name] for name in tree.leaves]
    shares_at: Floats = found[place.reshape(-1)]
    return shares_at


def measure_tenants(
    intervals: Intervals,
    tenants: Tenants,
    cluster: ClusterSpec,
    standing: QueueUsage,
    requested_gpus: Ints,
    work_gpu_s: Floats,
) -> dict[str, Any]:
    """Compute the metrics of each tenant's queue and of all together, with GPUs of all types counted alike.

    Parameters
    ----------
    intervals : Intervals
    tenants : Tenants
    cluster : ClusterSpec
    standing : QueueUsage
        What `compute_queue_usage` returns of the intervals and requests.
    requested_gpus : ndarray of int, shape (n,)
    work_gpu_s : ndarray of float, shape (n,)
        GPU-seconds of each job at its request; NaN: not known.

    Returns
    -------
    dict
        `queues`: by leaf the figures of `_queue_figures`. `taken`: for each two leaves of which one lost GPUs
        to the other, how many jobs were `stopped` and `shrunk` for it and the `gpus`. `jain_index` of
        GPU-hours over weight among queues with jobs; `allocated_share` of the cluster's GPU-hours.
    """
    tree, total = whole_tree(tenants.tree, cluster), float(cluster.capacity.sum())
    fair = compute_fair_shares(tree, standing.wanted, total)
    quota = list_quotas(tree)
    rows = {
        name: _queue_figures(at, intervals, tenants, standing, quota, fair)
        | {"ftf_mean": _fairness(intervals, tenants.leaf == at, work_gpu_s, requested_gpus, quota[at])}
        for at, name in enumerate(tree.leaves)
    }
    weights = np.array([tree.queues[name].weight for name in tree.leaves])
    gpu_hours = np.array([row["gpu_hours"] for row in rows.values()])
    counted = np.array([row["jobs"] > 0 for row in rows.values()]) & (weights > 0)
    span_s = float(standing.time_s[-1] - standing.time_s[0])
    return {
        "queues": rows,
        "taken": list_losses(intervals, tenants),
        "jain_index": jain_index(gpu_hours[counted] / weights[counted]),
        "allocated_share": float(gpu_hours.sum()) / (total * span_s / 3600.0) if span_s else None,
    }


def _queue_figures(
    at: int, intervals: Intervals, tenants: Tenants, standing: QueueUsage, quota: Floats, fair: Floats
) -> dict[str, Any]:
    """Return the metrics of the GPUs that a queue asked for and held.

    `gpu_hours`; `borrowed_gpu_hours`, held beyond the quota; `owed_gpu_hours`, that it lacked of its quota
    while its jobs wanted them, and `owed_s` in which it did, with `times_owed`, the `reclaim_mean_s` for
    which each lasted and the `longest_owed_s`; `wanting_s` in which it had jobs, the `longest_starved_s` of
    these without a GPU, and the mean of |held - fair share| over these, `share_error_gpus`; `preemptions`
    and `failures`; mean and 99th percentile of `jct_s` of finished jobs.
    """
    lasting = np.diff(standing.time_s)
    held, wanted = standing.held[:-1, at], standing.wanted[:-1, at]
    owed = np.maximum(np.minimum(quota[at], wanted) - held, 0.0)
    spells_s, wanting_s = _spells(owed > 0, lasting), float(lasting[wanted > 0].sum())
    mine = tenants.leaf == at
    jct_s = (intervals.leave_s - intervals.submit_s)[mine & np.equal(intervals.count(EventType.COMPLETE), 1)]
    error_gpu_s = float((np.abs(held - fair[:-1, at]) * lasting)[wanted > 0].sum())
    return {
        "jobs": int(mine.sum()),
        "quota_gpus": float(quota[at]),
        "gpu_hours": float((held * lasting).sum()) / 3600.0,
        "borrowed_gpu_hours": float((np.maximum(held - quota[at], 0.0) * lasting).sum()) / 3600.0,
        "owed_gpu_hours": float((owed * lasting).sum()) / 3600.0,
        "owed_s": float(sum(spells_s)),
        "times_owed": len(spells_s),
        "reclaim_mean_s": float(np.mean(spells_s)) if spells_s else None,
        "longest_owed_s": max(spells_s, default=0.0),
        "wanting_s": wanting_s,
        "longest_starved_s": max(_spells((wanted > 0) & (held == 0), lasting), default=0.0),
        "share_error_gpus": error_gpu_s / wanting_s if wanting_s else None,
        "preemptions": int(intervals.count(EventType.PREEMPT)[mine].sum()),
        "failures": int(intervals.count(EventType.FAIL)[mine].sum()),
        "jct_mean_s": float(jct_s.mean()) if len(jct_s) else None,
        "jct_p99_s": float(np.percentile(jct_s, 99)) if len(jct_s) else None,
    }


def _fairness(
    intervals: Intervals, mine: Bools, work_gpu_s: Floats, requested_gpus: Ints, quota: float
) -> float | None:
    """Return the mean ratio of JCT to the JCT under fluid sharing of the queue's own quota alone."""
    if quota <= 0:
        return None
    jct_s = np.where(intervals.outcome == Outcome.FINISHED, intervals.leave_s - intervals.submit_s, np.nan)
    submitted = mine & (intervals.outcome != Outcome.NOT_SUBMITTED)
    rho = finish_time_fairness(intervals.submit_s, jct_s, work_gpu_s, requested_gpus, submitted, quota).rho
    known = rho[np.isfinite(rho)]
    return float(known.mean()) if len(known) else None


def tenant_metrics(tenants: dict[str, Any], gpus: float) -> Figures:
    """Return the run's metrics on tenants by name, given the result of `measure_tenants`."""
    rows = [row for row in tenants["queues"].values() if row["jobs"]]

    def list_known(key: str) -> list[float]:
        return [row[key] for row in rows if row[key] is not None]

    def mean(values: Sequence[float]) -> float | None:
        return float(np.mean(values)) if values else None

    wanting = [row for row in rows if row["quota_gpus"] and row["wanting_s"]]
    times = sum(row["times_owed"] for row in rows)
    return {
        "tenant_ftf_mean": mean(list_known("ftf_mean")),
        "tenant_ftf_worst": max(list_known("ftf_mean"), default=None),
        "tenant_jct_mean": mean(list_known("jct_mean_s")),
        "tenant_share_error": mean([value / gpus for value in list_known("share_error_gpus")]),
        "tenant_owed_time": mean([row["owed_s"] / row["wanting_s"] for row in wanting]),
        "tenant_owed_gpu_hours": float(sum(list_known("owed_gpu_hours"))),
        "tenant_reclaim_mean": sum(list_known("owed_s")) / times if times else None,
        "tenant_owed_longest": max(list_known("longest_owed_s"), default=None),
        "tenant_starved_longest": max(list_known("longest_starved_s"), default=None),
        "tenant_borrowed_gpu_hours": float(sum(list_known("borrowed_gpu_hours"))),
        "tenant_stopped": sum(row["stopped"] for row in tenants["taken"]),
        "tenant_shrunk": sum(row["shrunk"] for row in tenants["taken"]),
        "tenant_jain_index": tenants["jain_index"],
    }


def jain_index(values: Floats) -> float | None:
    """Return Jain's fairness index: 1 if all values are equal, 1/n if one has everything."""
    squares = len(values) * float((values**2).sum())
    return float(values.sum()) ** 2 / squares if squares else None


def _spells(holds: Bools, lasting: Floats) -> list[float]:
    """Return the seconds of each unbroken time for which a condition holds."""
    edges = np.diff(np.concatenate([[0], holds, [0]]))
    begins = np.append(0.0, np.cumsum(lasting))
    starts, stops = begins[np.flatnonzero(edges == 1)], begins[np.flatnonzero(edges == -1)]
    return [float(one) for one in stops - starts]
