"""A small event log whose job records, timeline and metrics are worked out by hand."""

import json

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from log_readings import job_records, timeline
from scenarios import Job, Script, small_cluster, small_scenario, small_trace

from clustergym.results.metrics.catalogue import (
    METRICS,
    OF_CAPACITY,
    OF_DISTURBANCES,
    OF_OUTCOMES,
    OF_PARTS,
    OF_SEGMENTS,
    OF_TENANTS,
    OF_WINDOW,
)
from clustergym.results.metrics.intervals import Outcome, read_intervals
from clustergym.results.metrics.jobs import ettr, make_records
from clustergym.results.metrics.metrics import measure, measure_scenario
from clustergym.scenario.disturbances.failures import NODE_FAIL, NODE_REPAIR
from clustergym.sim.drive import drive
from clustergym.sim.engine import Simulation, StalledError
from clustergym.sim.log import NO_JOB, Event, EventType

NAN = float("nan")
A, B, C, D, E = range(5)
X, Y = 0, 1
END = 1000.0

# 12 GPUs: X has two nodes of four, Y one of four. Every iteration processes 32 samples.
CLUSTER = small_cluster({"X": (2, 4), "Y": (1, 4)})
TRACE = small_trace(
    [
        Job("A", 0.0, 100, gpus=4, gpu_type="X", deadline_s=500.0),
        Job("B", 100.0, 50, gpus=2, gpu_type="X", deadline_s=2000.0),
        Job("C", 200.0, 200, gpus=4, gpu_type="X", deadline_s=900.0),
        Job("D", 300.0, 10, gpus=64, gpu_type="X"),
        Job("E", 2000.0, 10),
    ]
)
REFERENCE = np.array([2.0, 3.0, 4.0, NAN, 1.0])


def launch(time_s, kind, job, gpu_type, gpus, overhead_s, iteration_time_s):
    return Event(time_s, kind, job, gpu_type, gpus, ((0, gpus),), 0, overhead_s, iteration_time_s)


LOG = [
    Event(0.0, EventType.SUBMIT, A),
    Event(0.0, EventType.PROFILE_START, A, Y, 1),
    Event(20.0, EventType.PROFILE_END, A, Y, 1),
    # A stands still until 50; by 100 it has done 50 / 2 = 25.
    launch(20.0, EventType.START, A, X, 4, 30.0, 2.0),
    Event(100.0, EventType.SUBMIT, B),
    # A stands still until 120; by 240 it has done 120 / 4 = 30 more, 45 are left.
    launch(100.0, EventType.RESCALE, A, X, 2, 20.0, 4.0),
    # B stands still until 110; by 200 it has done 90 / 3 = 30, 20 are left.
    launch(100.0, EventType.START, B, X, 2, 10.0, 3.0),
    Event(200.0, EventType.SUBMIT, C),
    Event(200.0, EventType.PREEMPT, B),
    # C stands still until 250; by 1000 it has done 750 / 5 = 150 of its 200.
    launch(200.0, EventType.START, C, X, 4, 50.0, 5.0),
    # A stands still until 280 and takes 45 x 3 = 135 s more.
    launch(240.0, EventType.MIGRATE, A, X, 2, 40.0, 3.0),
    Event(300.0, EventType.SUBMIT, D),
    Event(300.0, EventType.DROP, D, reason="fits nowhere"),
    # B stands still until 360 and takes 20 x 4 = 80 s more.
    launch(320.0, EventType.RESUME, B, Y, 2, 40.0, 4.0),
    Event(415.0, EventType.COMPLETE, A),
    Event(440.0, EventType.COMPLETE, B),
]


