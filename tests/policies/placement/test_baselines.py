"""Placement baselines: what each does on cases solved by hand, and what all of them keep."""

import exhaustive_placement
import numpy as np
import pytest
from clustergym.policies.placement.topology_aware import bipartition, cut_weight
from clustergym.policies.placers.minipod import MinipodPlacer
from hypothesis import given, settings
from hypothesis import strategies as st

from clustergym.cluster.allocation import Allocations
from clustergym.cluster.spec import ClusterSpec, Fabric, GpuType, NodeGroup
from clustergym.common.errors import InputError
from clustergym.scenario.placement_problem import ALGORITHMS, Instance, PretrainingJob, algorithm, score


def job_of(rows, columns):
    return PretrainingJob(rows * columns * 8, rows, 8, columns)


def counts(name, rows, columns, free, alpha=0.5, unit="pp", seed=0):
    instance = Instance(job_of(rows, columns), np.array(free), alpha, unit)
    made = algorithm(name)(instance, np.random.default_rng(seed))
    made.check(instance)
    return made.counts.tolist()


def test_best_fit_takes_the_tightest_minipod_and_splits_over_the_roomiest():
    # Two nodes a group. 2 is the tightest, then 3; then 5 takes two groups.
    assert counts("best_fit", 4, 2, [5, 2, 3]) == [[0, 2, 0], [0, 0, 2], [2, 0, 0], [2, 0, 0]]
    # Three nodes a group: 4 takes one; of the other, 2 nodes go to the roomier and 1 to what is left.
    assert counts("best_fit", 2, 3, [4, 2]) == [[3, 0], [1, 2]]


def test_best_fit_by_node_splits_groups_as_nodes_run_out():
    # Free 5, 2, 3, groups of two. Nodes 1 and 2 go to the minipod with 2, which is full then; 3, 4 and 5 to
    # the one with 3; the rest to the last. So the third group is split though 5 nodes are free in one place,
    # and whole groups would have left none split: T = 2 over 3 minipods against 1 over 3.
    assert counts("best_fit_by_node", 4, 2, [5, 2, 3]) == [[0, 2, 0], [0, 0, 2], [1, 0, 1], [2, 0, 0]]
    job = job_of(4, 2)
    instance = Instance(job, np.array([5, 2, 3]), 0.25)
    rng = np.random.default_rng(0)
    assert score(algorithm("best_fit_by_node")(instance, rng), instance) == 0.25 * 3 + 0.75 * 2
    assert score(algorithm("best_fit")(instance, rng), instance) == 0.25 * 3 + 0.75 * 1
    # Ties go to the lowest index, and a minipod that was begun has the fewest free nodes from then on.
    assert counts("best_fit_by_node", 2, 2, [3, 3]) == [[2, 0], [1, 1]]


def test_random_fit_by_node_is_balanced_and_splits_groups():
    placed = np.array(counts("random_fit_by_node", 200, 2, [400, 400, 400, 400]))
    # 400 nodes over four equal minipods: 100 each, standard deviation below 9.
    assert (np.abs(placed.sum(axis=0) - 100) < 35).all()
    # Two nodes drawn alone share a minipod about once in four times; a whole group always does.
    assert 20 < (placed.max(axis=1) == 2).sum() < 90


def test_gpu_packing_fills_the_roomiest_and_ends_in_the_tightest():
    # Eight nodes: all of 5, then 3 in the tightest that takes 3; groups of two run through them.
    assert counts("gpu_packing", 4, 2, [4, 5, 3, 1]) == [
        [0, 2, 0, 0],
        [0, 2, 0, 0],
        [0, 1, 1, 0],
        [0, 0, 2, 0],
    ]


def test_round_robin_goes_on_past_minipods_without_room():
    assert counts("round_robin", 4, 2, [4, 1, 4]) == [[2, 0, 0], [0, 0, 2], [2, 0, 0], [0, 0, 2]]


def test_random_fit_is_balanced_and_of_its_seed():
    free = [400, 400, 400, 400]
    placed = np.sum(counts("random_fit", 200, 2, free), axis=0)
    # 200 groups over four equal minipods: 50 each, standard deviation about 6.
    assert (np.abs(placed / 2 - 50) < 25).all()
    assert counts("random_fit", 20, 2, free, seed=1) == counts("random_fit", 20, 2, free, seed=1)
    assert counts("random_fit", 20, 2, free, seed=1) != counts("random_fit", 20, 2, free, seed=2)


