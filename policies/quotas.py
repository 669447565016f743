"""Quotas: GPUs divided among the queues of tenants, in each of which another policy decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import ClassVar

import numpy as np

from clustergym.arrays import Floats, Ints
from clustergym.envs.policy_text import policy_of
from clustergym.inputs.errors import InputError
from clustergym.interface.policy import Decision, InformationClass, Policy, Setting, View
from clustergym.tenants.division import DivisionRule
from clustergym.tenants.history import History
from clustergym.tenants.queue_tree import Queue, QueueTree, Settings
from clustergym.workload.trace import Trace

from .shared.parts_of_views import part_of_view
from .shared.queue_shares import Reclaim, Shares, TakingBack, room_of, shares_of
from .shared.requests import request_options


@dataclass
class Quotas(Policy):
    """GPUs of each type are divided among queues of tenants; in each queue another policy decides.

    The queues are those of the scenario (`scenario.queues`). At every decision point each has its quota, as
    far as its jobs ask for it, and the rest is divided by `division`, down the tree of queues. Where a queue
    lacks GPUs of its share, those that hold more than theirs give them back: the one furthest above its
    share first, jobs that can run on half their GPUs before jobs that must stop, and no job before its
    minimum run time is over. What a queue cannot use of its share is lent to queues whose jobs fit there.

    The rules are those of KAI-Scheduler (`fair_share`) or of Volcano and YARN (`capacity`), but whole
    decisions of the policy within are admitted rather than single gangs. Past use is counted from one
    decision point to the next.

    Parameters
    ----------
    within : str
        The policy in each queue, with its parameters: `ares work_conserving=true`.
    division : str
        `fair_share`: by priority, then weight and past use. `capacity`: in proportion to quotas.
    reclaim : str
        `shrink`: jobs give up half of their GPUs before any job is stopped. `stop`: jobs are stopped.
        `never`: GPUs come back only as jobs end or their own queue's policy gives them up.
    """

    name: ClassVar[str] = "quotas"
    within: str = "fcfs"
    division: DivisionRule = "fair_share"
    reclaim: Reclaim = "shrink"
    _tree: QueueTree = field(init=False, repr=False)
    _policies: list[Policy] = field(default_factory=list, init=False, repr=False)
    _history: History = field(init=False, repr=False)
    _held: Floats = field(init=False, repr=False)
    _noted_s: float = field(default=0.0, init=False, repr=False)
    _since_s: dict[int, float] = field(default_factory=dict, init=False, repr=False)
    _counters: Counter[str] = field(default_factory=Counter, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        inner = self._make()
        if isinstance(inner, Quotas):
            remedy = "give another policy: queues can be in queues"
            raise InputError("cannot be quotas themselves", field="policy.within", remedy=remedy)
        self.round_s, self._knows = inner.round_s, inner.information_class

    def _make(self) -> Policy:
        return policy_of(self.within, "policy.within")

    @property
    def information_class(self) -> InformationClass:
        """Return that of the policy in the queues."""
        return self._knows

    def fingerprint(self) -> str:
        """Return a digest of what the policy within reads."""
        return self._make().fingerprint()

    def check(self, trace: Trace, setting: Setting) -> None:
        """Make a policy for each queue; a scenario without queues is one queue."""
        self._tree = setting.queues or QueueTree({"all": Queue()}, Settings())
        self._policies = [self._make() for _ in self._tree.leaves]
        for policy in self._policies:
            policy.check(trace, setting)

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Begin a run: nobody has had anything."""
        for policy, stream in zip(self._policies, rng.spawn(len(self._policies)), strict=True):
            policy.reset(setting, stream)
        past = self._tree.settings.history
        self._history = History(len(self._tree.queues), past.window_s, past.half_life_s)
        self._held = np.zeros(len(self._tree.queues))
        self._noted_s, self._since_s, self._counters = 0.0, {}, Counter()

    def counters(self) -> Mapping[str, int]:
        """Return how often jobs gave GPUs back to other queues, and the counts of the policies within."""
        total = Counter(self._counters)
        for policy in self._policies:
            total.update(policy.counters())
        return dict(total)

    def schedule(self, view: View) -> Decision:
        """Divide the GPUs, take back what is due, and let each queue's policy decide."""
        # Every queue's part reads its rows of them.
        view = replace(view, costs=cache(view.costs), batches=cache(view.batches))
        self._history.add(self._noted_s, view.now_s, self._held, float(view.setting.capacity.sum()))
        usage = dict(zip(self._tree.queues, self._history.usage(view.now_s).tolist(), strict=True))
        leaf = view.queue
        since_s = np.array([self._since_s.get(job, view.now_s) for job in view.job.tolist()])
        taking = TakingBack(view, leaf, self._tree, since_s, self.reclaim)
        shares = taking.take(shares_of(view, leaf, self._tree, self.division, usage))
        self._counters["jobs_shrunk_for_quota"] += taking.shrunk
        self._counters["jobs_stopped_for_quota"] += taking.stopped
        rooms = room_of(view, shares)
        decisions = {
            at: self._decide(view, leaf, taking.gpus, at, rooms[at]) for at in np.unique(leaf).tolist()
        }
        self._lend(view, leaf, taking.gpus, decisions, shares)
        together = _together(list(decisions.values()))
        self._note(view, together)
        return together

    def _decide(self, view: View, leaf: Ints, gpus: Ints, at: int, available: Ints) -> Decision:
        rows = np.flatnonzero(leaf == at)
        return self._policies[at].schedule(part_of_view(view, rows, available, gpus[rows]))

    def _lend(
        self, view: View, leaf: Ints, gpus: Ints, decisions: dict[int, Decision], shares: Shares
    ) -> None:
        """Let queues whose jobs wait decide again on what the others leave idle, the least served first."""
        types = view.setting.gpu_types
        used = {at: _used(one, len(types)) for at, one in decisions.items()}
        idle = view.available - sum(used.values())
        decided = np.concatenate([one.job for one in decisions.values()] or [np.empty(0, dtype=np.int64)])
        waits = np.flatnonzero(~np.isin(view.job, decided))
        served = (shares.held / np.maximum(shares.due, 1.0)).max(axis=1)
        options = request_options(view)[waits]
        for at in sorted(np.unique(leaf[waits]).tolist(), key=lambda at: (served[at], at)):
            most = np.array([self._tree.most(self._tree.leaves[at], name) for name in types])
            room = np.minimum(used[at] + idle, np.maximum(most, used[at])).astype(np.int64)
            fits = options & (view.requested_gpus[waits, None] <= room - used[at])
            if fits[leaf[waits] == at].any():
                decisions[at] = self._decide(view, leaf, gpus, at, room)
                idle += used[at]
                used[at] = _used(decisions[at], len(types))
                idle -= used[at]

    def _note(self, view: View, decision: Decision) -> None:
        """Note who holds what from now on, and since when each job runs."""
        running = set(view.job[view.gpus > 0].tolist())
        before, self._since_s, self._held = self._since_s, {}, np.zeros(len(self._tree.queues))
        for job in decision.job.tolist():
            self._since_s[job] = before.get(job, view.now_s) if job in running else view.now_s
        places = {name: place for place, name in enumerate(self._tree.queues)}
        leaf = view.queue[np.searchsorted(view.job, decision.job)]
        for at, gpus in enumerate(np.bincount(leaf, decision.gpus, len(self._tree.leaves)).tolist()):
            for name in self._tree.path(self._tree.leaves[at]):
                self._held[places[name]] += gpus
        self._noted_s = view.now_s


def _together(decisions: list[Decision]) -> Decision:
    """Return decisions on different jobs as one."""
    if not decisions:
        return Decision.of([])
    job, gpu_type, gpus, drop = (
        np.concatenate([getattr(one, key) for one in decisions])
        for key in ("job", "gpu_type", "gpus", "drop")
    )
    batches = [np.zeros_like(one.gpus) if one.batch is None else one.batch for one in decisions]
    some = any(one.batch is not None for one in decisions)
    return Decision(job, gpu_type, gpus, drop, np.concatenate(batches) if some else None)


def _used(decision: Decision, types: int) -> Ints:
    """Return the GPUs of each type that a decision uses, shape (T,)."""
    return np.bincount(decision.gpu_type, decision.gpus, minlength=types).astype(np.int64)
