"""Compute the metrics of a run from its event log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clustergym.cluster.parts import DivisibleCluster
from clustergym.cluster.spec import ClusterSpec
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.writing import plain
from clustergym.results.metrics.capacity import measure_capacity
from clustergym.results.metrics.catalogue import METRICS, OF_DISTURBANCES
from clustergym.results.metrics.fairness import UNFAIR_ABOVE, Fairness, finish_time_fairness
from clustergym.results.metrics.intervals import Intervals, Outcome, read_intervals
from clustergym.results.metrics.jobs import (
    JobRecords,
    Loss,
    check_work_conserved,
    ettr,
    losses_by_cause,
    make_records,
    write_gpu_hours,
)
from clustergym.results.metrics.preemptions import OF_QUEUE, compute_queue_usage
from clustergym.results.metrics.statistics import compute_restricted_mean
from clustergym.results.metrics.stranded import stranded_metrics
from clustergym.results.metrics.tenants import measure_tenants, tenant_metrics
from clustergym.results.metrics.timeline import Timeline, compute_timeline, has_reference
from clustergym.scenario.disturbances.capacity import Capacity
from clustergym.scenario.scenario import Scenario
from clustergym.sim.log import Event
from clustergym.trace.trace import OUTCOMES, Trace

if TYPE_CHECKING:
    from clustergym.scenario.tenants.queue_tree import Tenants

MetricValue = float | int | None
Metrics = dict[str, MetricValue]


class Measurement(NamedTuple):
    """Everything that is computed from a run's event log: metrics, job records, timeline and more.

    Attributes
    ----------
    metrics : dict
    records : JobRecords
    timeline : Timeline
    fairness : ndarray of float, shape (n,)
        Finish-time fairness of each job; NaN where it has none.
    losses : dict of str to Loss
        What each cause of interruptions has cost.
    tenants : dict
        What each tenant had (`clustergym.results.metrics.tenants`); empty without queues.
    """

    metrics: Metrics
    records: JobRecords
    timeline: Timeline
    fairness: Floats
    losses: dict[str, Loss]
    tenants: dict[str, Any]


class _Run(NamedTuple):
    """The inputs that all groups of metrics share.

    `until_s` is the horizon, or the end of the run if there is no horizon.
    """

    trace: Trace
    records: JobRecords
    timeline: Timeline
    gpus: int
    fair_s: Floats
    requested_gpus: Ints | Floats
    end_s: float
    until_s: float
    complete: bool
    disturbances: tuple[Event, ...]

    @property
    def submitted(self) -> Bools:
        return np.not_equal(self.records.outcome, Outcome.NOT_SUBMITTED)

    @property
    def finished(self) -> Bools:
        return np.equal(self.records.outcome, Outcome.FINISHED)

    @property
    def first_s(self) -> float:
        """Time of the first submission, seconds; the end of the run if no job was submitted."""
        return float(self.records.submit_s[self.submitted].min(initial=self.end_s))

    @property
    def span_s(self) -> float:
        return self.end_s - self.first_s


def measure_scenario(
    scenario: Scenario, events: Sequence[Event], end_s: float, stalled: bool = False
) -> Measurement:
    """Compute the metrics, job records and timeline of a scenario's run from its event log."""
    measured = measure(
        events,
        scenario.trace,
        scenario.cluster,
        scenario.reference_iteration_time_s,
        end_s,
        scenario.horizon_s,
        scenario.request_gpus if scenario.parts is None else scenario.parts.gpus,
        scenario.fair_iteration_time_s,
        scenario.tenants,
        stalled,
        None if scenario.scored_s is None else scenario.scored,
    )
    rented = next((one for one in scenario.disturbances if isinstance(one, Capacity)), None)
    if rented is not None:
        own, columns = measure_capacity(rented, scenario.cluster, events, end_s, measured.timeline.time_s)
        both = measured.metrics | {name: plain(value) for name, value in own.items()}
        timeline = replace(measured.timeline, further={**measured.timeline.further, **columns})
        ordered = {name: both[name] for name in METRICS if name in both}
        measured = measured._replace(metrics=ordered, timeline=timeline)
    if scenario.tables.segments is not None:
        own = {name: plain(value) for name, value in stranded_metrics(scenario, events, end_s).items()}
        both = measured.metrics | own
        measured = measured._replace(metrics={name: both[name] for name in METRICS if name in both})
    if scenario.parts is None or not isinstance(scenario.cluster, DivisibleCluster):
        return measured
    # It loads Numba, which runs of whole GPUs do without.
    from clustergym.results.metrics.parts import part_course, part_metrics

    course, records = part_course(events, scenario.cluster, scenario.parts), measured.records
    seen = np.not_equal(records.outcome, Outcome.NOT_SUBMITTED)
    own = part_metrics(course, scenario.cluster, scenario.parts, records.submit_s, records.queue_s, seen)
    timeline = replace(measured.timeline, further=course.look_up(measured.timeline.time_s))
    return measured._replace(metrics=measured.metrics | own, timeline=timeline)


