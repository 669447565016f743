"""Slurm: jobs by multifactor priority, with fair shares of users' use, and backfill by time limits."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from clustergym.policies.shared.requests import request_options
from clustergym.policies.shared.reservations import starts_between_reservations

from clustergym.cluster.spec import Nodes
from clustergym.common.arrays import Floats, Ints
from clustergym.common.columns import parse_seconds
from clustergym.common.errors import InputError
from clustergym.common.parameter_types import NonNegativeFloat, Period, PositiveFloat
from clustergym.scenario.policy import QUEUED, Decision, InformationClass, Policy, Setting, View
from clustergym.scenario.queue_book import QueueHoldings
from clustergym.trace.trace import Trace

from .node_reservations import NodeReservations
from .slurm_clock import SlurmClock
from .slurm_rules import classic_fair_share, fair_tree


@dataclass
class SlurmMultifactor(Policy):
    """A policy as in Slurm: jobs in order of multifactor priority, and backfill by time limits.

    The factors are the job's age in the queue, the fair share of its queue, the GPUs it asks for, the
    priority of its queue (as a partition's), and its own (as a quality of service). The fair share compares
    the weight of a queue with what it has used, which decays: by rank in the tree of queues (`fair_tree`),
    or by 2^(-use / shares) (`classic`). Jobs start in the order of their priorities until one must wait. A
    pass of backfill then reserves nodes for each that waits, from the time by which enough jobs have reached
    their time limits, and starts others on nodes without reservations in their time. Running jobs are never
    preempted, and a queue's limit is kept; quotas have no part in it.

    Sources: SchedMD's documentation of multifactor priority, with the classic fair share of one queue, and of
    the fair tree, and no paper; Lifka (JSSPP '95) and Mu'alem and Feitelson (TPDS 2001) on backfill. How the
    classic rule counts use in a tree of queues is from general knowledge of Slurm.
    `benchmarks/slurm_agreement.py` compares with Slurm itself.

    Every departure from Slurm: a job of any type of GPU is planned on each type alone; where the scenario
    has rounds, backfill and shares go by these; slurmctld checks for changes once a second, the policy at
    once; passes of backfill have no limit of time or of jobs; a queue's jobs are one user's; there is no
    preemption by QOS. If GPUs are shared, or a job must be in NVLink domains, the placer chooses the
    nodes.

    Parameters
    ----------
    backfill : str
        `slurm`: every waiting job has a reservation of whole nodes, as Slurm plans (`NodeReservations`).
        `conservative`: of a number of GPUs. `easy`: only the first for each type of GPU. `none`: a job that
        waits keeps those behind it from the types that it could run on.
    backfill_interval_s : float
        Least seconds between two passes of backfill (`bf_interval`); between them jobs start in the order of
        priority alone. A pass comes when they are over if anything has changed since the last, and else with
        the next change. 0: a pass at each decision point.
    backfill_resolution_s : float
        Slurm's reservations begin and end at multiples of this, rounded down (`bf_resolution`). 0: exactly.
    batch_sched_delay_s : float
        Least seconds between two times at which jobs are started in order, after some have come or gone
        (`batch_sched_delay`). Only with `backfill=slurm`.
    backfill_window_s : float
        How far ahead Slurm plans (`bf_window`).
    gres : bool
        Whether jobs ask for GPUs (`--gres`), rather than for CPUs that stand for them: it decides which of
        several nodes they are given.
    fair_share_interval_s : float
        The fair shares are computed anew at multiples of this (`PriorityCalcPeriod`). 0: at each decision
        point.
    booted : str or None
        Date and time at which slurmctld began (`BOOT_TIME`): its passes of backfill and its computations of
        fair shares keep their distance to it. On a trace without dates, or None: they begin with the run.
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
    needs_queues: ClassVar[bool] = True
    needs_places: ClassVar[bool] = True
    information_class: ClassVar[InformationClass] = InformationClass.NONE
    backfill: Literal["slurm", "conservative", "easy", "none"] = "slurm"
    backfill_interval_s: NonNegativeFloat = 30.0
    backfill_resolution_s: NonNegativeFloat = 60.0
    backfill_window_s: Period = 86_400.0
    batch_sched_delay_s: NonNegativeFloat = 3.0
    gres: bool = True
    fair_share_interval_s: NonNegativeFloat = 300.0
    booted: str | None = None
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
    _book: QueueHoldings = field(init=False, repr=False)
    _used: Floats = field(init=False, repr=False)
    _noted_s: float = field(default=0.0, init=False, repr=False)
    _since_s: dict[int, float] = field(default_factory=dict, init=False, repr=False)
    _most_urgent: int = field(default=0, init=False, repr=False)
    _clock: SlurmClock = field(init=False, repr=False)
    _boot_s: float | None = field(default=None, init=False, repr=False)
    _nodes: dict[int, Nodes | int] = field(default_factory=dict, init=False, repr=False)
    _fair: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    def check(self, trace: Trace, setting: Setting) -> None:
        """Store the trace's greatest priority and, if it has dates, the boot time, for priorities."""
        self._most_urgent = int(trace.priority.max(initial=0))
        self._boot_s = None
        if self.booted is not None:
            try:
                booted_s = parse_seconds(self.booted)
            except ValueError as problem:
                remedy = "write BOOT_TIME as scontrol show config prints it, 2026-03-02T09:00:00"
                raise InputError(str(problem), field="policy.booted", remedy=remedy) from problem
            # On a trace without dates the time says nothing.
            self._boot_s = None if trace.origin_s is None else booted_s - trace.origin_s

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Start a run, in which no queue has used any GPU yet."""
        self._book = QueueHoldings(self.name, setting)
        self._used = np.zeros(len(self._book.tree.leaves))
        self._noted_s, self._since_s = 0.0, {}
        self._clock = SlurmClock(
            self.backfill_interval_s, self.batch_sched_delay_s, self.fair_share_interval_s, self._boot_s
        )

    def schedule(self, view: View) -> Decision:
        """Start jobs in order of priority, and later ones if that delays no reservation."""
        self._use(view.now_s)
        self._book.open(view)
        waiting = np.flatnonzero(view.state == QUEUED)
        order = waiting[np.lexsort((waiting, -self.priorities(view)[waiting]))]
        jobs, leaves, starts = view.job.tolist(), self._book.tree.leaves, []
        self._nodes = {}
        # What backfill depends on besides time: jobs in order, and GPUs held.
        shown = (view.job[order], view.job, view.gpus, view.available)
        self._clock.see(b"".join(column.tobytes() for column in shown))
        for at, gpu_type in self._starts(view, order):
            gpus = int(view.requested_gpus[at])
            self._book.take(leaves[int(view.queue[at])], gpu_type, gpus)
            starts.append((jobs[at], gpu_type, gpus))
        self._since_s = {
            job: self._since_s.get(job, view.now_s) for job in view.job[view.gpus > 0].tolist()
        } | {job: view.now_s for job, _, _ in starts}
        again_s = self._clock.next_pass_s(
            view.now_s, self.backfill != "none", self.weight_fair_share > 0.0, len(waiting), len(starts)
        )
        return replace(Decision.keep(view).also(starts), move=self._nodes, again_s=again_s)

    def _starts(self, view: View, order: Ints) -> Iterator[tuple[int, int]]:
        if self.backfill == "slurm":
            yield from self._by_nodes(view, order)
            return
        if self.backfill == "none" or not self._clock.begins_backfill(view.now_s):
            yield from self._in_order(view, order)
            return
        limit_s = self.limits_s(view)
        since_s = np.array([self._since_s.get(job, view.now_s) for job in view.job.tolist()])
        yield from starts_between_reservations(
            view,
            order,
            since_s + limit_s - view.now_s,
            np.where(request_options(view), limit_s[:, None], np.inf),
            heads_only=self.backfill == "easy",
            allowed=lambda at, gpu_type: bool(self._within_limits(view, at, [gpu_type])),
        )

    def _by_nodes(self, view: View, order: Ints) -> Iterator[tuple[int, int]]:
        """Yield the jobs that Slurm's main pass starts, then those that its backfill pass starts."""
        places = view.places()
        assert places is not None, "jobs ask for whole GPUs here"
        # Slurm's times are whole seconds.
        now_s = float(np.floor(view.now_s))
        limit_s, options = self.limits_s(view).tolist(), request_options(view)
        limit_of = dict(zip(view.job.tolist(), limit_s, strict=True))
        running = [
            (float(np.floor(self._since_s.get(job, now_s))) + limit_of[job], nodes)
            for job, nodes in places.nodes.items()
        ]
        settings = (self.backfill_resolution_s, self.backfill_window_s, self.gres)
        plan = NodeReservations(now_s, places.free_on_node, running, *settings)
        usable = [places.node_type == gpu_type for gpu_type in range(len(self._book.types))]
        closed, waiting = np.zeros(len(usable), dtype=np.bool_), []
        if not self._clock.begins_main_pass(view):
            closed[:], waiting = True, order.tolist()
        for at in order.tolist() if not closed.all() else ():
            # Slurm's main pass stops at the first job of a partition without room, but not at one that a
            # limit keeps waiting; a type of GPU is the partition here.
            allowed = self._within_limits(view, at, np.flatnonzero(options[at] & ~closed))
            asked = self._asked(view, at)
            given = ((gpu_type, plan.fits(usable[gpu_type], *asked)) for gpu_type in allowed)
            if fits := next(((gpu_type, nodes) for gpu_type, nodes in given if nodes is not None), None):
                self._start(view, at, fits[1], plan, now_s + limit_s[at])
                yield at, fits[0]
                continue
            waiting.append(at)
            closed[allowed] = True
        if not self._clock.begins_backfill(view.now_s):
            return
        for at in waiting:
            asked = self._asked(view, at)
            gpu_types = self._within_limits(view, at, np.flatnonzero(options[at]))
            plans = [(k, plan.plan(usable[k], *asked, limit_s[at])) for k in gpu_types]
            found = [(one.start_s, gpu_type, one) for gpu_type, one in plans if one is not None]
            if not found:
                continue
            start_s, gpu_type, planned = min(found, key=lambda one: one[:2])
            if start_s <= now_s:
                self._start(view, at, planned.nodes, plan, now_s + limit_s[at])
                yield at, gpu_type
            else:
                plan.reserve(planned, limit_s[at])

    def _start(self, view: View, at: int, nodes: Nodes, plan: NodeReservations, end_s: float) -> None:
        """Start a job on nodes; where jobs share GPUs, or need NVLink domains, the placer finds others."""
        plan.start(nodes, end_s)
        places = view.places()
        if view.partner is None and places is not None and (places.segment[at] <= 1).all():
            self._nodes[int(view.job[at])] = nodes

    @staticmethod
    def _asked(view: View, at: int) -> tuple[int, int]:
        """Return the GPUs and nodes that a job asks for; nodes 0: any."""
        nodes = 0 if view.requested_nodes is None else int(view.requested_nodes[at])
        return int(view.requested_gpus[at]), nodes

    def _in_order(self, view: View, order: Ints) -> Iterator[tuple[int, int]]:
        closed = np.zeros(len(self._book.types), dtype=bool)
        options = request_options(view)
        for at in order.tolist():
            gpu_types = self._within_limits(view, at, np.flatnonzero(options[at] & ~closed))
            fits = [k for k in gpu_types if self._book.free[k] >= view.requested_gpus[at]]
            if fits:
                yield at, fits[0]
            else:
                closed[gpu_types] = True

    def _within_limits(self, view: View, at: int, gpu_types: Iterable[int]) -> list[int]:
        """Return those GPU types of which a job's queue may have as many more as the job asks for."""
        leaf, gpus = self._book.tree.leaves[int(view.queue[at])], int(view.requested_gpus[at])
        return [int(k) for k in gpu_types if self._book.within_limits(leaf, int(k), gpus)]

    def limits_s(self, view: View) -> Floats:
        """Return the time limit of each job in seconds, `default_limit_s` where it has none, shape (n,)."""
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
        """Return the multifactor priority of each job, shape (n,): the sum of weight times factor."""
        tree = self._book.tree
        if self._clock.begins_shares(view.now_s):
            used = dict(zip(tree.leaves, self._used.tolist(), strict=True))
            classic = self.fair_share == "classic"
            self._fair = classic_fair_share(tree, used, self.damping) if classic else fair_tree(tree, used)
        of_queue = np.array([tree.queues[leaf].priority for leaf in tree.leaves])
        size = view.requested_gpus / float(view.setting.capacity.sum())
        found: Floats = (
            self.weight_age * np.minimum(1.0, (view.now_s - view.submit_s) / self.max_age_s)
            + self.weight_fair_share * np.array([self._fair[leaf] for leaf in tree.leaves])[view.queue]
            + self.weight_job_size * (1.0 - size if self.favor_small else size)
            + self.weight_partition * _part_of_most(of_queue, int(of_queue.max()))[view.queue]
            + self.weight_qos * _part_of_most(np.maximum(view.priority, 0), self._most_urgent)
        )
        return found


def _part_of_most(values: Ints, most: int) -> Floats:
    return values / most if most > 0 else np.zeros(len(values))
