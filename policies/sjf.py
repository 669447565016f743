"""SJF: a policy that starts the shortest job first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clustergym.common.parameter_types import Period
from clustergym.scenario.policy import QUEUED, Decision, InformationClass, Policy, View

from .shared.finish_times import remaining_at_request_s, request_times
from .shared.queues import Blocks, fill
from .shared.requests import request_options


@dataclass
class ShortestJobFirst(Policy):
    """The policy shortest job first, by run time on the requested GPUs, without preemption.

    A job runs to completion once started. A waiting job takes the fastest type of its request
    that is free.

    Parameters
    ----------
    blocks : str
        What longer jobs may not use while a job waits: `nothing`, the `types` of its request, or the whole
        `cluster`.
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy.
    """

    name: ClassVar[str] = "sjf"
    serves_parts: ClassVar[bool] = True
    information_class: ClassVar[InformationClass] = InformationClass.CLAIRVOYANT
    blocks: Blocks = "nothing"
    round_s: Period | None = 300.0

    def schedule(self, view: View) -> Decision:
        """Start waiting jobs on their requested GPUs in ascending order of run time."""
        left_s = remaining_at_request_s(view, request_times(view))
        left_s = np.where(request_options(view), left_s, np.inf)
        waiting = np.flatnonzero(view.state == QUEUED)
        order = waiting[np.argsort(left_s[waiting].min(axis=1, initial=np.inf), kind="stable")]
        return Decision.keep(view).also(fill(view, order, left_s, view.free, self.blocks))
