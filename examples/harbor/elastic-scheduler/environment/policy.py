"""First come, first served: in order of submission, each job that fits, on the GPUs that it asks for."""

from clustergym.scenario.policy import Decision


def schedule(view):
    """Return (job, GPU type, GPUs) of every job that shall run from now on."""
    free, allotments = view.available.copy(), []
    running_first = sorted(range(len(view)), key=lambda row: (view.gpus[row] == 0, view.submit_s[row]))
    for row in running_first:
        types = [view.gpu_type[row]] if view.gpus[row] else [view.requested_type[row]]
        for gpu_type in range(len(free)) if types == [-1] else types:
            level = list(view.setting.counts).index(view.requested_gpus[row])
            if view.requested_gpus[row] <= free[gpu_type] and view.feasible[row, gpu_type, level]:
                free[gpu_type] -= view.requested_gpus[row]
                allotments.append((view.job[row], gpu_type, view.requested_gpus[row]))
                break
    return Decision.of(allotments)
