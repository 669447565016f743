"""Compiled buddy placement picks the nodes that the placer picks."""

import numpy as np
from agreement_scenarios import clusters
from clustergym.policies.placers.buddy import _Hierarchy
from hypothesis import given, settings
from hypothesis import strategies as st

from clustergym.cluster.cluster_files import load_cluster
from clustergym.cluster.spec import ClusterSpec
from clustergym.sim.compiled import buddy
from clustergym.sim.compiled.scenario_arrays import cluster_arrays

LARGE = ("arena-384", "arena-sim", "ares-1280")


def assert_same_nodes(cluster: ClusterSpec, rng: np.random.Generator, times: int) -> None:
    """Place random numbers of GPUs where some are free."""
    arrays = cluster_arrays(cluster, np.array([1]))
    for kind in range(len(cluster.gpu_types)):
        placer = _Hierarchy.from_spec(cluster, kind)
        nodes, gpus_on = np.zeros((2, placer.nodes), dtype=np.int64)
        for _ in range(times):
            free = rng.integers(0, placer.per_node + 1, placer.nodes)
            free = np.where(rng.random(placer.nodes) < rng.random(), placer.per_node, free)
            free = np.where(rng.random(placer.nodes) < rng.random(), free, rng.choice([0, placer.per_node]))
            if not free.any():
                continue
            gpus = int(rng.integers(1, free.sum() + 1))
            found = buddy.place(
                free,
                placer.per_node,
                arrays.starts[kind],
                arrays.ends[kind],
                arrays.switches[kind],
                gpus,
                nodes,
                gpus_on,
            )
            got = list(zip((nodes[:found] + placer.first).tolist(), gpus_on[:found].tolist(), strict=True))
            assert got == [(int(node), int(own)) for node, own in placer.place(free, gpus)], (gpus, free)


@settings(max_examples=300, deadline=None, database=None)
@given(cluster=clusters(), seed=st.integers(0, 2**32))
def test_small_clusters(cluster: ClusterSpec, seed: int) -> None:
    assert_same_nodes(cluster, np.random.default_rng(seed), 10)


def test_large_clusters() -> None:
    for name in LARGE:
        assert_same_nodes(load_cluster(name), np.random.default_rng(0), 200)