def test_job_records():
    records = job_records(LOG, TRACE, END)
    expected = {
        "outcome": [
            Outcome.FINISHED,
            Outcome.FINISHED,
            Outcome.UNFINISHED,
            Outcome.DROPPED,
            Outcome.NOT_SUBMITTED,
        ],
        "submit_s": [0, 100, 200, 300, 2000],
        "first_start_s": [20, 100, 200, NAN, NAN],
        "end_s": [415, 440, NAN, 300, NAN],
        "jct_s": [415, 340, NAN, NAN, NAN],
        # B waits from 200 to 320. A's 20 s of profiling are no queueing.
        "queue_s": [0, 120, 0, 0, 0],
        "profile_s": [20, 0, 0, 0, 0],
        "run_s": [395, 100 + 120, 800, 0, 0],
        "profile_gpu_s": [20, 0, 0, 0, 0],
        # A: 4 x 80 + 2 x 140 + 2 x 175; B: 2 x 100 + 2 x 120; C: 4 x 800.
        "held_gpu_s": [950, 440, 3200, 0, 0],
        # A: 4 x 30 + 2 x 20 + 2 x 40; B: 2 x 10 + 2 x 40; C: 4 x 50.
        "overhead_gpu_s": [240, 100, 200, 0, 0],
        "iterations_done": [100, 50, 150, 0, 0],
        "launches": [3, 2, 1, 0, 0],
        "restarts": [2, 1, 0, 0, 0],
        "preemptions": [0, 1, 0, 0, 0],
        "migrations": [1, 0, 0, 0, 0],
        "failures": [0] * 5,
        "unplaced": [0] * 5,
        "lost_gpu_s": [0] * 5,
    }
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(records, name), values, rtol=1e-12, err_msg=name)
    assert records.reason == ("", "", "", "fits nowhere", "")
    assert len(records) == 5


def test_a_standstill_cut_short_counts_only_while_it_lasts():
    # A would stand still until 80 but is preempted at 50, resumes at 60 and the run ends at 70.
    log = [
        Event(0.0, EventType.SUBMIT, A),
        launch(0.0, EventType.START, A, X, 4, 80.0, 2.0),
        Event(50.0, EventType.PREEMPT, A),
        launch(60.0, EventType.RESUME, A, X, 4, 30.0, 2.0),
    ]
    records = job_records(log, TRACE, 70.0)
    assert records.overhead_gpu_s[A] == 4 * 50 + 4 * 10 == records.held_gpu_s[A]
    assert records.iterations_done[A] == 0


def test_work_that_a_failure_undid_is_done_again():
    # A runs from 10 on at 2 s an iteration and slower, 4 s, from 30 on: 10 iterations by 30, 5 by 50, where
    # it is set back by 20 s and 5 iterations. It waits for 30 s, is not placed at 60, and stands still until
    # 90: 90 of its 100 iterations are left, at 1 s each.
    log = [
        Event(0.0, EventType.SUBMIT, A),
        launch(0.0, EventType.START, A, X, 4, 10.0, 2.0),
        launch(30.0, EventType.RATE, A, X, 4, 0.0, 4.0),
        Event(50.0, NODE_FAIL, NO_JOB, X, 4, ((0, 4),)),
        Event(50.0, EventType.FAIL, A, X, 4, reason="node 0 failed", lost_s=20.0, lost_iterations=5.0),
        Event(60.0, EventType.UNPLACED, A, X, 8, reason="1 node short"),
        launch(80.0, EventType.RESUME, A, X, 4, 10.0, 1.0),
        Event(150.0, NODE_REPAIR, NO_JOB, X, 4, ((0, 4),)),
        Event(180.0, EventType.COMPLETE, A),
    ]
    measured = measure(log, TRACE.take([A]), CLUSTER, REFERENCE[:1], 180.0)
    records, metrics = measured.records, measured.metrics
    assert (records.iterations_done[0], records.lost_gpu_s[0], records.overhead_gpu_s[0]) == (100, 80, 80)
    assert (records.queue_s[0], records.run_s[0]) == (30, 150)
    counts = (records.launches, records.restarts, records.preemptions, records.failures, records.unplaced)
    assert [int(count[0]) for count in counts] == [2, 1, 0, 1, 1]
    assert [metrics[name] for name in ("node_failures", "failures_mean", "launches_unplaced")] == [1, 1.0, 1]
    assert metrics["lost_gpu_hours"] == 80 / 3600
    assert metrics["throughput_mean"] == pytest.approx(32 * 100 / 180)


