"""Kueue's scheduling cycle: one head of each queue, admitted or given the place of others.

Source: Kueue's KEP-83 (heads of queues, workload preemption), its documentation, and what its scheduler
answers (`benchmarks/kueue_agreement.py`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from .cohorts import QuotaNode, common_root
from .kueue_victims import KueueJob, QuotaHolders, find_victims

Shares = dict[tuple[QuotaNode, QuotaNode], tuple[bool, tuple[bool, float]]]
"""For each cohort and queue: whether the queue's branch borrows with its first job, and its share."""


class Fit(IntEnum):
    """Grades of how well a GPU type suits a job now, in ascending order."""

    NONE = 0
    NO_VICTIMS = 1
    STOPS_OWN = 2
    STOPS_OTHERS = 3
    FREE = 4


@dataclass
class Entry:
    """The first job of a queue in an admission cycle, with the GPU type that is best for it now.

    Attributes
    ----------
    job : KueueJob
    fit : Fit
    gpu_type : int
    level : int
        Height of the lowest cohort whose quota holds the job; 0: its own queue's.
    victims : list of KueueJob
        Who has to stop for it.
    """

    job: KueueJob
    fit: Fit
    gpu_type: int
    level: int
    victims: list[KueueJob]


@dataclass(frozen=True)
class CycleResult:
    """The jobs that one admission cycle admitted or preempted.

    Attributes
    ----------
    admitted : list of (KueueJob, int)
        Who was admitted, and on which GPU type.
    preempted : list of (KueueJob, KueueJob)
        Who was stopped, and for whom.
    settled : bool
        Whether every further cycle would do the same.
    """

    admitted: list[tuple[KueueJob, int]]
    preempted: list[tuple[KueueJob, KueueJob]]
    settled: bool


