"""A program as a policy: the job with the least time left first, on the fastest GPU type with room."""

import numpy as np

from clustergym.scenario.policy import Decision


def schedule(view):
    """Return (job, GPU type, GPUs) of every job that shall run from now on."""
    free = view.available.copy()
    seconds = view.iteration_time_s()  # jobs x GPU types x counts
    allotments = []
    # Seconds to the end on the job's request, plus what starting it would cost now.
    at = np.searchsorted(view.setting.counts, view.requested_gpus)
    rows = np.arange(len(view))
    left_s = seconds[rows, :, at] * view.remaining_iterations[:, None] + view.restart_cost_s()[rows, :, at]
    for row in np.argsort(left_s.min(axis=1), kind="stable"):
        gpus = view.requested_gpus[row]
        # A running job stays on its type; one that waits takes the fastest with room.
        types = [view.gpu_type[row]] if view.gpus[row] else np.argsort(left_s[row])
        for gpu_type in types:
            if gpus <= free[gpu_type] and np.isfinite(left_s[row, gpu_type]):
                free[gpu_type] -= gpus
                allotments.append((view.job[row], gpu_type, gpus))
                break
    return Decision.of(allotments)
