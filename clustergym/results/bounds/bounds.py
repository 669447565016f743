"""Analytic lower bounds on mean JCT and makespan, which no scheduler can beat."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.scenario.scenario import Scenario


class Bounds(NamedTuple):
    """Lower bounds for a run of a scenario in which every job that fits somewhere finishes.

    Attributes
    ----------
    jct_mean, makespan : float
        Seconds; 0 without jobs.
    """

    jct_mean: float
    makespan: float


def least_work(scenario: Scenario) -> tuple[Floats, Floats]:
    """Return the least run time (s) and the least work (GPU-seconds) of each job, both of shape (n,).

    They are minima over all types, counts and localities; inf for a job that is dropped, as its request
    fits nowhere. Waiting, profiling, plan search and restarts only add to them. Parts of GPUs count as such.
    Where jobs share GPUs in pairs, a job may be as much faster as any keeps beside another, and a GPU-second
    do the work that the best pair does in one.
    """
    times = scenario.execution
    counts = scenario.tables.counts
    room = counts[None, :] <= scenario.cluster.capacity[:, None]
    times = np.where(room[None, :, :, None], times, np.inf)
    fastest = times.min(axis=(1, 2, 3))[scenario.class_of]
    leanest = (times * counts[None, None, :, None]).min(axis=(1, 2, 3))[scenario.class_of]
    if scenario.parts is not None:
        leanest = fastest * scenario.parts.gpus
    iterations = np.where(scenario.request_gpus > 0, scenario.trace.work_iterations, np.inf)
    if scenario.pairs is not None:
        kept = scenario.pairs.kept
        fastest = fastest / max(1.0, float(kept.max(initial=0.0)))
        leanest = leanest / max(1.0, float((kept + kept.swapaxes(0, 1)).max(initial=0.0)))
    return fastest * iterations, leanest * iterations


def lower_bounds(scenario: Scenario) -> Bounds:
    """Compute the lower bounds of a scenario.

    The mean JCT is at least that of every job alone at its fastest, and at least that of the least
    GPU-seconds served by one machine of all GPUs, shortest remaining work first, which is optimal for
    one machine with preemption (Schrage, 1968). The makespan is at least that of every job alone, and
    of the work that arrives from any instant on, at all GPUs.
    """
    alone_s, work = least_work(scenario)
    fits = np.isfinite(alone_s)
    submit, alone_s = scenario.trace.submit_s[fits], alone_s[fits]
    if not len(submit):
        return Bounds(0.0, 0.0)
    served_s = work[fits] / float(scenario.cluster.capacity.sum())
    # The trace is in order of submission, so the jobs that arrive from an instant on are a suffix.
    pending = served_s[::-1].cumsum()[::-1]
    last = max(float((submit + alone_s).max()), float((submit + pending).max()))
    jct = max(float(alone_s.mean()), shortest_remaining_first(submit, served_s) / len(submit))
    return Bounds(jct, last - float(submit.min()))


def shortest_remaining_first(submit_s: Floats, work_s: Floats) -> float:
    """Return the sum of JCTs on one machine that serves the job with the shortest remaining work first.

    Parameters
    ----------
    submit_s, work_s : ndarray of float, shape (n,)
        Submission times, ascending; seconds the machine needs for each job.
    """
    left: list[float] = []
    total, now = -float(submit_s.sum()), 0.0
    for row in range(len(submit_s) + 1):
        until = float(submit_s[row]) if row < len(submit_s) else np.inf
        while left and now + left[0] <= until:
            now += heapq.heappop(left)
            total += now
        if left:
            heapq.heapreplace(left, left[0] - (until - now))
        now = until
        if row < len(submit_s):
            heapq.heappush(left, float(work_s[row]))
    return total