def measure(
    events: Sequence[Event],
    trace: Trace,
    cluster: ClusterSpec,
    reference_iteration_time_s: Floats,
    end_s: float,
    horizon_s: float | None = None,
    requested_gpus: Ints | Floats | None = None,
    fair_iteration_time_s: Floats | None = None,
    tenants: Tenants | None = None,
    stalled: bool = False,
    scored: Bools | None = None,
) -> Measurement:
    """Compute the metrics, job records and timeline of a run from its event log, trace and cluster.

    Parameters
    ----------
    events : sequence of Event
        The event log, in order of time; a `LogError` says where it contradicts itself or the trace.
    trace : Trace
        n jobs.
    cluster : ClusterSpec
    reference_iteration_time_s : ndarray of float, shape (n,)
        Seconds per iteration at each job's request; NaN or inf where that is infeasible.
    end_s : float
        When the run ended: the horizon, or the last event of a run that came to its end before.
    horizon_s : float, optional
        When the clock would have stopped; None or inf: never.
    requested_gpus : ndarray of int or float, shape (n,), optional
        GPUs of the request that `reference_iteration_time_s` is for; the trace's by default.
    fair_iteration_time_s : ndarray of float, shape (n,), optional
        Seconds per iteration on so many GPUs of the mean speed of the types the job runs on
        (`Scenario.fair_iteration_time_s`), for the fairness reference; those at the request by
        default.
    tenants : Tenants, optional
        The queues of the jobs.
    stalled : bool
        Whether the run ended because its jobs would wait for ever: completion times and fairness then count
        the jobs in the system as if they had left at the end, and what no job has is 0.
    scored : ndarray of bool, shape (n,), optional
        Jobs of which completion times and fairness are; all by default. What is of the cluster or of GPU time
        counts all jobs.
    """
    intervals = read_intervals(events, trace, end_s)
    # Before anything is computed from the log, it is checked against itself: a metric of a log that
    # contradicts its trace would look like any other.
    records = make_records(intervals)
    check_work_conserved(intervals, records)
    record = compute_timeline(intervals, cluster.gpu_types, reference_iteration_time_s)
    gpus = int(cluster.capacity.sum())
    fair_s = reference_iteration_time_s if fair_iteration_time_s is None else fair_iteration_time_s
    asked = trace.gpus if requested_gpus is None else requested_gpus
    # A run that ends before its horizon is over because all jobs have left: what counts `until` the horizon
    # (dropped jobs, deadlines) still runs on to it, so that ending early does not flatter a policy.
    until_s = end_s if horizon_s is None or np.isinf(horizon_s) else horizon_s
    complete = horizon_s is None or bool(np.isinf(horizon_s))
    run = _Run(trace, records, record, gpus, fair_s, asked, end_s, until_s, complete, intervals.disturbances)
    fairness = _measure_fairness(run)
    if scored is not None:
        fairness = fairness._replace(rho=np.where(scored, fairness.rho, np.nan))
    # Jobs outside of the window still take GPUs, so rates and losses are of the whole run; only what is a
    # mean over jobs leaves them out.
    of_scored = run if scored is None else _only(run, scored)
    losses = losses_by_cause(events, end_s) if intervals.disturbances else {}
    groups = (
        *(_counts(run), _completion(of_scored), _rates(run), _restarts(run)),
        *(_losses(run, intervals, losses), _fairness(of_scored, fairness), _by_outcome(of_scored)),
        {} if scored is None else _window(run, scored),
    )
    values = {name: value for group in groups for name, value in group.items()}
    if stalled:
        # After the other groups: it replaces their values, and needs those that are not defined.
        values |= _of_stalled(of_scored, values)
    of_tenants: dict[str, Any] = {}
    if tenants is not None:
        of_tenants, record = _measure_queues(run, intervals, tenants, cluster)
        values |= tenant_metrics(of_tenants, run.gpus)
    # In the order of the catalogue: result.json of equal runs is equal to the byte.
    metrics = {name: plain(values[name]) for name in METRICS if name in values}
    return Measurement(metrics, records, record, fairness.rho, losses, of_tenants)


def _measure_queues(
    run: _Run, intervals: Intervals, tenants: Tenants, cluster: ClusterSpec
) -> tuple[dict[str, Any], Timeline]:
    """Return the metrics of tenants, and the timeline with the GPUs of each queue."""
    # Queues go with whole GPUs alone.
    asked = run.requested_gpus.astype(np.int64)
    usage = compute_queue_usage(intervals, tenants, asked)
    measured = measure_tenants(intervals, tenants, cluster, usage, asked, _work_gpu_s(run))
    held = usage.get_held_gpus(run.timeline.time_s)
    names = [f"{OF_QUEUE}{name}" for name in tenants.tree.leaves]
    return measured, replace(run.timeline, further=dict(zip(names, held.T, strict=True)))


