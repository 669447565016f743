"""Choose the jobs that Kueue stops for another: its classic rules, and those of fair sharing.

Source: Kueue's documentation, "Preemption" (candidates, classic preemption, fair sharing), KEP-1714 and
KEP-79; what these leave open is as its scheduler answers (see `benchmarks/kueue_agreement.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from .cohorts import QuotaNode, common_root, sides_below_common_cohort

Whom = Literal["never", "lower_priority", "lower_or_newer", "any"]
Order = tuple[bool, bool, int, float, float, int]


@dataclass(frozen=True)
class QueueRules:
    """The rules of a queue: which jobs it may preempt, and in which order its jobs are tried.

    Attributes
    ----------
    strict : bool
        Whether jobs behind one that cannot be admitted wait.
    within_queue, reclaim, borrow : str
        Whom a job preempts in its own queue, in other queues within its quota, and in others beyond it.
    most_priority : float or None
        Highest priority of a job that is preempted beyond the own quota; None: any lower one.
    """

    strict: bool = False
    within_queue: Whom = "never"
    reclaim: Whom = "never"
    borrow: Whom = "never"
    most_priority: float | None = None


@dataclass(eq=False)
class KueueJob:
    """A job as Kueue sees it: it waits, or it is admitted and uses some of its queue's quota.

    Attributes
    ----------
    row : int
        Its identity, which breaks ties.
    queue : QuotaNode
    gpus, priority : int
    created : float
        When it was submitted; queues are in this order within a priority.
    options : tuple of int
        GPU types that it may run on, first choice first.
    gpu_type : int
        Type that it holds; -1: it waits.
    admitted : float
        When it was given its quota: the later one is stopped first.
    loss : float
        What stopping it costs: of equal priority the least is stopped first, and then who was admitted last.
    leaving : bool
        Whether it was told to stop before and still holds its GPUs; such jobs are chosen first.
    safe : callable or None
        Whether it may not be stopped now for a job of a given queue.
    may_preempt : bool
    """

    row: int
    queue: QuotaNode
    gpus: int
    priority: int
    created: float
    options: tuple[int, ...]
    gpu_type: int = -1
    admitted: float = 0.0
    loss: float = 0.0
    leaving: bool = False
    safe: Callable[[QuotaNode], bool] | None = field(default=None, repr=False)
    may_preempt: bool = True


class QuotaHolders:
    """The admitted jobs of each queue, which use its quota, and the GPUs that nobody holds.

    Parameters
    ----------
    rules : dict of QuotaNode to QueueRules
        Of every queue.
    free : list of float
        GPUs by type that nobody holds: nodes may have failed, and quotas may exceed the cluster.
    """

    def __init__(self, rules: dict[QuotaNode, QueueRules], free: list[float]) -> None:
        self.rules, self.free = rules, free
        self.jobs: dict[QuotaNode, list[KueueJob]] = {queue: [] for queue in rules}

    def count(self, job: KueueJob) -> None:
        """Add a job's GPUs to those that its queue uses."""
        job.queue.use(job.gpu_type, job.gpus)
        self.free[job.gpu_type] -= job.gpus

    def discount(self, job: KueueJob) -> None:
        """Subtract a job's GPUs from those that its queue uses; `count` undoes it."""
        job.queue.use(job.gpu_type, -job.gpus)
        self.free[job.gpu_type] += job.gpus

    @contextmanager
    def suspend(self, jobs: Sequence[KueueJob]) -> Iterator[None]:
        """Give a context in which jobs use no quota."""
        for job in jobs:
            self.discount(job)
        yield
        for job in jobs:
            self.count(job)

    def fits(self, job: KueueJob, at: int, may_borrow: bool = True) -> bool:
        """Return whether a job's queue has enough GPUs of type `at` for it, borrowed ones if allowed."""
        if not may_borrow and job.queue.borrows(at, job.gpus):
            return False
        return job.gpus <= min(max(0.0, job.queue.available(at)), self.free[at])


def find_victims(holders: QuotaHolders, job: KueueJob, at: int, fair_sharing: bool) -> list[KueueJob]:
    """Return the jobs to preempt so that a job gets GPUs of type number `at`; empty if that is impossible."""
    if not job.may_preempt:
        return []
    return (_find_fair_victims if fair_sharing else _find_classic_victims)(holders, job, at)


def _permits(whom: Whom, job: KueueJob, other: KueueJob) -> bool:
    if whom == "any" or (whom != "never" and other.priority < job.priority):
        return True
    return whom == "lower_or_newer" and other.priority == job.priority and job.created < other.created


def _victim_order(job: KueueJob, other: KueueJob) -> Order:
    """Return the order of candidates: of other queues first, of lower priority, cheaper, more recent."""
    own = other.queue is job.queue
    return not other.leaving, own, other.priority, other.loss, -other.admitted, other.row


