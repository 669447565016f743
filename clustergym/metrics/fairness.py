"""Fluid fair sharing, the reference against which a run is called fair.

The reference is generalised processor sharing (Ares, section 3): a cluster of M GPUs is divided
without remainder, at every instant, into equal shares M / N(t) over the N(t) jobs not yet served
in full. A job is an amount of GPU-seconds, here the GPU-seconds it takes at its request. So

- the share is not capped: a job alone has all M GPUs and speeds up in proportion, so on a cluster
  with few jobs in it the reference finishes earlier than any real scheduler could;
- all GPUs count alike: a GPU-second is one GPU-second on every type;
- preemption, profiling and placement cost nothing in the reference.

It is a yardstick for comparing policies on the same jobs, not a bound that can be attained.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

UNFAIR_ABOVE = 1 + 1e-9
"""Finish-time fairness above which a job counts as treated unfairly."""


def fluid_finish_s(submit_s: Floats, work_gpu_s: Floats, gpus: float) -> Floats:
    """Return when each job finishes under fluid fair sharing.

    Parameters
    ----------
    submit_s : ndarray of float, shape (n,)
        In any order; equal times are allowed.
    work_gpu_s : ndarray of float, shape (n,)
        GPU-seconds, positive.
    gpus : float
        GPUs of the whole cluster, positive.

    Returns
    -------
    ndarray of float, shape (n,)

    Raises
    ------
    ValueError
        If a time is not finite, or work or GPUs are not positive and finite.

    Notes
    -----
    Virtual time V grows by M / N(t) GPU-seconds a second, so job j of L_j GPU-seconds that
    arrives at a_j finishes when V reaches F_j = V(a_j) + L_j; the jobs finish in order of F.
    O(n log n). Source: Ares, section 3.
    """
    return _fluid(submit_s, work_gpu_s, gpus)[1]


def virtual_finish(submit_s: Floats, work_gpu_s: Floats, gpus: float) -> Floats:
    """Return the virtual finish F_j = V(a_j) + L_j of each job, GPU-seconds, shape (n,).

    Among jobs it orders completion under fluid fair sharing. Parameters and errors are those of
    `fluid_finish_s`.
    """
    return _fluid(submit_s, work_gpu_s, gpus)[0]


def _fluid(submit_s: Floats, work_gpu_s: Floats, gpus: float) -> tuple[Floats, Floats]:
    submit, work = _checked(submit_s, work_gpu_s, gpus)
    virtual, finish = np.empty(len(submit)), np.empty(len(submit))
    active: list[tuple[float, int]] = []
    now, clock = 0.0, 0.0
    arrivals = [*np.argsort(submit, kind="stable").tolist(), None]
    for job in arrivals:
        until = np.inf if job is None else float(submit[job])
        while active:
            leaving = now + max(active[0][0] - clock, 0.0) * len(active) / gpus
            if leaving > until:
                break
            now, (clock, first) = leaving, heapq.heappop(active)
            finish[first] = now
        if job is None:
            break
        if active:
            clock += (until - now) * gpus / len(active)
        now = until
        virtual[job] = clock + work[job]
        heapq.heappush(active, (float(virtual[job]), job))
    return virtual, finish


def _checked(submit_s: Floats, work_gpu_s: Floats, gpus: float) -> tuple[Floats, Floats]:
    submit = np.asarray(submit_s, dtype=np.float64)
    work = np.asarray(work_gpu_s, dtype=np.float64)
    if submit.ndim != 1 or submit.shape != work.shape:
        raise ValueError(
            f"submit_s and work_gpu_s must be of one length, not {submit.shape} and {work.shape}"
        )
    if not np.isfinite(submit).all():
        raise ValueError("submit_s must be finite")
    if not (np.isfinite(work) & (work > 0)).all():
        raise ValueError("work_gpu_s must be positive and finite")
    if not (np.isfinite(gpus) and gpus > 0):
        raise ValueError("gpus must be positive and finite")
    return submit, work


def serial_finish_s(order: Sequence[int] | Ints, submit_s: Floats, work_gpu_s: Floats, gpus: float) -> Floats:
    """Return when each job finishes if the whole cluster serves one job at a time.

    At every instant the one that comes first in `order`, among the jobs in the system, has all
    GPUs; a job that arrives preempts those after it. In the order of completion under fluid fair
    sharing no job finishes later than there (Ares, section 3 and Fig. 1).

    Parameters
    ----------
    order : sequence of int
        A permutation of the jobs, first served first.
    submit_s, work_gpu_s, gpus
        As in `fluid_finish_s`.

    Returns
    -------
    ndarray of float, shape (n,)

    Raises
    ------
    ValueError
        If `order` is no permutation, or as in `fluid_finish_s`.
    """
    submit, work = _checked(submit_s, work_gpu_s, gpus)
    rank = np.empty(len(submit), dtype=np.int64)
    if sorted(order) != list(range(len(submit))):
        raise ValueError("order must name every job once")
    rank[np.asarray(order, dtype=np.int64)] = np.arange(len(submit))
    left_s, finish = (work / gpus).tolist(), np.empty(len(submit))
    present: list[tuple[int, int]] = []
    now = 0.0
    for job in [*np.argsort(submit, kind="stable").tolist(), None]:
        until = np.inf if job is None else float(submit[job])
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


class Fairness(NamedTuple):
    """Finish-time fairness of a run.

    Attributes
    ----------
    rho : ndarray of float, shape (n,)
        JCT over the JCT under fluid fair sharing; NaN for a job that did not finish, was not
        submitted, or has no known work.
    fluid_jct_s : ndarray of float, shape (n,)
        JCT under fluid fair sharing; NaN for a job not submitted or without known work.
    """

    rho: Floats
    fluid_jct_s: Floats


def finish_time_fairness(
    submit_s: Floats,
    jct_s: Floats,
    work_gpu_s: Floats,
    submitted: npt.NDArray[np.bool_],
    gpus: float,
) -> Fairness:
    """Return rho_j = JCT_j / (JCT_j under fluid fair sharing) of each job.

    The reference serves all submitted jobs of known work, finished or not, dropped or not.

    Parameters
    ----------
    submit_s, jct_s : ndarray of float, shape (n,)
        JCT NaN: not finished.
    work_gpu_s : ndarray of float, shape (n,)
        GPU-seconds at the request: iterations x seconds per iteration x GPUs. NaN: unknown; the
        job is left out, as a load too.
    submitted : ndarray of bool, shape (n,)
    gpus : float
        GPUs of the whole cluster.
    """
    known = submitted & np.isfinite(work_gpu_s)
    fluid_jct_s = np.full(len(submit_s), np.nan)
    if known.any():
        fluid_jct_s[known] = fluid_finish_s(submit_s[known], work_gpu_s[known], gpus) - submit_s[known]
    return Fairness(jct_s / fluid_jct_s, fluid_jct_s)