def _only(run: _Run, scored: Bools) -> _Run:
    """Return a run as if the other jobs had never been submitted; its end stays."""
    outcome = np.where(scored, run.records.outcome, int(Outcome.NOT_SUBMITTED))
    return run._replace(records=replace(run.records, outcome=outcome))


def _window(run: _Run, scored: Bools) -> Metrics:
    """Return the metrics of the window of submissions (`OF_WINDOW`)."""
    return {
        "jobs_scored": int((scored & run.submitted).sum()),
        "time_without_arrivals": max(run.end_s - float(run.trace.submit_s.max()), 0.0),
    }


def _mean(values: Floats | Ints) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _ratio(numerator: float, denominator: float) -> float | None:
    return float(numerator) / float(denominator) if denominator else None


def _counts(run: _Run) -> Metrics:
    outcome = run.records.outcome
    return {
        "jobs_total": len(run.trace),
        "jobs_submitted": int(run.submitted.sum()),
        "jobs_finished": int(run.finished.sum()),
        "jobs_unfinished": int((outcome == Outcome.UNFINISHED).sum()),
        "jobs_dropped": int((outcome == Outcome.DROPPED).sum()),
        "jobs_without_reference": run.timeline.left_out,
    }


def _time_so_far(run: _Run) -> Floats:
    """Return each finished job's JCT and each other job's age so far, seconds; NaN if not submitted.

    A dropped job counts until the horizon, or the end of the run if there is no horizon.
    """
    seen = np.select(
        [run.finished, run.records.outcome == Outcome.UNFINISHED, run.records.outcome == Outcome.DROPPED],
        # A dropped job counts up to the horizon, not up to when it was dropped: else a policy would gain by
        # dropping the jobs that wait longest.
        [run.records.end_s, np.full(len(run.trace), run.end_s), np.full(len(run.trace), run.until_s)],
        default=np.nan,
    )
    return np.asarray(seen - run.records.submit_s, dtype=np.float64)


def _completion(run: _Run) -> Metrics:
    records, submitted, finished = run.records, run.submitted, run.finished
    jct = records.jct_s[finished]
    waited = _time_so_far(run)[submitted]
    # A makespan of the jobs that happen to have finished would shrink as fewer do, so there is none unless
    # all have left.
    every_job_left = np.isin(records.outcome, (Outcome.FINISHED, Outcome.DROPPED)).all() and len(jct)
    return {
        "jct_mean": _mean(jct),
        "jct_p50": float(np.percentile(jct, 50)) if len(jct) else None,
        "jct_p99": float(np.percentile(jct, 99)) if len(jct) else None,
        "jct_mean_censored": _mean(waited),
        "jct_restricted_mean": compute_restricted_mean(
            waited, finished[submitted], run.until_s - run.first_s
        ),
        "queue_mean": _mean(records.queue_s[submitted]),
        "profile_mean": _mean(records.profile_s[submitted]),
        "makespan": float(records.end_s[finished].max()) - run.first_s if every_job_left else None,
        "deadline_satisfaction": _deadline_satisfaction(run),
    }


def _of_stalled(run: _Run, values: Metrics) -> Metrics:
    """Return the metrics in which the jobs that a stalled run left in the system count as ending with it.

    Without them a run that stalls after its shortest jobs would have the best completion times. Whether a
    deadline was met stays as it is, and undefined where no job has one.
    """
    records = run.records
    left = np.equal(records.outcome, Outcome.UNFINISHED)
    end_s = np.where(left, run.end_s, records.end_s)
    ended = replace(
        records,
        outcome=np.where(left, int(Outcome.FINISHED), records.outcome),
        end_s=end_s,
        jct_s=np.where(left, run.end_s - records.submit_s, records.jct_s),
    )
    as_ended = run._replace(records=ended)
    counted = _completion(as_ended) | _fairness(as_ended, _measure_fairness(as_ended))
    names = ("jct_mean", "jct_p50", "jct_p99", "ftf_mean", "ftf_worst", "unfair_fraction")
    found = {name: counted[name] for name in names} | {"makespan": run.span_s}
    # A stalled run must not be left out of a mean over seeds, where only the seeds that went well would
    # count.
    undefined = {name: 0.0 for name, value in (values | found).items() if value is None}
    # Undefined because no job has a deadline, which no policy can change: it stays undefined.
    if values["deadline_satisfaction"] is None:
        del undefined["deadline_satisfaction"]
    return found | undefined


