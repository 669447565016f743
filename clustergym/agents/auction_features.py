"""The features of a move of the auction: job j gets level k of type t, after level k0 or nothing.

Policy and compiled episodes share this definition, so that they cannot disagree. Every feature
is of the order of 1 and depends only on the decision point and the move, never on earlier moves.
"""

from __future__ import annotations

import math

from clustergym.common.arrays import Floats
from clustergym.sim.compiled.numba_cache import compile_in_place

VERSION = 1
"""Raised whenever a feature changes its meaning or place; new ones come last, weighing 0 in what is older."""

NAMES = (
    "start",  # 1 for a start, 0 for a doubling
    "double",  # the reverse
    "rate",  # log of (share of the remaining work done per second and GPU added), less its mean
    "rate_double",
    "marginal_start",  # log of (speed added per GPU / the job's best speed per GPU)
    "marginal_double",
    "efficiency",  # log of the same for the whole allotment
    "size",  # log of remaining GPU-seconds, less its mean
    "size_double",
    "rank",  # rank of that among the jobs in the system, -1 to 1
    "rank_double",
    "age",  # log of seconds since submission
    "stretch",  # log of (1 + age / the least time that remains)
    "attained",  # log of GPU-seconds held so far
    "keep",  # the move stays within what the job holds
    "change",  # the job runs and the move is none of these
    "overhead",  # restart / (restart + run time that remains)
    "overhead_double",
    "type",  # mean log speed of the type, relative to the fastest
    "type_size",
    "type_double",
    "level",  # log2 of the GPUs
    "share_double",  # log of (GPUs / an even share of the cluster)
    "queue_double",  # log of jobs in the system
    "backlog_double",  # log of the hours of work that wait for each GPU
    "advantage",  # the job's log speed on the type relative to others, less the mean of that
    "advantage_rank",
    "lag",  # log of (1 + age / the time an even share would take)
    "slack",  # slack to the deadline over the time that remains, -1 to 1; 0 without a deadline
    "soon",  # 1 / (1 + seconds that remain / 600)
    "late",  # 1 where no allotment could meet the deadline any more; 0 without a deadline, as the next four
    "late_double",
    "urgency",  # the least time to the end / slack to the deadline, where that can be met
    "urgency_double",
    "rescue",  # the deadline is met after the move and was not before it
)
COUNT = len(NAMES)
OF_DEADLINES = ("slack", "late", "late_double", "urgency", "urgency_double", "rescue")
"""The features that are 0 without deadlines."""
WITHOUT_DEADLINES = NAMES.index("late")
"""The features from here on were added for deadlines."""
PRIOR = {"rate": 1.0, "double": 1.0, "marginal_double": 0.5, "keep": 0.2, "queue_double": -0.3}
"""Weights of an auction that was not learned: first who does most of its remaining work for each GPU."""
KNOBS = tuple(name for name in NAMES if name not in (*OF_DEADLINES, "lag"))
"""The features whose weights an action of `actions=knobs` changes, in its order."""
OF_PRIORITIES = {"marginal_start": 0.5, "marginal_double": 1.0, "keep": 0.2}
"""Weights of what the priorities of jobs are added to (`actions=priorities`)."""


REMAINING, LEAST_GPU_S, LEAST_S, RANK, AGE_S, ATTAINED_GPU_S, SLACK_S, SOONEST_S = range(8)
SIZE, LOG_AGE, STRETCH, LOG_ATTAINED, LAG, LATE, URGENCY = range(8, 15)
"""Columns of the facts of a job: iterations left; least GPU-seconds and seconds to its end; rank by the
former, -1 to 1; seconds since submission; GPU-seconds held; seconds from now to its deadline, NaN: none;
least seconds to its end with the restart; then the features `size`, `age`, `stretch`, `attained`, `lag`,
`late` and `urgency`, which are those of all its moves."""
JOB_FACTS = URGENCY + 1
JOBS, GPUS, MEAN_LOG, BACKLOG_H, QUEUE, BACKLOG = range(6)
"""Entries of the facts of a decision point: jobs in the system; available GPUs; mean log of the jobs' least
GPU-seconds; hours of work for each GPU; log of the jobs and of those hours, scaled."""
POINT_FACTS = BACKLOG + 1


