"""Kueue: quotas that queues of a cohort lend each other, and jobs that give them back."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from clustergym.policies.shared.making_room import MovingPolicy
from clustergym.policies.shared.notices import Victims, losses_per_gpu
from clustergym.policies.shared.requests import request_options

from clustergym.common.parameter_types import Period
from clustergym.scenario.policy import QUEUED, Decision, InformationClass, Setting, View
from clustergym.scenario.queue_book import Evictions, QueueHoldings
from clustergym.scenario.tenants.queue_tree import of_type

from .cohorts import QuotaNode
from .kueue_cycles import CycleResult, KueueScheduler
from .kueue_victims import KueueJob, QueueRules, QuotaHolders


@dataclass
class Kueue(MovingPolicy):
    """A policy of queues as in Kueue: quotas, borrowing among queues, admission in cycles, and preemption.

    A leaf is a cluster queue with its quota, a queue with queues in it a cohort; GPUs that no quota covers
    are the cluster's, for all to borrow. At a decision point cycles follow each other until nothing changes.
    In a cycle the head of each queue, by priority and then by submission, is given the first GPU type on
    which it fits, or the one where fewest rules are in its way. Heads are admitted in the order of how high
    in the tree they borrow, then of priority, then of submission; with fair sharing at every level the queue
    comes first whose share would be least with its head: what it uses beyond its quota, of what its cohort
    could lend, over its weight. What no longer fits in a cycle is tried again in the next.

    Where a head does not fit, jobs are preempted. Without fair sharing: of other queues that borrow, by
    `reclaim_within_cohort` if its own quota, or that of a cohort it is in, holds the head, and by
    `borrow_within_cohort` beyond; and of its own queue, by `within_cluster_queue`. A head larger than the
    quota preempts nobody unless `borrow_within_cohort` is set. With fair sharing: of the queue with the
    greatest share, while that share, without the job, stays no less than the own one with it, or failing
    that, is greater now; always, if its queue stays within its quota. Jobs of lower priority stop first, then
    those admitted last; those that need not stop stay. A head for which others stopped stays the head of its
    queue; the job that stops waits at its old place.

    Sources, the system's documents and no paper: Kueue's documentation, KEP-79, KEP-83, KEP-1714; what they
    leave open follows the answers of its scheduler, with which `benchmarks/kueue_agreement.py` compares it.

    Every departure from the project: what was preempted is gone at once (or after `eviction_s` of the file of
    queues); minimum run times and delays of preemption are ours; a decision point takes no time, however many
    cycles it has.

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
    borrow_max_priority : int or None
        Highest priority of a job that `borrow_within_cohort` preempts; None: any lower one.
    within_cluster_queue : str
        Whom a job preempts in its own queue; `lower_or_newer`: those of equal priority, too, that came later.
    victims : str
        Who stops first of those of equal priority: the most `recent` to be admitted, or the `cheapest`, which
        loses fewest GPU-seconds for each GPU that it gives (`View.stop_costs`); a choice of our own.
    notice : str
        Who saves before it stops, where stops lose work: `never` anybody; `cheaper`: who has worked for
        longer since its last checkpoint than saving takes; `always`.
    moves_per_hour : float
        Running jobs that it may move in an hour, saved up for an hour at most, so that a gang which it starts
        has its NVLink domains; 0: it moves none.
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy.
    """

    name: ClassVar[str] = "kueue"
    needs_queues: ClassVar[bool] = True
    information_class: ClassVar[InformationClass] = InformationClass.NONE
    fair_sharing: bool = False
    queueing: Literal["strict", "best_effort"] = "best_effort"
    reclaim_within_cohort: Literal["never", "lower_priority", "any"] = "never"
    borrow_within_cohort: Literal["never", "lower_priority"] = "never"
    borrow_max_priority: int | None = None
    within_cluster_queue: Literal["never", "lower_priority", "lower_or_newer"] = "never"
    victims: Victims = "recent"
    round_s: Period | None = 60.0
    _book: QueueHoldings = field(init=False, repr=False)
    _root: QuotaNode = field(init=False, repr=False)
    _since_s: dict[int, float] = field(default_factory=dict, init=False, repr=False)
    _admitted: dict[int, float] = field(default_factory=dict, init=False, repr=False)
    _sticky_rows: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _counters: Counter[str] = field(default_factory=Counter, init=False, repr=False)
    _cycles_run: int = field(default=0, init=False, repr=False)
    _evictions: Evictions = field(init=False, repr=False)

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Start a run, in which no job is admitted yet."""
        super().reset(setting, rng)
        self._book = QueueHoldings(self.name, setting)
        self._root = _build_node(self._book, None, setting.capacity.tolist())
        self._since_s, self._admitted, self._sticky_rows = {}, {}, {}
        self._counters, self._cycles_run = Counter(), 0
        self._evictions = Evictions(self._book.tree.settings.eviction_s)

    def note_admissions(self, admitted_s: Mapping[int, float]) -> None:
        """Say when the jobs that run were admitted, below 0, in a run that begins with them."""
        self._admitted = dict(admitted_s)

    def counters(self) -> Mapping[str, int]:
        """Return how many jobs were preempted for jobs of their own queue, and of other queues."""
        return dict(self._counters)

    def decide(self, view: View) -> Decision:
        """Run admission cycles of the queues until nothing changes, and return what jobs hold then."""
        self._evictions.open()
        jobs = self._list_jobs(view)
        holders = self._count_holders(view, jobs)
        # Who had others stopped stays its queue's head, or their GPUs would go to a job that came in between.
        sticky = {job.queue: job for job in jobs if self._sticky_rows.get(job.queue.name) == job.row}
        waiting = [job for job in jobs if job.gpu_type < 0]

        def may_stop(victims: list[KueueJob]) -> bool:
            return all([self._evictions.note_eviction(victim.row, view.now_s) for victim in victims])

        scheduler = KueueScheduler(holders, waiting, self.fair_sharing, sticky, may_stop)
        cycles = scheduler.run(self._cycles_run)
        self._cycles_run += len(cycles)
        self._sticky_rows = {queue.name: job.row for queue, job in scheduler.sticky.items()}
        self._remember(view, jobs, cycles)
        return Decision.of((job.row, job.gpu_type, job.gpus) for job in jobs if job.gpu_type >= 0)

    def _list_jobs(self, view: View) -> list[KueueJob]:
        nodes = {node.name: node for node in self._root.walk()}
        leaves = [nodes[leaf] for leaf in self._book.tree.leaves]
        options = request_options(view)
        gpus = np.where(view.gpus > 0, view.gpus, view.requested_gpus).tolist()
        waited_s = np.nan_to_num(view.now_s - view.queued_s).tolist()
        cheapest = self.victims == "cheapest"
        loss = losses_per_gpu(view, self.notice).tolist() if cheapest else [0.0] * len(view)
        jobs = []
        for at, row in enumerate(view.job.tolist()):
            leaf, waits = leaves[view.queue[at]], view.state[at] == QUEUED
            queue, ran_s = self._book.tree.queues[leaf.name], view.now_s - self._since_s.get(row, view.now_s)
            jobs.append(
                KueueJob(
                    row,
                    leaf,
                    gpus[at],
                    int(view.priority[at]),
                    float(view.submit_s[at]),
                    tuple(np.flatnonzero(options[at]).tolist()),
                    gpu_type=-1 if waits else int(view.gpu_type[at]),
                    admitted=self._admitted.get(row, -1.0),
                    loss=loss[at],
                    leaving=self._evictions.is_leaving(row),
                    safe=None if waits else partial(self._is_safe, leaf, ran_s),
                    may_preempt=waited_s[at] >= queue.preemption_delay_s,
                )
            )
        return jobs

    def _is_safe(self, leaf: QuotaNode, ran_s: float, taker: QuotaNode) -> bool:
        """Return whether a job that has run for so long is safe from those of a queue."""
        tree = self._book.tree
        if taker is leaf:
            return ran_s < tree.preempt_min_runtime_s(leaf.name)
        return ran_s < tree.reclaim_min_runtime_s(taker.name, leaf.name)

    def _count_holders(self, view: View, jobs: list[KueueJob]) -> QuotaHolders:
        self._root.clear()
        whom = (self.within_cluster_queue, self.reclaim_within_cohort, self.borrow_within_cohort)
        rules = QueueRules(self.queueing == "strict", *whom, self.borrow_max_priority)
        leaves = (node for node in self._root.walk() if not node.children)
        holders = QuotaHolders(dict.fromkeys(leaves, rules), [float(gpus) for gpus in view.free.tolist()])
        for job in jobs:
            if job.gpu_type >= 0:
                job.queue.use(job.gpu_type, job.gpus)
                holders.jobs[job.queue].append(job)
        return holders

    def _remember(self, view: View, jobs: list[KueueJob], cycles: list[CycleResult]) -> None:
        """Record since when jobs are admitted, and count which jobs were stopped."""
        held = [job for job in jobs if job.gpu_type >= 0]
        before_s = {row: self._since_s.get(row, view.now_s) for row in view.job[view.gpus > 0].tolist()}
        self._since_s = {job.row: before_s.get(job.row, view.now_s) for job in held}
        self._admitted = {job.row: job.admitted for job in held}
        for cycle in cycles:
            for victim, job in cycle.preempted:
                own = victim.queue is job.queue
                self._counters["jobs_stopped_in_own_queue" if own else "jobs_stopped_in_other_queues"] += 1


def _build_node(book: QueueHoldings, name: str | None, capacity: list[float]) -> QuotaNode:
    """Return a queue and its subqueues as a cohort; None: the whole cluster, with the GPUs of no quota."""
    below = book.tree.children[name]
    total = capacity if name is None else book.quota[name]
    own = {
        gpu_type: max(total[at] - sum(book.quota[child][at] for child in below), 0.0)
        for at, gpu_type in enumerate(book.types)
    }
    children = [_build_node(book, child, capacity) for child in below]
    if name is None:
        return QuotaNode("", book.types, own, children=children)
    queue = book.tree.queues[name]
    beyond = (max(most - due, 0.0) for most, due in zip(book.limit[name], book.quota[name], strict=True))
    borrowing = {
        gpu_type: min(of_type(queue.borrowing_limit, gpu_type, np.inf), most)
        for gpu_type, most in zip(book.types, beyond, strict=True)
    }
    lending = {gpu_type: of_type(queue.lending_limit, gpu_type, np.inf) for gpu_type in book.types}
    return QuotaNode(name, book.types, own, queue.weight, lending, borrowing, children)
