"""The catalogue of metrics: name, unit, better direction and definition of each."""

from __future__ import annotations

from typing import Literal, NamedTuple

from clustergym.scenarios.disturbances import KINDS

Better = Literal["lower", "higher", ""]


class Metric(NamedTuple):
    """The description of a metric.

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


OF_DISTURBANCES = tuple(metric for kind in KINDS.values() for metric in kind.metrics)
"""Metrics that the kinds of disturbances contribute."""

OF_PARTS = (
    Metric(
        "gpu_allocation",
        "share",
        "higher",
        "on divisible nodes: GPUs allocated, parts as such, over all GPUs; time average from the first to "
        "the last submission",
    ),
    Metric(
        "fragmentation",
        "share",
        "lower",
        "the same of idle GPUs that a usual request of the trace could not use, weighted by how usual it is "
        "(FGD, USENIX ATC '23, section 4)",
    ),
    Metric(
        "partly_used_nodes",
        "share",
        "lower",
        "the same of nodes of which some GPU is allocated and some is idle (Kant's fragmentation, GFR)",
    ),
    Metric("queue_mean_cpu_only", "s", "lower", "queue_mean of jobs without GPUs"),
    Metric("queue_mean_part", "s", "lower", "queue_mean of jobs that ask for a part of one GPU"),
    Metric("queue_mean_one_gpu", "s", "lower", "queue_mean of jobs that ask for one whole GPU"),
    Metric("queue_mean_several_gpus", "s", "lower", "queue_mean of jobs that ask for more GPUs"),
)
"""Metrics of runs on divisible nodes alone."""

_TABLE: tuple[Metric, ...] = (
    Metric("jobs_total", "jobs", "", "rows of the trace"),
    Metric("jobs_submitted", "jobs", "", "jobs submitted up to the end of the run"),
    Metric("jobs_finished", "jobs", "higher", "submitted jobs that completed"),
    Metric("jobs_unfinished", "jobs", "lower", "submitted jobs still in the system at the end"),
    Metric("jobs_dropped", "jobs", "lower", "submitted jobs dropped for good"),
    Metric("jct_mean", "s", "lower", "mean of completion less submission, finished jobs only"),
    Metric("jct_p50", "s", "lower", "median of the same"),
    Metric("jct_p99", "s", "lower", "99th percentile of the same, interpolated linearly"),
    Metric(
        "jct_mean_censored",
        "s",
        "lower",
        "mean over all submitted jobs of the time from submission to completion, or to the end of the run "
        "for an unfinished job, or to the horizon (the end of the run if there is none) for a dropped one: "
        "without drops the integral of the number of jobs in the system, divided by the jobs submitted; "
        "where jobs are unfinished, a lower bound of their mean JCT. "
        "Compares policies on one job set and horizon",
    ),
    Metric(
        "jct_restricted_mean",
        "s",
        "lower",
        "Kaplan-Meier mean of the JCT, restricted to the time from the first submission to the horizon (the "
        "end of the run if there is none); unfinished and dropped jobs are censored at the times of "
        "jct_mean_censored",
    ),
    Metric(
        "queue_mean",
        "s",
        "lower",
        "mean over all submitted jobs of the time in the system without any GPU, up to the end of the run; "
        "includes waiting after a preemption, excludes profiling",
    ),
    Metric(
        "profile_mean",
        "s",
        "lower",
        "mean over all submitted jobs of the time that held GPUs for profiling only",
    ),
    Metric(
        "makespan",
        "s",
        "lower",
        "first submission to last completion; null unless every job finished or was dropped",
    ),
    Metric(
        "throughput_mean",
        "samples/s",
        "higher",
        "samples processed, also by unfinished jobs, less those that failures of nodes undid, over the time "
        "from the first submission to the end",
    ),
    Metric("throughput_peak", "samples/s", "higher", "greatest throughput; a job standing still counts 0"),
    Metric(
        "normalized_throughput_mean",
        "",
        "higher",
        "time average, over the time of throughput_mean, of the sum over jobs of speed / speed at the "
        "request; jobs_without_reference are left out",
    ),
    Metric("jobs_without_reference", "jobs", "", "submitted jobs whose request has no iteration time"),
    Metric(
        "gpu_utilization",
        "share",
        "higher",
        "GPU time in which jobs work (standstill and profiling excluded) over all GPU time of the cluster "
        "from the first submission to the end",
    ),
    Metric("overhead_gpu_hours", "GPU h", "lower", "GPU time held by jobs standing still after a launch"),
    Metric("profiling_gpu_hours", "GPU h", "lower", "GPU time held for profiling"),
    Metric(
        "restarts_mean",
        "",
        "lower",
        "resumptions, rescalings and migrations per job ever launched; the first launch is not counted",
    ),
    Metric("preemptions_mean", "", "lower", "preemptions per job that was ever launched"),
    Metric(
        "migrations", "", "lower", "moves to other nodes at the same GPU type and count, all jobs together"
    ),
    *(Metric(*metric[:4]) for metric in OF_DISTURBANCES),
    Metric("failures_mean", "", "lower", "failures of a job's nodes while it ran, per job ever launched"),
    Metric("lost_gpu_hours", "GPU h", "lower", "GPU time of work that failures of nodes undid"),
    Metric(
        "launches_unplaced",
        "",
        "lower",
        "launches that were decided and for which the placer found no nodes, all jobs together",
    ),
    Metric(
        "deadline_satisfaction",
        "share",
        "higher",
        "submitted jobs that finished by their deadline, of those whose deadline lies before the horizon",
    ),
    Metric(
        "ftf_mean",
        "",
        "lower",
        "mean over finished jobs of JCT / JCT under fluid fair sharing of all GPUs in which no job has more "
        "than it asked for (metrics/fairness.py)",
    ),
    Metric("ftf_worst", "", "lower", "greatest of the same"),
    Metric("unfair_fraction", "share", "lower", "finished jobs for which the same exceeds 1"),
    Metric(
        "unfair_unfinished",
        "jobs",
        "lower",
        "unfinished jobs that had been in the system longer than their whole JCT under that sharing",
    ),
    *OF_PARTS,
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _TABLE}
"""All metrics by name, in order of presentation."""
