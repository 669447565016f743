"""LAS: a policy that serves the jobs of least attained service first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clustergym.common.parameter_types import Period
from clustergym.scenario.policy import Decision, InformationClass, View

from .shared.queues import fill, first_type, staying_options
from .shared.restart_guard import GuardedPolicy


@dataclass
class LeastAttainedService(GuardedPolicy):
    """The policy least attained service first: preemptive, by the GPU-seconds that each job has received.

    Foreground-background scheduling (Nuyens and Wierman, 2008) with GPUs times time as service, as in
    Tiresias (NSDI '19), section 3, but without its queues. Every job runs at its request; of equal jobs,
    running ones go first. A waiting job takes the first GPU type of its request with room and keeps it while
    it runs.

    Parameters
    ----------
    guard : bool
        Whether a running job is preempted only once it has run for 20 restarts (`GuardedPolicy`).
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy.
    """

    name: ClassVar[str] = "las"
    serves_parts: ClassVar[bool] = True
    information_class: ClassVar[InformationClass] = InformationClass.NONE
    round_s: Period | None = 300.0

    def schedule(self, view: View) -> Decision:
        """Give jobs their requested GPUs in ascending order of the GPU-seconds they have received."""
        # The View is in the order of submission, which decides between equal ones.
        # Of equal service running jobs (the greater state) come first, which saves their restart.
        order = np.lexsort((-view.state, view.attained_gpu_s, ~self.find_guarded(view)))
        return Decision.of(
            fill(view, order, lambda rows: first_type(staying_options(view, rows)), view.available)
        )
