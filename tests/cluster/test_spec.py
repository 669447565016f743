"""Topology: which nodes share a switch, and what that does to bandwidth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustergym.cluster.cluster_files import load_cluster, load_gpu_types
from clustergym.cluster.spec import ClusterSpec, Fabric, Locality, NodeGroup


def cluster(*sizes: tuple[str, int, int], **fabric: object) -> ClusterSpec:
    types = load_gpu_types()
    groups = tuple(NodeGroup(types[name], nodes, per_node) for name, nodes, per_node in sizes)
    return ClusterSpec("drawn", groups, Fabric(**fabric))  # type: ignore[arg-type]


def test_leaves_hold_one_type_and_fill_minipods_in_order() -> None:
    spec = cluster(("A40", 5, 2), ("V100", 3, 4), nodes_per_leaf=2, leaves_per_minipod=2)
    # A40: leaves 0 0 1 1 2; V100 opens leaf 3. Minipods of two leaves: {0, 1}, {2, 3}, {4}.
    assert spec.node_leaf.tolist() == [0, 0, 1, 1, 2, 3, 3, 4]
    assert spec.node_minipod.tolist() == [0, 0, 0, 0, 1, 1, 1, 2]
    assert spec.node_gpus.tolist() == [2] * 5 + [4] * 3


def test_minipods_share_nodes_evenly_and_leaves_stay_inside_them() -> None:
    spec = cluster(("H800", 11, 8), nodes_per_leaf=3, minipods=3)
    # 11 nodes over 3 minipods: 4, 4, 3; leaves of 3: [3, 1], [3, 1], [3].
    assert spec.node_minipod.tolist() == [0] * 4 + [1] * 4 + [2] * 3
    assert spec.node_leaf.tolist() == [0, 0, 0, 1, 2, 2, 2, 3, 4, 4, 4]


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=3), st.integers(1, 9), st.integers(1, 9), st.booleans()
)
def test_switches_nest(sizes: list[int], per_leaf: int, number: int, shared_out: bool) -> None:
    names = ("A40", "V100", "A10")
    key = "minipods" if shared_out else "leaves_per_minipod"
    number = min(number, sum(sizes))
    groups = [(name, size, 2) for name, size in zip(names, sizes, strict=False)]
    spec = cluster(*groups, nodes_per_leaf=per_leaf, **{key: number})
    leaf, minipod = spec.node_leaf, spec.node_minipod
    assert set(np.diff(leaf)) <= {0, 1}
    assert set(np.diff(minipod)) <= {0, 1}
    assert leaf[0] == minipod[0] == 0
    assert np.bincount(leaf).max() <= per_leaf
    for switch in np.unique(leaf):
        assert len(set(minipod[leaf == switch])) == len(set(spec.node_type[leaf == switch])) == 1
    if shared_out:
        sizes_of = np.bincount(minipod)
        assert len(sizes_of) == number
        assert sizes_of.max() - sizes_of.min() <= 1


def test_locality_is_the_lowest_common_switch() -> None:
    spec = cluster(("A40", 8, 2), nodes_per_leaf=2, leaves_per_minipod=2)
    assert spec.locality(((3, 2),)) == Locality.NODE
    assert spec.locality(((2, 1), (3, 2))) == Locality.LEAF
    assert spec.locality(((0, 1), (3, 2))) == Locality.MINIPOD
    assert spec.locality(((3, 1), (4, 2))) == Locality.CROSS


@pytest.mark.parametrize(("gpus", "best"), [(2, 0), (3, 1), (4, 1), (5, 2), (8, 2), (9, 3), (16, 3)])
def test_compact_locality(gpus: int, best: int) -> None:
    spec = cluster(("A40", 8, 2), nodes_per_leaf=2, leaves_per_minipod=2)
    assert spec.compact_locality(0, gpus) == best


def test_bandwidth_counts_ports_and_oversubscription() -> None:
    factors = {"leaf_oversubscription": 1.0, "spine_oversubscription": 2.0, "core_oversubscription": 4.0}
    spec = cluster(("A40", 2, 2), ("H800", 2, 8), **factors)
    # A40: one port of 100 Gbit/s = 12.5 GB/s a node. H800: 8 ports of 400 Gbit/s = 8 x 50 GB/s.
    assert [spec.bandwidth_gbs(0, tier) for tier in Locality] == [32, 12.5, 6.25, 3.125]
    assert [spec.bandwidth_gbs(1, tier) for tier in Locality] == [200, 400, 200, 100]


@pytest.mark.parametrize(
    ("name", "gpus", "nodes", "minipods"),
    [
        ("arena-a", 64, 32, 1),
        ("arena-b", 384, 32, 1),
        ("arena-sim", 1280, 420, 4),
        ("ares-16", 16, 4, 1),
        ("ares-64", 64, 16, 4),
        ("sia-64", 64, 11, 1),
        ("gavel-48", 48, 12, 1),
        ("arnold-i", 144, 18, 3),
        ("arnold-ii", 3504, 438, 5),
        ("arnold-iii", 8152, 1019, 11),
    ],
)
def test_published_clusters_have_their_published_size(
    name: str, gpus: int, nodes: int, minipods: int
) -> None:
    spec = load_cluster(name)
    assert spec.name == name
    assert (spec.capacity.sum(), len(spec.node_type), spec.node_minipod[-1] + 1) == (gpus, nodes, minipods)


def test_arnold_minipods_differ_by_at_most_one_node() -> None:
    sizes = np.bincount(load_cluster("arnold-ii").node_minipod)
    assert sorted(sizes.tolist()) == [87, 87, 88, 88, 88]  # 3 x 88 + 2 x 87 = 438


def test_dgx_nodes_of_sia_have_a_port_per_gpu() -> None:
    spec = load_cluster("sia-64")
    assert spec.bandwidth_gbs(spec.gpu_types.index("A100"), Locality.LEAF) == 200  # 8 x 25 GB/s
    assert not load_gpu_types()["A100"].nic_per_gpu
