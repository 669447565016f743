"""Ares: a policy that serves elastic jobs in the order in which fair sharing would end them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.parameter_types import Fraction, Period, PositiveFraction
from clustergym.results.metrics.fairness import FluidSharing
from clustergym.scenario.policy import Decision, InformationClass, Setting, View

from .shared.marginal import Target, per_gpu_efficiency, times_or_guess
from .shared.requests import find_requested_level, get_requested_time_s
from .shared.restart_guard import GuardedPolicy


@dataclass
class Ares(GuardedPolicy):
    """The policy Ares (TACO 2025), which serves elastic jobs in the order that fair sharing would end them.

    Virtual time V grows by M / N(t), with N(t) the jobs active under fluid fair sharing of the M GPUs
    (Eq. 2). A job that needs L GPU-seconds at its request and arrives at time a has F = V(a) + L, which
    never changes (Eq. 3); jobs are served by ascending F, preemptively, each with its request doubled as
    often as throughput per GPU, normalised by that at the request, stays at or above `alpha` (section
    3.3). It decides every 60 s (section 5.1), or with `round_s` None whenever a job arrives or ends
    (section 4), and a job gets its new allotment whatever the restart costs.

    With that efficiency no job ends later than under fluid fair sharing by more than (1/alpha - 1) times
    the work served up to it over M (section 3.4). The bound assumes decisions at every event, no restart
    cost, and jobs that reach the whole cluster at an efficiency of alpha; then one job at a time has all
    GPUs. A job that cannot use them, or GPU counts that leave some idle, can end later. With several GPU
    types (section 3.5), L uses the mean speed over the types on which a job runs, and the job takes the
    fastest allotment with room. The placer is responsible for consolidation.

    Where the text leaves it open: where the doubled count has no room, the largest doubling that has
    is taken, and jobs whose request does not fit are passed over; between equally fast allotments a
    job keeps what it holds.

    Differences from the paper: the request is the View's, so L is that of a request raised to a power of
    two unless the scenario has `scenario.counts=any`. Jobs of unknown size share a part of the GPUs
    (`unknown_pool`) by least attained service instead of evenly, and other jobs may use the idle rest of
    it; without a pool such a job counts as one of the mean size of the known jobs so far. The information
    class is `data_parallel`, as Ares profiles data-parallel jobs.

    With `work_conserving` this is not Ares but a strong baseline of our own on its order, always with
    `guard`: no job has more than max(1, 2 M / jobs in the system) GPUs at first, even if it asked for more;
    jobs shrink rather than wait; and the remaining GPUs go to the jobs that they speed up most, whatever the
    efficiency.

    Parameters
    ----------
    alpha : float
        Least normalised per-GPU efficiency of a scaled job, 0 to 1 (the paper's: 0.75).
    unknown_pool : float
        Share of the GPUs on which jobs of unknown size go first, least attained service first.
    work_conserving : bool
        Our own variant, above.
    guard : bool
        Whether changes of running jobs have to repay their restarts (`GuardedPolicy`).
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy.
    """

    name: ClassVar[str] = "ares"
    information_class: ClassVar[InformationClass] = InformationClass.DATA_PARALLEL
    alpha: PositiveFraction = 0.75
    unknown_pool: Fraction = 0.0
    work_conserving: bool = False
    round_s: Period | None = 60.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.guard = self.guard or self.work_conserving

    @property
    def steady(self) -> bool:
        """Whether the policy repeats its decision as long as the same jobs hold the same GPUs."""
        return not self.guard and self.unknown_pool == 0

    @property
    def consistent(self) -> bool:
        """Whether the policy is steady, and would decide the same with fewer idle GPUs."""
        return self.steady

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Forget the last run; the virtual clock starts at 0."""
        super().reset(setting, rng)
        self._queue = FairQueue(float(setting.capacity.sum()))
        self._known, self._known_jobs = np.zeros(0, dtype=np.bool_), 0
        self._known_gpu_s = 0.0

    def schedule(self, view: View) -> Decision:
        """Give GPUs to jobs in the order of the virtual times at which fair queueing would finish them."""
        if not len(view):
            return Decision.keep(view)
        size = self._size_gpu_s(view)
        known = np.isfinite(size)
        # Eq. 3: F is fixed when the job is first seen, so what it does later cannot change the order.
        finish = self._queue.finishes(view, np.where(known, size, self._mean_size(view, size)))
        # Smallest virtual finish first; preemptive (section 3.2), so running jobs have no precedence.
        order = np.lexsort((view.job, finish))
        target = Target(view, times_or_guess(view), self.guard, self.find_guarded(view))
        if self.work_conserving:
            return self._conserve(view, target, order)

        def double(rows: Ints) -> Bools:
            return self._doublings(view, target.time_s, rows)

        self._serve_pool(view, target, ~known, double)
        target.place(order, double)
        return target.decision()

    def _size_gpu_s(self, view: View) -> Floats:
        """Return L, each job's GPU-seconds at its request at the mean speed of the types; inf: unknown."""
        time_s = view.iteration_time_s()
        # Section 3.5: on heterogeneous GPUs the demand is quantified by the mean computing power per GPU,
        # here the mean over types weighted by their GPUs.
        speed = 1.0 / time_s[np.arange(len(view)), :, find_requested_level(view)]
        runs = speed > 0
        weight = np.where(runs, view.setting.capacity, 0)
        mean = (speed * weight).sum(axis=1) / np.maximum(weight.sum(axis=1), 1)
        iteration_s = np.divide(1.0, mean, out=get_requested_time_s(view).copy(), where=mean > 0)
        size: Floats = view.iterations * iteration_s * view.requested_gpus
        return size

    def _mean_size(self, view: View, size: Floats) -> float:
        """Return the mean size in GPU-seconds of the jobs whose size is known; 1 if none is."""
        more = int(view.job.max()) + 1 - len(self._known)
        if more > 0:
            self._known = np.concatenate([self._known, np.zeros(max(more, len(self._known)), dtype=np.bool_)])
        new = np.flatnonzero(~self._known[view.job] & (size < np.inf))
        self._known[view.job[new]] = True
        self._known_jobs += len(new)
        # One addition at a time: the sum then does not depend on how many jobs came at once.
        for gpu_s in size[new].tolist():
            self._known_gpu_s += gpu_s
        return self._known_gpu_s / self._known_jobs if self._known_jobs else 1.0

    def _doublings(self, view: View, time_s: Floats, rows: Ints) -> Bools:
        """Return which allotments are the request or an efficient enough doubling of it.

        Parameters
        ----------
        view : View
        time_s : ndarray of float, shape (n, T, K)
        rows : ndarray of int, shape (m,)
            Positions in the View.

        Returns
        -------
        ndarray of bool, shape (m, T, K)
        """
        counts, asked = view.setting.counts, view.requested_gpus[rows]
        efficiency = per_gpu_efficiency(counts, asked, time_s[rows])
        beyond = (counts >= asked[:, None, None]) & (efficiency > 0)
        least = counts[np.argmax(beyond, axis=2)][..., None]
        times = counts // least
        # Only doublings: the ratio to the least count has to be a power of two (one bit set).
        beyond &= (counts % least == 0) & (times & (times - 1) == 0)
        # Section 3.3: the request is doubled while the normalised efficiency per GPU stays at or above alpha;
        # the factor lets an efficiency equal to alpha pass in spite of rounding.
        enough = efficiency >= self.alpha * (1 - 1e-12)
        # Doubling halts at the first count below alpha, even if a later one is above it again.
        gone_below = np.logical_or.accumulate(beyond & ~enough, axis=2)
        allowed: Bools = beyond & enough & ~gone_below
        return allowed

    def _serve_pool(
        self, view: View, target: Target, unknown: Bools, allowed: Callable[[Ints], Bools]
    ) -> None:
        """Serve jobs of unknown size first on the GPUs of the pool."""
        size = np.floor(self.unknown_pool * view.setting.capacity).astype(np.int64)
        if not (unknown.any() and size.any()):
            return
        waiting = np.flatnonzero(unknown)
        order = waiting[np.lexsort((view.job[waiting], view.attained_gpu_s[waiting]))]
        # Section 3.5 hosts jobs of unknown demand on a pool of their own. The GPUs outside it are hidden
        # while these are placed, then given back; what the pool leaves over is thereby open to all.
        outside = np.maximum(target.free - size, 0)
        target.free -= outside
        target.place(order, allowed)
        target.free += outside

    def _conserve(self, view: View, target: Target, order: Ints) -> Decision:
        counts = view.setting.counts
        efficiency = per_gpu_efficiency(counts, view.requested_gpus, target.time_s)
        # Our variant alone, as all of this function: at most twice an even share at first.
        cap = max(2.0 * float(view.available.sum()) / len(view), 1.0)
        feasible = np.isfinite(target.time_s)
        least = np.where(feasible.any(axis=2), counts[np.argmax(feasible, axis=2)], 0)
        modest = (counts <= view.requested_gpus[:, None, None]) | (efficiency >= self.alpha)
        allowed = modest & (counts <= np.maximum(cap, least)[..., None])
        target.place(order, allowed)
        target.keep_running(order)
        target.grow(get_requested_time_s(view))
        return target.decision()


class FairQueue:
    """Fair queueing with a virtual clock, by which a job's virtual finish time is fixed when it arrives.

    Virtual time V grows by M / N(t) GPU-seconds a second, with N(t) the jobs that would be in the system
    under fluid fair sharing of all M GPUs, not those that are really there. An event costs O(log N). The
    reference of the fairness metric runs the same clock.

    Parameters
    ----------
    gpus : float
        M, GPUs of the whole cluster.
    """

    def __init__(self, gpus: float) -> None:
        self._sharing = FluidSharing(gpus)
        self._finish = np.empty(0)

    def finishes(self, view: View, work_gpu_s: Floats) -> Floats:
        """Return the virtual finish time of each job, in GPU-seconds, shape (n,).

        Parameters
        ----------
        view : View
        work_gpu_s : ndarray of float, shape (n,)
            L_j; looked at only for jobs that were not seen before. They arrive at their
            submission or, where the clock is past it (a job that was profiled first), now.
        """
        more = int(view.job.max(initial=-1)) + 1 - len(self._finish)
        if more > 0:
            self._finish = np.concatenate([self._finish, np.full(max(more, len(self._finish)), np.nan)])
        # In order of submission: each arrival changes N(t), and with it the clock of those that follow.
        for at in np.flatnonzero(np.isnan(self._finish[view.job])).tolist():
            row = int(view.job[at])
            # The clock cannot run backwards: a job that was shown late arrives now.
            self._sharing.advance(max(float(view.submit_s[at]), self._sharing.now_s))
            self._finish[row] = self._sharing.arrive(row, float(work_gpu_s[at]))
        return self._finish[view.job]
