"""Arena's heuristic scaling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from clustergym.errors import InputError, nearest, require
from clustergym.policy import Decision, InformationClass, Policy, Setting, View
from clustergym.workload.trace import Trace
from policies.shared.elastic import Scaling, VirtualCluster
from policies.shared.objectives import OBJECTIVES, behind, check_deadlines
from policies.shared.requests import requested_level, requested_time_s

Bools = npt.NDArray[np.bool_]

PLANNERS = {"adaptive": InformationClass.PROFILED, "dp": InformationClass.DATA_PARALLEL}


@dataclass
class Arena(Policy):
    """Arena (EuroSys '26), Algorithm 1; Crius (its preprint), Algorithm 1.

    Waiting jobs are taken queue by queue. The candidates of a job that asks for N GPUs are
    N/2, N and 2N of each type; the one with the highest cluster throughput (the sum over
    jobs of throughput normalised by that at the request) is launched, where GPUs are missing
    after at most `search_depth` scalings of running jobs, those of least loss. Otherwise
    jobs run to completion: only a job at the head that has been passed over for
    `privilege_after_s` may preempt. GPUs that stay idle go to running jobs by greatest gain.
    All is decided on a virtual cluster and enacted at once.

    Differences from the paper: queues are by estimated run time at the request (the paper
    leaves the number of queues and their bounds open); a scaling up must repay its restart;
    while other jobs wait, a candidate pays the queue's mean value for each GPU it takes; the
    program of `ilp` is followed by launches of what still fits.
    How a plan is estimated (Crius: one plan for each of 2^stages partitions) is the oracle's
    affair, not the policy's. Crius is conf/policy/crius.yaml: `opportunistic`, without privilege.

    The paper's ablations that change no decision are changes of costs: without pruning the
    scenario's `costs.search=full`, without disaggregated profiling `costs.profile` as much
    as running every plan takes (see clustergym/reproduction/arena.py, which runs them).

    Parameters
    ----------
    objective : str
        What allotments are compared by. `throughput`: the normalised throughput.
        `deadline`: the same, but nothing where the deadline is missed; jobs in order of
        deadline; one that cannot meet its own any more is dropped, a waiting one after a round
        of waiting, so that every GPU type is profiled. `finish_time_fairness`: the same
        weighted by how far a job has fallen behind a run of its own; jobs in that order.
    ilp : bool
        Solve for launches and scalings of greatest total value together, as an integer program
        over the same candidates, instead of one launch after another.
    elastic : bool
        False: only the requested count.
    hetero : bool
        False: only the requested type.
    planner : str
        `adaptive`: decides on profiles of adaptive parallelism; `dp`: on data-parallel ones.
    opportunistic : bool
        Jobs started while one ahead of them waits are suspended as soon as that makes it fit.
    search_depth : int
        Most scalings of running jobs to launch one job (Arena: 2 to 5 in practice).
    queue_bounds_h : tuple of float
        Estimated run times that separate the queues, hours, ascending; the shortest first.
    promote_after_s : float
        A waiting job moves up one queue each time it has waited this long.
    privilege_after_s : float or None
        A waiting job of the first queue may preempt after waiting this long in all; None: never.
    round_s : float or None
        Seconds between decision points (Arena: 300).
    """

    name: ClassVar[str] = "arena"
    objective: str = "throughput"
    ilp: bool = False
    elastic: bool = True
    hetero: bool = True
    planner: str = "adaptive"
    opportunistic: bool = False
    search_depth: int = 3
    queue_bounds_h: tuple[float, ...] = (0.25, 1.0, 4.0, 16.0)
    promote_after_s: float = 14_400.0
    privilege_after_s: float | None = 86_400.0
    round_s: float | None = 300.0
    _blockers: dict[int, frozenset[int]] = field(default_factory=dict, init=False, repr=False)
    _ilp_fallbacks: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        for name, valid in (("objective", OBJECTIVES), ("planner", PLANNERS)):
            value = getattr(self, name)
            if value not in valid:
                remedy = nearest(value, valid)
                raise InputError(f"unknown {name} {value!r}", field=f"policy.{name}", remedy=remedy)
        bounds = self.queue_bounds_h
        ascending = all(low < high for low, high in pairwise((0.0, *bounds)))
        require(self.search_depth >= 0, "policy.search_depth", self.search_depth, "give 0 or more")
        require(ascending, "policy.queue_bounds_h", list(bounds), "give ascending hours above 0")
        for name in ("promote_after_s", "privilege_after_s"):
            value = getattr(self, name)
            require(value is None or value > 0, f"policy.{name}", value, "give seconds above 0")

    @property
    def information_class(self) -> InformationClass:
        """What the planner knows."""
        return PLANNERS[self.planner]

    def check(self, trace: Trace, setting: Setting) -> None:
        """Refuse a trace without deadlines where they are the objective."""
        if self.objective == "deadline":
            remedy = "give it deadlines, or choose another policy.objective"
            check_deadlines(trace, self.name, "objective=deadline", remedy)

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Forget the last run."""
        self._blockers, self._ilp_fallbacks = {}, 0

    def counters(self) -> Mapping[str, int]:
        """Return how often the integer program had no solution, so that the heuristic decided."""
        return {"ilp_fallbacks": self._ilp_fallbacks} if self.ilp else {}

    def schedule(self, view: View) -> Decision:
        """Launch from the queues, then scale up on what stays idle."""
        if not len(view):
            return Decision.keep(view)
        value = np.where(self._allowed(view), OBJECTIVES[self.objective](view), 0.0)
        cluster = VirtualCluster(view, value, view.iteration_time_s(), self.search_depth)
        hopeless = self._drop_hopeless(cluster)
        order = [at for at in self._queue_order(view) if not hopeless[at]]
        waiting = list(order)
        if self.opportunistic:
            waiting = self._suspend_for_head(cluster, waiting)
        waiting = self._launch(cluster, waiting)
        if self.opportunistic:
            self._note_blockers(view, order, waiting)
        self._privileged(cluster, view, waiting)
        cluster.grow_all()
        decision = cluster.decision()
        return Decision(decision.job, decision.gpu_type, decision.gpus, view.job[hopeless])

    def _allowed(self, view: View) -> Bools:
        """Return the allotments an ablation leaves, shape (n, T, K)."""
        allowed = np.ones(view.feasible.shape, dtype=np.bool_)
        if not self.elastic:
            allowed &= (requested_level(view)[:, None] == np.arange(len(view.setting.counts)))[:, None, :]
        if not self.hetero:
            types = np.arange(len(view.setting.gpu_types))
            asked = (view.requested_type[:, None] < 0) | (view.requested_type[:, None] == types)
            allowed &= asked[:, :, None]
        return allowed

    def _drop_hopeless(self, cluster: VirtualCluster) -> Bools:
        """Free the GPUs of jobs that no candidate lets meet their deadline any more; return which."""
        view = cluster.view
        if self.objective != "deadline":
            return np.zeros(len(view), dtype=np.bool_)
        base = np.where(view.gpus > 0, cluster.level, cluster.requested)
        near = np.abs(np.arange(len(cluster.counts)) - base[:, None]) <= 1
        hopeless = np.isfinite(view.deadline_s) & ~((cluster.value > 0) & near[:, None, :]).any(axis=(1, 2))
        fresh = view.now_s - view.queued_s < (view.setting.round_s or 0.0)
        hopeless &= ~fresh | (view.deadline_s <= view.now_s)
        running = np.flatnonzero(hopeless & (view.gpus > 0))
        cluster.enact([Scaling(int(at), -1, -1) for at in running])
        return hopeless

    def _queue_order(self, view: View) -> list[int]:
        """Return waiting jobs: by priority, then by the objective's order, then submission."""
        waiting = np.flatnonzero(view.gpus == 0)
        if self.objective == "deadline":
            rank = view.deadline_s[waiting]
        elif self.objective == "finish_time_fairness":
            rank = -behind(view)[waiting]
        else:
            estimate_s = (view.remaining_iterations * requested_time_s(view))[waiting]
            queue = np.searchsorted(np.asarray(self.queue_bounds_h) * 3600.0, estimate_s)
            waited = view.now_s - view.queued_s[waiting]
            rank = np.maximum(queue - (waited // self.promote_after_s).astype(np.int64), 0)
        order = np.lexsort((view.submit_s[waiting], rank, -view.priority[waiting]))
        return [int(at) for at in waiting[order]]

    def _launch(self, cluster: VirtualCluster, waiting: list[int]) -> list[int]:
        """Launch what raises the cluster's value; return the positions that go on waiting."""
        if self.ilp:
            from policies.shared.scaling_ilp import best_scalings

            steps = best_scalings(cluster, np.array(waiting, dtype=np.int64))
            cluster.enact(steps or [])
            self._ilp_fallbacks += steps is None
            waiting = [at for at in waiting if cluster.kind[at] < 0]
        return self._launch_all(cluster, waiting)

    def _launch_all(self, cluster: VirtualCluster, waiting: list[int]) -> list[int]:
        """Launch every waiting job that raises the cluster's value; return the rest."""
        while waiting:
            found = cluster.first_launch(np.array(waiting))
            if found is None:
                break
            place, plan = found
            cluster.enact(plan)
            del waiting[place]
        return waiting

    def _privileged(self, cluster: VirtualCluster, view: View, waiting: list[int]) -> None:
        """Let the head of the queue preempt when it has waited too long."""
        head, after_s = next(iter(waiting), None), self.privilege_after_s
        if head is None or after_s is None or view.now_s - view.queued_s[head] < after_s:
            return
        self._preempt_for(cluster, head)

    def _preempt_for(
        self, cluster: VirtualCluster, head: int, among: Bools | None = None, most: int | None = None
    ) -> bool:
        """Launch a job as requested where preempting loses least; return whether that was possible."""
        level = int(cluster.requested[head])
        plans: list[tuple[float, list[Scaling]]] = []
        for kind in np.flatnonzero(cluster.value[head, :, level] > 0).tolist():
            victims = cluster.preemptions(kind, level, among, most)
            if victims is not None:
                loss, steps = victims
                gain = float(cluster.value[head, kind, level]) - loss
                plans.append((gain, [*steps, Scaling(head, kind, level)]))
        if plans:
            cluster.enact(max(plans, key=lambda plan: plan[0])[1])
        return bool(plans)

    def _suspend_for_head(self, cluster: VirtualCluster, waiting: list[int]) -> list[int]:
        """Suspend jobs started beside the head, as long as that makes it fit; return the rest."""
        jobs = cluster.view.job.tolist()
        present = {jobs[at] for at in waiting}
        running = {job for job, gpus in zip(jobs, cluster.view.gpus.tolist(), strict=True) if gpus}
        self._blockers = {
            job: ahead & present
            for job, ahead in self._blockers.items()
            if job in running and ahead & present
        }
        while waiting and cluster.first_launch(np.array(waiting[:1])) is None:
            beside = np.array([jobs[waiting[0]] in self._blockers.get(job, ()) for job in jobs])
            if not self._preempt_for(cluster, waiting[0], beside, most=len(jobs)):
                break
            waiting = waiting[1:]
        return waiting

    def _note_blockers(self, view: View, order: list[int], waiting: list[int]) -> None:
        """Remember, for each job launched now, the jobs ahead of it that still wait."""
        ahead: list[int] = []
        still = set(waiting)
        for at in order:
            if at in still:
                ahead.append(int(view.job[at]))
            elif ahead:
                self._blockers[int(view.job[at])] = frozenset(ahead)