def _candidates(
    holders: QuotaHolders, job: KueueJob, queue: QuotaNode, at: int, whom: Whom
) -> Iterator[KueueJob]:
    for other in holders.jobs[queue]:
        safe = other.safe is not None and other.safe(job.queue)
        if other.gpu_type == at and not safe and _permits(whom, job, other):
            yield other


def _put_back(
    holders: QuotaHolders, job: KueueJob, at: int, stopped: list[KueueJob], may_borrow: bool
) -> None:
    """Take jobs that need not stop off the list, the first chosen last; the last one chosen has to stop."""
    for place in range(len(stopped) - 2, -1, -1):
        holders.count(stopped[place])
        if holders.fits(job, at, may_borrow):
            # Kueue moves the last of the list into the gap, which decides the order of what is tried next.
            stopped[place] = stopped[-1]
            stopped.pop()
        else:
            holders.discount(stopped[place])


@dataclass(frozen=True)
class _Candidate:
    """A job that may have to stop, and up to which cohort its queue must borrow for that."""

    job: KueueJob
    common: QuotaNode | None
    within_quota_only: bool = False
    """Whether the preemptor may not borrow if this job stops."""


def _find_classic_victims(holders: QuotaHolders, job: KueueJob, at: int) -> list[KueueJob]:
    rules = holders.rules[job.queue]
    reclaimed, others = _collect_borrowers(holders, job, at)
    own = sorted(
        _candidates(holders, job, job.queue, at, rules.within_queue), key=partial(_victim_order, job)
    )
    candidates = [*reclaimed, *others, *(_Candidate(one, None) for one in own)]
    candidates.sort(key=lambda one: not one.job.leaving)
    never_borrows = rules.borrow == "never"
    under_quota = job.queue.used[at] < job.queue.nominal[at]
    if not (reclaimed or others) or (never_borrows and not under_quota):
        attempts = [True]
    elif never_borrows and not reclaimed:
        attempts = [False, True]
    else:
        attempts = [True, False]
    for may_borrow in attempts:
        stopped: list[KueueJob] = []
        for candidate in candidates:
            if _may_stop(candidate, job, at, may_borrow):
                holders.discount(candidate.job)
                stopped.append(candidate.job)
                if holders.fits(job, at, may_borrow):
                    _put_back(holders, job, at, stopped, may_borrow)
                    _restore(holders, stopped)
                    return stopped
        _restore(holders, stopped)
    return []


def _restore(holders: QuotaHolders, stopped: list[KueueJob]) -> None:
    for other in stopped:
        holders.count(other)


def _may_stop(candidate: _Candidate, job: KueueJob, at: int, may_borrow: bool) -> bool:
    """Return whether a job may still be stopped: its queue, and each cohort below the common one, borrows."""
    queue = candidate.job.queue
    if queue is job.queue:
        return True
    if may_borrow and candidate.within_quota_only:
        return False
    for node in (queue, *queue.ancestors()):
        if node is candidate.common:
            return True
        if not node.borrows(at):
            return False
    return True


def _collect_borrowers(
    holders: QuotaHolders, job: KueueJob, at: int
) -> tuple[list[_Candidate], list[_Candidate]]:
    """Return the jobs of borrowing queues in two lists: those that a subtree's quota entitles to, and others.

    Going up from the queue, the first subtree whose quota holds the job has a right to what others borrow
    of the cohorts above it (KEP-79).
    """
    rules = holders.rules[job.queue]
    reclaimed: list[_Candidate] = []
    others: list[_Candidate] = []
    if rules.reclaim == "never":
        return reclaimed, others
    order = partial(_victim_order, job)
    node, left = job.queue, float(job.gpus)
    has_right = not node.borrows(at, left)
    left = max(0.0, left - node.count_reserved_gpus(at))
    for cohort in job.queue.ancestors():
        found = reclaimed if has_right else others
        for queue in _borrowing_queues(cohort, at, node, job.queue):
            for other in _candidates(holders, job, queue, at, rules.reclaim):
                found.append(_Candidate(other, cohort, not has_right and not _may_borrow(rules, job, other)))
        has_right = has_right or not cohort.borrows(at, left)
        left = max(0.0, left - cohort.count_reserved_gpus(at))
        node = cohort
    reclaimed.sort(key=lambda one: order(one.job))
    others.sort(key=lambda one: order(one.job))
    return reclaimed, others


def _may_borrow(rules: QueueRules, job: KueueJob, other: KueueJob) -> bool:
    """Return whether a job may stop another and borrow, too (`borrowWithinCohort`)."""
    if rules.borrow == "never" or other.priority >= job.priority:
        return False
    return rules.most_priority is None or other.priority <= rules.most_priority


def _borrowing_queues(cohort: QuotaNode, at: int, skip: QuotaNode, own: QuotaNode) -> Iterator[QuotaNode]:
    """Yield the queues in a cohort that borrow, in cohorts that borrow; but for a part seen before."""
    for child in cohort.cohorts:
        if child is not skip and child.borrows(at):
            yield from _borrowing_queues(child, at, skip, own)
    for queue in cohort.queues:
        if queue is not own and queue.borrows(at):
            yield queue


