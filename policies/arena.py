"""Arena's heuristic scaling."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from clustergym.errors import require
from clustergym.policy import Decision, InformationClass, Policy, View
from policies.shared.elastic import Scaling, VirtualCluster
from policies.shared.requests import requested_level, requested_time_s


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
    while other jobs wait, a candidate pays the queue's mean value for each GPU it takes.

    Parameters
    ----------
    search_depth : int
        Most scalings of running jobs to launch one job (Arena: 2 to 5 in practice).
    queue_bounds_h : tuple of float
        Estimated run times that separate the queues, hours, ascending; the shortest first.
    promote_after_s : float
        A waiting job moves up one queue each time it has waited this long.
    privilege_after_s : float
        A waiting job of the first queue may preempt after waiting this long in all.
    round_s : float or None
        Seconds between decision points (Arena: 300).
    """

    name: ClassVar[str] = "arena"
    information_class: ClassVar[InformationClass] = InformationClass.PROFILED
    search_depth: int = 3
    queue_bounds_h: tuple[float, ...] = (0.25, 1.0, 4.0, 16.0)
    promote_after_s: float = 14_400.0
    privilege_after_s: float = 86_400.0
    round_s: float | None = 300.0

    def __post_init__(self) -> None:
        bounds = self.queue_bounds_h
        ascending = all(low < high for low, high in pairwise((0.0, *bounds)))
        require(self.search_depth >= 0, "policy.search_depth", self.search_depth, "give 0 or more")
        require(ascending, "policy.queue_bounds_h", list(bounds), "give ascending hours above 0")
        for name in ("promote_after_s", "privilege_after_s"):
            value = getattr(self, name)
            require(value > 0, f"policy.{name}", value, "give seconds above 0")

    def schedule(self, view: View) -> Decision:
        """Launch from the queues, then scale up on what stays idle."""
        if not len(view):
            return Decision.keep(view)
        time_s = view.iteration_time_s()
        value = requested_time_s(view)[:, None, None] / time_s
        cluster = VirtualCluster(view, value, time_s, self.search_depth)
        waiting = self._queue_order(view)
        waiting = self._launch_all(cluster, waiting)
        self._privileged(cluster, view, waiting)
        cluster.grow_all()
        return cluster.decision()

    def _queue_order(self, view: View) -> list[int]:
        """Return waiting jobs: by priority, then queue with promotions, then submission."""
        waiting = np.flatnonzero(view.gpus == 0)
        estimate_s = (view.remaining_iterations * requested_time_s(view))[waiting]
        queue = np.searchsorted(np.asarray(self.queue_bounds_h) * 3600.0, estimate_s)
        waited = view.now_s - view.queued_s[waiting]
        queue = np.maximum(queue - (waited // self.promote_after_s).astype(np.int64), 0)
        order = np.lexsort((view.submit_s[waiting], queue, -view.priority[waiting]))
        return [int(at) for at in waiting[order]]

    def _launch_all(self, cluster: VirtualCluster, waiting: list[int]) -> list[int]:
        """Launch every waiting job that raises the cluster's throughput; return the rest."""
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
        head = next(iter(waiting), None)
        if head is None or view.now_s - view.queued_s[head] < self.privilege_after_s:
            return
        level = int(requested_level(view)[head])
        plans: list[tuple[float, list[Scaling]]] = []
        for kind in range(len(view.setting.gpu_types)):
            if view.feasible[head, kind, level]:
                victims = cluster.preemptions(kind, level)
                if victims is not None:
                    loss, steps = victims
                    gain = float(cluster.value[head, kind, level]) - loss
                    plans.append((gain, [*steps, Scaling(head, kind, level)]))
        if plans:
            cluster.enact(max(plans, key=lambda plan: plan[0])[1])
