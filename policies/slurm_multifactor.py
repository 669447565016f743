"""Slurm: jobs by multifactor priority, with fair shares of users' use, and backfill by time limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.common.parameter_types import NonNegativeFloat, Period, PositiveFloat
from clustergym.scenario.policy import QUEUED, Decision, InformationClass, Policy, Setting, View
from clustergym.scenario.tenants.slurm_priority import (
    FACTORS,
    Account,
    age_factor,
    classic_fair_share,
    effective_usage,
    fair_tree,
    priority,
)
from clustergym.trace.trace import Trace

from .shared.backfill import starts_between_reservations
from .shared.queue_book import QueueBook
from .shared.requests import request_options


@dataclass
class SlurmMultifactor(Policy):
    """Slurm's priority plug-in and its backfill: jobs by a weighted sum of factors, started by time limits.

    The factors are the job's age in the queue, the fair share of its queue, the GPUs it asks for, the
    priority of its queue (as a partition's), and its own (as a quality of service). The fair share compares
    the weight of a queue with what it has used, which decays: by rank in the tree of queues (`fair_tree`),
    or by 2^(-use / shares) (`classic`). Jobs start in the order of their priorities. Where one must wait it
    has a reservation for the earliest time by which enough jobs have reached their time limits, and others
    start before it if they do not put that off. Running jobs are never preempted, and a queue's limit is
    kept; quotas have no part in it.

    Sources: SchedMD's documentation of multifactor priority, with the classic fair share of one queue, and of
    the fair tree, and no paper; Lifka (JSSPP '95) and Mu'alem and Feitelson (TPDS 2001) on backfill. How the
    classic rule counts use in a tree of queues is from general knowledge of Slurm.

    Every departure from Slurm: the reservations are for all jobs, without a window, and by the number of GPUs
    of a type rather than by nodes; backfill and shares go by decision points, which may be further apart than
    their intervals; a queue's jobs are one
    user's; there is no preemption by QOS.

    Parameters
    ----------
    backfill : str
        `conservative`: every waiting job has a reservation. `easy`: only the first for each type of GPU.
        `none`: a job that waits keeps those behind it from the types that it could run on.
    backfill_interval_s : float
        Least seconds between two passes of backfill (`bf_interval`, by default 30); between them jobs start
        in the order of priority alone. 0: a pass at each decision point.
    backfill_resolution_s : float
        Reservations begin and end at multiples of this, rounded down (`bf_resolution`, by default 60). 0:
        exactly.
    fair_share_interval_s : float
        Seconds after which the fair shares are computed anew (`PriorityCalcPeriod`, by default 300). 0: at
        each decision point.
    fair_share : str
        `fair_tree` or `classic`.
    weight_age, weight_fair_share, weight_job_size, weight_partition, weight_qos : float
        What each factor counts; each is from 0 to 1.
    favor_small : bool
        Whether few GPUs raise a job's priority, rather than many.
    damping : float
        Of the classic fair share.
    max_age_s : float
        Wait at which the factor of age is 1.
    half_life_s : float
        Seconds after which use counts half.
    default_limit_s : float
        Time limit of jobs that have none.
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy.
    """

    name: ClassVar[str] = "slurm-multifactor"
    information_class: ClassVar[InformationClass] = InformationClass.NONE
    backfill: Literal["conservative", "easy", "none"] = "conservative"
    backfill_interval_s: NonNegativeFloat = 0.0
    backfill_resolution_s: NonNegativeFloat = 0.0
    fair_share_interval_s: NonNegativeFloat = 0.0
    fair_share: Literal["fair_tree", "classic"] = "fair_tree"
    weight_age: NonNegativeFloat = 1000.0
    weight_fair_share: NonNegativeFloat = 10_000.0
    weight_job_size: NonNegativeFloat = 0.0
    weight_partition: NonNegativeFloat = 1000.0
    weight_qos: NonNegativeFloat = 1000.0
    favor_small: bool = False
    damping: PositiveFloat = 1.0
    max_age_s: Period = 7 * 86_400.0
    half_life_s: Period = 7 * 86_400.0
    default_limit_s: Period = 86_400.0
    round_s: Period | None = 60.0
    _book: QueueBook = field(init=False, repr=False)
    _used: Floats = field(init=False, repr=False)
    _noted_s: float = field(default=0.0, init=False, repr=False)
    _since_s: dict[int, float] = field(default_factory=dict, init=False, repr=False)
    _most_urgent: int = field(default=0, init=False, repr=False)
    _next_backfill_s: float = field(default=0.0, init=False, repr=False)
    _next_shares_s: float = field(default=0.0, init=False, repr=False)
    _fair: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    def check(self, trace: Trace, setting: Setting) -> None:
        """Note the highest priority of the trace: quality of service counts in parts of it."""
        self._most_urgent = int(trace.priority.max(initial=0))

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Begin a run: nobody has used anything."""
        self._book = QueueBook(self.name, setting)
        self._used = np.zeros(len(self._book.tree.leaves))
        self._noted_s, self._since_s = 0.0, {}
        self._next_backfill_s = self._next_shares_s = 0.0

    def schedule(self, view: View) -> Decision:
        """Start jobs by priority, where that puts no reservation off."""
        self._use(view.now_s)
        self._book.open(view)
        waiting = np.flatnonzero(view.state == QUEUED)
        order = waiting[np.lexsort((waiting, -self.priorities(view)[waiting]))]
        jobs, leaves, starts = view.job.tolist(), self._book.tree.leaves, []
        for at, kind in self._starts(view, order):
            gpus = int(view.requested_gpus[at])
            self._book.take(leaves[int(view.queue[at])], kind, gpus)
            starts.append((jobs[at], kind, gpus))
        self._since_s = {
            job: self._since_s.get(job, view.now_s) for job in view.job[view.gpus > 0].tolist()
        } | {job: view.now_s for job, _, _ in starts}
        return Decision.keep(view).also(starts)

    def _starts(self, view: View, order: Ints) -> Iterator[tuple[int, int]]:
        options = request_options(view)
        if self.backfill == "none" or view.now_s < self._next_backfill_s:
            yield from self._in_order(view, order)
            return
        self._next_backfill_s = view.now_s + self.backfill_interval_s
        limit_s = self.limits_s(view)
        since_s = np.array([self._since_s.get(job, view.now_s) for job in view.job.tolist()])
        yield from starts_between_reservations(
            view,
            order,
            since_s + limit_s - view.now_s,
            np.where(options, limit_s[:, None], np.inf),
            heads_only=self.backfill == "easy",
            resolution_s=self.backfill_resolution_s,
            allowed=lambda at, kind: self._allowed(view, at, kind),
        )

    def _in_order(self, view: View, order: Ints) -> Iterator[tuple[int, int]]:
        closed = np.zeros(len(self._book.types), dtype=bool)
        options = request_options(view)
        for at in order.tolist():
            kinds = [k for k in np.flatnonzero(options[at] & ~closed).tolist() if self._allowed(view, at, k)]
            fits = [kind for kind in kinds if self._book.free[kind] >= view.requested_gpus[at]]
            if fits:
                yield at, fits[0]
            else:
                closed[kinds] = True

    def _allowed(self, view: View, at: int, kind: int) -> bool:
        leaf = self._book.tree.leaves[int(view.queue[at])]
        return self._book.within_limits(leaf, kind, int(view.requested_gpus[at]))

    def limits_s(self, view: View) -> Floats:
        """Return the time limit of each job, shape (n,)."""
        given = np.full(len(view), np.nan) if view.time_limit_s is None else view.time_limit_s
        found: Floats = np.where(np.isnan(given), self.default_limit_s, given)
        return found

    def _use(self, now_s: float) -> None:
        """Let old use decay and add what queues have held since the last decision point."""
        decay = 0.5 ** ((now_s - self._noted_s) / self.half_life_s)
        # The integral of what was held all the while, each moment of it decayed since.
        weight_s = self.half_life_s / np.log(2.0) * (1.0 - decay)
        held = [sum(self._book.held[leaf]) for leaf in self._book.tree.leaves] if self._book.held else 0.0
        self._used = self._used * decay + weight_s * np.asarray(held)
        self._noted_s = now_s

    def priorities(self, view: View) -> Floats:
        """Return the priority of each job, shape (n,)."""
        if view.now_s >= self._next_shares_s:
            self._fair = self.fair_factors()
            self._next_shares_s = view.now_s + self.fair_share_interval_s
        fair = self._fair
        tree = self._book.tree
        weights = {name: getattr(self, f"weight_{name}", 0.0) for name in FACTORS}
        largest = max((tree.queues[leaf].priority for leaf in tree.leaves), default=0)
        size = view.requested_gpus / float(view.setting.capacity.sum())
        found = []
        for at, leaf in enumerate(tree.leaves[queue] for queue in view.queue.tolist()):
            factors = {
                "age": age_factor(view.now_s - float(view.submit_s[at]), self.max_age_s),
                "fair_share": fair[leaf],
                "job_size": 1.0 - float(size[at]) if self.favor_small else float(size[at]),
                "partition": tree.queues[leaf].priority / largest if largest > 0 else 0.0,
                "qos": max(int(view.priority[at]), 0) / self._most_urgent if self._most_urgent > 0 else 0.0,
            }
            found.append(priority(factors, weights))
        return np.array(found)

    def fair_factors(self) -> dict[str, float]:
        """Return the factor of each leaf's fair share, from what it has used."""
        tree = self._book.tree
        used = dict(zip(tree.leaves, self._used.tolist(), strict=True))

        def account(name: str) -> Account:
            members = tuple(account(child) for child in tree.children[name])
            return Account(name, tree.queues[name].weight, used.get(name, 0.0), members)

        top = tuple(account(name) for name in tree.children[None])
        if self.fair_share == "fair_tree":
            return fair_tree(top)
        total = max(sum(used.values()), 1e-300)
        found: dict[str, float] = {}

        def visit(beside: tuple[Account, ...], above: float | None, shares: float) -> None:
            raw = sum(one.shares for one in beside)
            for one in beside:
                part, own = one.shares / raw, one.used / total
                usage = own if above is None else effective_usage(own, above, part)
                if one.members:
                    visit(one.members, usage, shares * part)
                else:
                    found[one.name] = classic_fair_share(shares * part, usage, self.damping)

        visit(top, None, 1.0)
        return found
