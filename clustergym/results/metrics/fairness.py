"""Finish-time fairness of a run, relative to fluid fair sharing.

The cluster's M GPUs are divided without remainder, at every instant, over the jobs in the system
(`clustergym.results.metrics.fairness`). A job is an amount of GPU-seconds, those it takes at its request.

- Finish-time fairness is against the *capped* reference: no job has more GPUs than it asked for,
  so a job alone in the cluster ends when it would at its request, and what it cannot use goes to
  the others max-min fairly. A scheduler that scales jobs beyond their request can beat it.
- GPU types: a job's share is of GPUs of the types it runs on in proportion to how many there
  are, so a GPU-second moves it on at the mean of its speeds at the requested count, weighted by
  GPUs; its work is counted in GPU-seconds of that mean GPU (`Scenario.fair_iteration_time_s`).
  On a cluster of one type that is the request's own speed. The reference does not ask whether
  all jobs that run on one type only could have their shares of it at once.
- Preemption, profiling, placement and the wait for a round cost nothing in the reference.

It is a yardstick for comparing policies on the same jobs, not a bound that can be attained.

Fluid fair sharing, computed event by event; the fairness metrics and fair queuing use it.

At every instant M GPUs are divided, without remainder, max-min fairly over the jobs not yet
served in full: job j has min(c_j, lambda) GPUs, its cap c_j at most, where the water level
lambda makes the shares add up to min(M, sum of caps). Jobs of one cap have the same share all
along, so one virtual clock a cap, V_c(t) = integral of min(c, lambda) dt, says what any of them
has received; job j ends when its clock reaches V_c(a_j) + L_j, its arrival's reading plus its
work. With every cap at M this is generalised processor sharing: lambda = M / N(t), one clock.
"""

from __future__ import annotations

import heapq
import math
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints

MANY = 20_000
"""Jobs from which fluid sharing is compiled, to the same bits; loading and compiling it takes seconds."""
UNFAIR_ABOVE = 1 + 1e-9
"""Finish-time fairness above which a job counts as treated unfairly."""


def simulate_fluid(submit_s: Floats, work_gpu_s: Floats, cap_gpus: Floats | Ints, gpus: float) -> Floats:
    """Return each job's finish time (s) if jobs share the GPUs equally at any time, each up to its cap.

    Max-min fair: what a job cannot use beyond its cap goes to the others in equal parts.

    Parameters
    ----------
    submit_s : ndarray of float, shape (n,)
        In any order; equal times are allowed.
    work_gpu_s : ndarray of float, shape (n,)
        GPU-seconds, positive.
    cap_gpus : ndarray of float or int, shape (n,)
        Most GPUs each job can have, positive; here its request.
    gpus : float
        GPUs of the whole cluster, positive.

    Returns
    -------
    ndarray of float, shape (n,)

    Raises
    ------
    ValueError
        If a time is not finite, or work, a cap or GPUs are not positive, or work or GPUs not finite.

    Notes
    -----
    Exact, event by event; O(n (log n + D)) for D distinct caps.
    """
    caps = np.asarray(cap_gpus, dtype=np.float64)
    if caps.shape != np.shape(submit_s) or not (caps > 0).all():
        raise ValueError("cap_gpus must give every job a positive number")
    submit, work = _check_jobs(submit_s, work_gpu_s, gpus)
    finish, order = np.empty(len(submit)), np.argsort(submit, kind="stable")
    if len(submit) >= MANY and find_spec("numba") is not None:
        from clustergym.sim.compiled import fluid

        finish[order] = fluid.simulate_fluid(submit[order], work[order], caps[order], float(gpus))
        return finish
    sharing = FluidSharing(float(gpus))
    sharing.now_s = float(submit.min(initial=0.0))
    # An end and an arrival at one instant: the end comes first, so that the arriving job shares with those
    # that stay.
    for job in order.tolist():
        for ended, time_s in sharing.advance(float(submit[job])):
            finish[ended] = time_s
        sharing.arrive(job, float(work[job]), float(caps[job]))
    for ended, time_s in sharing.advance(np.inf):
        finish[ended] = time_s
    return finish


def _check_jobs(submit_s: Floats, work_gpu_s: Floats, gpus: float) -> tuple[Floats, Floats]:
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


class Fairness(NamedTuple):
    """Each job's JCT divided by its JCT if jobs always shared the GPUs equally (finish-time fairness).

    Attributes
    ----------
    rho : ndarray of float, shape (n,)
        JCT over the JCT under capped fluid fair sharing; NaN for a job that did not finish, was
        not submitted, or has no known work.
    fluid_jct_s : ndarray of float, shape (n,)
        JCT under capped fluid fair sharing; NaN for a job not submitted or without known work.
    """

    rho: Floats
    fluid_jct_s: Floats


