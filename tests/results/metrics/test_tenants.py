"""Metrics of tenants, on a run worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.fcfs import FirstComeFirstServed
from clustergym.policies.placers.buddy import Buddy
from pairs import PairScript, with_pairs
from scenarios import Job, small_scenario

from clustergym.results.measured_run import make_result, measure_run
from clustergym.results.metrics.intervals import read_intervals
from clustergym.results.metrics.preemptions import compute_queue_usage
from clustergym.results.metrics.tenants import jain_index, measure_tenants, tenant_metrics
from clustergym.scenario.tenants.queue_tree import Tenants
from clustergym.sim.drive import simulate
from clustergym.sim.log import Event, EventType

KEYS = (
    *("jobs", "quota_gpus", "owed_gpu_hours", "owed_s", "times_owed", "longest_owed_s", "wanting_s"),
    *("longest_starved_s", "share_error_gpus", "jct_mean_s", "ftf_mean", "borrowed_gpu_hours"),
)
"""Figures of a queue that the metrics read."""
TIMES = {"m": {"X": {1: 8.0, 2: 4.0, 4: 2.0, 8: 1.0}}}


def test_what_tenants_had(tmp_path):
    # 8 GPUs; a deserves 2, b 6. First come, first served: a1 (8 GPUs) runs to 3,600; b1 (4 GPUs, since
    # 1,800) from 3,600 to 7,200.
    path = tmp_path / "queues.yaml"
    path.write_text("queues:\n  a: {quota: 2, weight: 3}\n  b: {quota: 6}\n  c: {}\n")
    jobs = [Job("a1", 0, 3600, gpus=8), Job("b1", 1800, 1800, gpus=4)]
    scenario = small_scenario(jobs, {"X": (1, 8)}, TIMES, rounds="event")
    trace = replace(scenario.trace, virtual_cluster=("a", "b"))
    tenants = Tenants.from_queues(str(path), trace, ("X",))
    simulation = simulate(
        replace(scenario, trace=trace, tenants=tenants), FirstComeFirstServed(), Buddy()
    ).simulation
    measured = measure_run(simulation)
    found = measured.tenants
    a, b, c = (found["queues"][name] for name in "abc")
    # a's job would take 4 h on its 2 GPUs, with 8 times the speed on 8. Its fair share was 8 of 8 GPUs, from
    # 1,800 on 4: quotas 2 and 4 as wanted, and what is left.
    assert a == {
        "jobs": 1, "quota_gpus": 2, "gpu_hours": 8, "borrowed_gpu_hours": 6, "owed_gpu_hours": 0, "owed_s": 0,
        "times_owed": 0, "reclaim_mean_s": None, "longest_owed_s": 0, "wanting_s": 3600,
        "longest_starved_s": 0, "share_error_gpus": 2, "preemptions": 0, "failures": 0,
        "jct_mean_s": 3600, "jct_p99_s": 3600,
        "ftf_mean": 0.25,
    }  # fmt: skip
    assert measured.metrics["tenant_owed_gpu_hours"] == 2
    # b wanted 4 of its 6 GPUs for half an hour and had none: 2 GPU-hours are owed.
    assert (b["owed_gpu_hours"], b["longest_owed_s"], b["longest_starved_s"]) == (2, 1800, 1800)
    assert (b["gpu_hours"], b["borrowed_gpu_hours"], b["jct_mean_s"]) == (4, 0, 5400)
    assert (c["jobs"], c["jct_mean_s"]) == (0, None)
    assert found["allocated_share"] == 12 / 16
    assert found["jain_index"] == pytest.approx((8 / 3 + 4) ** 2 / (2 * ((8 / 3) ** 2 + 16)))


def test_two_jobs_on_a_gpu_count_half_each(tmp_path):
    # One GPU; a deserves it. a1 runs alone for 600 s, then beside b1 at half speed, until 1,800 s.
    # b1 then has 1,200 s of its 1,800 to do, until 3,000.
    # GPU-seconds: a has 600 + 1,200 / 2 = 1,200, b 1,200 / 2 + 1,200 = 1,800.
    path = tmp_path / "queues.yaml"
    path.write_text("queues:\n  a: {quota: 1}\n  b: {}\n")
    jobs = [Job("a1", 0, 1200, family="m"), Job("b1", 600, 1800, family="m")]
    plain = small_scenario(jobs, {"X": (1, 1)}, {"m": {"X": {1: 1.0}}}, rounds="event")
    trace = replace(plain.trace, virtual_cluster=("a", "b"))
    tenants = Tenants.from_queues(str(path), trace, ("X",))
    scenario = with_pairs(replace(plain, trace=trace, tenants=tenants), {("m", "m"): (0.5, 0.5)})
    both = {"a1": ("X", 1), "b1": ("X", 1)}
    script = PairScript(scenario, {0.0: ({"a1": ("X", 1)}, ()), 600.0: (both, [("a1", "b1")])})
    found = make_result(simulate(scenario, script, Buddy())).tenants
    a, b = (found["queues"][name] for name in "ab")
    assert (a["gpu_hours"], b["gpu_hours"]) == (1200 / 3600, 1800 / 3600)
    # a has half of its quota from 600 to 1,800 s; b has no quota, so that all that it has is borrowed.
    assert (a["owed_gpu_hours"], a["longest_owed_s"]) == (600 / 3600, 1200)
    assert b["borrowed_gpu_hours"] == 1800 / 3600
    assert found["allocated_share"] == pytest.approx(1)


def test_what_tenants_took_from_each_other(tmp_path):
    # Two nodes of 4 GPUs; a deserves 2, b 6; all of a's 8 GPUs are borrowed but 2.
    scenario, tenants = _scenario(tmp_path, "a: {quota: 2}\n  b: {quota: 6}", ["a8", "b4", "b4", "b4"])
    events = [
        Event(0, EventType.SUBMIT, 0),
        _launch(0, EventType.START, 0, (0, 4), (1, 4)),
        Event(100, EventType.SUBMIT, 1),
        _launch(160, EventType.RESCALE, 0, (0, 4)),  # shrunk for b, below its quota
        _launch(160, EventType.START, 1, (1, 4)),
        Event(200, EventType.SUBMIT, 2),
        Event(260, EventType.PREEMPT, 0),  # stopped for b, which has 4 of its 6
        _launch(260, EventType.START, 2, (0, 4)),
        Event(300, EventType.COMPLETE, 1),
        _launch(300, EventType.RESUME, 0, (1, 4)),
        Event(360, EventType.SUBMIT, 3),
        Event(360, EventType.PREEMPT, 2),  # stopped for b's own next
        _launch(360, EventType.START, 3, (0, 4)),
        Event(400, EventType.COMPLETE, 3),
        Event(400, EventType.COMPLETE, 0),
        _launch(400, EventType.RESUME, 2, (0, 2), (1, 2)),
        Event(420, EventType.COMPLETE, 2),
    ]
    trace = replace(scenario.trace, submit_s=np.array([0.0, 100, 200, 360]))
    intervals = read_intervals(events, trace, 420.0)
    # a's job needs 400 s on a's 2 GPUs, b's 100, 100 and 40 s on the 4 that each asks for.
    work_gpu_s = np.array([800.0, 400, 400, 160])
    standing = compute_queue_usage(intervals, tenants, trace.gpus)
    found = measure_tenants(intervals, tenants, scenario.cluster, standing, trace.gpus, work_gpu_s)
    held = standing.get_held_gpus(np.array([0.0, 159, 160, 299, 420]))
    assert held.tolist() == [[8, 0], [8, 0], [4, 4], [0, 8], [0, 0]]
    a, b = found["queues"].values()
    assert found["taken"] == [{"of": "a", "by": "b", "stopped": 1, "shrunk": 1, "gpus": 8}]
    assert b["preemptions"] == 1
    # a lacks 2 of its quota from 260 to 300; b lacks 4 from 100 to 160, 2 from 200 to 260 and 360 to 400.
    assert (a["owed_s"], a["times_owed"], a["owed_gpu_hours"]) == (40, 1, 80 / 3600)
    assert (b["owed_s"], b["times_owed"], b["owed_gpu_hours"]) == (160, 3, 440 / 3600)
    assert (b["reclaim_mean_s"], b["longest_owed_s"], b["longest_starved_s"]) == (160 / 3, 60, 60)
    assert (a["borrowed_gpu_hours"], b["borrowed_gpu_hours"]) == (1360 / 3600, 80 / 3600)
    # Fair shares of a and b: 8 and 0; from 100 on 4 and 4; from 200 on 2 and 6; from 300 on 4 and 4; from
    # 360 on 2 and 6. Differences of a: 4 GPUs for 60 s, 2 for 60 s, 2 for 40 s and 2 for 40 s, of b the same.
    assert (a["share_error_gpus"], b["share_error_gpus"]) == (520 / 400, 520 / 320)
    assert (a["ftf_mean"], b["ftf_mean"]) == (1.0, pytest.approx((200 / 100 + 220 / 100 + 1) / 3))
    assert found["allocated_share"] == pytest.approx((2080 + 1200) / (8 * 420))
    metrics = tenant_metrics(found, 8)
    assert metrics["tenant_owed_time"] == pytest.approx((40 / 400 + 160 / 320) / 2)
    assert metrics["tenant_reclaim_mean"] == 200 / 4
    assert metrics["tenant_share_error"] == pytest.approx((1.3 / 8 + 1.625 / 8) / 2)
    assert (metrics["tenant_stopped"], metrics["tenant_shrunk"]) == (1, 1)
    assert (metrics["tenant_owed_longest"], metrics["tenant_starved_longest"]) == (60, 60)
    assert metrics["tenant_borrowed_gpu_hours"] == pytest.approx(0.4)


def test_why_jobs_were_stopped(tmp_path):
    scenario, tenants = _scenario(tmp_path, "a: {}\n  b: {}", ["a4", "a2", "a2", "b4", "b2"])
    events = [
        *(Event(0, EventType.SUBMIT, job) for job in range(5)),
        _launch(0, EventType.START, 0, (0, 4)),
        _launch(0, EventType.START, 1, (1, 2)),
        _launch(0, EventType.START, 2, (1, 2)),
        Event(60, EventType.PREEMPT, 0),
        _launch(60, EventType.START, 3, (0, 4)),  # b has none of its fair share of 4
        Event(120, EventType.PREEMPT, 1),
        _launch(120, EventType.START, 4, (1, 2)),  # b has its share
        Event(180, EventType.PREEMPT, 2),  # nobody gets them
        Event(240, EventType.FAIL, 4, gpus=2),
    ]
    trace = scenario.trace
    intervals = read_intervals(events, trace, 300.0)
    standing = compute_queue_usage(intervals, tenants, trace.gpus)
    found = measure_tenants(intervals, tenants, scenario.cluster, standing, trace.gpus, np.ones(5))
    _, b = found["queues"].values()
    assert (b["failures"], b["preemptions"]) == (1, 0)


def _scenario(tmp_path, queues, jobs):
    """Return a scenario on two nodes of 4 GPUs, with jobs named by queue and GPUs, and its tenants."""
    path = tmp_path / "queues.yaml"
    path.write_text(f"queues:\n  {queues}\n")
    rows = [Job(f"{name}-{at}", 0, 100, gpus=int(name[1:])) for at, name in enumerate(jobs)]
    scenario = small_scenario(rows, {"X": (2, 4)}, TIMES, rounds="event")
    trace = replace(scenario.trace, virtual_cluster=tuple(name[0] for name in jobs))
    return replace(scenario, trace=trace), Tenants.from_queues(str(path), trace, ("X",))


def _launch(time_s, kind, job, *nodes):
    return Event(time_s, kind, job, 0, sum(gpus for _, gpus in nodes), nodes, iteration_time_s=1.0)


def test_queues_of_weight_0_do_not_count_in_jains_index(tmp_path):
    # a and b had 1 GPU-hour each, at weight 1; c, of weight 0, had one too and would divide by 0.
    path = tmp_path / "queues.yaml"
    path.write_text("queues: {a: {}, b: {}, c: {weight: 0}}")
    jobs = [Job(name, 0, 450, gpus=1) for name in ("a1", "b1", "c1")]
    scenario = small_scenario(jobs, {"X": (1, 8)}, TIMES, rounds="event")
    trace = replace(scenario.trace, virtual_cluster=("a", "b", "c"))
    scenario = replace(scenario, trace=trace, tenants=Tenants.from_queues(str(path), trace, ("X",)))
    found = measure_run(simulate(scenario, FirstComeFirstServed(), Buddy()).simulation).tenants
    assert [found["queues"][name]["gpu_hours"] for name in "abc"] == [1, 1, 1]
    assert found["jain_index"] == 1


def test_queues_without_a_quota_are_owed_nothing_and_do_not_count():
    # a wanted GPUs for 100 s and lacked some of its quota for 50 of them; b, without quota, wanted some for
    # 900 s; c, with a quota, wanted none. The mean is over a alone.
    nothing = dict.fromkeys(KEYS, 0.0)
    rows = {
        "a": nothing | {"jobs": 1, "quota_gpus": 4, "wanting_s": 100.0, "owed_s": 50.0},
        "b": nothing | {"jobs": 1, "quota_gpus": 0, "wanting_s": 900.0},
        "c": nothing | {"jobs": 1, "quota_gpus": 4},
    }
    found = tenant_metrics({"queues": rows, "taken": [], "jain_index": None}, 8.0)
    assert found["tenant_owed_time"] == 0.5


def test_jains_index():
    assert jain_index(np.array([2.0, 2.0])) == 1
    assert jain_index(np.array([0.0, 5.0, 0.0, 0.0])) == 0.25
    assert jain_index(np.zeros(2)) is None