def _find_fair_victims(holders: QuotaHolders, job: KueueJob, at: int) -> list[KueueJob]:
    rules = holders.rules[job.queue]
    candidates = list(_candidates(holders, job, job.queue, at, rules.within_queue))
    for queue in common_root(job.queue).walk():
        if queue is not job.queue and not queue.children and queue.used[at] > queue.nominal[at]:
            candidates += _candidates(holders, job, queue, at, rules.reclaim)
    candidates.sort(key=partial(_victim_order, job))
    stopped: list[KueueJob] = []
    # Shares are compared as if the job were there already (KEP-1714).
    job.queue.use(at, job.gpus)
    try:
        done = _stop_by_shares(holders, job, at, candidates, stopped)
    finally:
        job.queue.use(at, -job.gpus)
    if done:
        _put_back(holders, job, at, stopped, may_borrow=True)
    _restore(holders, stopped)
    return stopped if done else []


def _stop_by_shares(
    holders: QuotaHolders, job: KueueJob, at: int, candidates: list[KueueJob], stopped: list[KueueJob]
) -> bool:
    """Stop jobs by Kueue's final-share rule, then by its initial-share rule; return whether the job fits.

    Final share: the other side's share without its job is still no less than the own side's with the job.
    Initial share: the other side's share now is greater; tried for the jobs that the first rule passed over.
    """
    passed_over: list[KueueJob] = []

    def try_eviction(other: KueueJob) -> bool:
        holders.discount(other)
        stopped.append(other)
        job.queue.use(at, -job.gpus)
        enough = holders.fits(job, at)
        job.queue.use(at, job.gpus)
        return enough

    turns = _FairTurns(job, candidates)
    while (queue := turns.next_queue()) is not None:
        if queue is job.queue:
            if try_eviction(turns.jobs[queue].pop(0)):
                return True
            continue
        mine, theirs = sides_below_common_cohort(job.queue, queue)
        share = mine.share()
        while turns.jobs[queue]:
            other = turns.jobs[queue].pop(0)
            queue.use(at, -other.gpus)
            left = theirs.share()
            queue.use(at, other.gpus)
            # Within its own quota a queue takes back what others borrow, whatever the shares.
            if not job.queue.borrows(at) or share <= left:
                if try_eviction(other):
                    return True
                break
            passed_over.append(other)
    turns = _FairTurns(job, passed_over)
    while (queue := turns.next_queue()) is not None:
        mine, theirs = sides_below_common_cohort(job.queue, queue)
        if mine.share() < theirs.share() and try_eviction(turns.jobs[queue].pop(0)):
            return True
        turns.skip_queue(queue)
    return False


class _FairTurns:
    """Choose whose jobs to stop: from the root down, always the child with the greatest share.

    Parameters
    ----------
    job : KueueJob
        For which jobs are stopped.
    candidates : list of KueueJob
        In the order in which those of a queue are stopped.
    """

    def __init__(self, job: KueueJob, candidates: list[KueueJob]) -> None:
        self._job, self._order = job, partial(_victim_order, job)
        self._root = common_root(job.queue)
        self._above = set(job.queue.ancestors())
        self._left_out: set[QuotaNode] = set()
        self.jobs: dict[QuotaNode, list[KueueJob]] = {}
        for other in candidates:
            self.jobs.setdefault(other.queue, []).append(other)

    def skip_queue(self, node: QuotaNode) -> None:
        """Take no more jobs to preempt from a queue or cohort."""
        self._left_out.add(node)

    def next_queue(self) -> QuotaNode | None:
        """Return the queue from which to take the next job to preempt; None if there is none left."""
        if not self._root.children:
            return self._root if self.jobs.get(self._root) else None
        while self._root not in self._left_out:
            queue = self._descend(self._root)
            if queue is not None:
                return queue
        return None

    def _descend(self, cohort: QuotaNode) -> QuotaNode | None:
        best: tuple[tuple[bool, float], Order, QuotaNode] | None = None
        widest: tuple[tuple[bool, float], QuotaNode] | None = None
        for node in cohort.children:
            if node in self._left_out:
                continue
            share, own = node.share(), node in self._above or node is self._job.queue
            if (share == (False, 0.0) and not own) or (not node.children and not self.jobs.get(node)):
                self.skip_queue(node)
            elif node.children:
                widest = (share, node) if widest is None or share >= widest[0] else widest
            else:
                first = self._order(self.jobs[node][0])
                best = (share, first, node) if best is None or (best[0], first) < (share, best[1]) else best
        # Of a cohort and a queue with equal shares the cohort is first.
        if widest is not None and (best is None or widest[0] >= best[0]):
            return self._descend(widest[1])
        if best is None:
            self.skip_queue(cohort)
            return None
        return best[2]
