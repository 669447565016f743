"""AlloX: a policy that matches jobs to GPU types for the least mean completion time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_types import Interval

from clustergym.common.arrays import Floats, Ints
from clustergym.common.parameter_types import Period, PositiveFraction
from clustergym.scenario.policy import Decision, InformationClass, Policy, Setting, View

from .shared import finish_times


@dataclass
class AlloX(Policy):
    """The policy AlloX (EuroSys '20), which matches jobs to places in GPU types' queues for least mean JCT.

    On one machine, the job that runs k-th from the end delays k jobs by its run time, itself
    included. So a matching of jobs to (machine, place from the end), weighted by run time
    times place, minimises the mean completion time (section 4.1). Jobs first in their queue
    start; the matching is made anew each round. For fairness only the fraction of waiting
    jobs that has been served least takes part in the matching (section 4.3).

    The paper has no gangs, and AlloX in Gavel's simulator refuses them, so no published figure covers
    them. We generalise: a type has as many queues as it can hold gangs of the waiting jobs' mean size,
    and a job of g GPUs delays the jobs behind it g / mean times as much. A queue is available from the
    time at which its running jobs are expected to have left; for a wide job, from the time at which its
    whole gang can be free. Jobs start in the order of the queues, wherever their gang is free.

    Differences from the paper: at most `window` jobs are matched, those of least GPU time, and the places
    per queue are limited to twice what they need on average, plus two. With `preempt`, the first job of a
    queue takes the GPUs of running jobs if this saves more waiting time than it costs them, restarts
    included; and a running job moves to idle GPUs if it then ends earlier, restart included. Each job
    counts as a user of its own. Times come from data-parallel profiles; the speed of a job without a
    profile is guessed (`finish_times.request_times`, counted in `counters`).

    Parameters
    ----------
    fairness : float
        The paper's alpha, above 0 and at most 1: the fraction of waiting jobs, least served
        first, that is considered; 1: all, for mean completion time alone.
    preempt : bool
        Whether running jobs may be preempted or moved.
    window : int
        Most waiting jobs in one matching.
    round_s : float or None
        Seconds between decision points.
    """

    name: ClassVar[str] = "allox"
    information_class: ClassVar[InformationClass] = InformationClass.DATA_PARALLEL
    fairness: PositiveFraction = 1.0
    preempt: bool = True
    window: Annotated[int, Interval(ge=1, le=4096)] = 256
    round_s: Period | None = 360.0
    _guessed: set[int] = field(default_factory=set, init=False, repr=False)

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Forget all jobs of the last run."""
        self._guessed = set()

    def counters(self) -> Mapping[str, int]:
        """Return the number of jobs whose speed had to be guessed."""
        return {"jobs_without_profile": len(self._guessed)}

    def schedule(self, view: View) -> Decision:
        """Match waiting jobs to places in the queues of GPU types, and start those that come first."""
        times = finish_times.request_times(view)
        self._guessed.update(view.job[times.guessed].tolist())
        # p_ij of section 4.1: the run time of job i on a machine of type j.
        left_s = finish_times.remaining_at_request_s(view, times)
        plan = _MachinePlan(view, left_s)
        waiting = self._select_candidates(view, left_s)
        if len(waiting):
            matches, _ = match(view, left_s, waiting, plan.releases)
            plan.start(matches, self.preempt)
        if self.preempt:
            plan.move()
        return plan.decision()

    def _select_candidates(self, view: View, left_s: Floats) -> Ints:
        """Return the waiting jobs to match: the least served fraction, cut to `window` by least GPU time."""
        waiting = np.flatnonzero((view.gpus == 0) & np.isfinite(left_s).any(axis=1))
        ran_s = view.attained_gpu_s / view.requested_gpus
        # Section 4.3: the fraction alpha of the jobs that have been served least; served is time run over
        # time here.
        served = ran_s / np.maximum(view.now_s - view.submit_s, 1e-9)
        order = np.lexsort((view.submit_s[waiting], served[waiting]))
        # The small term keeps ceil(0.3 * 10) at 3 in floating point.
        waiting = waiting[order[: math.ceil(self.fairness * len(waiting) - 1e-9)]]
        work = left_s[waiting].min(axis=1) * view.requested_gpus[waiting]
        return np.sort(waiting[np.argsort(work, kind="stable")[: self.window]])


class Releases:
    """Expected times at which running jobs release the GPUs of one type.

    Parameters
    ----------
    free : int
    left_s : ndarray of float, shape (r,)
        Until each running job ends.
    gpus : ndarray of int, shape (r,)
    """

    def __init__(self, free: int, left_s: Floats, gpus: Ints) -> None:
        order = np.argsort(left_s, kind="stable")
        self.at_s = np.concatenate([[0.0], left_s[order], [np.inf]])
        self.free = np.concatenate([[free], free + np.cumsum(gpus[order])])

    def ready_s(self, gpus: npt.NDArray[Any]) -> Floats:
        """Return the seconds until each of the given numbers of GPUs is free; inf for never."""
        ready: Floats = self.at_s[np.searchsorted(self.free, gpus)]
        return ready


class Match(NamedTuple):
    """Where a job is put: its position in the View, a GPU type, and whether it is first in a queue there."""

    at: int
    gpu_type: int
    first: bool


def match(view: View, left_s: Floats, waiting: Ints, releases: list[Releases]) -> tuple[list[Match], float]:
    """Match jobs to places in GPU types' queues for the least total completion time, also returned (s).

    Parameters
    ----------
    view : View
    left_s : ndarray of float, shape (n, T)
        Seconds to the end at the request on each type; inf: impossible.
    waiting : ndarray of int, shape (w,)
        Positions in the View of the jobs to match.
    releases : list of Releases, one a type

    Returns
    -------
    matches : list of Match
        In order of expected start.
    total_s : float
        The least total completion time, from now, of what could be matched.
    """
    from scipy.optimize import linear_sum_assignment

    gpus = view.requested_gpus[waiting]
    mean = float(gpus.mean())
    gpu_type, opens_s, place = _places(view.setting.capacity, releases, mean, len(waiting))
    earliest_s = np.column_stack([release.ready_s(gpus) for release in releases])[:, gpu_type]
    cost = np.maximum(opens_s, earliest_s)
    # Section 4.1: k-th from the end counts its run time k times, here once for itself and, for each of the k
    # - 1 behind it, as often as its gang is larger than the mean.
    cost = cost + left_s[waiting][:, gpu_type] * (1.0 + (place - 1) * (gpus / mean)[:, None])
    # An impossible place costs more than any set of possible places together.
    finite = np.isfinite(cost)
    worst = float(cost[finite].max(initial=1.0)) * (len(waiting) + 1)
    # The min-cost bipartite matching of section 4.1.
    job, column = linear_sum_assignment(np.where(finite, cost, worst))
    possible = finite[job, column]
    job, column = job[possible], column[possible]
    total_s = float(cost[job, column].sum())
    return _in_order(waiting[job], column, gpu_type, opens_s, place), total_s


def _places(capacity: Ints, releases: list[Releases], mean: float, jobs: int) -> tuple[Ints, Floats, Ints]:
    """Return the GPU type, opening time and place from the end of every column of the matching."""
    queues = [
        release.ready_s(mean * np.arange(1.0, min(max(round(float(most) / mean), 1), jobs) + 1) - 1e-9)
        for most, release in zip(capacity, releases, strict=True)
    ]
    # Where the mean does not divide the type, its one queue opens with its last GPU.
    queues = [
        np.where(np.isfinite(opens), opens, r.at_s[-2]) for opens, r in zip(queues, releases, strict=True)
    ]
    gpu_type = np.repeat(np.arange(len(queues)), [len(opens) for opens in queues])
    opens_s = np.concatenate(queues)
    # Fewer places than jobs for each queue keep the matrix small; twice the mean need leaves room to be
    # uneven.
    deep = math.ceil(2 * jobs / len(opens_s)) + 2
    return np.repeat(gpu_type, deep), np.repeat(opens_s, deep), np.tile(np.arange(1, deep + 1), len(opens_s))


def _in_order(at: Ints, column: Ints, gpu_type: Ints, opens_s: Floats, place: Ints) -> list[Match]:
    """Sort matched jobs by the number of jobs ahead in their queue, then by when the queue opens."""
    queue = column // int(place.max())
    order = np.lexsort((-place[column], queue))
    at, column, queue = at[order], column[order], queue[order]
    # Jobs of a queue lie together, from the far end of the matching (greatest place: first to run) on.
    ahead = np.arange(len(at)) - np.searchsorted(queue, queue)
    final = np.lexsort((at, opens_s[column], ahead))
    return [Match(int(at[i]), int(gpu_type[column[i]]), bool(ahead[i] == 0)) for i in final]


class _MachinePlan:
    """The GPU types and counts that jobs will hold after the decision."""

    def __init__(self, view: View, left_s: Floats) -> None:
        self.view, self.left_s = view, left_s
        self.gpu_type = view.gpu_type.copy()
        self.free = view.available - np.bincount(
            view.gpu_type[view.gpus > 0], weights=view.gpus[view.gpus > 0], minlength=len(view.available)
        ).astype(np.int64)
        self.held_s = np.where(
            view.gpus > 0, left_s[np.arange(len(view)), np.maximum(view.gpu_type, 0)], np.inf
        )
        self.releases = [self._releases(gpu_type) for gpu_type in range(len(view.available))]

    def _releases(self, gpu_type: int) -> Releases:
        on = np.flatnonzero((self.gpu_type == gpu_type) & (self.view.gpus > 0))
        return Releases(int(self.free[gpu_type]), self.held_s[on], self.view.gpus[on])

    def start(self, matched: list[Match], preempt: bool) -> None:
        """Start matched jobs in order; with `preempt`, a queue's first job may preempt where it pays."""
        for at, gpu_type, first in matched:
            gpus = int(self.view.requested_gpus[at])
            if self.free[gpu_type] < gpus and preempt and first:
                self._preempt_for(at, gpu_type)
            if self.free[gpu_type] >= gpus:
                self.free[gpu_type] -= gpus
                self.gpu_type[at] = gpu_type

    def _preempt_for(self, at: int, gpu_type: int) -> None:
        """Preempt the running jobs with most work left if that saves more time than it costs them."""
        view, run_s = self.view, float(self.left_s[at, gpu_type])
        on = np.flatnonzero((self.gpu_type == gpu_type) & (view.gpus > 0) & (self.held_s > run_s))
        on = on[np.argsort(-self.held_s[on], kind="stable")]
        missing = int(view.requested_gpus[at] - self.free[gpu_type])
        # The jobs with most work left first, as few as free the missing GPUs.
        enough = int(np.searchsorted(np.cumsum(view.gpus[on]), missing)) + 1
        if enough > len(on):
            return
        victims = on[:enough]
        saved_s = float(self.releases[gpu_type].ready_s(view.requested_gpus[[at]])[0])
        # Each victim is delayed by the run of the job that displaces it, and by a restart of its own.
        if saved_s > float((run_s + self._resume_s[victims]).sum()):
            self.free[gpu_type] += int(view.gpus[victims].sum())
            self.gpu_type[victims] = -1

    @cached_property
    def _resume_s(self) -> Floats:
        """Return the seconds that a restart of each job costs at least, shape (n,)."""
        cost_s = self.view.restart_cost_s().reshape(len(self.view), -1)
        least: Floats = np.where(cost_s > 0, cost_s, np.inf).min(axis=1)
        return np.where(np.isfinite(least), least, 0.0)

    def move(self) -> None:
        """Move running jobs to idle GPUs on which they end earlier, those that gain most first."""
        running = np.flatnonzero((self.view.gpus > 0) & (self.gpu_type >= 0))
        held_s, left_s = self.held_s[running, None], self.left_s[running]
        gain_s = np.subtract(held_s, left_s, out=np.full(left_s.shape, -np.inf), where=np.isfinite(left_s))
        for place in np.argsort(-gain_s, axis=None, kind="stable").tolist():
            row, gpu_type = divmod(place, gain_s.shape[1])
            at = int(running[row])
            if not gain_s[row, gpu_type] > 0:
                return
            gpus = int(self.view.gpus[at])
            if self.gpu_type[at] == self.view.gpu_type[at] and self.free[gpu_type] >= gpus:
                self.free[gpu_type] -= gpus
                self.free[self.gpu_type[at]] += gpus
                self.gpu_type[at] = gpu_type

    def decision(self) -> Decision:
        on = np.flatnonzero(self.gpu_type >= 0)
        return Decision(self.view.job[on], self.gpu_type[on], self.view.requested_gpus[on])