def test_profiling_beside_the_run_and_after_it():
    # Profiled on both types at once; A starts once X is known and completes before Y is.
    trace = small_trace([Job("A", 0.0, 10)])
    log = [
        Event(0.0, EventType.SUBMIT, 0),
        Event(0.0, EventType.PROFILE_START, 0, X, 2),
        Event(5.0, EventType.PROFILE_START, 0, Y, 1),
        Event(10.0, EventType.PROFILE_END, 0, X, 2),
        launch(12.0, EventType.START, 0, X, 1, 0.0, 1.0),
        Event(22.0, EventType.COMPLETE, 0),
        Event(25.0, EventType.PROFILE_END, 0, Y, 1),
    ]
    records = job_records(log, trace, 25.0)
    # Y is held from 5 to 25, so the job is profiling, not queued, from 10 to 12.
    assert (records.profile_s[0], records.run_s[0], records.queue_s[0]) == (12, 10, 0)
    assert records.profile_gpu_s[0] == 2 * 10 + 1 * 20
    record = timeline(log, trace, 25.0, ("X", "Y"))
    assert record.integral(record.profiling_gpus) == 40
    # Cut at 15 the profiling on Y goes on at the end.
    assert job_records(log[:5], trace, 15.0).profile_gpu_s[0] == 2 * 10 + 1 * 10


# From each time on: running, queued and profiling jobs, GPUs held of X and Y, GPUs profiling,
# throughput, normalized throughput. B runs at 32/3 samples/s on X and 8 on Y, C at 6.4;
# A at 16, then 8, then 32/3. Speed at the request is 1/2, 1/3 and 1/4 iteration/s.
TIMELINE = [
    (0, 0, 0, 1, 0, 0, 1, 0, 0),
    (20, 1, 0, 0, 4, 0, 0, 0, 0),
    (50, 1, 0, 0, 4, 0, 0, 16, 1),
    (100, 2, 0, 0, 4, 0, 0, 0, 0),
    (110, 2, 0, 0, 4, 0, 0, 32 / 3, 1),
    (120, 2, 0, 0, 4, 0, 0, 32 / 3 + 8, 1.5),
    (200, 2, 1, 0, 6, 0, 0, 8, 0.5),
    (240, 2, 1, 0, 6, 0, 0, 0, 0),
    (250, 2, 1, 0, 6, 0, 0, 6.4, 0.8),
    (280, 2, 1, 0, 6, 0, 0, 6.4 + 32 / 3, 0.8 + 2 / 3),
    (300, 2, 1, 0, 6, 0, 0, 6.4 + 32 / 3, 0.8 + 2 / 3),  # D comes and goes
    (320, 3, 0, 0, 6, 2, 0, 6.4 + 32 / 3, 0.8 + 2 / 3),
    (360, 3, 0, 0, 6, 2, 0, 6.4 + 32 / 3 + 8, 0.8 + 2 / 3 + 0.75),
    (415, 2, 0, 0, 4, 2, 0, 14.4, 0.8 + 0.75),
    (440, 1, 0, 0, 4, 0, 0, 6.4, 0.8),
    (1000, 1, 0, 0, 4, 0, 0, 6.4, 0.8),
]


def test_timeline():
    record = timeline(LOG, TRACE, END, CLUSTER.gpu_types, REFERENCE)
    columns = (record.time_s, record.running_jobs, record.queued_jobs, record.profiling_jobs)
    rates = (record.profiling_gpus, record.throughput, record.normalized_throughput)
    np.testing.assert_allclose(np.column_stack((*columns, record.held_gpus, *rates)), TIMELINE, rtol=1e-12)
    assert record.left_out == 1  # D; E was never submitted
    assert record.peak(record.throughput) == pytest.approx(6.4 + 32 / 3 + 8, rel=1e-12)
    # 32 x (100 + 50 + 150) samples.
    assert record.integral(record.throughput) == pytest.approx(9600, rel=1e-12)


