"""The decisions of `policies/fcfs.py`, compiled: which waiting jobs start, and on which GPU type."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.scenario.policy import Policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim import columns as c
from clustergym.sim.compiled import jobs
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_in_place, entry_in_place
from clustergym.sim.compiled.scenario_arrays import ClusterArrays


def is_compiled(policy: Policy, scenario: Scenario) -> bool:
    """Return whether a policy is FCFS without options, and starts jobs in this form of it, too."""
    # By its module, as policies are in a layer above. Rented nodes come and go within a decision.
    own = type(policy).__module__ == "clustergym.policies.fcfs" and not scenario.disturbances
    return own and bool(np.isin(scenario.request_gpus, [0, *scenario.tables.counts]).all())


@compile_in_place
def _may_use(episode: Episode, row: int, gpu_type: int, level: int) -> bool:
    """Return whether a job asks for a GPU type, or for any, and fits there with its GPU count."""
    job = episode.job[row]
    if job[c.REQUESTED_TYPE] != c.NONE and job[c.REQUESTED_TYPE] != gpu_type:
        return False
    return episode.feasible[job[c.CLASS], gpu_type, level] and jobs.is_profiled(episode, row, gpu_type)


@entry_in_place
def find_starts(episode: Episode, cluster: ClusterArrays, starts: Ints, free: Ints, one_queue: bool) -> int:
    """Write the rows of the jobs that start into `starts`, and what each is to hold into its targets.

    Parameters
    ----------
    episode : Episode
    cluster : ClusterArrays
    starts : ndarray of int, shape (…, 4)
        Rows are written into its first column; at most one for each GPU that is free.
    free : ndarray of int, shape (T,)
        Free GPUs of each type, of which those that are given away or closed are taken.
    one_queue : bool
        Whether a job that must wait blocks all behind it, or those alone that could only run on its types.

    Returns
    -------
    int
        Number of jobs that start.
    """
    count = 0
    for row in episode.in_view[: episode.clock[c.IN_VIEW]]:
        job, chosen = episode.job[row], c.NONE
        if job[c.PHASE] != c.QUEUED:
            continue
        if max(free) == 0:
            break
        level = jobs.find_level(cluster.counts, job[c.REQUESTED_GPUS])
        for gpu_type in range(len(free) - 1, -1, -1):
            if free[gpu_type] >= job[c.REQUESTED_GPUS] and _may_use(episode, row, gpu_type, level):
                chosen = gpu_type
        if chosen != c.NONE:
            free[chosen] -= job[c.REQUESTED_GPUS]
            job[c.TARGET_TYPE], job[c.TARGET_LEVEL] = chosen, level
            starts[count, 0] = row
            count += 1
        elif one_queue:
            break
        else:
            for gpu_type in range(len(free)):
                if _may_use(episode, row, gpu_type, level):
                    free[gpu_type] = 0
    return count
