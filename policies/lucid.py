"""Lucid: a policy that profiles new jobs briefly, then serves the rest by GPU time (ASPLOS '23).

Its binder lets jobs share GPUs by labels; run times are estimated from records.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.parameter_types import NonNegativeInt, Period, PositiveFloat
from clustergym.scenario.policy import QUEUED, Decision, InformationClass, PairOptions, Policy, Setting, View

from .shared.finish_times import remaining_at_request_s, request_times
from .shared.queues import fill, first_type
from .shared.requests import find_requested_level, request_options

HEAVY_BELOW, MEDIUM_BELOW = 0.85, 0.95
"""A job that keeps less of its speed on average has label 2, or 1."""
MOST_LABELS = 2
"""Two jobs share only if their labels add up to at most this."""
MOST_GPUS = 8
LONGER = 2.0
"""A host's priority, times this, is at least that of the job that joins it."""
UNKNOWN_S = 3600.0
"""Run time estimated while no job has finished."""


class Join(NamedTuple):
    """A job that will share a running job's GPUs: trace rows of both, GPU type index, number of GPUs."""

    job: int
    host: int
    gpu_type: int
    gpus: int


def mark_counted_jobs(view: View) -> Bools:
    """Mark jobs such that each GPU in use counts once: of two jobs that share GPUs only the first; (n,)."""
    if view.partner is None:
        return np.ones(len(view), dtype=np.bool_)
    once: Bools = (view.partner < 0) | (view.job < view.partner)
    return once


def labels(pairs: PairOptions) -> Ints:
    """Rate how much jobs of each class lose by sharing GPUs, from 0 (little) to 2, by GPU type and count.

    Shape (C, T, K).
    """
    if pairs.kept is None:
        raise ValueError("the information class knows no speeds of pairs")
    number = pairs.allowed.sum(axis=1)
    mean = np.where(number > 0, pairs.kept.sum(axis=1) / np.maximum(number, 1), 1.0)
    label: Ints = (mean < HEAVY_BELOW).astype(np.int64) + (mean < MEDIUM_BELOW)
    return label


class Binder:
    """Chooses which waiting jobs share the GPUs of which running jobs (hosts)."""

    def __init__(self) -> None:
        self._started: dict[int, float] = {}

    def joins(self, view: View, order: Ints, hosts: Bools, left_s: Floats) -> list[Join]:
        """Return the waiting jobs that will share a running job's GPUs, each with that job.

        Parameters
        ----------
        view : View
        order : ndarray of int
            Positions of waiting jobs, the first to be served first.
        hosts : ndarray of bool, shape (n,)
            Running jobs that may be hosts.
        left_s : ndarray of float, shape (n, T)
            Estimated run time at the request; inf: not on this type.
        """
        pairs = view.pair_options()
        for at in np.flatnonzero(hosts).tolist():
            self._started.setdefault(int(view.job[at]), view.now_s)
        if pairs is None or view.partner is None:
            return []
        label, options, level = labels(pairs), request_options(view), find_requested_level(view)
        priority = view.requested_gpus * left_s.min(axis=1)
        lone = np.flatnonzero(hosts & (view.partner < 0) & (view.gpus == view.requested_gpus)).tolist()
        lone.sort(key=lambda at: (self._started[int(view.job[at])], int(view.job[at])))
        found: list[Join] = []
        for at in order.tolist():
            if view.gpus[at] or view.requested_gpus[at] > MOST_GPUS:
                continue
            for host in lone:
                gpu_type, of = int(view.gpu_type[host]), (pairs.job_class[at], pairs.job_class[host])
                cell = gpu_type, int(level[at])
                if (
                    view.gpus[host] == view.requested_gpus[at]
                    and options[at, gpu_type]
                    and pairs.allowed[(*of, *cell)]
                    # Lucid, section 3.3: two jobs that both need most of a GPU never share.
                    and label[(of[0], *cell)] + label[(of[1], *cell)] <= MOST_LABELS
                    and LONGER * priority[host] >= priority[at]
                ):
                    found.append(Join(int(view.job[at]), int(view.job[host]), gpu_type, int(view.gpus[host])))
                    lone.remove(host)
                    break
        return found


class Records:
    """Records the run times of finished jobs, and estimates those of others from them."""

    def __init__(self) -> None:
        self._last_seen: dict[int, tuple[int, int, float]] = {}
        self._ran_s: dict[tuple[int, ...], list[float]] = defaultdict(list)

    def follow(self, view: View) -> None:
        """Record the run times of jobs that have left since the last View."""
        table = zip(
            view.job.tolist(),
            view.requested_gpus.tolist(),
            view.global_batch.tolist(),
            (view.attained_gpu_s / view.requested_gpus).tolist(),
            strict=True,
        )
        now = {job: (gpus, batch, ran_s) for job, gpus, batch, ran_s in table}
        for job in sorted(self._last_seen.keys() - now.keys()):
            gpus, batch, ran_s = self._last_seen[job]
            for key in ((gpus, batch), (gpus,), ()):
                self._ran_s[key].append(ran_s)
        self._last_seen = now

    def estimate_s(self, view: View) -> Floats:
        """Return the estimated total run time (s) of each job on its requested GPUs, shape (n,)."""
        means = {key: float(np.mean(ran_s)) for key, ran_s in self._ran_s.items()}
        jobs = zip(view.requested_gpus.tolist(), view.global_batch.tolist(), strict=True)
        return np.array(
            [
                next((means[key] for key in ((gpus, batch), (gpus,), ()) if key in means), UNKNOWN_S)
                for gpus, batch in jobs
            ]
        )


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