EXPECTED = {
    "jobs_total": 5,
    "jobs_submitted": 4,
    "jobs_finished": 2,
    "jobs_unfinished": 1,
    "jobs_dropped": 1,
    "jct_mean": (415 + 340) / 2,
    "jct_p50": (415 + 340) / 2,
    "jct_p99": 340 + 0.99 * 75,
    # C had waited 800 s; D, dropped, counts until the horizon: 700 s.
    "jct_mean_censored": (415 + 340 + 800 + 700) / 4,
    # Survival 1 until 340, 3/4 until 415, 1/2 until 1000.
    "jct_restricted_mean": 340 + 0.75 * 75 + 0.5 * 585,
    "queue_mean": 120 / 4,
    "profile_mean": 20 / 4,
    "makespan": None,  # C is not done
    "throughput_mean": 9.6,
    "throughput_peak": 6.4 + 32 / 3 + 8,
    # The integral of speed / reference speed is iterations x reference time: 200 + 150 + 600.
    "normalized_throughput_mean": 0.95,
    "jobs_without_reference": 1,
    # (4590 - 540) GPU-seconds of work of 12 x 1000.
    "gpu_utilization": 4050 / 12000,
    "overhead_gpu_hours": 540 / 3600,
    "profiling_gpu_hours": 20 / 3600,
    # Of A, B and C, which were launched.
    "restarts_mean": (2 + 1) / 3,
    "preemptions_mean": 1 / 3,
    "migrations": 1,
    "node_failures": 0,
    "failures_mean": 0.0,
    "lost_gpu_hours": 0.0,
    # From the first start A works for 395 - 90 of 395 s, B for 220 - 50 of 340 s, C for 750 of 800 s.
    "ettr_mean": (305 / 395 + 170 / 340 + 750 / 800) / 3,
    "interruptions_per_hour": 0.0,
    "failure_gpu_hours": 0.0,
    "checkpoint_gpu_hours": 0.0,
    "launches_unplaced": 0,
    # A in time, C not; B's deadline lies after the horizon.
    "deadline_satisfaction": 0.5,
    # Capped fluid sharing: at most 4 + 2 + 4 of the 12 GPUs are asked for, so each job has its
    # request: A 100 x 2 = 200 s, B 50 x 3 = 150 s, C 200 x 4 = 800 s, which have just passed.
    "ftf_mean": (415 / 200 + 340 / 150) / 2,
    "ftf_worst": 340 / 150,
    "unfair_fraction": 1.0,
    "unfair_unfinished": 0,
}


def test_the_productive_share_of_a_job_of_half_a_second():
    # It stands still for 0.1 s and works for 0.4 s: 0.4 / 0.5. No share of no time is known.
    log = [
        Event(0.0, EventType.SUBMIT, 0),
        launch(0.0, EventType.START, 0, X, 4, 0.1, 0.4),
        Event(0.5, EventType.COMPLETE, 0),
        Event(2.0, EventType.SUBMIT, 1),
        launch(2.0, EventType.START, 1, X, 4, 0.1, 0.4),
    ]
    read = read_intervals(log, small_trace([Job("short", 0.0, 1), Job("begun", 2.0, 1)]), 2.0)
    assert ettr(read, make_records(read)).tolist() == pytest.approx([0.8, NAN], nan_ok=True)


def test_metrics():
    metrics = measure(LOG, TRACE, CLUSTER, REFERENCE, END, END).metrics
    # The trace does not keep outcomes, ask for parts or have queues, and its oracle knows no segments.
    others = (*OF_OUTCOMES, *OF_PARTS, *OF_SEGMENTS, *OF_TENANTS, *OF_WINDOW, *OF_CAPACITY)
    absent = {metric.name for metric in others}
    assert list(metrics) == [name for name in METRICS if name not in absent]
    assert set(EXPECTED) | {metric.name for metric in OF_DISTURBANCES} == set(metrics)
    for name, value in EXPECTED.items():
        assert metrics[name] == (None if value is None else pytest.approx(value, rel=1e-12)), name
    assert all(type(value) in (int, float, type(None)) for value in metrics.values())
    assert {type(metrics[name]) for name in ("jobs_total", "migrations", "node_failures")} == {int}
    json.dumps(metrics, allow_nan=False)


def test_metrics_of_a_run_to_completion():
    # A and B alone. Without a horizon a deadline after the end is decided as well: both were in time.
    log = [event for event in LOG if event.job in (A, B)]
    metrics = measure(log, TRACE.take([A, B]), CLUSTER, REFERENCE[:2], 440.0).metrics
    assert metrics["makespan"] == 440
    assert metrics["jct_mean"] == metrics["jct_mean_censored"] == 377.5
    assert metrics["jct_restricted_mean"] == pytest.approx(377.5, rel=1e-12)
    assert metrics["deadline_satisfaction"] == 1.0
    assert metrics["unfair_unfinished"] == 0
    # The same run under a horizon: B's deadline of 2000 lies behind it.
    bounded = measure(log, TRACE.take([A, B]), CLUSTER, REFERENCE[:2], 440.0, 1500.0).metrics
    assert bounded["deadline_satisfaction"] == 1.0
    assert bounded["jct_restricted_mean"] == pytest.approx(377.5, rel=1e-12)


