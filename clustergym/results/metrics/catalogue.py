"""The catalogue of metrics: name, unit, better direction and definition of each."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from clustergym.scenario.disturbances import DISTURBANCES
from clustergym.trace.trace import COMPLETED, FAILED, KILLED, OUTCOMES

Better = Literal["lower", "higher", ""]

_ENDED = {
    COMPLETED: "completed in their log",
    FAILED: "failed in their log",
    KILLED: "were killed in their log",
}


class Metric(NamedTuple):
    """The description of a metric: its name, unit, better direction and definition.

    Attributes
    ----------
    name : str
        Key in `metrics` of result.json.
    unit : str
        `s`, `samples/s`, `GPU h`, `share` (0 to 1), `jobs`, or empty for a plain number.
    better : str
        `lower`, `higher`, or empty where neither is.
    definition : str
    """

    name: str
    unit: str
    better: Better
    definition: str


def _metrics(table: str) -> tuple[Metric, ...]:
    """Return the metrics of a table, a row each; a definition may go on in indented lines."""
    rows: list[list[Any]] = [row.split("|") for row in table.replace("\n    ", " ").strip().splitlines()]
    return tuple(Metric(*(cell.strip() for cell in row)) for row in rows)


OF_DISTURBANCES = tuple(metric for disturbance in DISTURBANCES.values() for metric in disturbance.metrics)
"""Metrics that the disturbances contribute."""

OF_OUTCOMES = tuple(
    metric
    for outcome in OUTCOMES
    for metric in (
        Metric(f"jobs_{outcome}", "jobs", "", f"finished jobs that {_ENDED[outcome]}"),
        Metric(f"jct_mean_{outcome}", "s", "lower", f"mean JCT of finished jobs that {_ENDED[outcome]}"),
        Metric(
            f"gpu_hours_{outcome}",
            "GPU h",
            "",
            f"GPU time held by jobs, finished or not, that {_ENDED[outcome]}; standstill included",
        ),
    )
)
"""Metrics of a trace that keeps the outcomes of its jobs; results of other traces do not have them."""
OF_PARTS = _metrics("""
gpu_allocation | share | higher | on divisible nodes: allocated GPUs, with parts as fractions, divided by
    all GPUs; time average from the first to the last submission
fragmentation | share | lower | idle GPUs that a usual request of the trace could not use, weighted by how
    often it occurs, divided by all GPUs; time average as for gpu_allocation (FGD, USENIX ATC '23, section
    4)
