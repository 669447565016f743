"""Kueue: quotas that queues of a cohort lend each other, and jobs that give them back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from clustergym.scenario.policy import Setting
from clustergym.scenario.tenants.cohorts import Cohort, Usage
from clustergym.scenario.tenants.queue_tree import of_type

from .shared.gang_queues import GangQueues, Gangs
from .shared.queue_book import QueueBook

Whom = Literal["never", "lower_priority", "any"]


@dataclass
class Kueue(GangQueues):
    """The cluster queues of Kueue: nominal quotas, lent in cohorts, admission by share, preemption by rule.

    A leaf is a cluster queue with its quota, a queue with queues in it a cohort; GPUs that no quota covers
    are the cluster's, for all to borrow. A job is admitted if its queue may use or borrow that many GPUs.
    With fair sharing the next job is, at every level, that of the queue whose share would be least with it:
    what it uses beyond its quota, of what its cohort could lend, over its weight. Without, jobs that need
    nothing borrowed come first, then those of higher priority, then the earlier.

    Where a job does not fit, jobs of queues that borrow are preempted: by fair sharing if its own queue stays
    within its quota, or if the other's share, without the job, is still no less than its own with it, or
    failing that, if the other's share is greater now; without fair sharing by `reclaim_within_cohort` within
    its quota and by `borrow_within_cohort` beyond. Jobs of the largest share, lowest priority and fewest GPUs
    go first, and those that need not go stay. No job is stopped before its minimum run time.

    Sources, the system's documents and no paper: Kueue's KEP-1714 and KEP-4136, and its documentation. The
    rules without fair sharing are from general knowledge of Kueue.

    Every departure from the project: a job holds its quota from its start, and what was preempted is gone at
    once; minimum run times are ours.

    Parameters
    ----------
    fair_sharing : bool
        Whether shares decide who is admitted and preempted.
    queueing : str
        `best_effort`: jobs behind one that cannot be admitted may be. `strict`: they wait.
    reclaim_within_cohort : str
        Whom a job preempts in other queues: `never` anybody, those of `lower_priority`, or `any`.
    borrow_within_cohort : str
        Whether a job that needs more than its queue's quota preempts those of lower priority in queues that
        borrow; without fair sharing only.
    within_cluster_queue : str
        Whom a job preempts in its own queue; `lower_or_newer`: those of equal priority, too, that came later.
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy.
    """

    name: ClassVar[str] = "kueue"
    fair_sharing: bool = True
    queueing: Literal["strict", "best_effort"] = "best_effort"
    reclaim_within_cohort: Whom = "any"
    borrow_within_cohort: Literal["never", "lower_priority"] = "never"
    within_cluster_queue: Literal["never", "lower_priority", "lower_or_newer"] = "lower_priority"
    passes: ClassVar[tuple[tuple[str, ...], ...]] = (("reclaim", "share"),)
    _usage: Usage = field(init=False, repr=False)

    @property
    def _strict(self) -> bool:
        return self.queueing == "strict"

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Begin a run: nobody has borrowed anything."""
        super().reset(setting, rng)
        self._usage = Usage(_cohort(self.book, None, setting.capacity.tolist()))

    def _open(self, gangs: Gangs) -> None:
        self._usage.held = {name: {} for name in self._usage.nodes}
        for leaf in self.book.tree.leaves:
            for kind, gpus in enumerate(self.book.held[leaf]):
                self._usage.take(leaf, self.book.types[kind], gpus)

    def _take(self, leaf: str, kind: int, gpus: int) -> None:
        super()._take(leaf, kind, gpus)
        self._usage.take(leaf, self.book.types[kind], gpus)

    def _may_have(self, leaf: str, kind: int, gpus: int) -> bool:
        available = self._usage.available(leaf, self.book.types[kind])
        return gpus <= available + 1e-9 and super()._may_have(leaf, kind, gpus)

    def _key(self, gangs: Gangs, queue: str, at: int) -> Any:
        leaf, gpus, options = gangs.leaf[at], gangs.gpus[at], gangs.options[at]
        free = self.book.free
        kind = next((k for k in options if gpus <= free[k] and self._may_have(leaf, k, gpus)), options[0])
        if self.fair_sharing:
            first = self._usage.share(queue, self.book.types[kind], gpus)
        else:
            first = float(self._borrows(leaf, kind, gpus))
        return first, -gangs.priority[at], at

    def _borrows(self, leaf: str, kind: int, more: int) -> bool:
        return not self.book.within_quota(leaf, kind, more)

    def _claims(self, gangs: Gangs, at: int, kind: int, way: str) -> bool:
        return way == "reclaim" or self.fair_sharing

    def _gives(self, gangs: Gangs, at: int, kind: int, way: str, victim: int) -> bool:
        leaf, other, gpus = gangs.leaf[at], gangs.leaf[victim], gangs.gpus[at]
        lower = gangs.priority[victim] < gangs.priority[at]
        if leaf == other:
            newer = gangs.priority[victim] == gangs.priority[at] and victim > at
            inside = self.within_cluster_queue
            return inside != "never" and (lower or (inside == "lower_or_newer" and newer))
        whom: Whom = self.reclaim_within_cohort
        if self.fair_sharing:
            gpu_type = self.book.types[kind]
            rule = self._usage.may_preempt(leaf, gpus, other, gangs.gpus[victim], gpu_type)
            chosen = rule is not None and (way == "share" or rule != "initial-share")
        else:
            beyond = self._borrows(leaf, kind, gpus)
            whom = self.borrow_within_cohort if beyond else whom
            chosen = self._borrows(other, kind, 0)
        return chosen and (whom == "any" or (whom == "lower_priority" and lower))

    def _victim_key(self, gangs: Gangs, at: int) -> tuple[float, ...]:
        return gangs.priority[at], gangs.gpus[at], gangs.ran_s[at], -at

    def _excess(self, queue: str, kind: int) -> float:
        return self._usage.share(queue)


def _cohort(book: QueueBook, name: str | None, capacity: list[float]) -> Cohort:
    """Return a queue and those in it as a cohort; None: the cluster, which lends what no quota covers."""
    below = book.tree.children[name]
    total = capacity if name is None else book.quota[name]
    own = {
        gpu_type: max(total[kind] - sum(book.quota[child][kind] for child in below), 0.0)
        for kind, gpu_type in enumerate(book.types)
    }
    children = tuple(_cohort(book, child, capacity) for child in below)
    if name is None:
        return Cohort("", own, children=children)
    queue, kinds = book.tree.queues[name], list(enumerate(book.types))
    borrowing = {
        gpu_type: min(
            of_type(queue.borrowing_limit, gpu_type, np.inf),
            max(book.limit[name][kind] - book.quota[name][kind], 0.0),
        )
        for kind, gpu_type in kinds
    }
    lending = {gpu_type: of_type(queue.lending_limit, gpu_type, np.inf) for gpu_type in book.types}
    return Cohort(name, own, queue.weight, lending, borrowing, children)
