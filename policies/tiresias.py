"""Tiresias: a policy that serves jobs in queues by the service they have received."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.common.errors import require
from clustergym.common.parameter_types import AscendingFloats, NonNegativeFloat, Period, PositiveFloat
from clustergym.scenario.policy import Decision, InformationClass, Setting, View

from .shared.queues import fill, find_queue_index, first_type, staying_options
from .shared.restart_guard import GuardedPolicy


@dataclass
class Tiresias(GuardedPolicy):
    """The policy Tiresias (NSDI '19): queues by GPU-seconds received (2D-LAS), or also a Gittins index.

    A job's service is GPUs times time. Each threshold that it reaches moves a job one queue down; queues
    are served in order, preemptively, every job at its request. Within a queue, jobs go in order of their
    first start, then those not yet started by submission; with `gittins`, by the Gittins index of their
    service, the greatest first. A job that has run, and then waited at least `promote_knob` times as long
    as it has run, goes back to the first queue, and its service is counted from 0 again (section 3.3,
    starvation).

    Differences from the paper: placement is the placer's, not by a profile of tensor sizes; a waiting job
    takes the first GPU type of its request with room and keeps it while it runs. For `gittins` without
    `sizes`, the distribution of sizes is the service that jobs which have left this run had received,
    computed from the iterations they had done when last seen; until a job has left, jobs go in order of their
    start.

    Parameters
    ----------
    thresholds_gpu_s : tuple of float
        Service that separates the queues, GPU-seconds, ascending: 3,250 and 7,200 in Tiresias's
        published code. (Pollux's port of it has 57,600 for the second.)
    promote_knob : float
        0: no job is promoted.
    gittins : bool
        Order within a queue by Gittins index.
    sizes : tuple of float
        Known sample of the jobs' whole service, GPU-seconds; empty: learnt in the run.
    guard : bool
        Whether a running job is preempted only once it has run for 20 restarts (`GuardedPolicy`).
    round_s : float or None
        Seconds between decision points.
    """

    name: ClassVar[str] = "tiresias"
    serves_parts: ClassVar[bool] = True
    information_class: ClassVar[InformationClass] = InformationClass.NONE
    thresholds_gpu_s: AscendingFloats = (3250.0, 7200.0)
    promote_knob: NonNegativeFloat = 0.0
    gittins: bool = False
    sizes: tuple[PositiveFloat, ...] = ()
    round_s: Period | None = 60.0

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = "give policy.gittins=true as well"
        require(self.gittins or not self.sizes, "policy.sizes", list(self.sizes), remedy)

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Forget all jobs of the last run."""
        super().reset(setting, rng)
        self._started: dict[int, float] = {}
        self._forgiven: dict[int, float] = {}
        self._whole_gpu_s: dict[int, float] = {}
        self._sizes = sorted(self.sizes)

    def schedule(self, view: View) -> Decision:
        """Give jobs their requested GPUs, queue after queue, from that of least GPU-seconds received on."""
        if self.gittins and not self.sizes:
            self._learn(view)
        self._promote(view)
        service = view.attained_gpu_s - self._get_values(view, self._forgiven, 0.0)
        # Section 3: discretised queues, so that jobs of about equal service do not preempt each other in
        # turns.
        queue = find_queue_index(service, self.thresholds_gpu_s)
        started = self._get_values(view, self._started, np.inf)
        rank = np.zeros(len(view))
        if self.gittins:
            rank = -gittins_index(service, np.array(self._sizes))
        # lexsort compares its last key first: the guard's jobs, queue, index, first start (infinite: not
        # yet), submission.
        order = np.lexsort((view.submit_s, started, rank, queue, ~self.find_guarded(view)))
        chosen = fill(view, order, lambda rows: first_type(staying_options(view, rows)), view.available)
        for job, _, _ in chosen:
            self._started.setdefault(job, view.now_s)
        return Decision.of(chosen)

    @staticmethod
    def _get_values(view: View, table: dict[int, float], default: float) -> Floats:
        return np.array([table.get(row, default) for row in view.job.tolist()], dtype=np.float64)

    def _promote(self, view: View) -> None:
        """Move starved jobs back to the first queue and count their service anew."""
        if not self.promote_knob:
            return
        service = view.attained_gpu_s - self._get_values(view, self._forgiven, 0.0)
        ran_s = service / view.requested_gpus
        waited_s = np.nan_to_num(view.now_s - view.queued_s, nan=-1.0)
        # Section 3.3, PROMOTEKNOB; a job that has never run is in the first queue already.
        starving = (ran_s > 0) & (waited_s >= self.promote_knob * ran_s)
        for at in np.flatnonzero(starving).tolist():
            self._forgiven[int(view.job[at])] = float(view.attained_gpu_s[at])

    def _learn(self, view: View) -> None:
        """Record the total service of jobs that have left since the last decision."""
        present = set(view.job.tolist())
        left = [size for row, size in self._whole_gpu_s.items() if row not in present]
        if left:
            self._sizes = sorted([*self._sizes, *left])
        done = 1.0 - view.remaining_iterations / view.iterations
        # A job that leaves is not in the View any more, so its whole service is extrapolated from when it was
        # last seen.
        whole = np.where(done > 0, view.attained_gpu_s / np.where(done > 0, done, 1.0), np.nan)
        rows = np.flatnonzero(np.isfinite(whole))
        self._whole_gpu_s = dict(zip(view.job[rows].tolist(), whole[rows].tolist(), strict=True))


def gittins_index(service: Floats, sizes: Floats) -> Floats:
    """Return each job's Gittins index, by GPU-seconds received and a sample of jobs' totals (`sizes`).

    The greatest over quanta d of P(S - a <= d | S > a) / E[min(S - a, d) | S > a], with S drawn
    from `sizes` and a the service; the best d ends at one of the sizes (Tiresias, section 3.3).

    Parameters
    ----------
    service : ndarray of float, shape (n,)
        GPU-seconds.
    sizes : ndarray of float, shape (m,)
        Ascending sample of whole services, GPU-seconds.

    Returns
    -------
    ndarray of float, shape (n,)
        1 / GPU-second; 0 for a job that has had more than any of the sample.
    """
    beyond = sizes[None, :] > service[:, None]
    quantum = np.where(beyond, sizes[None, :] - service[:, None], 0.0)
    ends = np.cumsum(beyond, axis=1)
    survive = beyond.sum(axis=1, keepdims=True) - ends
    # E[min(S - a, d) | S > a] times the sizes beyond a: those that end within d count their own remainder,
    # the others count d.
    cost = np.cumsum(quantum, axis=1) + survive * quantum
    ratio = np.divide(ends, cost, out=np.zeros(cost.shape), where=beyond & (cost > 0))
    index: Floats = ratio.max(axis=1, initial=0.0)
    return index
