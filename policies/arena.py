"""Arena: a policy that launches and scales jobs for cluster throughput; also its preprint, Crius."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Annotated, ClassVar, Literal

import numpy as np

from clustergym.common.arrays import Bools, Ints
from clustergym.common.parameter_types import (
    AscendingFloats,
    NonNegativeInt,
    OneOf,
    Period,
    PositiveFloat,
    PositiveInt,
)
from clustergym.scenario.policy import Decision, InformationClass, Setting, View
from clustergym.trace.trace import Trace

from .shared.elastic import Launches, Scaling, VirtualCluster
from .shared.notices import NoticePolicy
from .shared.objectives import OBJECTIVES, THROUGHPUTS, behind, check_deadlines
from .shared.requests import find_requested_level, get_requested_time_s

PLANNERS = {"adaptive": InformationClass.PROFILED, "dp": InformationClass.DATA_PARALLEL}


@dataclass
class Arena(NoticePolicy):
    """The policy Arena (EuroSys '26), or its preprint Crius, which scales jobs for the cluster's throughput.

    Waiting jobs are considered queue by queue, and in order of submission within each queue. The
    candidates of a job that asks for N GPUs are N/2, N and 2N of each type; the one with the highest
    cluster throughput (the sum over jobs, Eq. 5) is launched, if necessary after at most `search_depth`
    halvings of running jobs, those of least loss. Jobs run to completion: none loses all its GPUs to
    another. GPUs that stay idle go to running jobs by greatest gain, in at most `search_depth` scalings.
    All is decided on a virtual cluster and enacted at once.

    Where the head of the top queue is blocked, jobs behind it in that queue may pass; those of lower
    queues wait until the top queue is empty. A job moves up one queue each time it has waited
    `promote_after_s`, which is the paper's privilege of jobs that have long been blocked.

    Every departure from the paper is a parameter whose default is the paper: conf/policy/arena-tuned.yaml
    has those that shorten jobs on small clusters, conf/policy/crius.yaml is the preprint. The rest is our
    choice, since neither text decides it: running jobs are halved, and not moved, to make room, none
    below half its request, and none that ends before its restart would; the seconds until a promotion;
    the program of `ilp` is followed by launches of what still fits, and scales up any number of jobs; a
    job that Crius suspends others for starts as requested. A job that fits on no candidate blocks no
    other job. The oracle, not the policy, decides how a plan is estimated (Crius: one plan for each of
    2^stages partitions).

    The paper's ablations that change no decision are changes of costs: without pruning the
    scenario's `costs.search=full`, without disaggregated profiling `costs.profile` as much as
    running every plan takes (see papers/arena.py, which runs them).

    Parameters
    ----------
    objective : str
        The value by which allotments are compared. `throughput`: the throughput. `deadline`: the same, but
        nothing where the deadline is missed; a job that cannot meet its own any more is dropped, a
        waiting one after a round of waiting, so that every GPU type is profiled.
        `finish_time_fairness`: the throughput weighted by how far a job has fallen behind a run of its own.
    throughput : str
        `raw`: samples per second (Eq. 5). `normalised`: relative to that at the job's request.
    queues : str
        `priority`: one for each value of the trace's field, the highest first; without any, one queue.
        `run_time`: those, each split by estimated run time at the request, the shortest first.
    queue_bounds_h : tuple of float
        Estimated run times that separate the queues of `run_time`, hours, ascending.
    urgent_first : bool
        In a queue, the earliest deadline first, or the job furthest behind, by the objective.
    overtaking : str
        `top_queue`: while its head is blocked, only jobs of the top queue may pass. `any`: all may.
    promote_after_s : float
        A waiting job moves up one queue each time it has waited this long.
    elastic : bool
        False: only the requested count.
    hetero : bool
        False: only the requested type.
    span : int or None
        Greatest ratio of a job's count to its request, either way (Crius: 2); None: any.
    planner : str
        `adaptive`: decides on profiles of adaptive parallelism; `dp`: on data-parallel ones.
    ilp : bool
        Solve for launches and scalings of greatest total value together, as an integer program
        over the same candidates, instead of one launch after another.
    opportunistic : bool
        Jobs started while one ahead of them waits are suspended as soon as that makes it fit (Crius).
    search_depth : int
        Most scalings of running jobs to launch one job, and most scalings up at a decision point
        (Arena: 2 to 5 in practice).
    grow_freely : bool
        Any number of scalings up.
    repay_restarts : bool
        A job is scaled up only where that saves more time than its restart takes.
    notice : str
        Who saves before it stops or is scaled, where stops lose work: `never` anybody; `cheaper`: who has
        worked for longer since its last checkpoint than saving takes; `always`. A choice of our own.
    round_s : float or None
        Seconds between decision points (Arena: 300).
    """

    name: ClassVar[str] = "arena"
    objective: Annotated[str, OneOf(OBJECTIVES)] = "throughput"
    throughput: Annotated[str, OneOf(THROUGHPUTS)] = "raw"
    queues: Literal["priority", "run_time"] = "priority"
    queue_bounds_h: AscendingFloats = (0.25, 1.0, 4.0, 16.0)
    urgent_first: bool = False
    overtaking: Literal["top_queue", "any"] = "top_queue"
    promote_after_s: PositiveFloat = 14_400.0
    elastic: bool = True
    hetero: bool = True
    span: PositiveInt | None = None
    planner: Annotated[str, OneOf(PLANNERS)] = "adaptive"
    ilp: bool = False
    opportunistic: bool = False
    search_depth: NonNegativeInt = 3
    grow_freely: bool = False
    repay_restarts: bool = False
    round_s: Period | None = 300.0
    _blockers: dict[int, frozenset[int]] = field(default_factory=dict, init=False, repr=False)
    _ilp_fallbacks: int = field(default=0, init=False, repr=False)

    @property
    def information_class(self) -> InformationClass:
        """What iteration times the policy knows, by `planner`: at the best parallelism, or data-parallel."""
        return PLANNERS[self.planner]

    def check(self, trace: Trace, setting: Setting) -> None:
        """Raise an `InputError` for a trace without deadlines if the objective needs them."""
        if self.objective == "deadline":
            remedy = "give it deadlines, or choose another policy.objective"
            check_deadlines(trace, self.name, "objective=deadline", remedy)

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Forget all jobs of the last run."""
        self._blockers, self._ilp_fallbacks = {}, 0

    def counters(self) -> Mapping[str, int]:
        """Return how often the integer program failed and the heuristic decided in its place."""
        return {"ilp_fallbacks": self._ilp_fallbacks} if self.ilp else {}

    def decide(self, view: View) -> Decision:
        """Launch jobs from the queues, scaling others down if needed; then scale jobs up on idle GPUs."""
        if not len(view):
            return Decision.keep(view)
        value = OBJECTIVES[self.objective](view, THROUGHPUTS[self.throughput](view))
        # An allotment of value 0 is no candidate anywhere below, so zeros in this one table are enough to
        # express the ablations (elastic, hetero) and Crius's span.
        value = np.where(self._find_allowed(view), value, 0.0)
        times, depth = view.iteration_time_s(), self.search_depth
        cluster = VirtualCluster(view, value, times, depth, repaid=self.repay_restarts)
        # First of all (the constraint of Eq. 6), so that the GPUs of dropped jobs are free for the launches.
        hopeless = self._drop_hopeless(cluster)
        queue = self._queue(view)
        order = [at for at in self._order(view, queue) if not hopeless[at]]
        waiting = list(order)
        if self.opportunistic:
            # Crius alone: what was started opportunistically gives way before anything else is launched.
            waiting = self._suspend_for_head(cluster, waiting)
        # Algorithm 1, Schedule (lines 2-11); where GPUs are missing each launch scales others down,
        # LEventHandler (lines 12-18).
        waiting = self._launch(cluster, waiting, queue)
        if self.opportunistic:
            self._note_blockers(view, order, waiting)
        # Algorithm 1, InFlightHandler (lines 19-24): only what is idle after all launches goes to jobs in
        # flight.
        cluster.grow_all(None if self.grow_freely else depth)
        decision = cluster.decision()
        return Decision(decision.job, decision.gpu_type, decision.gpus, view.job[hopeless])

    def _find_allowed(self, view: View) -> Bools:
        """Return the GPU types and counts that the parameters allow, shape (n, T, K)."""
        allowed = np.ones(view.feasible.shape, dtype=np.bool_)
        span = self.span if self.elastic else 1
        if span is not None:
            counts, asked_gpus = view.setting.counts, view.setting.counts[find_requested_level(view)][:, None]
            allowed &= ((counts <= asked_gpus * span) & (counts * span >= asked_gpus))[:, None, :]
        if not self.hetero:
            types = np.arange(len(view.setting.gpu_types))
            asked = (view.requested_type[:, None] < 0) | (view.requested_type[:, None] == types)
            allowed &= asked[:, :, None]
        return allowed

    def _drop_hopeless(self, cluster: VirtualCluster) -> Bools:
        """Free the GPUs of jobs that can no longer meet their deadline; return which jobs these are."""
        view = cluster.view
        if self.objective != "deadline":
            return np.zeros(len(view), dtype=np.bool_)
        hopeless = np.isfinite(view.deadline_s) & ~_has_candidate(cluster)
        # In its first round a job may not have been profiled on every type, so that it has no candidate yet
        # proves nothing, unless its deadline has already passed.
        fresh = view.now_s - view.queued_s < (view.setting.round_s or 0.0)
        hopeless &= ~fresh | (view.deadline_s <= view.now_s)
        running = np.flatnonzero(hopeless & (view.gpus > 0))
        # Level -1 takes all GPUs away.
        cluster.enact([Scaling(int(at), -1, -1) for at in running])
        return hopeless

    def _queue(self, view: View) -> Ints:
        """Return the index of each job's queue, shape (n,); 0 is the top queue."""
        # Section 3.5, mechanism 1: one queue for each value of priority.
        queue: Ints = np.unique(-view.priority, return_inverse=True)[1].astype(np.int64)
        if self.queues == "run_time":
            estimate_s = view.remaining_iterations * get_requested_time_s(view)
            bounds_s = np.asarray(self.queue_bounds_h) * 3600.0
            queue = queue * (len(bounds_s) + 1) + np.searchsorted(bounds_s, estimate_s)
        # Section 3.5: prolonged queuing promotes by one queue; the paper does not say how long that is.
        waited_s = np.where(view.gpus == 0, view.now_s - view.queued_s, 0.0)
        promoted: Ints = np.maximum(queue - (waited_s // self.promote_after_s).astype(np.int64), 0)
        return promoted

    def _order(self, view: View, queue: Ints) -> list[int]:
        """Return the positions of waiting jobs, sorted by queue, then by the objective or by submission."""
        waiting = np.flatnonzero(view.gpus == 0)
        urgency = np.zeros(len(view))
        if self.urgent_first and self.objective == "deadline":
            urgency = view.deadline_s
        elif self.urgent_first and self.objective == "finish_time_fairness":
            urgency = -behind(view)
        # lexsort compares its last key first: queue, then urgency, then the order of submission.
        order = np.lexsort((view.submit_s[waiting], urgency[waiting], queue[waiting]))
        return [int(at) for at in waiting[order]]

    def _launch(self, cluster: VirtualCluster, waiting: list[int], queue: Ints) -> list[int]:
        """Launch jobs that raise the cluster's value, as `overtaking` allows; return those still waiting."""
        if self.overtaking == "any":
            return self._launch_queue(cluster, waiting)
        launchable, left = _has_candidate(cluster), []
        queues = [list(jobs) for _, jobs in groupby(waiting, key=lambda at: int(queue[at]))]
        for at, jobs in enumerate(queues):
            left += self._launch_queue(cluster, jobs)
            # Section 3.5: when a job blocks this queue, those behind it in the same queue may pass it, a
            # privilege that lower queues do not have. A job that fits nowhere even on an empty cluster blocks
            # nobody.
            if launchable[left].any():
                return left + [job for jobs in queues[at + 1 :] for job in jobs]
        return left

    def _launch_queue(self, cluster: VirtualCluster, waiting: list[int]) -> list[int]:
        """Launch jobs that may overtake each other; return those still waiting."""
        if self.ilp:
            from .shared.scaling_ilp import best_scalings

            steps = best_scalings(cluster, np.array(waiting, dtype=np.int64))
            cluster.enact(steps or [])
            # Section 3.5, Extensibility: Eq. 5 as an integer program. Where the solver has no answer the
            # cluster is unchanged, and the greedy launches below decide alone.
            self._ilp_fallbacks += steps is None
            waiting = [at for at in waiting if cluster.gpu_type[at] < 0]
        return self._launch_all(cluster, waiting)

    def _launch_all(self, cluster: VirtualCluster, waiting: list[int]) -> list[int]:
        """Launch every waiting job that raises the cluster's value; return those still waiting."""
        launches = Launches(cluster, np.array(waiting, dtype=np.int64))
        launches.enact_all()
        return [int(at) for at in launches.waiting]

    def _preempt_for(self, cluster: VirtualCluster, head: int, among: Bools) -> bool:
        """Launch a job at its request by the preemptions that lose least; return whether it was launched."""
        level = int(cluster.requested[head])
        plans: list[tuple[float, list[Scaling]]] = []
        for gpu_type in np.flatnonzero(cluster.value[head, :, level] > 0).tolist():
            victims = cluster.preemptions(gpu_type, level, among)
            if victims is not None:
                loss, steps = victims
                # Types are compared by net value, but the best one is enacted even at a loss: the head was
                # there first.
                gain = float(cluster.value[head, gpu_type, level]) - loss
                plans.append((gain, [*steps, Scaling(head, gpu_type, level)]))
        if plans:
            cluster.enact(max(plans, key=lambda plan: plan[0])[1])
        return bool(plans)

    def _suspend_for_head(self, cluster: VirtualCluster, waiting: list[int]) -> list[int]:
        """Suspend jobs that overtook the head of the queue if it then fits; return those still waiting."""
        jobs = cluster.view.job.tolist()
        present = {jobs[at] for at in waiting}
        running = {job for job, gpus in zip(jobs, cluster.view.gpus.tolist(), strict=True) if gpus}
        # A job can be suspended only while a job that it overtook still waits; after that it runs to
        # completion.
        self._blockers = {
            job: ahead & present
            for job, ahead in self._blockers.items()
            if job in running and ahead & present
        }
        # Head by head: a head that cannot be helped keeps the later ones from suspending anybody.
        while waiting and cluster.first_launch(np.array(waiting[:1])) is None:
            beside = np.array([jobs[waiting[0]] in self._blockers.get(job, ()) for job in jobs])
            if not self._preempt_for(cluster, waiting[0], beside):
                break
            waiting = waiting[1:]
        return waiting

    def _note_blockers(self, view: View, order: list[int], waiting: list[int]) -> None:
        """Record, for each job launched now, which jobs ahead of it still wait."""
        ahead: list[int] = []
        still = set(waiting)
        for at in order:
            if at in still:
                ahead.append(int(view.job[at]))
            elif ahead:
                self._blockers[int(view.job[at])] = frozenset(ahead)


def _has_candidate(cluster: VirtualCluster) -> Bools:
    """Return whether each job has a candidate GPU type and count of some value, shape (n,)."""
    # Half, once and twice the base are one index up or down, as counts are powers of two; the base is the
    # request of a job that waits, and what a running one holds.
    base = np.where(cluster.view.gpus > 0, cluster.level, cluster.requested)
    near = np.abs(np.arange(len(cluster.counts)) - base[:, None]) <= 1
    return np.asarray(((cluster.value > 0) & near[:, None, :]).any(axis=(1, 2)))