def test_a_dropped_job_costs_until_the_horizon_wherever_the_run_ended():
    # Dropping pays nothing: D counts 700 s though all was over at 440.
    log = [event for event in LOG if event.job in (A, B, D)]
    trace = TRACE.take([A, B, D])
    log = [event._replace(job={A: 0, B: 1, D: 2}[event.job]) for event in log]
    metrics = measure(log, trace, CLUSTER, REFERENCE[[A, B, D]], 440.0, 1000.0).metrics
    assert metrics["jct_mean_censored"] == (415 + 340 + 700) / 3
    assert metrics["makespan"] == 440


def test_an_unstarted_job_is_in_no_mean_of_restarts_but_in_the_queue():
    trace = TRACE.take([A, B])
    log = [*LOG[:4], Event(100.0, EventType.SUBMIT, B)]
    metrics = measure(log, trace, CLUSTER, REFERENCE[:2], 150.0, 150.0).metrics
    assert metrics["restarts_mean"] == 0
    assert metrics["queue_mean"] == 50 / 2
    assert metrics["jct_mean"] is None
    assert metrics["ftf_mean"] is metrics["unfair_fraction"] is None
    assert metrics["jct_mean_censored"] == (150 + 50) / 2


@pytest.mark.parametrize("rows", [[], [E]])
def test_a_run_without_any_submission_has_no_means(rows):
    metrics = measure([], TRACE.take(rows), CLUSTER, REFERENCE[rows], 100.0, 100.0).metrics
    assert metrics["jobs_submitted"] == 0
    assert metrics["jct_mean_censored"] is metrics["throughput_mean"] is metrics["gpu_utilization"] is None
    json.dumps(metrics, allow_nan=False)


def test_requested_gpus_stand_in_for_those_of_the_trace():
    # A asks for 24 of 12 GPUs: 100 x 2 x 24 / 12 = 400 s in the reference instead of 200.
    log = [event for event in LOG if event.job == A]
    trace, reference = TRACE.take([A]), REFERENCE[:1]
    one = measure(log, trace, CLUSTER, reference, 415.0).metrics
    two = measure(log, trace, CLUSTER, reference, 415.0, requested_gpus=np.array([24])).metrics
    assert (one["ftf_mean"], two["ftf_mean"]) == (415 / 200, pytest.approx(415 / 400, rel=1e-12))


def test_fair_iteration_times_stand_in_for_those_at_the_request():
    # On the mean GPU half as long: A 100 s, B 75 s, C 400 s, of which it has waited 800.
    fair = REFERENCE / 2
    metrics = measure(LOG, TRACE, CLUSTER, REFERENCE, END, END, fair_iteration_time_s=fair).metrics
    assert metrics["ftf_mean"] == pytest.approx((415 / 100 + 340 / 75) / 2, rel=1e-12)
    assert metrics["unfair_unfinished"] == 1


def test_a_stalled_run_ends_the_jobs_that_it_leaves():
    # a runs from 0 to 10 s. b waits from 5 s on, until the run stalls at 10 s: it counts as if it took 5 s.
    jobs = [Job("a", 0, 10), Job("b", 5, 10)]
    scenario = small_scenario(jobs, {"X": (1, 1)}, {"m": {"X": {1: 1.0}}})
    policy = Script(scenario, {0.0: {"a": ("X", 1)}, 5.0: {"a": ("X", 1)}, 10.0: {}})
    simulation = Simulation(scenario, Buddy(), policy.information_class)
    with pytest.raises(StalledError):
        drive(simulation, policy)
    left, stalled = (
        measure_scenario(scenario, simulation.log.events, 10.0, stalled=one).metrics for one in (False, True)
    )
    assert (left["jct_mean"], left["makespan"]) == (10.0, None)
    assert (stalled["jct_mean"], stalled["jct_p50"], stalled["makespan"]) == (7.5, 7.5, 10.0)
    # No job has a deadline. All other figures that there would be of an ended run are there.
    assert stalled["deadline_satisfaction"] is None
    assert {name for name, value in left.items() if value is not None} < {
        name for name, value in stalled.items() if value is not None
    }
