"""Nodes that fail and come back, and placements that cannot be enacted, worked out by hand."""

import gzip
import heapq
import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from scenarios import ONE_S, Job, Script, events_of, price, replays, run_of, small_cluster, small_scenario

import clustergym
from clustergym.cluster.allocation import AllocationError, Allocations
from clustergym.common.errors import InputError
from clustergym.results.measured_run import measure_run
from clustergym.results.result_writing import make_content, write_result
from clustergym.scenario.costs import Costs
from clustergym.scenario.disturbances.failures import (
    NODE_FAIL,
    NODE_REPAIR,
    FailureChoice,
    Failures,
    NodeFailure,
    read_schedule,
)
from clustergym.scenario.failure_draws import Draw
from clustergym.scenario.failure_model import FailureModel
from clustergym.scenario.policy import Infeasible, InformationClass
from clustergym.scenario.registry import make_policy
from clustergym.sim.drive import simulate
from clustergym.sim.engine import StalledError
from clustergym.sim.log import EventType

X4 = ("X", 4)


def failing(*schedule):
    return Failures(tuple(schedule), checkpoint_every_s=30.0)


def test_a_failure_sets_a_job_back_to_its_last_checkpoint():
    # a works on node 0 from 0 on, 1 s an iteration, checkpoints at 30 and 60. At 70 node 0 fails: 10 undone.
    # Node 1 is free: a stands still for 5 s and does its last 100 - 60 iterations until 115.
    failures, entries = failing(NodeFailure(70.0, 0, 20.0)), {0.0: {"a": X4}, 70.0: {"a": X4}}
    run, script = run_of([Job("a", 0.0, 100, 4)], 2, failures, entries, checkpoint_s={"m": 5.0})
    failed = next(e for e in run.simulation.log.events if e.event_type == EventType.FAIL)
    assert (failed.time_s, failed.gpus, failed.lost_s, failed.lost_iterations) == (70.0, 4, 10.0, 10.0)
    assert (failed.gpu_type, failed.nodes, failed.locality, failed.overhead_s) == (0, (), -1, 0.0)
    assert (failed.iteration_time_s, failed.reason, failed.batch) == (0.0, "node 0 failed", 0)
    assert events_of(run, EventType.COMPLETE) == [(115.0, 0)]
    resumed = next(e for e in run.simulation.log.events if e.event_type == EventType.RESUME)
    assert resumed.nodes == ((1, 4),)
    # 8 GPUs, 4 of them free; then 4 until the repair at 90, where a holds them.
    assert [(v.now_s, v.available.tolist(), v.free.tolist()) for v in script.views] == [
        (0.0, [8], [8]),
        (70.0, [4], [4]),
        (90.0, [8], [4]),
    ]
    metrics = measure_run(run.simulation).metrics
    assert (metrics["node_failures"], metrics["failures_mean"]) == (1, 1.0)
    assert metrics["lost_gpu_hours"] == pytest.approx(4 * 10 / 3600)
    # 115 s of 4 GPUs, less 5 s of standstill.
    assert metrics["gpu_utilization"] == pytest.approx(4 * 110 / (8 * 115))


def test_before_the_first_checkpoint_the_launch_counts_and_standstill_loses_nothing():
    # Node 0 fails at 20: a's 20 iterations are undone. It stands still from 25 to 35; at 30 the node fails
    # again, with nothing to lose; it starts once more at 45 and works from 55 to 155.
    failures = failing(NodeFailure(20.0, 0, 5.0), NodeFailure(30.0, 0, 15.0))
    entries = {t: {"a": X4} for t in (0.0, 25.0, 45.0)}
    run, _ = run_of([Job("a", 0.0, 100, 4)], 1, failures, entries, checkpoint_s={"m": 10.0})
    lost = [
        (e.lost_s, e.lost_iterations) for e in run.simulation.log.events if e.event_type == EventType.FAIL
    ]
    assert lost == [(20.0, 20.0), (0.0, 0.0)]
    assert events_of(run, EventType.COMPLETE) == [(155.0, 0)]
    assert measure_run(run.simulation).records.overhead_gpu_s.tolist() == [4 * 15]


def test_a_node_that_nobody_uses_fails_and_comes_back():
    run, script = run_of([Job("a", 0.0, 50, 4)], 2, failing(NodeFailure(10.0, 1, 20.0)), {0.0: {"a": X4}})
    assert events_of(run, NODE_FAIL) == [(10.0, -1)]
    assert events_of(run, NODE_REPAIR) == [(30.0, -1)]
    assert events_of(run, EventType.COMPLETE) == [(50.0, 0)]
    assert [v.available.tolist() for v in script.views] == [[8], [4], [8]]


