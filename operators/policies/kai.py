"""KAI: fair shares of queues by quota, priority, weight and past use, with reclaim between queues."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from clustergym.policies.shared.gang_queues import GangQueues, Gangs

from clustergym.scenario.policy import Setting
from clustergym.scenario.tenants.division import divide_among_queues
from clustergym.scenario.tenants.fair_share import History


@dataclass
class Kai(GangQueues):
    """A policy of queues as in NVIDIA's KAI-Scheduler: fair shares, which queues can reclaim from others.

    Every queue has a fair share of each GPU type: its quota as far as its jobs ask for it, then, by
    priority, a part of the rest by weight, less where it has had more than its weight of late. Queues start
    their jobs in the order of the project: those not above their shares first, then those whose next job
    stays within quota, then by priority, then the one that holds least of its share. A job that does not fit
    lets others pass. A job with which its queue stays within its fair share takes GPUs from queues above
    theirs, or from those above quota if its own stays within quota; in a queue a job of higher priority takes
    them from those of lower. Nobody loses GPUs of his quota, nor a job its GPUs before its minimum run time.

    Sources: the project's docs on fairness, queues and time-based fair sharing, and its plug-ins.

    Every departure from the project: jobs are not moved to make room
    (consolidation), all may be preempted whatever their priority, and what was stopped is gone at once, or
    after the queues' `eviction_s`. A job of any type counts as a request for each type that it can run on.

    Parameters
    ----------
    victims : str
        Who stops first of the jobs of a queue of equal priority: the most `recent` to start, or the
        `cheapest`, which loses fewest GPU-seconds for each GPU that it gives; our own choice.
    notice : str
        Who saves before it stops, where stops lose work: `never` anybody; `cheaper`: who has worked for
        longer since its last checkpoint than saving takes; `always`.
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy.
    """

    name: ClassVar[str] = "kai"
    needs_queues: ClassVar[bool] = True
    _history: History = field(init=False, repr=False)
    _holds: list[float] = field(default_factory=list, init=False, repr=False)
    _noted_s: float = field(default=0.0, init=False, repr=False)
    _due: dict[str, list[float]] = field(default_factory=dict, init=False, repr=False)
    _share: dict[str, list[float]] = field(default_factory=dict, init=False, repr=False)

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Start a run, in which no queue has used any GPU yet."""
        super().reset(setting, rng)
        past, queues = self.book.tree.settings.history, len(self.book.tree.queues)
        self._history = History(queues, past.window_s, past.half_life_s)
        self._holds, self._noted_s = [0.0] * queues, 0.0

    def _open(self, gangs: Gangs) -> None:
        book, view = self.book, gangs.view
        self._history.add(self._noted_s, view.now_s, self._holds, float(view.setting.capacity.sum()))
        usage = dict(zip(book.tree.queues, self._history.usage(view.now_s).tolist(), strict=True))
        # A queue asks for what it holds and for what its waiting jobs could run on; a job of any type counts
        # for each of its types.
        asked = {leaf: list(book.held[leaf]) for leaf in book.tree.leaves}
        for at, leaf in enumerate(gangs.leaf):
            for gpu_type in gangs.options[at] if gangs.gpu_type[at] < 0 else ():
                asked[leaf][gpu_type] += gangs.gpus[at]
        shares = []
        for gpu_type, name in enumerate(book.types):
            wanted = {leaf: own[gpu_type] for leaf, own in asked.items() if own[gpu_type]}
            gpus = float(view.available[gpu_type])
            shares.append(divide_among_queues(book.tree, "fair_share", name, gpus, wanted, usage))
        self._due = {name: [share[name] for share in shares] for name in book.tree.queues}
        self._share = {}
        for name, dues in self._due.items():
            amounts = zip(book.limit[name], book.quota[name], dues, strict=True)
            self._share[name] = [min(limit, max(quota, due)) for limit, quota, due in amounts]

    def _close(self, now_s: float) -> None:
        self._holds, self._noted_s = [sum(held) for held in self.book.held.values()], now_s

    def rank_queue(self, gangs: Gangs, queue: str, at: int) -> Any:
        """Return the order of a queue, by the criteria of the project."""
        held, gpu_type, gpus = self.book.held[queue], gangs.options[at][0], gangs.gpus[at]
        share, one = self._share[queue], self.book.tree.queues[queue]
        after = [gpus_held + gpus * (other_type == gpu_type) for other_type, gpus_held in enumerate(held)]
        return (
            # The order of KAI's queues, one criterion after another: not above its share, within quota with
            # the job, priority, any share at all, then what part of its share it would hold and holds.
            any(now > due for now, due in zip(held, self._due[queue], strict=True)),
            after[gpu_type] > self.book.quota[queue][gpu_type],
            -one.priority,
            not any(share),
            _served(after, share),
            _served(held, share),
            sum(share),
            self.book.index[queue],
        )

    def may_claim(self, gangs: Gangs, at: int, gpu_type: int) -> bool:
        """Return whether the job keeps its queue within its fair share, to reclaim."""
        leaf = gangs.leaf[at]
        return self.book.held[leaf][gpu_type] + gangs.gpus[at] <= self._due[leaf][gpu_type]

    def may_stop(self, gangs: Gangs, at: int, gpu_type: int, victim: int) -> bool:
        """Return whether the victim's queues are above their share or quota."""
        (mine, *_), theirs = self.book.sides(gangs.leaf[at], gangs.leaf[victim])
        # Along the victim's branch nobody within quota loses GPUs, at any level of the tree.
        if any(self.book.within_quota(name, gpu_type, 0) for name in theirs):
            return False
        above_share = self.book.held[theirs[0]][gpu_type] > self._share[theirs[0]][gpu_type]
        return above_share or self.book.within_quota(mine, gpu_type, gangs.gpus[at])

    def may_replace(self, gangs: Gangs, at: int, gpu_type: int, stopped: list[int]) -> bool:
        """Return whether jobs may be stopped: the taker must not get as far above its due as a victim is."""
        held = self.book.held
        for victim in stopped:
            if gangs.leaf[victim] == gangs.leaf[at]:
                continue
            (mine, *_), (theirs, *_) = self.book.sides(gangs.leaf[at], gangs.leaf[victim])
            used = _served([held[mine][gpu_type] + gangs.gpus[at]], [self._due[mine][gpu_type]])
            other = self._due[theirs][gpu_type]
            if used > 1 and other and used >= held[theirs][gpu_type] / other:
                return False
        return True

    def compute_excess(self, queue: str, gpu_type: int) -> float:
        """Return the part of its share that a queue holds."""
        return _served([self.book.held[queue][gpu_type]], [self._share[queue][gpu_type]])


def _served(held: list[float], share: list[float]) -> float:
    """Return the largest part of its share that a queue holds, over the GPU types."""
    parts = (now / own if own else np.inf for now, own in zip(held, share, strict=True) if now)
    return float(max(parts, default=0.0))
