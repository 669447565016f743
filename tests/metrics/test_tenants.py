"""Metrics of tenants, on a run worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.fcfs import FirstComeFirstServed
from clustergym.policies.placers.buddy import Buddy
from pairs import PairScript, with_pairs
from scenarios import Job, small_scenario

from clustergym.metrics.intervals import read_intervals
from clustergym.metrics.tenants import jain_index, measure_tenants
from clustergym.results.measured_run import result_of
from clustergym.sim.drive import simulate
from clustergym.tenants.assigned import Tenants

TIMES = {"m": {"X": {1: 8.0, 2: 4.0, 4: 2.0, 8: 1.0}}}


def test_what_tenants_had(tmp_path):
    # 8 GPUs; a deserves 2, b 6. First come, first served: a1 (8 GPUs) runs to 3,600; b1 (4 GPUs, since
    # 1,800) from 3,600 to 7,200.
    path = tmp_path / "queues.yaml"
    path.write_text("queues:\n  a: {quota: 2, weight: 3}\n  b: {quota: 6}\n  c: {}\n")
    jobs = [Job("a1", 0, 3600, gpus=8), Job("b1", 1800, 1800, gpus=4)]
    scenario = small_scenario(jobs, {"X": (1, 8)}, TIMES, rounds="event")
    trace = replace(scenario.trace, virtual_cluster=("a", "b"))
    tenants = Tenants.of(str(path), trace, ("X",))
    simulation = simulate(replace(scenario, trace=trace), FirstComeFirstServed(), Buddy()).simulation
    intervals = read_intervals(simulation.log.events, trace, simulation.end_s)
    found = measure_tenants(intervals, tenants, ("X",), np.array([8]), trace.gpus)
    a, b, c = (found["queues"][name] for name in "abc")
    assert a == {
        "jobs": 1, "quota_gpus": 2, "gpu_hours": 8, "borrowed_gpu_hours": 6, "owed_gpu_hours": 0,
        "longest_owed_s": 0, "longest_starved_s": 0, "preemptions": 0, "jct_mean_s": 3600, "jct_p99_s": 3600,
    }  # fmt: skip
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
    tenants = Tenants.of(str(path), trace, ("X",))
    scenario = with_pairs(replace(plain, trace=trace, tenants=tenants), {("m", "m"): (0.5, 0.5)})
    both = {"a1": ("X", 1), "b1": ("X", 1)}
    script = PairScript(scenario, {0.0: ({"a1": ("X", 1)}, ()), 600.0: (both, [("a1", "b1")])})
    found = result_of(simulate(scenario, script, Buddy())).tenants
    a, b = (found["queues"][name] for name in "ab")
    assert (a["gpu_hours"], b["gpu_hours"]) == (1200 / 3600, 1800 / 3600)
    # a has half of its quota from 600 to 1,800 s; b has no quota, so that all that it has is borrowed.
    assert (a["owed_gpu_hours"], a["longest_owed_s"]) == (600 / 3600, 1200)
    assert b["borrowed_gpu_hours"] == 1800 / 3600
    assert found["allocated_share"] == 1.0


def test_jains_index():
    assert jain_index(np.array([2.0, 2.0])) == 1
    assert jain_index(np.array([0.0, 5.0, 0.0, 0.0])) == 0.25
    assert jain_index(np.zeros(2)) is None
