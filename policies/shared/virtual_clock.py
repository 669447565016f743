"""The virtual clock of fluid fair sharing, by which fair queuing orders jobs."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.results.metrics.fairness import FluidSharing
from clustergym.scenario.policy import View


class FairQueue:
    """A virtual clock V that fixes each job's virtual finish F_j = V(a_j) + L_j when the job arrives.

    Virtual time V grows by M / N(t) GPU-seconds a second, with N(t) the jobs that would be in the system
    under fluid fair sharing of all M GPUs, not those that are really there. An event costs O(log N). The
    reference of the fairness metric runs the same clock.

    Parameters
    ----------
    gpus : float
        M, GPUs of the whole cluster.
    """

    def __init__(self, gpus: float) -> None:
        self._sharing = FluidSharing(gpus)
        self._finish = np.empty(0)

    def finishes(self, view: View, work_gpu_s: Floats) -> Floats:
        """Return the virtual finish of each job of the View, GPU-seconds, shape (n,).

        Parameters
        ----------
        view : View
        work_gpu_s : ndarray of float, shape (n,)
            L_j; looked at only for jobs that were not seen before. They arrive at their
            submission or, where the clock is past it (a job that was profiled first), now.
        """
        more = int(view.job.max(initial=-1)) + 1 - len(self._finish)
        if more > 0:
            self._finish = np.concatenate([self._finish, np.full(max(more, len(self._finish)), np.nan)])
        # In order of submission: each arrival changes N(t), and with it the clock of those that follow.
        for at in np.flatnonzero(np.isnan(self._finish[view.job])).tolist():
            row = int(view.job[at])
            # The clock cannot run backwards: a job that was shown late arrives now.
            self._sharing.advance(max(float(view.submit_s[at]), self._sharing.now_s))
            self._finish[row] = self._sharing.arrive(row, float(work_gpu_s[at]))
        return self._finish[view.job]