def finish_time_fairness(
    submit_s: Floats,
    jct_s: Floats,
    work_gpu_s: Floats,
    cap_gpus: Floats | Ints,
    submitted: Bools,
    gpus: float,
) -> Fairness:
    """Return each job's JCT over its JCT if jobs, up to their requests, shared GPUs equally; and the latter.

    The reference serves all submitted jobs of known work, finished or not, dropped or not.

    Parameters
    ----------
    submit_s, jct_s : ndarray of float, shape (n,)
        JCT NaN: not finished.
    work_gpu_s : ndarray of float, shape (n,)
        GPU-seconds at the request: iterations x seconds per iteration x GPUs. NaN: unknown; the
        job is left out, as a load too.
    cap_gpus : ndarray of float or int, shape (n,)
        GPUs of the request.
    submitted : ndarray of bool, shape (n,)
    gpus : float
        GPUs of the whole cluster.
    """
    known = submitted & np.isfinite(work_gpu_s)
    fluid_jct_s = np.full(len(submit_s), np.nan)
    if known.any():
        finish_s = simulate_fluid(submit_s[known], work_gpu_s[known], cap_gpus[known], gpus)
        fluid_jct_s[known] = finish_s - submit_s[known]
    return Fairness(jct_s / fluid_jct_s, fluid_jct_s)


SLACK = 1e-12
"""Relative tolerance for the rounding of a clock that should have reached a finish."""


class FluidSharing:
    """A simulation in which the present jobs share GPUs equally at any time, each up to its cap.

    An event costs O(log n + D), with n jobs in the system of D distinct caps.

    Parameters
    ----------
    gpus : float
        GPUs to share.

    Attributes
    ----------
    now_s : float
    """

    def __init__(self, gpus: float) -> None:
        self.gpus, self.now_s = gpus, 0.0
        self._clock: dict[float, float] = {}
        self._active: dict[float, list[tuple[float, int]]] = {}
        self._caps: list[float] = []
        self._jobs = 0

    def __len__(self) -> int:
        return self._jobs

    def arrive(self, job: int, work_gpu_s: float, cap: float = math.inf) -> float:
        """Add a job; return its virtual finish time: GPU-seconds a job of its cap gets by its end."""
        # Jobs with one cap are served at one rate, so each cap has one virtual clock: an arrival costs the
        # logarithm of the jobs, not their number (weighted fair queueing; Demers et al., SIGCOMM '89).
        cap = min(cap, self.gpus)
        if cap not in self._clock:
            self._clock[cap], self._active[cap] = 0.0, []
            self._caps = sorted(self._clock)
        finish = self._clock[cap] + work_gpu_s
        heapq.heappush(self._active[cap], (finish, job))
        self._jobs += 1
        return finish

    def advance(self, until_s: float) -> list[tuple[int, float]]:
        """Advance the time to `until_s`; return (job, finish time) of each job that ended by then."""
        ended: list[tuple[int, float]] = []
        while True:
            level = self._level()
            step_s, cap = self._next_finish(level)
            if cap is None or self.now_s + step_s > until_s:
                break
            self._pass(step_s, level)
            # Set to the finish that was reached: the sum of steps may lie below it by rounding, and the job
            # would not end.
            self._clock[cap] = max(self._clock[cap], self._active[cap][0][0])
            self._end(ended)
        if math.isfinite(until_s):
            self._pass(until_s - self.now_s, level)
            self.now_s = until_s
        return ended

    def _level(self) -> float:
        """Return the water level, GPUs per job; inf if every job has its cap."""
        left, jobs = self.gpus, self._jobs
        for cap in self._caps:
            count = len(self._active[cap])
            # Water-filling: caps ascend, so all jobs below the level hold their cap, and the rest share what
            # is left.
            if cap * jobs >= left:
                return left / jobs if jobs else math.inf
            left -= cap * count
            jobs -= count
        return math.inf

    def _next_finish(self, level: float) -> tuple[float, float | None]:
        best_s, best = math.inf, None
        for cap, jobs in self._active.items():
            if jobs:
                step_s = max(jobs[0][0] - self._clock[cap], 0.0) / min(cap, level)
                if step_s < best_s:
                    best_s, best = step_s, cap
        return best_s, best

    def _pass(self, step_s: float, level: float) -> None:
        self.now_s += step_s
        for cap, jobs in self._active.items():
            if jobs:
                self._clock[cap] += step_s * min(cap, level)

    def _end(self, ended: list[tuple[int, float]]) -> None:
        for cap, jobs in self._active.items():
            reached = self._clock[cap] * (1 + SLACK)
            while jobs and jobs[0][0] <= reached:
                ended.append((heapq.heappop(jobs)[1], self.now_s))
                self._jobs -= 1
