"""Uncapped fluid fair sharing (Ares, section 3), and one job at a time, to check policies and metrics by."""

import heapq

import numpy as np

from clustergym.results.metrics.fairness import FluidSharing, simulate_fluid


def fluid_finish_s(submit_s, work_gpu_s, gpus):
    """Return when each job finishes where each of N(t) jobs has gpus / N(t), shape (n,)."""
    return simulate_fluid(submit_s, work_gpu_s, np.full(len(submit_s), float(gpus)), gpus)


def virtual_finish(submit_s, work_gpu_s, gpus):
    """Return the virtual finish V(arrival) + work of each job, GPU-seconds, in whose order they end."""
    virtual, sharing = np.empty(len(submit_s)), FluidSharing(float(gpus))
    for job in np.argsort(submit_s, kind="stable").tolist():
        sharing.advance(float(submit_s[job]))
        virtual[job] = sharing.arrive(job, float(work_gpu_s[job]))
    return virtual


def serial_finish_s(order, submit_s, work_gpu_s, gpus):
    """Return when each job finishes if all GPUs serve the first in `order` of those in the system.

    In the order of completion under fluid fair sharing none ends later than there (Ares, section 3).
    """
    rank = np.empty(len(submit_s), dtype=np.int64)
    rank[np.asarray(order, dtype=np.int64)] = np.arange(len(submit_s))
    left_s, finish = (work_gpu_s / gpus).tolist(), np.empty(len(submit_s))
    present = []
    now = 0.0
    for job in [*np.argsort(submit_s, kind="stable").tolist(), None]:
        until = np.inf if job is None else float(submit_s[job])
        while present and now + left_s[present[0][1]] <= until:
            first = heapq.heappop(present)[1]
            now = finish[first] = now + left_s[first]
        if job is None:
            break
        if present:
            left_s[present[0][1]] -= until - now
        now = until
        heapq.heappush(present, (int(rank[job]), job))
    return finish
