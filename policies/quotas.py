"""Quotas: divide GPUs among tenants' queues; another policy decides within each queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import InputError
from clustergym.scenario.policy import Decision, InformationClass, Policy, Setting, View
from clustergym.scenario.queue_book import Evictions, get_queues
from clustergym.scenario.registry import parse_policy
from clustergym.scenario.tenants.division import DivisionRule
from clustergym.scenario.tenants.fair_share import History
from clustergym.scenario.tenants.queue_tree import Queue, QueueTree, UsageWindow
from clustergym.trace.trace import Trace

from .shared.making_room import MovingPolicy
from .shared.parts_of_views import DecisionCache, QueueViews
from .shared.queue_dues import Demand, QueueEntitlements, compute_demand
from .shared.queue_shares import QueueLimits, Reclaim, ReclaimPlan, Shares, Victims, compute_room

SHOWN = ("job", "gpus", "gpu_type", "state", "available", "free")
"""Arrays of a View, besides feasibility, that stay as they are while nothing happens."""


class _ViewContent(NamedTuple):
    """The part of a View that changes only by events, not by time alone.

    Attributes
    ----------
    plain : list of bytes
        `SHOWN`.
    feasible, times : ndarray, shape (n, T, K)
        Times: of no jobs where the policies within see none, or are asked at each decision point.
    """

    plain: list[bytes]
    feasible: Bools
    times: Floats

    def same(self, last: _ViewContent) -> bool:
        """Return whether another View has the same content."""
        pairs = ((self.feasible, last.feasible), (self.times, last.times))
        return self.plain == last.plain and all(
            now is then or np.array_equal(now, then) for now, then in pairs
        )


class _LastDecision(NamedTuple):
    """The last decision, with the view content, demand and dues it was made from.

    Attributes
    ----------
    shown : _ViewContent
    demand : Demand
    due : ndarray of float, shape (L, T)
    unsettled : bool
        Whether some queue lacked GPUs that others held, or a job did not run that should.
    decision : Decision
    """

    shown: _ViewContent
    demand: Demand
    due: Floats
    unsettled: bool
    decision: Decision


@dataclass
class Quotas(MovingPolicy):
    """A policy that divides GPUs among tenants' queues, in each of which another policy decides.

    The queues are those of the scenario (`scenario.queues`). At every decision point each has its quota, as
    far as its jobs ask for it, and the rest is divided by `division`, down the tree of queues. Where a queue
    lacks GPUs of its share, those that hold more than theirs give them back: the one furthest above its
    share first, jobs that can run on fewer GPUs before jobs that must stop, and no job before its
    minimum run time is over. What a queue cannot use of its share is lent to queues whose jobs fit there.

    The rules are those of KAI-Scheduler (`fair_share`) or of Volcano and YARN (`capacity`), but whole
    decisions of the inner policy are admitted, not single gangs. Past use is counted from one decision
    point to the next; if those are events, the last queue to hold GPUs counts as their holder until a job
    comes.

    Parameters
    ----------
    within : str
        The policy in each queue, with its parameters: `ares work_conserving=true`.
    division : str
        `fair_share`: by priority, then weight and past use. `capacity`: in proportion to quotas.
    reclaim : str
        `shrink`: before any job is stopped, the one that loses least GPU time for each GPU is shrunk by what
        is lacking, or to the fewest GPUs it can run on; the rest of its queue stays as it is until the next
        decision point. This choice is our own. `stop`: jobs are stopped, the last to start first.
        `never`: GPUs come back only as jobs end or their own queue's policy gives them up.
    victims : str
        Which job of the queue furthest above its share stops, or is shrunk: the most `recent` to start, that
        of lowest `priority`, or the `cheapest`, which loses fewest GPU-seconds for each GPU that is lacking.
    notice, moves_per_hour : str, float
        As of `policy=kueue`: who saves before it stops or its GPUs change, and how many jobs may move.
    """

    name: ClassVar[str] = "quotas"
    needs_queues: ClassVar[bool] = True
    within: str = "fcfs"
    division: DivisionRule = "fair_share"
    reclaim: Reclaim = "shrink"
    victims: Victims = "recent"
    _tree: QueueTree = field(init=False, repr=False)
    _dues: QueueEntitlements = field(init=False, repr=False)
    _limits: QueueLimits = field(init=False, repr=False)
    _policies: list[Policy] = field(default_factory=list, init=False, repr=False)
    _history: History = field(init=False, repr=False)
    _held: Floats = field(init=False, repr=False)
    _total: float = field(default=0.0, init=False, repr=False)
    _noted_s: float = field(default=0.0, init=False, repr=False)
    _since_s: Floats = field(init=False, repr=False)
    _above: Floats = field(init=False, repr=False)
    _steady: bool = field(default=False, init=False, repr=False)
    _only_starts: bool = field(default=False, init=False, repr=False)
    _until_s: float = field(default=0.0, init=False, repr=False)
    _last: _LastDecision | None = field(default=None, init=False, repr=False)
    _within: DecisionCache = field(init=False, repr=False)
    _counters: Counter[str] = field(default_factory=Counter, init=False, repr=False)
    _evictions: Evictions = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        inner = self._make()
        if isinstance(inner, Quotas):
            remedy = "give another policy: queues can be in queues"
            raise InputError("cannot be quotas themselves", field="policy.within", remedy=remedy)
        self.round_s, self._knows = inner.round_s, inner.information_class

    def _make(self) -> Policy:
        return parse_policy(self.within, "policy.within")

    @property
    def information_class(self) -> InformationClass:
        """What the policy in the queues knows of iteration times."""
        return self._knows

    def fingerprint(self) -> str:
        """Return a digest of the files that the policy in the queues reads."""
        return self._make().fingerprint()

    def check(self, trace: Trace, setting: Setting) -> None:
        """Make a policy for each queue, and let it check the trace and the cluster."""
        self._tree = get_queues(self.name, setting)
        _refuse_unused(self._tree, self.division)
        self._limits = QueueLimits(self._tree, setting.gpu_types, setting.capacity)
        self._since_s = np.full(len(trace), np.nan)
        self._policies = [self._make() for _ in self._tree.leaves]
        for policy in self._policies:
            policy.check(trace, setting)
        self._steady = all(policy.steady for policy in self._policies)
        self._only_starts = all(policy.only_starts for policy in self._policies)
        self._above = self._limits.above.astype(np.float64)

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Start a run, in which no queue has used any GPU yet."""
        super().reset(setting, rng)
        # A stream for each queue: draws in one do not depend on how many another makes.
        for policy, stream in zip(self._policies, rng.spawn(len(self._policies)), strict=True):
            policy.reset(setting, stream)
        past = self._tree.settings.history
        self._history = History(len(self._tree.queues), past.window_s, past.half_life_s)
        self._held, self._total = np.zeros(len(self._tree.queues)), float(setting.capacity.sum())
        self._dues = QueueEntitlements(self._tree, self.division, setting.gpu_types, self._limits)
        self._noted_s, self._last, self._counters = 0.0, None, Counter()
        self._within = DecisionCache(self._policies, self._steady, self._reads_times)
        self._evictions = Evictions(self._tree.settings.eviction_s)

    def counters(self) -> Mapping[str, int]:
        """Return how many jobs gave GPUs back to other queues, and what the queues' policies counted."""
        total = Counter(self._counters)
        for policy in self._policies:
            total.update(policy.counters())
        return dict(total)

    def decide(self, view: View) -> Decision:
        """Divide the GPUs among queues, reclaim those above shares, and let each queue's policy decide."""
        leaves, shown, last = len(self._tree.leaves), self._describe_view(view), self._last
        last = last if last is not None and shown.same(last.shown) else None
        self._add_use(view)
        settled = last if self._steady and last is not None and not last.unsettled else None
        # Nothing that a steady policy reads has changed, and past use cannot change the shares before that
        # time.
        if settled is not None and view.now_s < self._until_s:
            return settled.decision
        demand = compute_demand(view, leaves) if last is None else last.demand
        due = self._dues.compute_dues(view.available, demand.asked, self._history, view.now_s)
        if settled is not None and due is settled.due:
            self._until_s = self._dues.lasts_until_s(self._history, self._held, self._total)
            return settled.decision
        # First what queues must give back, then the queues' own decisions, then lending of what is left: a
        # later step never takes what an earlier one gave.
        rules = self.reclaim, self.victims, self.notice
        taking = ReclaimPlan(view, self._tree, self._since_s[view.job], rules, self._evictions)
        shares = taking.take(Shares(demand.held, demand.asked, due))
        self._counters["jobs_shrunk_for_quota"] += taking.shrunk
        self._counters["jobs_stopped_for_quota"] += taking.stopped
        decision = self._decide_all(QueueViews(view, taking.gpus, leaves), demand, shares)
        all_run = self._note(view, taking.gpus, decision)
        self._until_s = self._dues.lasts_until_s(self._history, self._held, self._total)
        self._last = _LastDecision(shown, demand, due, taking.short or not all_run, decision)
        return decision

    def _describe_view(self, view: View) -> _ViewContent:
        """Return the part of a View that changes only by events, to compare it with the last one."""
        plain = [getattr(view, name).tobytes() for name in SHOWN]
        return _ViewContent(plain, view.feasible, view.times() if self._reads_times else np.zeros(0))

    @property
    def _reads_times(self) -> bool:
        return self._steady and self._knows != InformationClass.NONE

    def _add_use(self, view: View) -> None:
        """Add to history what queues have held since the last decision point."""
        every_s, total = view.setting.round_s, self._total
        # Rounds are left out only while no job is there.
        empty_s = view.now_s if every_s is None else min(view.now_s, self._noted_s + every_s)
        self._history.add(self._noted_s, empty_s, self._held, total)
        if empty_s < view.now_s:
            self._history.add(empty_s, view.now_s, np.zeros_like(self._held), total)
            self._until_s = empty_s
        self._noted_s = view.now_s

    def _decide_all(self, parts: QueueViews, demand: Demand, shares: Shares) -> Decision:
        """Let each queue's policy decide within its share, then lend idle GPUs to other queues."""
        view = parts.view
        asked = np.unique(view.queue).tolist()
        rooms = compute_room(view.available, shares, self._limits)
        if self.reclaim == "shrink":
            # A queue that has just what it is left with keeps its jobs so until the next decision.
            stays = (shares.held < demand.held).any(axis=1) & (rooms == shares.held).all(axis=1)
            asked = [at for at in asked if not stays[at]]
        self._within.open(parts)
        if self._steady and self._only_starts:
            free = (rooms - shares.held)[view.queue]
            fits = (demand.options & (view.requested_gpus[:, None] <= free)).any(axis=1)
            asked = np.unique(view.queue[fits & (parts.gpus == 0)]).tolist()
        found = {at: self._within.decide(parts, at, rooms[at]) for at in asked}
        decisions = {at: one for at, one in found.items() if one is not None}
        self._lend(parts, decisions, demand.options, shares)
        return parts.together(decisions)

    def _lend(
        self, parts: QueueViews, decisions: dict[int, Decision], options: Bools, shares: Shares
    ) -> None:
        """Let queues whose jobs wait decide again on what the others leave idle, the least served first."""
        view, types = parts.view, len(parts.view.available)
        used, runs = shares.held.copy(), parts.gpus > 0
        for at, one in decisions.items():
            used[at] = np.bincount(one.gpu_type, one.gpus, minlength=types)
        if decisions:
            runs &= ~np.isin(view.queue, list(decisions))
            runs[np.searchsorted(view.job, np.concatenate([one.job for one in decisions.values()]))] = True
        idle: Floats = view.available - used.sum(axis=0)
        waits = np.flatnonzero(~runs)
        wanted = np.where(options[waits], view.requested_gpus[waits, None], np.inf)
        if not (wanted <= idle).any():
            return
        queue, limits = view.queue[waits], self._limits
        served = (shares.held / np.maximum(shares.due, 1.0)).max(axis=1)
        for at in sorted(set(queue.tolist()), key=lambda at: (served[at], at)):
            room = limits.room(at, used, idle)
            if (wanted[queue == at] <= room - used[at]).any():
                # A queue decides again on all it holds plus what is idle, so its first decision is replaced,
                # not extended.
                found = self._within.decide(parts, at, np.floor(room).astype(np.int64))
                idle += used[at]
                if found is None:
                    decisions.pop(at, None)
                    used[at] = shares.held[at]
                else:
                    decisions[at] = found
                    used[at] = np.bincount(found.gpu_type, found.gpus, minlength=types)
                idle -= used[at]

    def _note(self, view: View, left: Ints, decision: Decision) -> bool:
        """Record each job's GPUs and start time from now on; return whether all were running already.

        `left`, shape (n,), are the GPUs that queues left each job. One that starts on GPUs that its queue's
        policy takes of another job is no safer from other queues than that was.
        """
        at = np.searchsorted(view.job, decision.job)
        starts = view.gpus[at] == 0
        self._since_s[decision.job[starts]] = view.now_s
        if starts.any():
            kept = np.zeros_like(left)
            kept[at] = np.where(decision.gpu_type == view.gpu_type[at], decision.gpus, 0)
            self._transfer_starts(view, np.maximum(left - kept, 0), decision, at, starts)
        by_leaf = np.bincount(view.queue[at], decision.gpus, len(self._tree.leaves))
        self._held = self._above @ by_leaf.astype(np.float64)
        return not starts.any()

    def _transfer_starts(self, view: View, freed: Ints, decision: Decision, at: Ints, starts: Bools) -> None:
        """Let jobs that start on GPUs freed by others of their queue count as running since those did."""
        pools: dict[tuple[int, int], list[tuple[float, int]]] = {}
        for row in np.flatnonzero(freed).tolist():
            pool = pools.setdefault((int(view.queue[row]), int(view.gpu_type[row])), [])
            pool.append((float(self._since_s[view.job[row]]), int(freed[row])))
        for one in np.flatnonzero(starts).tolist():
            pool = pools.get((int(view.queue[at[one]]), int(decision.gpu_type[one])), [])
            pool.sort(reverse=True)
            gpus = int(decision.gpus[one])
            if pool:
                self._since_s[decision.job[one]] = pool[-1][0]
            while pool and gpus:
                since_s, idle = pool.pop()
                if idle > gpus:
                    pool.append((since_s, idle - gpus))
                gpus -= min(idle, gpus)


def _refuse_unused(tree: QueueTree, rule: DivisionRule) -> None:
    """Refuse what a tree gives that would have no effect."""
    plain = Queue()
    because = {"preempt_min_runtime_s": "the policy in a queue says which of its jobs stop: leave it out"}
    if rule == "capacity":
        remedy = "division=capacity divides by quota: leave it out, or give division=fair_share"
        because |= {"weight": remedy, "priority": remedy}
        if tree.settings.history != UsageWindow():
            tree.refuse("has no effect under policy=quotas", ("history",), remedy)
    for name, queue in tree.queues.items():
        for key, remedy in because.items():
            if getattr(queue, key) != getattr(plain, key):
                tree.refuse("has no effect under policy=quotas", ("queues", name, key), remedy)