def test_a_profiling_that_a_failure_cuts_short_starts_anew():
    # b's profiling holds a GPU of node 0 from 0 to 20; the node fails at 15 for 5 s.
    costs = Costs(search="proxy", profile=price("profiled", 20.0))
    failures, entries = failing(NodeFailure(15.0, 0, 5.0)), {40.0: {"b": ("X", 1)}}
    run, _ = run_of([Job("b", 0.0, 10)], 1, failures, entries, InformationClass.PROFILED, costs=costs)
    assert events_of(run, EventType.PROFILE_START) == [(0.0, 0), (20.0, 0)]
    assert events_of(run, EventType.PROFILE_END) == [(15.0, 0), (40.0, 0)]
    assert events_of(run, EventType.COMPLETE) == [(50.0, 0)]


def test_nodes_that_only_fail_end_in_an_error(monkeypatch):
    monkeypatch.setattr("clustergym.sim.disturbances.FRUITLESS_FAILURES", 50)
    scenario = small_scenario([Job("a", 0.0, 10**6, 4)], {"X": (1, 4)}, ONE_S)
    scenario = replace(scenario, disturbances=(Failures(mtbf_s=100.0, mttr_s=10.0),))
    with pytest.raises(StalledError, match="50 node failures since a job completed"):
        simulate(scenario, make_policy({"name": "fcfs"}), Buddy())


def test_drawn_failures_have_their_means_and_are_the_same_again():
    def draw(nodes, seed):
        each = Draw(seed, 1000.0, 50.0, FailureModel())
        return list(itertools.islice(heapq.merge(*(each.of_node(node) for node in range(nodes))), 4000))

    drawn = draw(20, 3)
    assert drawn == draw(20, 3)
    assert drawn == sorted(drawn)
    # 4,000 failures of 20 nodes, 1,050 s apart each: 210,000 s; a mean of n draws is off by 1/sqrt(n), 1.6 %.
    assert drawn[-1].time_s == pytest.approx(210_000, rel=0.06)
    assert sum(failure.repair_s for failure in drawn) / 4000 == pytest.approx(50.0, rel=0.06)
    assert draw(3, 0)[:9] != drawn[:9]
    # A node's failures do not depend on how many nodes there are.
    assert draw(1, 3)[0] == next(fault for fault in drawn if fault.number == 0)


