"""Sharing of links, worked out by hand; and what must hold of any max-min fair sharing."""

from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from hypothesis import given, settings
from hypothesis import strategies as st
from scenarios import Job, Script, small_scenario

from clustergym.cluster.spec import ClusterSpec, Fabric, GpuType, Locality, NodeGroup
from clustergym.results.measured_run import measure_run
from clustergym.sim.drive import simulate
from clustergym.sim.links import SharedLinks, Uplinks, max_min_rates
from clustergym.sim.log import EventType


def test_two_links_three_jobs():
    # Job 0 crosses both links, 1 only link 0 (capacity 10), 2 only link 1 (capacity 4).
    # All rates rise to 2, where link 1 is full: 0 and 2 stop. Job 1 rises to 10 - 2 = 8.
    rates = max_min_rates([{0: 1, 1: 1}, {0: 1}, {1: 1}], [100.0] * 3, [10.0, 4.0])
    assert rates == [2.0, 8.0, 2.0]


def test_a_job_that_wants_little_leaves_the_rest_to_others():
    # Capacity 12: job 0 wants 1 and gets it; 11 are left for one flow of job 1 and ten of job 2.
    assert max_min_rates([{0: 1}, {0: 1}, {0: 10}], [1.0, 5.0, 5.0], [12.0]) == [1.0, 1.0, 1.0]
    assert max_min_rates([{0: 1}, {0: 1}, {0: 9}], [1.0, 5.0, 5.0], [21.0]) == [1.0, 2.0, 2.0]


def test_a_job_on_no_link_runs_at_its_demand():
    assert max_min_rates([{}], [3.0], []) == [3.0]