class KueueScheduler:
    """Kueue's admission cycles, with the waiting jobs and the admitted ones.

    Parameters
    ----------
    holders : QuotaHolders
        With the admitted jobs.
    waiting : list of KueueJob
    fair_sharing : bool
        Whether shares decide who is admitted and preempted.
    sticky : dict of QuotaNode to KueueJob or None
        Jobs that others were stopped for before: each is its queue's head until it is admitted.
    may_stop : callable or None
        Whether all of some jobs can stop now. Where they cannot, the job that is to have their place waits
        for the next decision point.
    """

    def __init__(
        self,
        holders: QuotaHolders,
        waiting: list[KueueJob],
        fair_sharing: bool,
        sticky: dict[QuotaNode, KueueJob] | None = None,
        may_stop: Callable[[list[KueueJob]], bool] | None = None,
    ) -> None:
        self.holders, self.sticky = holders, {} if sticky is None else sticky
        self._fair_sharing, self._may_stop = fair_sharing, may_stop
        self._waiting: dict[QuotaNode, list[KueueJob]] = {queue: [] for queue in holders.rules}
        self._set_aside: dict[QuotaNode, list[KueueJob]] = {queue: [] for queue in holders.rules}
        self._blocked: set[QuotaNode] = set()
        for job in sorted(waiting, key=_queue_order):
            self._waiting[job.queue].append(job)

    def run_cycle(self, now: float) -> CycleResult:
        """Try to admit the first job of each queue; return which jobs were admitted and preempted."""
        heads = [
            self._head(queue) for queue, jobs in self._waiting.items() if jobs and queue not in self._blocked
        ]
        result, blocked = CycleResult([], [], settled=False), set(self._blocked)
        stopped: list[KueueJob] = []
        reserved: list[tuple[QuotaNode, int, float]] = []
        failed: list[KueueJob] = []
        # All heads are nominated against the state at the start of the cycle; only then is one after another
        # admitted, which is why `_would_fit` has to ask again.
        for nominated in self._in_turn([self._nominate(job) for job in heads]):
            entry, job = nominated, nominated.job
            if any(victim in stopped for victim in entry.victims):
                # Another job of this cycle has some of its victims.
                entry = self._nominate_without(job, stopped)
                if not entry.victims:
                    continue
            if entry.fit == Fit.NONE or (entry.fit < Fit.FREE and not entry.victims):
                failed.append(job)
                self._reserve(entry, reserved)
                continue
            if not self._would_fit(entry, stopped):
                continue
            job.queue.use(entry.gpu_type, job.gpus)
            if entry.victims:
                self.sticky[job.queue] = job
                if self._may_stop is not None and not self._may_stop(entry.victims):
                    # The victims still end: the quota stays reserved for the rest of this decision point.
                    self._blocked.add(job.queue)
                    continue
                stopped += entry.victims
                result.preempted.extend((victim, job) for victim in entry.victims)
            else:
                job.gpu_type = entry.gpu_type
                self.holders.free[job.gpu_type] -= job.gpus
                result.admitted.append((job, job.gpu_type))
            reserved.append((job.queue, entry.gpu_type, job.gpus))
        # Reservations last for the cycle; `_settle` books what really changed.
        for queue, at, gpus in reversed(reserved):
            queue.use(at, -gpus)
        self._settle(result, stopped, failed, now)
        set_aside = any(not self.holders.rules[job.queue].strict for job in failed)
        changed = result.admitted or stopped or set_aside or self._blocked != blocked
        return CycleResult(result.admitted, result.preempted, not changed)

    def run(self, now: float) -> list[CycleResult]:
        """Run admission cycles at times `now` + 1, + 2, … until nothing changes; return the changes of each.

        Jobs may preempt each other for ever: this ends, too, where a cycle that preempts leaves a state that
        was there before.
        """
        cycles: list[CycleResult] = []
        seen: set[tuple[frozenset[object], ...]] = set()
        while not (cycles and cycles[-1].settled):
            cycles.append(self.run_cycle(now + 1 + len(cycles)))
            if cycles[-1].preempted:
                state = self._state()
                if state in seen:
                    break
                seen.add(state)
        return cycles

    def _state(self) -> tuple[frozenset[object], ...]:
        held = frozenset((job.row, job.gpu_type) for jobs in self.holders.jobs.values() for job in jobs)
        waiting = frozenset(job.row for jobs in self._waiting.values() for job in jobs)
        return held, waiting, frozenset(job.row for job in self.sticky.values())

    def _head(self, queue: QuotaNode) -> KueueJob:
        """Return a queue's next job: the one that others were stopped for, or the first in order.

        A strict queue has no such exception: there the first in order is always next.
        """
        held = self.sticky.get(queue)
        if held is not None and held in self._waiting[queue] and not self.holders.rules[queue].strict:
            return held
        return self._waiting[queue][0]

    def _nominate(self, job: KueueJob) -> Entry:
        """Return a job with its GPU type: the first that is free, even if borrowed, else the best."""
        best: tuple[Fit, int, int] | None = None
        for at in job.options:
            fit, level = self._fit(job, at)
            if best is None or (fit != Fit.NONE and (fit, -level) > (best[0], -best[1])):
                best = fit, level, at
            # The first type that is free wins, even if a later one would borrow less.
            if fit == Fit.FREE:
                break
        if best is None:
            return Entry(job, Fit.NONE, 0, 0, [])
        fit, level, at = best
        chosen = fit not in (Fit.NONE, Fit.FREE)
        victims = find_victims(self.holders, job, at, self._fair_sharing) if chosen else []
        return Entry(job, fit, at, level, victims)

    def _fit(self, job: KueueJob, at: int) -> tuple[Fit, int]:
        queue, rules = job.queue, self.holders.rules[job.queue]
        if job.gpus > queue.attainable[at]:
            return Fit.NONE, 0
        level, may_reclaim = _level_of_borrowing(job, at)
        if self.holders.fits(job, at):
            return Fit.FREE, level
        # Beyond the quota of every subtree below the root a job preempts only if its queue's rules say so.
        beyond = rules.borrow != "never" or (self._fair_sharing and rules.reclaim != "never")
        if job.gpus > queue.nominal[at] and not may_reclaim and not beyond:
            return Fit.NONE, level
        victims = find_victims(self.holders, job, at, self._fair_sharing)
        if not victims:
            return Fit.NO_VICTIMS, level
        with self.holders.suspend(victims):
            level, _ = _level_of_borrowing(job, at)
        own = any(victim.queue is queue for victim in victims)
        return Fit.STOPS_OWN if own else Fit.STOPS_OTHERS, level

    def _nominate_without(self, job: KueueJob, stopped: list[KueueJob]) -> Entry:
        """Return a job with its GPU type and victims, given that others have stopped."""
        with self.holders.suspend(stopped):
            for victim in stopped:
                self.holders.jobs[victim.queue].remove(victim)
            anew = self._nominate(job)
            for victim in stopped:
                self.holders.jobs[victim.queue].append(victim)
        return anew

    def _reserve(self, entry: Entry, reserved: list[tuple[QuotaNode, int, float]]) -> None:
        """Keep quota for a job that finds no job to stop, unless its queue can take it back at any time."""
        queue, at = entry.job.queue, entry.gpu_type
        if entry.fit != Fit.NO_VICTIMS or self.holders.rules[queue].reclaim == "any":
            return
        most = queue.most_with_borrowing(at) if entry.level else queue.nominal[at]
        gpus = min(float(entry.job.gpus), most - queue.used[at])
        if not entry.level:
            gpus = max(0.0, gpus)
        queue.use(at, gpus)
        reserved.append((queue, at, gpus))

    def _would_fit(self, entry: Entry, stopped: list[KueueJob]) -> bool:
        with self.holders.suspend([*stopped, *entry.victims]):
            return self.holders.fits(entry.job, entry.gpu_type)

    def _settle(
        self, result: CycleResult, stopped: list[KueueJob], failed: list[KueueJob], now: float
    ) -> None:
        """Book a cycle's result: admitted jobs hold quota, stopped ones wait, hopeless ones are set aside."""
        for job, _ in result.admitted:
            job.admitted = now
            job.queue.use(job.gpu_type, job.gpus)
            self.holders.jobs[job.queue].append(job)
            self._waiting[job.queue].remove(job)
            if self.sticky.get(job.queue) is job:
                del self.sticky[job.queue]
        for job in failed:
            if not self.holders.rules[job.queue].strict:
                # Kueue takes jobs of the same shape for as hopeless as the one that it tried.
                alike = [one for one in self._waiting[job.queue] if _shape(one) == _shape(job)]
                self._set_aside[job.queue] += alike
                self._waiting[job.queue] = [one for one in self._waiting[job.queue] if one not in alike]
        for job in stopped:
            self.holders.discount(job)
            self.holders.jobs[job.queue].remove(job)
            job.gpu_type = -1
            self._waiting[job.queue].append(job)
        # GPUs that were given back are a reason to try all jobs of the tree again.
        roots = {id(common_root(job.queue)) for job in stopped}
        for queue, aside in self._set_aside.items():
            if id(common_root(queue)) in roots:
                self._waiting[queue] = sorted([*self._waiting[queue], *aside], key=_queue_order)
                self._set_aside[queue] = []

    def _in_turn(self, entries: list[Entry]) -> Iterator[Entry]:
        """Yield entries in the order in which a cycle serves them."""
        if not self._fair_sharing:
            yield from sorted(entries, key=lambda entry: (entry.level, *_queue_order(entry.job)))
            return
        left = {entry.job.queue: entry for entry in entries}
        while left:
            root = common_root(next(iter(left)))
            keys = self._shares_with_heads(left, root)
            yield left.pop(self._tournament(root, left, keys))

    def _shares_with_heads(self, left: dict[QuotaNode, Entry], root: QuotaNode) -> Shares:
        keys: Shares = {}
        for queue, entry in left.items():
            if common_root(queue) is not root:
                continue
            gpus = 0 if entry.fit == Fit.NONE else entry.job.gpus
            queue.use(entry.gpu_type, gpus)
            side = queue
            for cohort in queue.ancestors():
                keys[cohort, queue] = side.borrows(entry.gpu_type), side.share()
                side = cohort
            queue.use(entry.gpu_type, -gpus)
        return keys

    def _tournament(self, node: QuotaNode, left: dict[QuotaNode, Entry], keys: Shares) -> QuotaNode:
        """Return the queue that is served next below a node: at each level the one of the least share."""
        if not node.children:
            return node
        within = [
            self._tournament(child, left, keys)
            for child in node.cohorts
            if any(one in left for one in child.walk())
        ]
        within += [queue for queue in node.queues if queue in left]
        return min(within, key=lambda queue: (keys[node, queue], _queue_order(left[queue].job)))


def _queue_order(job: KueueJob) -> tuple[int, float, int]:
    return -job.priority, job.created, job.row


def _shape(job: KueueJob) -> tuple[int, int, tuple[int, ...]]:
    return job.gpus, job.priority, job.options


def _level_of_borrowing(job: KueueJob, at: int) -> tuple[int, bool]:
    """Return the height of the lowest subtree whose quota holds a job, and whether it is below the root.

    A queue without a cohort holds all that it may ever have, and has nobody to take anything back from.
    """
    queue = job.queue
    if queue.parent is None or not queue.borrows(at, job.gpus):
        return 0, queue.parent is not None
    left = job.gpus - queue.count_reserved_gpus(at)
    for cohort in queue.ancestors():
        if not cohort.borrows(at, left):
            return cohort.height, cohort.parent is not None
        left -= cohort.count_reserved_gpus(at)
    return common_root(queue).height, False
