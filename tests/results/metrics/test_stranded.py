"""Stranded GPUs, worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.fcfs import FirstComeFirstServed
from clustergym.policies.placers.buddy import Buddy
from scenarios import Job, small_scenario

from clustergym.cluster.spec import ClusterSpec, Fabric, NodeGroup
from clustergym.results.measured_run import simulate
from clustergym.results.metrics.stranded import stranded_metrics
from clustergym.scenario.scenario import Scenario
from clustergym.sim.log import Event, EventType


def in_racks(segments: dict[int, int]) -> Scenario:
    """Return two racks of two nodes of four GPUs; jobs a to d ask for 4, 8, 8 and 16 GPUs for 100 s each."""
    jobs = [Job(name, 0.0, 100, gpus) for name, gpus in zip("abcd", (4, 8, 8, 16), strict=True)]
    times = {"m": {"X": dict.fromkeys((1, 2, 4, 8, 16), 1.0)}}
    scenario = small_scenario(jobs, {"X": (4, 4)}, times)
    group = scenario.cluster.groups[0]
    cluster = ClusterSpec("racks", (NodeGroup(group.gpu_type, 4, 4, 2),), Fabric(nodes_per_leaf=4))
    table = np.ones((1, 1, len(scenario.tables.counts)), dtype=np.int64)
    for gpus, segment in segments.items():
        table[0, 0, scenario.tables.counts.tolist().index(gpus)] = segment
    return replace(scenario, cluster=cluster, tables=replace(scenario.tables, segments=table))


def launch(time_s: float, job: int, *nodes: tuple[int, int]) -> Event:
    gpus = sum(count for _, count in nodes)
    return Event(time_s, EventType.START, job, 0, gpus, nodes, 0, 0.0, 1.0)


SUBMITTED = [Event(0.0, EventType.SUBMIT, row) for row in range(4)]


def test_free_nodes_of_several_racks_are_stranded_for_a_segment_of_a_rack() -> None:
    scenario = in_racks({8: 8, 16: 8})
    log = [
        *SUBMITTED,
        # a is on node 0, b on nodes 2 and 3: rack 0 has one free node, which is no segment of c or d.
        launch(0.0, 0, (0, 4)),
        launch(0.0, 1, (2, 4), (3, 4)),
        # From 100 on both racks are free, and c could use either.
        Event(100.0, EventType.COMPLETE, 0),
        Event(100.0, EventType.COMPLETE, 1),
        # c takes rack 0. d still waits for two segments, one of which fits in rack 1: nothing is stranded.
        launch(200.0, 2, (0, 4), (1, 4)),
        Event(300.0, EventType.COMPLETE, 2),
        launch(300.0, 3, (0, 4), (1, 4), (2, 4), (3, 4)),
        Event(400.0, EventType.COMPLETE, 3),
    ]
    found = stranded_metrics(scenario, log, 400.0)
    # 4 GPUs for 100 s, of free 4 x 100, 16 x 100 and 8 x 100; from 300 on no job waits.
    assert found["stranded_gpu_hours"] == pytest.approx(4 * 100 / 3600)
    assert found["stranded_share"] == pytest.approx(400 / 2800)


def test_small_segments_count_on_each_node() -> None:
    scenario = in_racks({4: 4, 8: 4, 16: 4})
    log = [
        *SUBMITTED[:2],
        # Two GPUs of each node are taken by a profile of a: 8 are free, and no segment of 4 fits on a node.
        Event(0.0, EventType.PROFILE_START, 0, 0, 8, tuple((node, 2) for node in range(4))),
        Event(60.0, EventType.PROFILE_END, 0, 0),
        launch(60.0, 0, (0, 4)),
        Event(90.0, EventType.PREEMPT, 0),
        Event(90.0, EventType.DROP, 0),
        Event(90.0, EventType.DROP, 1),
    ]
    found = stranded_metrics(scenario, log, 90.0)
    assert found["stranded_gpu_hours"] == pytest.approx(8 * 60 / 3600)
    # b waits until 90; 8 GPUs are free for 60 s, and 12 for 30 s.
    assert found["stranded_share"] == pytest.approx(480 / (480 + 360))


def test_failed_nodes_are_not_free() -> None:
    scenario = in_racks({16: 8})
    outage = type("Outage", (), {"outages": (("node_fail", "node_repair"),)})()
    scenario = replace(scenario, disturbances=(outage,))
    log = [
        SUBMITTED[3],
        Event(0.0, "node_fail", -1, 0, 4, ((1, 4),)),
        Event(50.0, "node_repair", -1, 0, 4, ((1, 4),)),
        Event(80.0, EventType.DROP, 3),
    ]
    found = stranded_metrics(scenario, log, 80.0)
    # Node 0 alone for 50 s; then nothing.
    assert found["stranded_gpu_hours"] == pytest.approx(4 * 50 / 3600)
    assert found["stranded_share"] == pytest.approx(4 * 50 / (12 * 50 + 16 * 30))


def test_a_run_has_the_metric_only_with_segments() -> None:
    scenario = in_racks({8: 8, 16: 8})
    # Simulated: a on node 0 and b on rack 1 from 0 on; c waits for a rack until 100.
    metrics = simulate(scenario, FirstComeFirstServed(), Buddy()).metrics
    assert metrics["stranded_gpu_hours"] == pytest.approx(4 * 100 / 3600)
    plain = replace(scenario, tables=replace(scenario.tables, segments=None))
    assert "stranded_gpu_hours" not in simulate(plain, FirstComeFirstServed(), Buddy()).metrics