jobs_on_links = st.lists(
    st.tuples(st.dictionaries(st.integers(0, 5), st.integers(1, 8), max_size=4), st.floats(0.1, 50.0)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=200, deadline=None)
@given(jobs_on_links, st.lists(st.floats(0.5, 100.0), min_size=6, max_size=6))
def test_no_link_is_over_capacity_and_everybody_is_stopped_by_something(jobs, capacity):
    flows, demand = [crossed for crossed, _ in jobs], [gbs for _, gbs in jobs]
    rates = max_min_rates(flows, demand, capacity)
    used = [
        sum(crossed.get(link, 0) * rate for crossed, rate in zip(flows, rates, strict=True))
        for link in range(6)
    ]
    assert all(load <= room * (1 + 1e-9) for load, room in zip(used, capacity, strict=True))
    for crossed, wanted, rate in zip(flows, demand, rates, strict=True):
        assert 0 < rate <= wanted
        # At its demand, or on a full link where no other flow is faster: max-min fairness itself.
        assert rate == wanted or any(
            used[link] >= capacity[link] * (1 - 1e-9)
            and all(rate >= other * (1 - 1e-9) for on, other in zip(flows, rates, strict=True) if link in on)
            for link in crossed
        )


def cluster(per_gpu: bool = False, **fabric: float) -> ClusterSpec:
    # 16 nodes of 2 GPUs on 100 Gbit/s = 12.5 GB/s; 4 leaves of 4 nodes, 2 minipods of 2 leaves.
    gpu = GpuType("X", 100.0, 20.0, None, 40.0, 900.0, "pcie4", 32.0, 100.0, per_gpu)
    shape = {"nodes_per_leaf": 4, "leaves_per_minipod": 2, **fabric}
    return ClusterSpec("c", (NodeGroup(gpu, 16, 2),), Fabric(**shape))


def nodes_of(*nodes: int, gpus: int = 2):
    return tuple((node, gpus) for node in nodes)


def test_capacity_and_flows_of_a_fabric():
    links = Uplinks(cluster(spine_oversubscription=2.0, core_oversubscription=4.0))
    # A leaf: 4 x 12.5 / 2 = 25. A minipod: 8 x 12.5 / 4 = 25. Links 0-3 are leaves, 4 and 5 minipods.
    assert links.capacity == [25.0] * 6
    assert links.demand_gbs(nodes_of(0)) == 12.5
    assert links.flows(nodes_of(0, 1)) == {}
    # Three nodes in leaf 0, one in leaf 1: over either uplink go min(3, 1) flows.
    assert links.flows(nodes_of(0, 1, 2, 4)) == {0: 1, 1: 1}
    # Two nodes in each minipod, in leaves 0, 1 and 2.
    assert links.flows(nodes_of(0, 4, 8, 9)) == {0: 1, 1: 1, 2: 2, 4: 2, 5: 2}


def test_gpus_with_a_port_each_have_a_flow_each():
    links = Uplinks(cluster(per_gpu=True))
    assert links.capacity[0] == 4 * 2 * 12.5
    assert links.flows(((0, 1), (4, 2))) == {0: 1, 1: 1}


def test_types_have_the_rates_of_their_own_ports():
    # 8 nodes of X with one port of 100 Gbit/s each; 8 of Y, whose 8 GPUs have one of 40 each. A leaf of
    # 4 nodes: 4 x 12.5 = 50 GB/s, or 4 x 8 x 5 = 160 GB/s; a minipod of 2 leaves: twice that.
    slow = GpuType("X", 100.0, 20.0, None, 40.0, 900.0, "pcie4", 32.0, 100.0, False)
    fast = GpuType("Y", 100.0, 20.0, None, 40.0, 900.0, "pcie4", 32.0, 40.0, True)
    groups = (NodeGroup(slow, 8, 2), NodeGroup(fast, 8, 8))
    links = Uplinks(ClusterSpec("c", groups, Fabric(4, 2, core_oversubscription=1.0)))
    assert links.capacity == [50.0, 50.0, 160.0, 160.0, 100.0, 320.0]
    assert links.demand_gbs(((7, 2), (6, 2))) == 12.5
    assert links.demand_gbs(((8, 2), (9, 8))) == 5.0
    assert links.flows(((0, 2), (4, 2))) == {0: 1, 1: 1}
    assert links.flows(((8, 2), (12, 8))) == {2: 2, 3: 2}


def test_links_tell_only_those_whom_a_change_concerns():
    # Leaf uplinks carry 4 x 12.5 / 4 = 12.5: one flow.
    shared = SharedLinks(cluster(spine_oversubscription=4.0, core_oversubscription=1.0))
    shared.enter(7, nodes_of(0, 4))
    assert shared.update() == {7: 1.0}
    shared.enter(8, nodes_of(8, 12))
    assert shared.update() == {8: 1.0}
    shared.enter(9, nodes_of(1, 5))
    assert shared.update() == {7: 2.0, 9: 2.0}
    shared.enter(3, nodes_of(2, 3))
    assert shared.update() == {}
    shared.leave(3)
    # Who has left again before anybody asked is no news.
    shared.enter(5, nodes_of(2, 6))
    shared.leave(5)
    assert shared.update().keys() == {7, 9}
    shared.leave(7)
    assert shared.update() == {9: 1.0}
    assert shared.slowdown(9) == shared.slowdown(3) == shared.slowdown(7) == 1.0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_a_partial_update_equals_sharing_all_anew(seed):
    rng = np.random.default_rng(seed)
    spec = cluster(spine_oversubscription=3.0, core_oversubscription=5.0)
    kept, placed = SharedLinks(spec), {}
    for job in range(25):
        if placed and rng.random() < 0.4:
            gone = sorted(placed)[rng.integers(len(placed))]
            kept.leave(gone)
            del placed[gone]
        placed[job] = nodes_of(*np.sort(rng.choice(16, rng.integers(1, 7), replace=False)).tolist())
        kept.enter(job, placed[job])
        before = {other: kept.slowdown(other) for other in placed}
        news = kept.update()
        anew = SharedLinks(spec)
        for other in sorted(placed):
            anew.enter(other, placed[other])
        anew.update()
        for other in placed:
            assert kept.slowdown(other) == pytest.approx(anew.slowdown(other), rel=1e-12)
            assert other in news or kept.slowdown(other) == before[other]


TIMES = {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0, 8: 1.0}}}


def sharing(jobs, **kwargs):
    """Nodes of 2 GPUs in leaves of 4; an iteration of 1 s is half traffic; one flow fills a leaf's uplink."""
    scenario = small_scenario(jobs, {"X": (8, 2)}, TIMES, **kwargs)
    fabric = Fabric(nodes_per_leaf=4, leaves_per_minipod=2, spine_oversubscription=4.0)
    return replace(
        scenario,
        cluster=replace(scenario.cluster, fabric=fabric),
        communication_s=0.5 * np.where(np.isfinite(scenario.tables.execution), scenario.tables.execution, 0),
    )