def test_overlapping_outages_of_a_node_are_one(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text("time_s,node,repair_s\n100,0,9\n5,0,96\n20,0,1\n50,1,10\n109,0,1\n")
    # Node 0 is out from 5 to 101 s and from 100 to 109 s, so from 5 to 109 s; then it fails again.
    assert read_schedule(path, 2) == ((5.0, 0, 104.0), (50.0, 1, 10.0), (109.0, 0, 1.0))


def test_repairs_of_a_median_are_log_normal():
    def repairs(**keys):
        model = FailureModel(**keys)
        faults = Draw(0, 1000.0, 100.0, model).of_node(0)
        return np.array([next(faults).repair_s for _ in range(20_000)])

    heavy, plain = repairs(repair_median_s=50.0), repairs()
    # ln(2) x the mean is the median of an exponential distribution; the log-normal's is given.
    assert np.median(plain) == pytest.approx(69.3, rel=0.03)
    assert np.median(heavy) == pytest.approx(50.0, rel=0.03)
    assert heavy.mean() == pytest.approx(plain.mean(), rel=0.05)
    with pytest.raises(InputError, match="give at most mttr_s, 100 s"):
        FailureChoice(mtbf_s=1e6, mttr_s=100.0, repair_median_s=101.0)


def test_configuration(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text("repair_s,node,time_s\n10,1,70\n5,0,20\n")
    scenario = small_scenario([Job("a", 0.0, 1)], {"X": (2, 4)}, ONE_S)

    def of(given):
        return Failures.from_config(given, scenario.cluster, scenario.trace, seed=7)

    got = of({"path": str(path), "mtbf_s": 1e6, "checkpoint_every_s": 60})
    assert got == Failures((NodeFailure(20, 0, 5), NodeFailure(70, 1, 10)), 1e6, 3600.0, 7, 60.0)
    assert of({"mttr_s": 5}) is None
    with pytest.raises(InputError, match=r"scenario\.failures\.mtbf_s: 0"):
        of({"mtbf_s": 0})
    with pytest.raises(InputError, match=r"scenario\.failures\.mtbf: unknown key 'mtbf'"):
        of({"mtbf": 10})


def test_from_the_command_line_to_the_log(tmp_path):
    overrides = ["horizon_s=20000", "scenario.failures.mtbf_s=50000", "scenario.failures.mttr_s=600"]
    scenario = clustergym.load_scenario("testbed", overrides)
    assert scenario.sha256 != clustergym.load_scenario("testbed", overrides[:1]).sha256
    policy, placer = make_policy({"name": "fcfs"}), Buddy()
    result = clustergym.simulate(scenario, policy, placer)
    assert result.metrics["node_failures"] > 3
    assert result.metrics["failures_mean"] > 0
    write_result(tmp_path, {}, result, make_content(result, policy, placer, 0))
    packed = (tmp_path / "events.jsonl.gz").read_bytes()
    lines = [json.loads(line) for line in gzip.decompress(packed).splitlines()]
    failed = next(line for line in lines if line["kind"] == "node_fail")
    assert "job_id" not in failed
    assert {"gpu_type", "gpus", "nodes"} <= set(failed)
    assert all({"job_id", "lost_s", "reason"} <= set(line) for line in lines if line["kind"] == "fail")


class Planned(Buddy):
    """Works out nodes for everything when the run starts, and never looks again."""

    def place(self, allocations, gpu_type, gpus):
        return tuple((node, 4) for node in range(gpus // 4))


def test_capacity_that_changed_between_plan_and_enactment():
    # The plan has b on nodes 0 and 1. Node 1 failed at 5: at 10 nothing of b is placed and it waits, not even
    # node 0 is held, which a has given back. At 25 the node is back, and b runs on both.
    scenario = small_scenario([Job("a", 0.0, 8, 4), Job("b", 0.0, 10, 8)], {"X": (3, 4)}, ONE_S)
    scenario = replace(scenario, disturbances=(failing(NodeFailure(5.0, 1, 17.0)),), rounds=5.0)
    entries = {0.0: {"a": ("X", 4)}, 10.0: {"b": ("X", 8)}, 25.0: {"b": ("X", 8)}}
    run = simulate(scenario, Script(scenario, entries), Planned(defragment_s=None))
    events = [e for e in run.simulation.log.events if e.job == 1]
    assert [(e.time_s, e.event_type) for e in events] == [
        (0.0, EventType.SUBMIT),
        (10.0, EventType.UNPLACED),
        (25.0, EventType.START),
        (35.0, EventType.COMPLETE),
    ]
    assert (events[1].gpus, events[1].reason) == (8, "node 1 has failed, 1 node short")
    assert measure_run(run.simulation).metrics["launches_unplaced"] == 1
    assert replays(run.simulation, Planned(defragment_s=None))


class WholeNodes(Buddy):
    """Takes wholly free nodes only."""

    def place(self, allocations, gpu_type, gpus):
        free = [node for node in range(3) if allocations.free_on_node[node] == 4]
        wanted = -(-gpus // 4)
        if len(free) < wanted:
            return Infeasible("no wholly free nodes", nodes_short=wanted - len(free))
        return tuple((node, min(gpus, 4)) for node in free[:wanted])


def test_a_rescaling_that_cannot_be_placed_preempts_and_half_places_nothing():
    # a and b hold 1 GPU each on nodes 0 and 1. At 10 a shall have 8: 10 GPUs are free, but only nodes 0 and 2
    # are whole without it. At 20 it shall have 8 while c takes node 2: 1 node short, a waits with nothing.
    jobs = [Job("a", 0.0, 100), Job("b", 0.0, 100), Job("c", 20.0, 100)]
    scenario = replace(small_scenario(jobs, {"X": (3, 4)}, ONE_S), rounds=10.0, horizon_s=90.0)
    one, eight = ("X", 1), ("X", 8)
    entries = {
        0.0: {"a": one, "b": one},
        20.0: {"a": one, "b": one, "c": one},
        30.0: {"a": eight, "b": one, "c": one},
        40.0: {"a": one, "b": one},
    }
    run = simulate(scenario, Script(scenario, entries), WholeNodes(defragment_s=None))
    events = [e for e in run.simulation.log.events if e.job == 0]
    assert [(e.time_s, e.event_type, e.reason) for e in events][2:] == [
        (30.0, EventType.UNPLACED, "no wholly free nodes, 1 node short"),
        (30.0, EventType.PREEMPT, ""),
        (40.0, EventType.RESUME, ""),
    ]
    records = measure_run(run.simulation).records
    assert (records.unplaced.tolist(), records.preemptions.tolist()) == ([1, 0, 0], [1, 0, 1])
    assert run.simulation.allocations.free.tolist() == [10]


def test_a_placement_of_taken_gpus_stays_a_fault_of_the_placer():
    scenario = small_scenario([Job("a", 0.0, 8, 4), Job("b", 0.0, 10, 4)], {"X": (3, 4)}, ONE_S)
    script = Script(scenario, {0.0: {"a": ("X", 4), "b": ("X", 4)}})
    with pytest.raises(AllocationError, match="of which 0 of 4 are free"):
        simulate(scenario, script, Planned(defragment_s=None))


def test_allocations_of_a_failed_node():
    allocations = Allocations(small_cluster({"X": (2, 4)}))
    allocations.allocate(7, ((0, 1),))
    with pytest.raises(AllocationError, match="node 0 cannot be taken out of use"):
        allocations.fail(0)
    allocations.fail(1)
    assert (allocations.free.tolist(), allocations.free_on_node.tolist()) == ([3], [3, 0])
    with pytest.raises(AllocationError):
        allocations.allocate(8, ((1, 1),))
    with pytest.raises(AllocationError, match="node 1 cannot"):
        allocations.fail(1)
    with pytest.raises(AllocationError, match="node 0 is not out of use"):
        allocations.repair(0)
    allocations.repair(1)
    assert (allocations.free.tolist(), sorted(allocations.down)) == ([7], [])