def test_topology_aware_makes_the_lightest_cut_whatever_alpha():
    # 4 x 4 nodes over two minipods of 8. A cut across the rows, two whole columns each, cuts one edge in each
    # of four rows: 4. A cut across the columns cuts each column's ring of four twice: 8.
    for alpha in (0.0, 0.5, 1.0):
        assert counts("topology_aware", 4, 4, [8, 8], alpha=alpha) == [[2, 2]] * 4
    # 3 x 3 nodes, 3 of them apart: a column cuts one edge in each of three rows, 3; a row cuts each column's
    # ring of three twice, 6.
    assert counts("topology_aware", 3, 3, [3, 6]) == [[1, 2]] * 3


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 8), st.integers(1, 4), st.lists(st.integers(0, 12), min_size=2, max_size=5))
def test_no_baseline_of_the_paper_knows_alpha(rows, columns, free):
    if sum(free) >= rows * columns:
        for name in ("best_fit_by_node", "random_fit_by_node", "gpu_packing", "topology_aware"):
            assert counts(name, rows, columns, free, 0.1) == counts(name, rows, columns, free, 0.9), name


def test_topology_aware_stays_in_one_half_where_it_fits():
    # Sorted 9, 8, 4, 3: the second half has 7 < 8 free, the first 17; there 8 is the tighter one.
    assert counts("topology_aware", 4, 2, [4, 9, 3, 8]) == [[0, 0, 0, 2]] * 4


def test_a_pass_of_fiduccia_and_mattheyses_finds_the_bridge():
    # Two triangles joined by one edge, numbered so that the first three nodes are a bad start.
    edges = [(0, 2), (2, 4), (0, 4), (1, 3), (3, 5), (1, 5), (4, 5)]
    nodes = np.arange(6)
    inside = bipartition(nodes, edges, 3, 3)
    assert inside.sum() == 3
    assert cut_weight(inside, nodes, edges) == 1


def test_exhaustive_by_hand():
    # 5 + 3 free for four groups of two: one group is split, 0.5 * 2 + 0.5 * 2.
    instance = Instance(job_of(4, 2), np.array([5, 3]), 0.5)
    assert score(exhaustive_placement.solve(instance, None), instance) == 2.0


def test_unknown_algorithm():
    with pytest.raises(InputError, match=r"unknown placement algorithm 'bestfit' .did you mean best_fit"):
        algorithm("bestfit")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_does_not_fit_is_not_placed_in_part(name):
    instance = Instance(job_of(2, 2), np.array([1, 2]))
    made = algorithm(name)(instance, np.random.default_rng(0))
    assert (made.feasible, made.shortfall, made.counts.tolist()) == (False, 1, [[0, 0], [0, 0]])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_all_place_whole_jobs_and_none_beats_arnold(data):
    job = job_of(data.draw(st.integers(1, 8)), data.draw(st.integers(1, 6)))
    free = data.draw(
        st.lists(st.integers(0, 20), min_size=1, max_size=6).filter(lambda f: sum(f) >= job.nodes)
    )
    unit, alpha = data.draw(st.sampled_from(["pp", "dp"])), data.draw(st.sampled_from([0.0, 0.4, 0.5, 1.0]))
    instance = Instance(job, np.array(free), alpha, unit)
    least = score(algorithm("arnold")(instance, np.random.default_rng(0)), instance)
    for name in ALGORITHMS:
        made = algorithm(name)(instance, np.random.default_rng(0))
        made.check(instance)
        assert score(made, instance) >= least - 1e-9, name


def spec_of(*minipods):
    """One GPU type, nodes of eight; minipods of the given number of nodes, a leaf each."""
    h800 = GpuType("H800", 989, 67, 494, 80, 3350, "nvlink4", 200, 400, nic_per_gpu=True)
    fabric = Fabric(nodes_per_leaf=minipods[0], leaves_per_minipod=1)
    assert len(set(minipods)) == 1
    return ClusterSpec("test", (NodeGroup(h800, sum(minipods), 8),), fabric)


def test_algorithms_serve_as_placers():
    # Minipods of four nodes: one node of the first and three of the second are held, so 3, 1 and 4 are free.
    allocations = Allocations(spec_of(4, 4, 4))
    allocations.allocate(0, ((0, 8), (4, 8), (5, 8), (6, 8)))
    # Three nodes fit in the first and the third; the first is the tighter.
    for name, nodes in (("best_fit", (1, 2, 3)), ("gpu_packing", (1, 2, 3)), ("arnold", (1, 2, 3))):
        placer = MinipodPlacer(algorithm=name)
        placer.reset(allocations.spec, np.random.default_rng(0))
        assert placer.place(allocations, 0, 20) == tuple(zip(nodes, (8, 8, 4), strict=True)), name
    # Less than a node goes where `Buddy` puts it; so does a job that needs parts of nodes.
    allocations.allocate(1, ((1, 3), (2, 8)))
    assert placer.place(allocations, 0, 5) == ((1, 5),)
    assert sum(gpus for _, gpus in placer.place(allocations, 0, 53)) == 53
    with pytest.raises(InputError, match="unknown placement algorithm 'worst_fit'"):
        MinipodPlacer(algorithm="worst_fit").reset(allocations.spec, np.random.default_rng(0))