class Spread(Buddy):
    """Half of a job's nodes in leaf 0 (nodes 0-3), half in leaf 1 (4-7); one node wherever there is room."""

    def place(self, allocations, gpu_type, gpus):
        free = [node for node in range(8) if allocations.free_on_node[node] == 2]
        half = gpus // 4
        left, right = [n for n in free if n < 4][:half], [n for n in free if n >= 4][:half]
        return nodes_of(*left, *right) if half else ((free[0], gpus),)


def test_two_jobs_on_one_uplink_hand_solved():
    # a starts alone at 0 with 1 s an iteration, 0.5 s of it traffic. From 10 s on b shares both
    # uplinks with it: each flow gets half its rate, an iteration takes 1 + 0.5 = 1.5 s.
    # b does 20 iterations by 40 s, a has then done 10 + 20 = 30 of 40 and ends alone at 50 s.
    scenario = sharing([Job("a", 0.0, 40, 4), Job("b", 10.0, 20, 4)])
    script = Script(scenario, {0.0: {"a": ("X", 4)}, 10.0: {"a": ("X", 4), "b": ("X", 4)}})
    run = simulate(scenario, script, Spread(defragment_s=None))
    events = run.simulation.log.events
    rates = [(e.time_s, e.job, e.iteration_time_s) for e in events if e.event_type == EventType.RATE]
    assert rates == [(10.0, 0, 1.5), (10.0, 1, 1.5), (40.0, 0, 1.0)]
    # Nobody moves: a node in each of two leaves of a minipod, the type and the GPUs of the launch.
    held = {(e.gpu_type, e.gpus, e.nodes, e.locality) for e in events if e.event_type == EventType.RATE}
    assert held == {(0, 4, (), int(Locality.MINIPOD))}
    assert [(e.job, e.time_s) for e in events if e.event_type == EventType.COMPLETE] == [(1, 40.0), (0, 50.0)]
    measured = measure_run(run.simulation)
    assert measured.records.iterations_done.tolist() == pytest.approx([40, 20])
    assert measured.records.launches.tolist() == [1, 1]
    assert measured.records.restarts.tolist() == [0, 0]
    assert measured.records.overhead_gpu_s.tolist() == [0, 0]
    # From 10 to 40 s two jobs of 32 samples an iteration of 1.5 s.
    at = dict(zip(measured.timeline.time_s.tolist(), measured.timeline.throughput.tolist(), strict=True))
    assert [at[0.0], at[10.0], at[40.0]] == pytest.approx([32.0, 2 * 32 / 1.5, 32.0])


def test_a_change_of_speed_during_standstill_keeps_the_rest_of_it():
    # From 0 to 9 s a and b share: 6 iterations each at 1.5 s. From 9 to 15 a is alone: 6 more. At 15 b
    # resumes, stands still for 6 s and shares meanwhile: a's last 2 iterations take 3 s. At 18 s 3 of b's
    # 6 s of standstill are left; from 21 s on it does its last 14 iterations at 1 s.
    jobs = [Job("a", 0.0, 14, 4), Job("b", 0.0, 20, 4)]
    scenario = replace(sharing(jobs, checkpoint_s={"m": 6.0}), rounds=3.0)
    both = {"a": ("X", 4), "b": ("X", 4)}
    script = Script(scenario, {0.0: both, 9.0: {"a": ("X", 4)}, 15.0: both})
    run = simulate(scenario, script, Spread(defragment_s=None))
    events = run.simulation.log.events
    assert {e.job: e.time_s for e in events if e.event_type == EventType.COMPLETE} == {0: 18.0, 1: 35.0}
    last = [e for e in events if e.event_type == EventType.RATE][-1]
    assert (last.time_s, last.job, last.overhead_s, last.iteration_time_s) == (18.0, 1, 3.0, 1.0)
    assert measure_run(run.simulation).records.overhead_gpu_s.tolist() == [0.0, 24.0]


def test_without_traffic_on_shared_links_nothing_changes():
    jobs = [Job("a", 0.0, 40, 2), Job("b", 10.0, 20, 4)]
    scenario = sharing(jobs)
    entries = {0.0: {"a": ("X", 2)}, 10.0: {"a": ("X", 2), "b": ("X", 4)}}
    shared = simulate(scenario, Script(scenario, entries), Buddy())
    alone = simulate(replace(scenario, communication_s=None), Script(scenario, entries), Buddy())
    assert shared.simulation.log.digest == alone.simulation.log.digest
    assert scenario.sha256 != replace(scenario, communication_s=None).sha256
