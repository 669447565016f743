"""Lucid: a policy that profiles new jobs briefly, then serves the rest by GPU time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.parameter_types import NonNegativeInt, Period, PositiveFloat
from clustergym.scenario.policy import QUEUED, Decision, InformationClass, Policy, Setting, View

from .shared.binding import Binder, Join, Records, mark_counted_jobs
from .shared.finish_times import remaining_at_request_s, request_times
from .shared.queues import fill, first_type
from .shared.requests import request_options


@dataclass
class Lucid(Policy):
    """The policy Lucid (ASPLOS '23), which profiles new jobs briefly, then serves least GPU time first.

    A new job first runs on the profiler, a few GPUs set apart, for a short time at most, so that the
    many jobs that fail or end at once leave early. The other jobs wait in order of GPUs times
    estimated run time, the least first, and then run to completion at their request.

    Packing (3.3, 3.4), where the scenario has speeds of pairs: before it starts on GPUs of its own, a job
    of the main queue of at most 8 GPUs shares those of the first job, in order of start, that runs on its
    own, has as many GPUs, may share with it (memory included, where the table has it), and whose doubled
    priority is not below its own. Two jobs whose labels add up to more than 2 never share. A label is 2
    for a job that keeps less than 0.85 of its speed beside others on average, 1 for less than 0.95, else
    0.

    Differences from the paper: labels come from the scenario's pairs, not from utilisation; sharing is
    not switched off at low load; only jobs that ran before are hosts. With `estimator=exact` run times
    are the true iterations times the seconds of a data-parallel profile (hence the information class), so
    they are exact where the profile is. A type without a profile counts as the fastest known type, and a
    job without any profile as the median job. With `estimator=records` they are the mean run times of the
    finished jobs of the same GPU count and batch, or else of the same count, or else of all, where the
    paper has a model of users' past jobs. The profiler is a number of GPUs, not certain nodes: the placer
    chooses them, and a job whose time there is over keeps its GPUs if it is its turn in the main queue. A
    job that has to leave keeps its progress and pays its restart (the paper's starts over). The time
    limit is checked at rounds. A job that asks for more GPUs than the profiler has, or finds none free
    there, goes to the main queue at once; one whose time is up stays on the profiler while it has room.
    While a waiting job asks for more GPUs than the rest of the cluster has, no GPUs are set apart.

    Parameters
    ----------
    profiler_gpus : int
        GPUs of each type set apart; at most half of them are. The number is a choice of ours.
    profile_limit_s : float
        Most seconds a job runs on the profiler. 200 is Lucid's for its Venus trace (its code's
        default option is 500): the threshold goes with the trace.
    pack : bool
        Let jobs share GPUs; without effect where the scenario has no pairs.
    estimator : {"exact", "records"}
        Where run times are from.
    round_s : float or None
        Seconds between decision points.
    """

    name: ClassVar[str] = "lucid"
    information_class: ClassVar[InformationClass] = InformationClass.DATA_PARALLEL
    profiler_gpus: NonNegativeInt = 8
    profile_limit_s: PositiveFloat = 200.0
    pack: bool = False
    estimator: Literal["exact", "records"] = "exact"
    round_s: Period | None = 60.0

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Forget all jobs of the last run."""
        self._since: dict[int, float] = {}
        self._past: set[int] = set()
        self._binder, self._records = Binder(), Records()

    def schedule(self, view: View) -> Decision:
        """Start profiled jobs, least GPU time first, and new jobs on the GPUs set apart for profiling."""
        options = request_options(view)
        left_s = remaining_at_request_s(view, request_times(view))
        # A type that was not profiled counts as the fastest that was.
        known_s = np.where(np.isfinite(left_s), left_s, left_s.min(axis=1, keepdims=True))
        self._records.follow(view)
        if self.estimator == "records":
            known_s = np.broadcast_to(self._records.estimate_s(view)[:, None], known_s.shape)
        left_s = np.where(options, known_s, np.inf)
        profiler = self._profiler_size(view, options)
        profiling, over, new = self._stages(view, options, profiler)
        types = len(profiler)
        kept = self._list_held(view, (view.state != QUEUED) & ~profiling & ~over)
        tested = self._list_held(view, profiling)
        own = self._list_held(view, (view.state != QUEUED) & ~profiling & ~over & mark_counted_jobs(view))
        # Counted in three steps: what stays, then the profiler's seats, then the main queue, so that the
        # profiler (section 3.2) comes first and the main queue cannot take the seats set apart.
        room = view.available - self._count_used([*own, *tested], types)
        seats = np.minimum(room, np.maximum(profiler - self._count_used(tested, types), 0))
        fresh = fill(view, np.flatnonzero(new), first_type(options), np.maximum(seats, 0))
        self._since.update({job: view.now_s for job, _, _ in fresh})
        seated = np.isin(view.job, [job for job, _, _ in fresh])
        # Section 3.4: the main queue by GPUs times estimated duration, the least first, without preemption.
        order = self._by_gpu_time(view, left_s, (view.state == QUEUED) & ~seated | over)
        joins: list[Join] = []
        if self.pack:
            hosts = (view.state != QUEUED) & ~profiling & ~over
            joins = self._binder.joins(view, order, hosts, left_s)
            order = order[~np.isin(view.job[order], [join.job for join in joins])]
        # A job that leaves the profiler starts where it stands, or it would pay a restart for nothing.
        here = np.where(over[:, None], view.gpu_type[:, None] == np.arange(types), True)
        main = np.minimum(
            room - self._count_used(fresh, types), view.available - profiler - self._count_used(own, types)
        )
        starts = fill(view, order, np.where(here, left_s, np.inf), np.maximum(main, 0))
        self._past.update([*(job for job, _, _ in starts), *(join.job for join in joins)])
        room = room - self._count_used([*fresh, *starts], types)
        # Jobs whose time is up but whose turn has not come keep GPUs that nobody else got.
        stay = over & ~np.isin(view.job, [job for job, _, _ in starts])
        stays = fill(view, np.flatnonzero(stay), first_type(options & here), np.maximum(room, 0))
        joined = [(join.job, join.gpu_type, join.gpus) for join in joins]
        decision = Decision.of([*kept, *starts, *tested, *fresh, *stays, *joined])
        if view.partner is None:
            return decision
        lasting = [(row, other) for row, other in zip(view.job.tolist(), view.partner.tolist(), strict=True)]
        pairs = [(row, other) for row, other in lasting if row < other]
        return decision.paired([*pairs, *((join.job, join.host) for join in joins)])

    def _profiler_size(self, view: View, options: Bools) -> Ints:
        """Return the profiler's GPUs of each type; 0 while some waiting job does not fit in the rest."""
        capacity = view.setting.capacity
        size = np.minimum(self.profiler_gpus, capacity // 2)
        rest = np.where(options, capacity - size, 0).max(axis=1, initial=0)
        wide = (view.state == QUEUED) & (view.requested_gpus > rest)
        # Otherwise a job wider than the rest of the cluster would wait for ever.
        closed: Ints = np.zeros_like(size) if wide.any() else size
        return closed

    def _stages(self, view: View, options: Bools, profiler: Ints) -> tuple[Bools, Bools, Bools]:
        """Return which jobs are on the profiler, which are over its time limit, and which enter it."""
        since = np.array([self._since.get(row, np.nan) for row in view.job.tolist()])
        past = np.array([row in self._past for row in view.job.tolist()], dtype=np.bool_)
        there = (view.gpus > 0) & np.isfinite(since) & ~past
        # Section 3.2: jobs that end within the profiler's limit never reach the main queue.
        over = there & (view.now_s - since >= self.profile_limit_s)
        fits = (options & (profiler >= view.requested_gpus[:, None])).any(axis=1)
        new = (view.state == QUEUED) & np.isnan(since) & ~past & fits
        return there & ~over, over, new

    def _by_gpu_time(self, view: View, left_s: Floats, among: Bools) -> Ints:
        """Return the positions of jobs in ascending order of GPUs x estimated time."""
        at = np.flatnonzero(among)
        # The order of the main queue: GPUs x estimated duration, so that short and narrow jobs come first.
        gpu_s = view.requested_gpus[at] * left_s[at].min(axis=1, initial=np.inf)
        order: Ints = at[np.argsort(gpu_s, kind="stable")]
        return order

    @staticmethod
    def _list_held(view: View, among: Bools) -> list[tuple[int, int, int]]:
        table = np.stack([view.job, view.gpu_type, view.gpus], axis=1)[among]
        return [(job, gpu_type, gpus) for job, gpu_type, gpus in table.tolist()]

    @staticmethod
    def _count_used(allotments: list[tuple[int, int, int]], types: int) -> Ints:
        table = np.array(allotments, dtype=np.int64).reshape(-1, 3)
        used: Ints = np.bincount(table[:, 1], weights=table[:, 2], minlength=types).astype(np.int64)
        return used
