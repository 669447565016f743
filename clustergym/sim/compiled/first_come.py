"""The decisions of `policies/fcfs.py`, compiled: which waiting jobs start, and on which GPU type."""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.scenario.policy import Policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim import columns as c
from clustergym.sim.compiled import jobs
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_in_place, entry_in_place
from clustergym.sim.compiled.scenario_arrays import ClusterArrays

OF_FILE = "e6d01bb10f407259"
"""Begin of the SHA-256 of `policies/fcfs.py`, which is stated again here; an edited one decides itself."""


def is_compiled(policy: Policy, scenario: Scenario) -> bool:
    """Return whether a policy is FCFS without options, and starts jobs in this form of it, too."""
    # By its module, as policies are in a layer above. Rented nodes come and go within a decision.
    if type(policy).__module__ != "clustergym.policies.fcfs" or scenario.disturbances:
        return False
    if not np.isin(scenario.request_gpus, [0, *scenario.tables.counts]).all():
        return False
    return hashlib.sha256(Path(inspect.getfile(type(policy))).read_bytes()).hexdigest().startswith(OF_FILE)


@compile_in_place
def _may_use(episode: Episode, row: int, gpu_type: int, level: int) -> bool:
    """Return whether a job asks for a GPU type, or for any, and fits there with its GPU count."""
    job = episode.job[row]
    if job[c.REQUESTED_TYPE] != c.NONE and job[c.REQUESTED_TYPE] != gpu_type:
        return False
    return episode.feasible[job[c.CLASS], gpu_type, level] and jobs.is_profiled(episode, row, gpu_type)


@compile_in_place
def _choose_type(episode: Episode, row: int, level: int, free: Ints) -> int:
    """Return the first GPU type with room for a job, or NONE."""
    for gpu_type in range(len(free)):
        if free[gpu_type] >= episode.job[row, c.REQUESTED_GPUS] and _may_use(episode, row, gpu_type, level):
            return gpu_type
    return c.NONE


@compile_in_place
def _close(episode: Episode, row: int, level: int, free: Ints) -> bool:
    """Take all GPUs that a job waits for from `free`; return whether any are left for the jobs behind it."""
    left = False
    for gpu_type in range(len(free)):
        if free[gpu_type] > 0 and _may_use(episode, row, gpu_type, level):
            free[gpu_type] = 0
        left |= free[gpu_type] > 0
    return left


@entry_in_place
def find_starts(
    episode: Episode, cluster: ClusterArrays, starts: Ints, free: Ints, passed: Ints, one_queue: bool
) -> int:
    """Write the rows of the jobs that start into `starts`, and what each is to hold into its targets.

    Parameters
    ----------
    episode : Episode
    cluster : ClusterArrays
    starts : ndarray of int, shape (…, 4)
        Rows are written into its first column; at most one for each GPU that is free.
    free : ndarray of int, shape (T,)
        Free GPUs of each type, of which those that are given away or waited for are taken.
    passed : ndarray of int, shape (T,)
        Row before which no waiting job may use the type, 0 at first: none of them is looked at again.
    one_queue : bool
        Whether a job that must wait blocks all behind it, or those alone that could only run on its types.

    Returns
    -------
    int
        Number of jobs that start.
    """
    count, clock, first = 0, episode.clock, episode.clock[c.JOBS]
    for gpu_type in range(len(free)):
        if free[gpu_type] > 0:
            first = min(first, passed[gpu_type])
    for row in episode.in_view[jobs.find_in_view(episode, first) : clock[c.IN_VIEW]]:
        job = episode.job[row]
        if job[c.PHASE] == c.QUEUED:
            level = jobs.find_level(cluster.counts, job[c.REQUESTED_GPUS])
            chosen = _choose_type(episode, row, level, free)
            if chosen != c.NONE:
                free[chosen] -= job[c.REQUESTED_GPUS]
                job[c.TARGET_TYPE], job[c.TARGET_LEVEL] = chosen, level
                starts[count, 0] = row
                count += 1
            elif one_queue or not _close(episode, row, level, free):
                return count
    # Whoever waits for a type has taken it. With profiles, jobs of before may be allowed to use it later.
    for gpu_type in range(len(free)):
        if free[gpu_type] > 0 and clock[c.PROFILE_GPUS] == 0:
            passed[gpu_type] = clock[c.AHEAD]
    return count
