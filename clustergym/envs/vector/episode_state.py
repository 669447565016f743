"""The arrays of one episode that actions update, and of its observation and costs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clustergym.common.arrays import Bools, Floats, Ints

Singles = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.int8]

# Columns of `state`, one row an episode.
(
    SHOWN,  # jobs that have a row
    TURN,  # decision points so far
    EDITS,  # edits at this decision point
    ILLEGAL,  # illegal actions in a row
    HELD,  # decision points for which the present action has held
    STATE_COLUMNS,
) = range(6)


class EpisodeState(NamedTuple):
    """One episode's arrays that actions update: legal-action mask, observation, free GPUs, last costs.

    In a batch of episodes every array has one axis more, the first.

    Attributes
    ----------
    state : ndarray of int, shape (STATE_COLUMNS,)
    shown : ndarray of int, shape (R,)
        The jobs that have a row.
    free : ndarray of int, shape (T,)
        GPUs that the allotments as edited leave.
    target : ndarray of int8, shape (2, R)
        GPU type and index of the count that each row's job is to hold, as edited; NONE.
    assignable : ndarray of bool, shape (A - 1,)
        Actions on jobs that are legal where the GPUs are free.
    room : ndarray of bool, shape (A - 1,)
        Actions on jobs for which the GPUs are free.
    waits : ndarray of bool, shape (A - 1,)
        Assignments of jobs that are to hold no GPUs.
    mask : ndarray of int8, shape (A,)
    observation : ndarray of float32, shape (size,)
    last_cost, last_reference : ndarray of float, shape (m,)
        The weighed costs at the last decision point; those of the baseline then.
    queue_costs : ndarray of float, shape (2,)
        What queues of tenants have missed of quotas, now; and under the baseline then.
    reference : ndarray of int, shape (n, 2)
        What the baseline comes to: the tick when each job leaves, NEVER: not; whether it has completed.
        Empty: there is no baseline.
    least_gpu_s, least_s : ndarray of float, shape (C, H)
        Least GPU-seconds, and seconds, of an iteration; 0: unknown. The second axis is a job's HIDDEN, the
        set of types on which it is not profiled yet; H is 1 where nothing is profiled.
    speed : ndarray of float32, shape (C, H, T, K, 2)
        Speed and speed per GPU by the class's highest.
    restart : ndarray of float32, shape (C, 2, 2, K)
        The logarithm of what a move costs: pays for its checkpoint (no, yes), has a plan (no, yes).
    """

    state: Ints
    shown: Ints
    free: Ints
    target: Bytes
    assignable: Bools
    room: Bools
    waits: Bools
    mask: Bytes
    observation: Singles
    last_cost: Floats
    last_reference: Floats
    queue_costs: Floats
    reference: Ints
    least_gpu_s: Floats
    least_s: Floats
    speed: Singles
    restart: Singles


class EpisodeRules(NamedTuple):
    """Constants of a vector environment's episodes, such as the number of rows and the reward's weights.

    Attributes
    ----------
    rows : int
    rejects, binding, mask_stop, job_rows : bool
        Jobs may be rejected; only where they are first shown; stopping is illegal while a waiting job of
        a row could use idle GPUs; the observation has rows of jobs.
    size_log : ndarray of float32, shape (K + 1,)
        What stands for no GPUs, and for each count.
    total : float
        GPUs of the cluster.
    stall_penalty : float
        What a stall subtracts from the reward, times the share of the jobs that have not left; NaN: costs
        count until all jobs could have run one after another.
    terms : ndarray of int, shape (m,)
        The weighed costs, as places in `clustergym.envs.vector.costs.NAMES`.
    weights : ndarray of float, shape (m,)
    """

    rows: int
    rejects: bool
    binding: bool
    mask_stop: bool
    job_rows: bool
    size_log: Singles
    total: float
    stall_penalty: float
    terms: Ints
    weights: Floats