@compile_in_place
def derive_point(point: Floats) -> None:
    """Compute the logs of queue length and backlog from other entries of `point`, and write them into it."""
    point[QUEUE] = math.log(point[JOBS]) / 3.0
    point[BACKLOG] = math.log1p(point[BACKLOG_H]) / 2.0


@compile_in_place
def derive_job(job: Floats, point: Floats) -> None:
    """Compute a job's derived properties, such as log age and lateness, and write them into `job`."""
    age_s, least_gpu_s, best_s = job[AGE_S], job[LEAST_GPU_S], job[LEAST_S]
    even_s = max(least_gpu_s * point[JOBS] / point[GPUS], best_s)
    job[SIZE] = (math.log(least_gpu_s) - point[MEAN_LOG]) / 2.0
    job[LOG_AGE] = math.log1p(age_s / 60.0) / 5.0
    job[STRETCH] = math.log1p(age_s / best_s) / 3.0
    job[LOG_ATTAINED] = math.log1p(job[ATTAINED_GPU_S] / 60.0) / 5.0
    job[LAG] = math.log1p(age_s / even_s)
    late = job[SOONEST_S] > job[SLACK_S]
    job[LATE] = 1.0 if late else 0.0
    job[URGENCY] = 0.0 if late or math.isnan(job[SLACK_S]) else job[SOONEST_S] / job[SLACK_S]


@compile_in_place
def fill(
    out: Floats,
    job: Floats,
    point: Floats,
    time_s: float,
    before_s: float,
    gpus: int,
    gpus_before: int,
    running: bool,
    keep: bool,
    cost_s: float,
    type_speed: float,
    advantage: float,
) -> None:
    """Write the features of a move (a job's start, or doubling of GPUs) into `out`, shape (COUNT,).

    Parameters
    ----------
    job, point : ndarray of float, shape (JOB_FACTS,) and (POINT_FACTS,)
        Facts of the job and of the decision point, as above.
    time_s, before_s : float
        Seconds per iteration after and before the move; before a start inf.
    gpus, gpus_before : int
        After and before it; before a start 0.
    running, keep : bool
        Whether the job holds GPUs now; whether the move stays within them.
    cost_s : float
        Restart, seconds.
    type_speed, advantage : float
        As `auction.advantages` has them.
    """
    doubling, remaining = gpus_before > 0, job[REMAINING]
    rank, size = job[RANK], job[SIZE]
    second = 1.0 if doubling else 0.0
    run_s = remaining * time_s
    gain = (1.0 / time_s - 1.0 / before_s) / (gpus - gpus_before)
    per_gpu_s = job[LEAST_GPU_S] / remaining
    marginal = math.log(max(gain * per_gpu_s, 1e-6))
    rate = marginal / 2.0 - size
    overhead = cost_s / (cost_s + run_s)
    out[0] = 1.0 - second
    out[1] = second
    out[2] = rate
    out[3] = rate * second
    out[4] = marginal * (1.0 - second)
    out[5] = marginal * second
    out[6] = math.log(per_gpu_s / (time_s * gpus))
    out[7] = size
    out[8] = size * second
    out[9] = rank
    out[10] = rank * second
    out[11] = job[LOG_AGE]
    out[12] = job[STRETCH]
    out[13] = job[LOG_ATTAINED]
    out[14] = 1.0 if keep else 0.0
    out[15] = 1.0 if running and not keep else 0.0
    out[16] = overhead
    out[17] = overhead * second
    out[18] = type_speed
    out[19] = type_speed * size
    out[20] = type_speed * second
    out[21] = math.log2(float(gpus)) / 6.0
    out[22] = math.log(gpus * point[JOBS] / point[GPUS]) / 2.0 if doubling else 0.0
    out[23] = second * point[QUEUE]
    out[24] = second * point[BACKLOG]
    out[25] = advantage
    out[26] = advantage * rank
    out[27] = job[LAG]
    slack_s = job[SLACK_S]
    out[28] = 0.0 if math.isnan(slack_s) else math.tanh((slack_s - run_s) / (run_s + 60.0))
    out[29] = 1.0 / (1.0 + run_s / 600.0)
    out[30] = job[LATE]
    out[31] = job[LATE] * second
    out[32] = job[URGENCY]
    out[33] = job[URGENCY] * second
    out[34] = 1.0 if cost_s + run_s <= slack_s < remaining * before_s else 0.0
