"""Properties of records, timeline and metrics over random legal event logs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_readings import job_records, timeline
from scenarios import Job, small_cluster, small_trace

from clustergym.results.metrics.intervals import Outcome, read_intervals
from clustergym.results.metrics.jobs import check_work_conserved
from clustergym.results.metrics.metrics import measure
from clustergym.sim.log import LAUNCHES, Event, EventType

K = EventType
CLUSTER = small_cluster({"X": (4, 8), "Y": (4, 8)})
short = st.integers(0, 6)


@st.composite
def _life(draw, job):
    """Draw the whole life of a job: its submit time, iterations, and events, which end it."""
    time_s, iterations = float(draw(short)), draw(st.integers(1, 12))
    submit_s, left = time_s, float(iterations)
    events = [Event(time_s, K.SUBMIT, job)]
    for kind in draw(st.lists(st.sampled_from([0, 1]), max_size=2)):
        events += [
            Event(time_s, K.PROFILE_START, job, kind, 1),
            Event(time_s + draw(short), K.PROFILE_END, job, kind, 1),
        ]
    launch = K.START
    for _ in range(draw(st.integers(0, 4))):
        time_s += draw(short) * (launch in (K.START, K.RESUME))
        overhead_s, iteration_s = float(draw(short)), draw(st.sampled_from([0.5, 1.0, 3.0]))
        gpu_type, gpus = draw(st.integers(0, 1)), draw(st.integers(1, 4))
        events.append(Event(time_s, launch, job, gpu_type, gpus, (), 0, overhead_s, iteration_s))
        ends_s = time_s + overhead_s + left * iteration_s
        stops_s = time_s + draw(short)
        if stops_s >= ends_s:
            return submit_s, iterations, [*events, Event(ends_s, K.COMPLETE, job)]
        left -= max(stops_s - time_s - overhead_s, 0.0) / iteration_s
        time_s = stops_s
        launch = draw(st.sampled_from([K.RESUME, K.RESCALE, K.MIGRATE]))
        if launch == K.RESUME:
            events.append(Event(time_s, K.PREEMPT, job))
    return submit_s, iterations, [*events, Event(time_s, K.DROP, job, reason="policy")]


@st.composite
def logs(draw, drops=True):
    """Draw (trace, events, end): lives merged by time and cut at the end."""
    count = draw(st.integers(1, 6))
    lives = [draw(_life(job)) for job in range(count)]
    if not drops:
        lives = [life for life in lives if life[2][-1].event_type == K.COMPLETE]
    lives.sort(key=lambda life: life[0])
    events = [e._replace(job=job) for job, life in enumerate(lives) for e in life[2]]
    end_s = float(draw(st.integers(1, 60)))
    merged = sorted((e for e in events if e.time_s <= end_s), key=lambda e: e.time_s)
    trace = small_trace([Job(f"j{row}", life[0], life[1], gpus=2) for row, life in enumerate(lives)])
    return trace, merged, end_s


def _reference(trace):
    return np.where(np.arange(len(trace)) % 3 == 2, np.nan, 1.0 + np.arange(len(trace)))


@given(logs())
@settings(max_examples=120, deadline=None)
def test_records_and_timeline_agree(log):
    trace, events, end_s = log
    records = job_records(events, trace, end_s)
    record = timeline(events, trace, end_s, CLUSTER.gpu_types, _reference(trace))
    close = {"rel": 1e-9, "abs": 1e-9}
    assert record.integral(record.held_gpus.sum(axis=1)) == pytest.approx(records.held_gpu_s.sum(), **close)
    assert record.integral(record.profiling_gpus) == pytest.approx(records.profile_gpu_s.sum(), **close)
    assert record.integral(record.running_jobs) == pytest.approx(records.run_s.sum(), **close)
    assert record.integral(record.queued_jobs) == pytest.approx(records.queue_s.sum(), **close)
    assert record.integral(record.profiling_jobs) == pytest.approx(records.profile_s.sum(), **close)
    samples = np.dot(records.iterations_done, trace.global_batch)
    assert record.integral(record.throughput) == pytest.approx(samples, **close)
    check_work_conserved(read_intervals(events, trace, end_s), records)


@given(logs())
@settings(max_examples=120, deadline=None)
def test_the_time_in_the_system_is_queueing_profiling_and_running(log):
    trace, events, end_s = log
    records = job_records(events, trace, end_s)
    in_system = np.select(
        [records.outcome == Outcome.NOT_SUBMITTED, np.isfinite(records.end_s)],
        [0.0, records.end_s - records.submit_s],
        default=end_s - records.submit_s,
    )
    parts = records.queue_s + records.profile_s + records.run_s
    np.testing.assert_allclose(parts, in_system, atol=1e-9)
    finished = records.outcome == Outcome.FINISHED
    np.testing.assert_allclose(parts[finished], records.jct_s[finished], atol=1e-9)
    assert (np.stack((records.queue_s, records.profile_s, records.run_s)) >= 0).all()


@given(logs(drops=False))
@settings(max_examples=120, deadline=None)
def test_unfinished_jobs_never_vanish_from_the_censored_mean(log):
    trace, events, end_s = log
    metrics, records, record, *_ = measure(events, trace, CLUSTER, _reference(trace), end_s, end_s)
    submitted = metrics["jobs_submitted"]
    assert submitted == metrics["jobs_finished"] + metrics["jobs_unfinished"]
    assert submitted == (trace.submit_s <= end_s).sum()
    if not submitted:
        assert metrics["jct_mean_censored"] is None
        return
    in_system = record.running_jobs + record.queued_jobs + record.profiling_jobs
    assert metrics["jct_mean_censored"] * submitted == pytest.approx(record.integral(in_system), abs=1e-9)
    waiting = end_s - trace.submit_s[records.outcome == Outcome.UNFINISHED]
    known = np.nansum(records.jct_s)
    assert metrics["jct_mean_censored"] * submitted == pytest.approx(known + waiting.sum(), abs=1e-9)


@given(logs(), st.randoms(use_true_random=False))
@settings(max_examples=120, deadline=None)
def test_the_order_of_simultaneous_events_of_different_jobs_does_not_matter(log, random):
    trace, events, end_s = log
    first = measure(events, trace, CLUSTER, _reference(trace), end_s, end_s)
    keys = {job: random.random() for job in range(len(trace))}
    mixed = sorted(events, key=lambda event: (event.time_s, keys[event.job]))
    second = measure(mixed, trace, CLUSTER, _reference(trace), end_s, end_s)
    assert first.metrics == second.metrics  # to the last bit
    for name in ("time_s", "running_jobs", "held_gpus", "throughput", "normalized_throughput"):
        np.testing.assert_array_equal(getattr(first.timeline, name), getattr(second.timeline, name))


@given(logs(), st.floats(0, 60))
@settings(max_examples=120, deadline=None)
def test_the_timeline_is_what_a_scan_of_the_log_finds(log, share):
    trace, events, end_s = log
    record = timeline(events, trace, end_s, CLUSTER.gpu_types, _reference(trace))
    time_s = min(share, end_s)
    if time_s < record.time_s[0]:
        return
    present, holding, profiling = set(), {}, 0
    for event in events:
        if event.time_s > time_s:
            break
        if event.event_type == K.SUBMIT:
            present.add(event.job)
        if event.event_type in LAUNCHES:
            holding[event.job] = event
        if event.event_type in (K.PREEMPT, K.COMPLETE, K.DROP):
            holding.pop(event.job, None)
        if event.event_type in (K.COMPLETE, K.DROP):
            present.discard(event.job)
        profiling += {K.PROFILE_START: 1, K.PROFILE_END: -1}.get(event.event_type, 0)
    at = np.searchsorted(record.time_s, time_s, side="right") - 1
    working = [e for e in holding.values() if e.time_s + e.overhead_s <= time_s]
    reference = _reference(trace)
    assert record.running_jobs[at] == len(holding)
    assert record.queued_jobs[at] + record.profiling_jobs[at] == len(present) - len(holding)
    assert record.profiling_gpus[at] == profiling
    assert record.held_gpus[at].tolist() == [
        sum(e.gpus for e in holding.values() if e.gpu_type == t) for t in (0, 1)
    ]
    assert record.throughput[at] == pytest.approx(sum(32 / e.iteration_time_s for e in working))
    relative = [reference[e.job] / e.iteration_time_s for e in working if not np.isnan(reference[e.job])]
    assert record.normalized_throughput[at] == pytest.approx(sum(relative))


@given(logs())
@settings(max_examples=60, deadline=None)
def test_shares_are_shares_and_counts_add_up(log):
    trace, events, end_s = log
    metrics = measure(events, trace, CLUSTER, _reference(trace), end_s, end_s).metrics
    for name in ("gpu_utilization", "unfair_fraction", "deadline_satisfaction"):
        assert metrics[name] is None or 0 <= metrics[name] <= 1
    parts = ("jobs_finished", "jobs_unfinished", "jobs_dropped")
    assert metrics["jobs_submitted"] == sum(metrics[name] for name in parts)
    restricted = metrics["jct_restricted_mean"]
    assert restricted is None or 0 <= restricted <= end_s + 1e-9