partly_used_nodes | share | lower | nodes with an allocated and an idle GPU, divided by all nodes; time
    average as for gpu_allocation (Kant's fragmentation, GFR)
queue_mean_cpu_only | s | lower | queue_mean of jobs without GPUs
queue_mean_part | s | lower | queue_mean of jobs that ask for a part of one GPU
queue_mean_one_gpu | s | lower | queue_mean of jobs that ask for one whole GPU
queue_mean_several_gpus | s | lower | queue_mean of jobs that ask for more GPUs
""")
"""Metrics of runs on divisible nodes alone."""

OF_CAPACITY = _metrics("""
cost | USD | lower | rent of the nodes that are not one's own, up to the end of the run; a term counts whole
    from its order on
rented_gpu_hours | GPU h | lower | GPU time for which rented nodes were there, in use or not
""")
"""Metrics of runs with nodes to rent alone."""

OF_SEGMENTS = _metrics("""
stranded_gpu_hours | GPU h | lower | free GPUs that no segment of a waiting job can use, integrated over
    time: GPUs of a type for which a job waits, on nodes and in NVLink domains without room for the smallest
    segment of such a job (metrics/stranded.py)
stranded_share | share | lower | stranded_gpu_hours divided by the GPU time of all free GPUs of types for
    which a job waits
""")
"""Metrics of runs whose oracle knows which GPUs of a job must lie in one NVLink domain."""

OF_WINDOW = _metrics("""
jobs_scored | jobs |  | submitted jobs that are scored (scenario.scored_s); completion times, waiting times,
    fairness, deadlines and metrics by outcome are of these jobs only, where a run without scored_s has
    those of all jobs
time_without_arrivals | s | lower | time from the last submission of the trace to the end of the run; if it
    is above 0, no jobs were submitted at the end while scored jobs were still in the system
""")
"""Metrics of runs that score the jobs of a window."""

OF_TENANTS = _metrics("""
tenant_ftf_mean |  | lower | mean, over tenants with a quota, of the mean over their finished jobs of the
    JCT divided by the JCT with the quota alone, shared fluidly among the tenant's jobs; above 1 the tenant
    would be better off alone
tenant_ftf_worst |  | lower | greatest of the tenants' means whose mean is tenant_ftf_mean
tenant_jct_mean | s | lower | mean over tenants of the mean JCT of their finished jobs
tenant_share_error | share | lower | mean, over tenants, of the absolute difference between the GPUs held
    and the fair share of all GPUs asked for at that time, divided by the GPUs of the cluster; time average
    while the tenant has jobs
tenant_owed_time | share | lower | mean, over tenants with a quota, of the time in which they held fewer
    GPUs than their quota and fewer than their jobs asked for, divided by the time in which they had jobs
tenant_owed_gpu_hours | GPU h | lower | GPU time that tenants lacked of their quotas in the time of
    tenant_owed_time
tenant_reclaim_mean | s | lower | mean time until a tenant that lacks part of its quota, and asks for it,
    has it
tenant_owed_longest | s | lower | longest time as in tenant_reclaim_mean
tenant_starved_longest | s | lower | longest time in which a tenant had jobs but no GPU
tenant_borrowed_gpu_hours | GPU h | higher | GPU time that tenants held beyond their quotas
tenant_stopped | jobs | lower | jobs that were stopped for other tenants, each time counted
tenant_shrunk | jobs | lower | jobs whose GPUs were reduced for other tenants, each time counted
tenant_jain_index |  | higher | Jain's index of the GPU time divided by the weight, among tenants with jobs
""")
"""Metrics of runs with queues of tenants alone."""

_TABLE: tuple[Metric, ...] = (
    *_metrics("""
jobs_total | jobs |  | rows of the trace
jobs_submitted | jobs |  | jobs submitted up to the end of the run
jobs_finished | jobs | higher | submitted jobs that completed
jobs_unfinished | jobs | lower | submitted jobs still in the system at the end
jobs_dropped | jobs | lower | submitted jobs dropped for good
jct_mean | s | lower | mean JCT (completion less submission) of finished jobs
jct_p50 | s | lower | median JCT of finished jobs
jct_p99 | s | lower | 99th percentile of the JCT of finished jobs, interpolated linearly
jct_mean_censored | s | lower | mean, over all submitted jobs, of the time from submission to completion;
    for an unfinished job to the end of the run; for a dropped job to the horizon (the end of the run if
    there is none). Without drops it is the integral of the number of jobs in the system, divided by the
    jobs submitted. With unfinished jobs it is a lower bound of their mean JCT. It compares policies on one
    job set and horizon
jct_restricted_mean | s | lower | Kaplan-Meier mean of the JCT, restricted to the time from the first
    submission to the horizon (the end of the run if there is none); unfinished and dropped jobs are censored
    at the times of jct_mean_censored
queue_mean | s | lower | mean, over all submitted jobs, of the time in the system without any GPU, up to the
    end of the run; includes waiting after a preemption, excludes profiling
profile_mean | s | lower | mean, over all submitted jobs, of the time in which they held GPUs only for
    profiling
makespan | s | lower | time from the first submission to the last completion; null unless every job finished
    or was dropped
throughput_mean | samples/s | higher | samples processed (also by unfinished jobs, without those that
    failures of nodes undid), divided by the time from the first submission to the end
throughput_peak | samples/s | higher | greatest throughput at any time; a job that stands still counts as 0
normalized_throughput_mean |  | higher | time average, over the same time as throughput_mean, of the sum
    over jobs of their speed divided by their speed at the request; jobs_without_reference are left out
jobs_without_reference | jobs |  | submitted jobs whose request has no iteration time
gpu_utilization | share | higher | GPU time in which jobs work (without standstill and profiling), divided
    by all GPU time of the cluster from the first submission to the end
overhead_gpu_hours | GPU h | lower | GPU time held by jobs that stand still after a launch
profiling_gpu_hours | GPU h | lower | GPU time held for profiling
restarts_mean |  | lower | resumptions, rescalings and migrations per job ever launched; the first launch is
    not counted
preemptions_mean |  | lower | preemptions per job that was ever launched
migrations |  | lower | moves to other nodes at the same GPU type and count, all jobs together
"""),
    *(Metric(*metric[:4]) for metric in OF_DISTURBANCES),
    *_metrics("""
failures_mean |  | lower | failures of a job's nodes while it ran, per job ever launched
lost_gpu_hours | GPU h | lower | GPU time of work that was undone by failures of nodes, or because a job was
    stopped without notice
ettr_mean | share | higher | effective training time ratio: mean, over jobs ever launched, of the time of
    work that was not undone (without standstill and writing checkpoints), divided by the time from the
    first launch to the end
interruptions_per_hour |  | lower | number of times that a job lost its GPUs to a failure, or was restarted
    on them after one, divided by the hours from the first submission to the end
failure_gpu_hours | GPU h | lower | GPU time that failures cost: work undone, standing still until they were
    noticed, and restarting; `losses` of result.json has it by cause
checkpoint_gpu_hours | GPU h | lower | GPU time in which writing checkpoints blocked jobs
launches_unplaced |  | lower | launches that were decided and for which the placer found no nodes, all jobs
    together
deadline_satisfaction | share | higher | submitted jobs that finished by their deadline, of those whose
    deadline lies before the horizon
ftf_mean |  | lower | mean, over finished jobs, of the JCT divided by the JCT under fluid fair sharing, in
    which all GPUs are divided equally at every time and no job has more than it asked for
    (metrics/fairness.py)
ftf_worst |  | lower | greatest of the ratios whose mean is ftf_mean
unfair_fraction | share | lower | finished jobs whose ratio, as in ftf_mean, is above 1
unfair_unfinished | jobs | lower | unfinished jobs that had been in the system for longer than their whole
    JCT under fluid fair sharing
"""),
    *OF_OUTCOMES,
    *OF_PARTS,
    *OF_CAPACITY,
    *OF_SEGMENTS,
    *OF_WINDOW,
    *OF_TENANTS,
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _TABLE}
"""All metrics by name, in order of presentation."""

OF_ONE_QUEUE: dict[str, Metric] = {
    metric.name: metric
    for metric in _metrics("""
jct_mean_s | s | lower | mean JCT of the queue's finished jobs
jct_p99_s | s | lower | 99th percentile of the JCT of the queue's finished jobs
ftf_mean |  | lower | mean, over the queue's finished jobs, of the JCT divided by the JCT if the queue had
    its quota to itself
gpu_hours | GPU h |  | GPU time held by the queue's jobs
borrowed_gpu_hours | GPU h |  | GPU time held beyond the quota
owed_gpu_hours | GPU h | lower | GPU time that the queue lacked of its quota while its jobs asked for it
owed_s | s | lower | time in which the queue lacked part of its quota while its jobs asked for it
longest_owed_s | s | lower | longest time without a break as in owed_s
longest_starved_s | s | lower | longest time in which the queue had jobs but no GPU
""")
}
"""Figures of one queue in `tenants.queues` of result.json, by key."""


def metric_named(name: str) -> Metric | None:
    """Return a metric by its name, or one of a queue by `METRIC of QUEUE`; None if there is none."""
    key, of, queue = name.partition(" of ")
    if of and queue and key in OF_ONE_QUEUE:
        return OF_ONE_QUEUE[key]._replace(name=name)
    return METRICS.get(name)
