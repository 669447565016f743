"""Placers that keep each segment of a job in one NVLink domain."""

from collections import Counter

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.placers.minipod import MinipodPlacer
from hypothesis import given, settings
from hypothesis import strategies as st

from clustergym.cluster.allocation import Allocations
from clustergym.cluster.cluster_files import cluster_from_config
from clustergym.cluster.spec import ClusterSpec, Nodes
from clustergym.scenario.policy import Infeasible

CLUSTER = cluster_from_config(
    {
        "name": "racks",
        "nodes": [
            {"gpu_type": "H100", "count": 4, "gpus_per_node": 8},
            {"gpu_type": "GB200", "count": 18, "gpus_per_node": 4, "nodes_per_domain": 6, "gang_nodes": 5},
        ],
        "fabric": {"nodes_per_leaf": 12, "leaves_per_minipod": 2},
    }
)
PLACERS = [Buddy(), MinipodPlacer(algorithm="best_fit"), MinipodPlacer(algorithm="topology_aware")]
NAMES = ["buddy", "best_fit", "topology_aware"]


def test_segments_of_two_nodes_leave_odd_nodes_out() -> None:
    allocations = Allocations(CLUSTER)
    # Racks of nodes 4-9, 10-15, 16-21. One node of the first is taken: 5 are left, so 2 segments of 2 nodes.
    # A gang may count on 5 of the other racks, so on 2 segments each. Six segments are all there are.
    allocations.allocate(0, ((4, 4),))
    nodes = Buddy().place_segments(allocations, 1, 48, 8)
    assert not isinstance(nodes, Infeasible)
    assert Counter(CLUSTER.node_domain[node] for node, _ in nodes) == {4: 4, 5: 4, 6: 4}
    # Without segments as many GPUs fit twice over in two racks and a node.
    short = Buddy().place_segments(allocations, 1, 56, 8)
    assert isinstance(short, Infeasible)
    assert short.nodes_short == 2


def test_the_tightest_switch_that_has_room() -> None:
    allocations = Allocations(CLUSTER)
    allocations.allocate(0, ((10, 4), (11, 4)))
    # One segment of 16 GPUs: every rack has room for one, the second has the fewest nodes free.
    assert Buddy().place_segments(allocations, 1, 16, 16) == ((12, 4), (13, 4), (14, 4), (15, 4))
    # Two: both racks of the first leaf.
    nodes = Buddy().place_segments(allocations, 1, 32, 16)
    assert {int(CLUSTER.node_leaf[node]) for node, _ in nodes} == {int(CLUSTER.node_leaf[4])}  # type: ignore[union-attr]


def test_segments_below_a_node_lie_on_nodes() -> None:
    allocations = Allocations(CLUSTER)
    allocations.allocate(0, ((0, 3), (1, 3), (2, 3), (3, 3)))
    # Five GPUs are free on each node: a segment of four on each, 16 in all.
    assert Buddy().place_segments(allocations, 0, 16, 4) == ((0, 4), (1, 4), (2, 4), (3, 4))
    assert isinstance(Buddy().place_segments(allocations, 0, 16, 8), Infeasible)


@pytest.mark.parametrize("placer", PLACERS, ids=NAMES)
@given(
    taken=st.lists(st.integers(0, 4), min_size=18, max_size=18),
    segment=st.sampled_from([2, 4, 8, 16]),
    segments=st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_segments_stay_in_domains(placer: Buddy, taken: list[int], segment: int, segments: int) -> None:
    allocations = Allocations(CLUSTER)
    for at, gpus in enumerate(taken):
        if gpus:
            allocations.allocate(at, ((4 + at, gpus),))
    placer.reset(CLUSTER, np.random.default_rng(0))
    nodes = placer.place_segments(allocations, 1, segment * segments, segment)
    free = allocations.free_on_node[4:]
    if isinstance(nodes, Infeasible):
        assert _room(free, segment) < segments
        return
    assert sum(gpus for _, gpus in nodes) == segment * segments
    assert _keeps(CLUSTER, nodes, segment)
    allocations.allocate(99, nodes)


def _room(free: np.ndarray, segment: int) -> int:
    if segment <= 4:
        return int((free // segment).sum())
    empty = (free == 4).reshape(3, 6).sum(axis=1)
    return int((np.minimum(empty, 5) // (segment // 4)).sum())


def _keeps(cluster: ClusterSpec, nodes: Nodes, segment: int) -> bool:
    inside: Counter[int] = Counter()
    for node, gpus in nodes:
        inside[node if segment <= 4 else 1000 + int(cluster.node_domain[node])] += gpus
    return all(gpus % segment == 0 for gpus in inside.values())
