"""SRTF: a policy that serves the job of shortest remaining time first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clustergym.common.arrays import Bools, Floats
from clustergym.common.parameter_types import Period
from clustergym.scenario.policy import Decision, InformationClass, View

from .shared.finish_times import remaining_at_request_s, request_times
from .shared.marginal import Target
from .shared.queues import fill, staying_options
from .shared.restart_guard import GuardedPolicy


@dataclass
class ShortestRemainingTimeFirst(GuardedPolicy):
    """The policy shortest remaining time first: preemptive, by the time left on the requested GPUs.

    A job's remaining time counts the standstill that starting it would cost, so that a running job is
    preempted only for a job that ends earlier even so. A running job keeps its GPU type; a waiting one takes
    the fastest type of its request that is free.

    With `elastic` jobs are ordered by remaining time at their request, but need not run at it. In that
    order each job takes the fastest allotment of any type with room, up to its requested count; the
    remaining GPUs go to the jobs that they speed up most relative to the remaining iterations.

    Parameters
    ----------
    elastic : bool
        Whether jobs may hold another type or count than they request.
    guard : bool
        Whether changes of running jobs have to repay their restarts (`GuardedPolicy`).
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy.
    """

    name: ClassVar[str] = "srtf"
    serves_parts: ClassVar[bool] = True
    information_class: ClassVar[InformationClass] = InformationClass.CLAIRVOYANT
    elastic: bool = False
    round_s: Period | None = 300.0

    def schedule(self, view: View) -> Decision:
        """Give GPUs by ascending remaining run time: as requested, or of any type and number if `elastic`."""
        left_s = remaining_at_request_s(view, request_times(view))
        guarded = self.find_guarded(view)
        if self.elastic:
            return self._scale(view, left_s, guarded)
        # Running jobs are compared on the type that they hold: a move would cost a restart that this order
        # does not count.
        left_s = np.where(staying_options(view), left_s, np.inf)
        order = np.lexsort((left_s.min(axis=1), ~guarded))
        return Decision.of(fill(view, order, left_s, view.available))

    def _scale(self, view: View, left_s: Floats, guarded: Bools) -> Decision:
        order = np.argsort(left_s.min(axis=1, initial=np.inf), kind="stable")
        target = Target(view, view.iteration_time_s(), self.guard, guarded)
        target.place(order, view.setting.counts <= view.requested_gpus[:, None, None])
        if self.guard:
            target.keep_running(order)
        target.grow(1.0 / view.remaining_iterations)
        return target.decision()
