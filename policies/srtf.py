"""Shortest remaining time first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clustergym.policy import Decision, InformationClass, Policy, View
from policies.shared.requests import request_options, requested_level


@dataclass
class ShortestRemainingTimeFirst(Policy):
    """Preemptive gang scheduling by remaining run time at the request, which stays rigid.

    A job's remaining time counts the standstill that starting it would cost, so that a
    running job is preempted only for one that ends earlier all the same. A running job
    keeps its GPU type; a waiting one takes the fastest type of its request that is free.

    Parameters
    ----------
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy.
    """

    name: ClassVar[str] = "srtf"
    information_class: ClassVar[InformationClass] = InformationClass.CLAIRVOYANT
    round_s: float | None = 300.0

    def schedule(self, view: View) -> Decision:
        """Fill the cluster in order of remaining time."""
        level = requested_level(view)[:, None, None]
        options = request_options(view)
        options = np.where(
            (view.gpus > 0)[:, None], view.gpu_type[:, None] == np.arange(options.shape[1]), options
        )
        work = (
            view.remaining_iterations[:, None] * np.take_along_axis(view.iteration_time_s(), level, 2)[..., 0]
        )
        left_s = work + np.take_along_axis(view.restart_cost_s(), level, 2)[..., 0]
        left_s = np.where(options, left_s + view.standstill_s[:, None], np.inf)
        free, chosen = view.available.copy(), []
        for at in np.argsort(left_s.min(axis=1), kind="stable"):
            gpus = int(view.requested_gpus[at])
            times = np.where(free >= gpus, left_s[at], np.inf)
            kind = int(np.argmin(times))
            if np.isfinite(times[kind]):
                free[kind] -= gpus
                chosen.append((int(view.job[at]), kind, gpus))
            if not free.any():
                break
        return Decision.of(chosen)
