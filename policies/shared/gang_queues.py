"""Base of policies with queues that start whole jobs in turn, and stop jobs of queues above their due."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from clustergym.common.parameter_types import Period
from clustergym.scenario.policy import QUEUED, Decision, InformationClass, Setting, View
from clustergym.scenario.queue_book import Evictions, QueueHoldings

from .notices import NoticePolicy, Victims, losses_per_gpu
from .requests import request_options


class Gangs:
    """What each job holds or asks for while a decision is being made, by the job's position in the View.

    Attributes
    ----------
    view : View
    leaf : list of str
    gpus : list of int
        What each holds, or asks for.
    priority : list of int
    gpu_type : list of int
        Type that each is to hold; -1: none.
    options : list of list of int
        Types that each may run on.
    ran_s : list of float
        Seconds since each last started.
    before : list of bool
        Whether each held GPUs when the decision began.
    loss : list of float
        What stopping each costs for each of its GPUs; 0 where nobody asks.
    """

    def __init__(self, view: View, leaves: list[str], since_s: Mapping[int, float]) -> None:
        self.view = view
        self.leaf = [leaves[at] for at in view.queue.tolist()]
        self.before = (view.gpus > 0).tolist()
        self.gpus = np.where(view.gpus > 0, view.gpus, view.requested_gpus).tolist()
        self.priority = view.priority.tolist()
        self.gpu_type = view.gpu_type.tolist()
        self.options = [np.flatnonzero(row).tolist() for row in request_options(view)]
        self.ran_s = [view.now_s - since_s.get(job, view.now_s) for job in view.job.tolist()]
        self.loss = [0.0] * len(view)
        self.waited_s = np.nan_to_num(view.now_s - view.queued_s).tolist()

    def order_of_stop(self, at: int) -> tuple[float, ...]:
        """Return a value by which the jobs of a queue are stopped, least first."""
        return self.priority[at], self.loss[at], self.ran_s[at], -at


class _Start(NamedTuple):
    """A job that starts, and the rule by which others are stopped for it; empty: none is stopped."""

    at: int
    way: str
    stopped: list[int]


@dataclass
class GangQueues(NoticePolicy):
    """Base of policies that serve a tree of queues; a job starts with all its requested GPUs or not at all.

    At a decision point a policy makes passes over the jobs that wait. In each the queue that comes first, at
    every level of the tree, offers the next of its jobs, by priority and then by submission. The job starts
    where there is room; the second pass reclaims GPUs from jobs of other queues as the policy's rules say,
    the third preempts jobs of lower priority in the job's own queue. No job is moved, and one that was
    stopped waits for the next decision point.

    Attributes
    ----------
    victims : str
        Who stops first of the jobs of a queue of equal priority: the most `recent` to start, or the
        `cheapest`, which loses fewest GPU-seconds for each GPU that it gives (`View.stop_costs`).
    """

    information_class: ClassVar[InformationClass] = InformationClass.NONE
    victims: Victims = "recent"
    round_s: Period | None = 60.0
    book: QueueHoldings = field(init=False, repr=False)
    _since_s: dict[int, float] = field(default_factory=dict, init=False, repr=False)
    _counters: Counter[str] = field(default_factory=Counter, init=False, repr=False)
    _evictions: Evictions = field(init=False, repr=False)

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Start a run, in which no job has started yet."""
        self.book = QueueHoldings(self.name, setting)
        self._since_s, self._counters = {}, Counter()
        self._evictions = Evictions(self.book.tree.settings.eviction_s)

    def counters(self) -> Mapping[str, int]:
        """Return how many jobs were stopped, by reason."""
        return dict(self._counters)

    def decide(self, view: View) -> Decision:
        """Start jobs in the order of queues, and stop jobs that must release GPUs for others."""
        self.book.open(view)
        gangs = Gangs(view, self.book.tree.leaves, self._since_s)
        if self.victims == "cheapest":
            gangs.loss = losses_per_gpu(view, self.notice).tolist()
        self._open(gangs)
        waiting = np.flatnonzero(view.state == QUEUED)
        # Rows are in the order of submission, which decides between equal priorities.
        waiting = waiting[np.lexsort((waiting, -view.priority[waiting]))]
        starts = GangStarts(self, gangs)
        for way in ("", "reclaim", "preempt"):
            starts.serve([at for at in waiting.tolist() if gangs.gpu_type[at] < 0], way)
        self._counters.update(starts.evict(self._evictions))
        held = [at for at, gpu_type in enumerate(gangs.gpu_type) if gpu_type >= 0]
        jobs = view.job.tolist()
        self._since_s = {
            jobs[at]: self._since_s.get(jobs[at], view.now_s) if gangs.before[at] else view.now_s
            for at in held
        }
        self._close(view.now_s)
        return Decision.of((jobs[at], gangs.gpu_type[at], gangs.gpus[at]) for at in held)

    def _open(self, gangs: Gangs) -> None:
        """Compute what the rules need at a decision point."""

    def _close(self, now_s: float) -> None:
        """Record which jobs hold GPUs after the decision."""

    @abstractmethod
    def rank_queue(self, gangs: Gangs, queue: str, at: int) -> Any:
        """Return the key by which sibling queues are ordered, least first; `at` is the next job."""

    @abstractmethod
    def may_claim(self, gangs: Gangs, at: int, gpu_type: int) -> bool:
        """Return whether a waiting job may have jobs of other queues stopped for it."""

    @abstractmethod
    def may_stop(self, gangs: Gangs, at: int, gpu_type: int, victim: int) -> bool:
        """Return whether a running job may now be stopped for one of another queue."""

    @abstractmethod
    def compute_excess(self, queue: str, gpu_type: int) -> float:
        """Return how far a leaf queue is above its due; the leaf furthest above loses a job first."""

    def may_have(self, leaf: str, gpu_type: int, gpus: int) -> bool:
        """Return whether the rules let a leaf queue have this many more GPUs, if they are free."""
        return self.book.within_limits(leaf, gpu_type, gpus)

    def may_replace(self, gangs: Gangs, at: int, gpu_type: int, stopped: list[int]) -> bool:
        """Return whether a job may start in the place of the others that would stop."""
        return True