def _deadline_satisfaction(run: _Run) -> float | None:
    deadline = run.trace.deadline_s
    # Without a horizon every deadline is decided: an unfinished job will never finish.
    decided = run.submitted & ((deadline <= run.until_s) | (run.complete & np.isfinite(deadline)))
    return _ratio(
        (run.records.end_s[decided & run.finished] <= deadline[decided & run.finished]).sum(), decided.sum()
    )


def _rates(run: _Run) -> Metrics:
    records, record = run.records, run.timeline
    # Iterations are counted at the requested batch, at which a job's samples an iteration are fixed: adaptive
    # batches change how fast they pass and not what they count.
    samples = float(np.dot(records.iterations_done, run.trace.global_batch))
    # Held time without standstill: restarts keep GPUs busy and useless. Profiling is not held by a job.
    working_gpu_s = float(records.held_gpu_s.sum() - records.overhead_gpu_s.sum())
    return {
        "throughput_mean": _ratio(samples, run.span_s),
        "throughput_peak": record.peak(record.throughput),
        "normalized_throughput_mean": _ratio(record.integral(record.normalized_throughput), run.span_s),
        "gpu_utilization": _ratio(working_gpu_s, run.gpus * run.span_s),
        "overhead_gpu_hours": float(records.overhead_gpu_s.sum()) / 3600,
        "profiling_gpu_hours": float(records.profile_gpu_s.sum()) / 3600,
    }


def _restarts(run: _Run) -> Metrics:
    # Over jobs that were ever launched: one that waits to the end was not restarted, which would lower the
    # mean of a policy that starves jobs.
    launched = run.records.launches > 0
    return {
        "restarts_mean": _mean(run.records.restarts[launched]),
        "preemptions_mean": _mean(run.records.preemptions[launched]),
        "migrations": int(run.records.migrations.sum()),
        **{metric.name: metric.figure(run.disturbances) for metric in OF_DISTURBANCES},
        "failures_mean": _mean(run.records.failures[launched]),
        "lost_gpu_hours": float(run.records.lost_gpu_s.sum()) / 3600,
        "launches_unplaced": int(run.records.unplaced.sum()),
    }


def _by_outcome(run: _Run) -> Metrics:
    """Return the metrics by outcome of jobs (`OF_OUTCOMES`); none if the trace keeps no outcomes."""
    if run.trace.outcome is None:
        return {}
    outcomes, found = np.array(run.trace.outcome, dtype=object), Metrics()
    for outcome in OUTCOMES:
        mine = outcomes == outcome
        jct_s = run.records.jct_s[mine & run.finished]
        found[f"jobs_{outcome}"] = len(jct_s)
        found[f"jct_mean_{outcome}"] = _mean(jct_s)
        found[f"gpu_hours_{outcome}"] = float(run.records.held_gpu_s[mine].sum()) / 3600
    return found


def _losses(run: _Run, intervals: Intervals, losses: dict[str, Loss]) -> Metrics:
    ratios = ettr(intervals, run.records)
    interruptions = sum(loss.interruptions for loss in losses.values())
    return {
        "ettr_mean": _mean(ratios[np.isfinite(ratios)]),
        "interruptions_per_hour": _ratio(3600.0 * interruptions, run.span_s),
        "failure_gpu_hours": sum(loss.lost_gpu_hours for loss in losses.values()),
        "checkpoint_gpu_hours": write_gpu_hours(intervals),
    }


def _work_gpu_s(run: _Run) -> Floats:
    """Return the GPU-seconds of each job at its request; NaN: not known."""
    # The work that a job would do at its request: iterations x seconds x GPUs. What its user asked for is the
    # yardstick, not what a policy gave.
    known = has_reference(run.fair_s) & (run.requested_gpus > 0)
    return np.where(known, run.trace.work_iterations * run.fair_s * run.requested_gpus, np.nan)


def _measure_fairness(run: _Run) -> Fairness:
    records = run.records
    return finish_time_fairness(
        records.submit_s, records.jct_s, _work_gpu_s(run), run.requested_gpus, run.submitted, run.gpus
    )


def _fairness(run: _Run, fairness: Fairness) -> Metrics:
    rho = fairness.rho[np.isfinite(fairness.rho)]
    # An unfinished job has no finish-time fairness, but is known to be unfair once it has taken longer than
    # its fluid time.
    overdue = _time_so_far(run) > fairness.fluid_jct_s * UNFAIR_ABOVE
    return {
        "ftf_mean": _mean(rho),
        "ftf_worst": float(rho.max()) if len(rho) else None,
        "unfair_fraction": _ratio((rho > UNFAIR_ABOVE).sum(), len(rho)),
        "unfair_unfinished": int((overdue & (run.records.outcome == Outcome.UNFINISHED)).sum()),
    }