class GangStarts:
    """The jobs that start at a decision point by a policy's rules, and those stopped for them.

    Parameters
    ----------
    rules : GangQueues
    gangs : Gangs
        Changed as jobs start and stop.
    """

    def __init__(self, rules: GangQueues, gangs: Gangs) -> None:
        self._rules, self._gangs, self._book = rules, gangs, rules.book
        self._starts: list[_Start] = []

    def serve(self, waiting: list[int], way: str) -> None:
        """Start those of the waiting jobs that may start, in turn; `way` is the rule to stop others."""
        gangs, lists = self._gangs, dict[str, list[int]]()
        most = max(self._book.free)
        for at in reversed(waiting):
            if way or gangs.gpus[at] <= most:
                lists.setdefault(gangs.leaf[at], []).append(at)
        keys: dict[tuple[str, int], Any] = {}
        failed: set[tuple[Any, ...]] = set()
        while lists:
            leaf = self._next({name: rows[-1] for name, rows in lists.items()}, keys, None)
            at = lists[leaf].pop()
            # Where one job found nobody to stop, another of the same shape would not either, until something
            # starts.
            alike = leaf, gangs.gpus[at], gangs.priority[at], tuple(gangs.options[at])
            if self._start(at) or (alike not in failed and self._try_stopping(at, way)):
                # A start changes what queues hold, and with it every key and every failure.
                keys.clear()
                failed.clear()
            elif self._has_waited(at):
                failed.add(alike)
            if not lists[leaf]:
                del lists[leaf]

    def _next(self, heads: Mapping[str, int], keys: dict[tuple[str, int], Any], parent: str | None) -> str:
        """Return the leaf queue below `parent` to serve next; empty if none of them has a waiting job."""
        best, found = None, ""
        for child in self._book.tree.children[parent]:
            inner = bool(self._book.tree.children[child])
            leaf = self._next(heads, keys, child) if inner else child
            if leaf not in heads:
                continue
            at = heads[leaf]
            if (child, at) not in keys:
                keys[child, at] = self._rules.rank_queue(self._gangs, child, at)
            if best is None or keys[child, at] < best:
                best, found = keys[child, at], leaf
        return found

    def _has_room(self, at: int, gpu_type: int) -> bool:
        gpus = self._gangs.gpus[at]
        fits = gpus <= self._book.free[gpu_type]
        return fits and self._rules.may_have(self._gangs.leaf[at], gpu_type, gpus)

    def _take(self, at: int, gpu_type: int, sign: int = 1) -> None:
        """Count a job's GPUs as held by its queue, or with sign -1 as free again."""
        self._book.take(self._gangs.leaf[at], gpu_type, sign * self._gangs.gpus[at])

    def _start(self, at: int) -> bool:
        for gpu_type in self._gangs.options[at]:
            if self._has_room(at, gpu_type):
                self._gangs.gpu_type[at] = gpu_type
                self._take(at, gpu_type)
                self._starts.append(_Start(at, "", []))
                return True
        return False

    def _has_waited(self, at: int) -> bool:
        delay_s = self._book.tree.queues[self._gangs.leaf[at]].preemption_delay_s
        return bool(self._gangs.waited_s[at] >= delay_s)

    def _try_stopping(self, at: int, way: str) -> bool:
        if not way or not self._has_waited(at):
            return False
        claims, options = self._rules.may_claim, self._gangs.options[at]
        mine = options if way == "preempt" else (one for one in options if claims(self._gangs, at, one))
        return any(self._start_by_stopping(at, gpu_type, way) for gpu_type in mine)

    def _start_by_stopping(self, at: int, gpu_type: int, way: str) -> bool:
        """Start a job where others are stopped for it; without success nothing changes."""
        gangs, rules, preempts = self._gangs, self._rules, way == "preempt"
        lists, stopped = self._victims(at, gpu_type, way), list[int]()
        while not self._has_room(at, gpu_type):
            found = [
                next((one for one in rows if preempts or rules.may_stop(gangs, at, gpu_type, one)), -1)
                for rows in lists.values()
            ]
            some = [one for one in found if one >= 0]
            if not some:
                break
            victim = max(some, key=lambda one: rules.compute_excess(gangs.leaf[one], gpu_type))
            lists[gangs.leaf[victim]].remove(victim)
            self._take(victim, gpu_type, -1)
            stopped.append(victim)
        succeeds = self._has_room(at, gpu_type) and rules.may_replace(gangs, at, gpu_type, stopped)
        for victim in list(stopped):
            self._take(victim, gpu_type)
            # Victims are taken in the order of excess, so early ones may turn out not to be needed once a
            # later, wider one is stopped: each is put back, and stops only if there is no room without it.
            if succeeds and not self._has_room(at, gpu_type):
                self._take(victim, gpu_type, -1)
            else:
                stopped.remove(victim)
        if succeeds:
            for victim in stopped:
                gangs.gpu_type[victim] = -1
            gangs.gpu_type[at] = gpu_type
            self._take(at, gpu_type)
            self._starts.append(_Start(at, way, stopped))
        return succeeds

    def _victims(self, at: int, gpu_type: int, way: str) -> dict[str, list[int]]:
        """Return the jobs of a type that have had their minimum run time, in order, by leaf.

        Preempted are those of lower priority in the job's own queue; reclaimed is from other queues.
        """
        gangs, taker, tree = self._gangs, self._gangs.leaf[at], self._book.tree
        found: dict[str, list[int]] = {}
        if way == "preempt":
            least_s = {taker: tree.preempt_min_runtime_s(taker)}
        else:
            others = (leaf for leaf in tree.leaves if leaf != taker)
            least_s = {leaf: tree.reclaim_min_runtime_s(taker, leaf) for leaf in others}
        for one, leaf in enumerate(gangs.leaf):
            holds = gangs.gpu_type[one] == gpu_type and gangs.before[one]
            lower = leaf != taker or gangs.priority[one] < gangs.priority[at]
            if holds and lower and gangs.ran_s[one] >= least_s.get(leaf, np.inf):
                found.setdefault(leaf, []).append(one)
        return {leaf: sorted(rows, key=gangs.order_of_stop) for leaf, rows in found.items()}

    def evict(self, evictions: Evictions) -> Counter[str]:
        """Stop the victims, and count them; undo starts whose victims may not stop yet, and later starts."""
        gangs, waiting, stops = self._gangs, set[int](), Counter[str]()
        evictions.open()
        for at, way, stopped in self._starts:
            gpu_type, jobs = gangs.gpu_type[at], gangs.view.job[stopped].tolist()
            if (
                # A list, not a generator: every victim is told, even after one that does not go at once.
                not all([evictions.note_eviction(job, gangs.view.now_s) for job in jobs])
                # Later starts on a type that waits for its victims wait too.
                or gpu_type in waiting
            ):
                waiting.add(gpu_type)
                for one in stopped:
                    gangs.gpu_type[one] = gpu_type
                    self._take(one, gpu_type)
                gangs.gpu_type[at] = -1
                self._take(at, gpu_type, -1)
            elif way:
                stops[f"jobs_stopped_to_{way}"] += len(stopped)
        return stops
