"""The buddy placer on clusters small enough to draw, and against plain searches of the best."""

import itertools
from collections import defaultdict

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from hypothesis import given, settings
from hypothesis import strategies as st

from clustergym.cluster.allocation import AllocationError, Allocations
from clustergym.cluster.cluster_files import load_gpu_types
from clustergym.cluster.spec import ClusterSpec, Fabric, Locality, NodeGroup, Nodes

FIRST, A40 = 8, 1
"""Where the A40 nodes begin, and their type."""


def cluster(nodes: int, per_node: int, per_leaf: int = 4, per_minipod: int = 2) -> ClusterSpec:
    """Return nodes of A40 after eight of V100: a minipod of its own by default, else any part of one."""
    types = load_gpu_types()
    groups = (NodeGroup(types["V100"], FIRST, 4), NodeGroup(types["A40"], nodes, per_node))
    return ClusterSpec("drawn", groups, Fabric(nodes_per_leaf=per_leaf, leaves_per_minipod=per_minipod))


def drawn(free: str, per_node: int = 4, per_leaf: int = 4, per_minipod: int = 2) -> Allocations:
    """Return a state with so many GPUs free on each A40 node, a space between leaves."""
    digits = [int(digit) for digit in free if digit.isdigit()]
    state = Allocations(cluster(len(digits), per_node, per_leaf, per_minipod))
    for node, count in enumerate(digits):
        if count < per_node:
            state.allocate(-1 - node, ((FIRST + node, per_node - count),))
    return state


def placed(state: Allocations, gpus: int) -> dict[int, int]:
    """Return node -> GPUs, A40 nodes counted from 0."""
    return {node - FIRST: count for node, count in Buddy().place(state, A40, gpus)}


@pytest.mark.parametrize(
    ("free", "gpus", "expected"),
    [
        # Inside a node: fewest free GPUs that suffice, then the lowest index.
        ("4324", 1, {2: 1}),
        ("4324", 2, {2: 2}),
        ("4324", 3, {1: 3}),
        ("4223", 2, {1: 2}),
        # No partly used node fits: a wholly free one of the smallest block. Nodes 0-1 are a block
        # of two, node 3 is alone.
        ("4414", 2, {3: 2}),
        ("4414", 4, {3: 4}),
        # ... and of the leaf with the fewest free nodes.
        ("4444 4411", 4, {4: 4}),
        # Two nodes: the aligned pair 2-3, not 0 and 1 of the whole second leaf, nor 1-2.
        ("1444 4444", 8, {2: 4, 3: 4}),
        # A pair is free both inside a free block of four and alone: the lone one.
        ("4444 4414", 8, {4: 4, 5: 4}),
        # No aligned pair in the fullest leaf: its single nodes, rather than break the whole leaf.
        ("1441 4444", 8, {1: 4, 2: 4}),
        # Three nodes do not fit beside the taken one as a block of four; smallest blocks first.
        ("4414 1111", 12, {0: 4, 1: 4, 3: 4}),
        ("4444 1111", 12, {0: 4, 1: 4, 2: 4}),
        # A leaf holds four: five nodes go to one minipod, a whole leaf and the best fit.
        ("1441 4444 4444 4444", 20, {1: 4, 4: 4, 5: 4, 6: 4, 7: 4}),
        ("1114 1141 4444 1414", 20, {8: 4, 9: 4, 10: 4, 11: 4, 13: 4}),
        # Minipods of five and four free nodes: across, the fuller one whole, best fit in the other.
        ("1444 4411 4114 4411", 24, {1: 4, 2: 4, 3: 4, 4: 4, 5: 4, 8: 4}),
        # Six GPUs: a whole node and the rest on a partly used node of the same leaf.
        ("4141 4423", 6, {4: 4, 6: 2}),
        ("4441 4413", 6, {4: 4, 7: 2}),
        ("4411 4411", 6, {0: 4, 1: 2}),
        # Too few whole nodes anywhere: the leaf that needs the fewest nodes, then the one with less free.
        ("1332 3221", 6, {1: 3, 2: 3}),
        ("2222 1312", 6, {4: 1, 5: 3, 7: 2}),
        # The last node is a best fit: 3 + 3 + 1 takes node 3, not node 2.
        ("3321 1111", 7, {0: 3, 1: 3, 3: 1}),
        # No leaf has seven free, the minipod has.
        ("2111 2111 1110 0000", 7, {0: 2, 1: 1, 2: 1, 3: 1, 4: 2}),
        # Nor has a minipod.
        ("2000 1000 2000 0000", 5, {0: 2, 4: 1, 8: 2}),
        # A small job that fits on no node.
        ("2100 1111", 3, {0: 2, 1: 1}),
    ],
)
def test_hand_drawn(free: str, gpus: int, expected: dict[int, int]) -> None:
    assert placed(drawn(free), gpus) == expected


def test_a_job_of_the_whole_cluster() -> None:
    assert placed(drawn("4444 444"), 28) == dict.fromkeys(range(7), 4)


def test_place_allocates_nothing_and_says_the_same_again() -> None:
    state, placer = drawn("1332 4421"), Buddy()
    before = state.free_on_node.tolist()
    answers = {placer.place(state, A40, 11) for _ in range(3)}
    assert len(answers) == 1
    assert state.free_on_node.tolist() == before


def test_a_placer_follows_a_change_of_cluster() -> None:
    placer = Buddy()
    placer.reset(cluster(40, 8), np.random.default_rng(0))
    assert placer.place(drawn("4444"), A40, 8) == ((FIRST, 4), (FIRST + 1, 4))


@pytest.mark.parametrize("gpus", [17, 0, -1])
def test_what_cannot_be_placed_is_refused(gpus: int) -> None:
    with pytest.raises(AllocationError, match=f"cannot place {gpus} GPUs of A40, 16 are free"):
        Buddy().place(drawn("4444"), A40, gpus)


# ----------------------------------------------------------------------------------- properties

States = st.tuples(
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(1, 3),
    st.lists(st.integers(0, 5), min_size=1, max_size=24),
)


def state_of(drawing: tuple[int, int, int, list[int]]) -> Allocations:
    per_node, per_leaf, per_minipod, free = drawing
    text = " ".join(str(min(count, per_node)) for count in free)
    return drawn(text, per_node, per_leaf, per_minipod)


def switches(spec: ClusterSpec) -> list[list[list[int]]]:
    """Return the A40 nodes under each switch, for the tiers leaf, minipod, all."""
    tiers = []
    for switch in (spec.node_leaf, spec.node_minipod, np.zeros(len(spec.node_type))):
        members: dict[int, list[int]] = defaultdict(list)
        for node in range(FIRST, len(spec.node_type)):
            members[int(switch[node])].append(node)
        tiers.append(list(members.values()))
    return tiers


def fewest_nodes(free: list[int], gpus: int) -> int:
    running = itertools.accumulate(sorted(free, reverse=True))
    return next(count for count, total in enumerate(running, 1) if total >= gpus)


def best(state: Allocations, gpus: int) -> tuple[int, int]:
    """Return the least (locality, nodes) that the placer's rules allow, by looking everywhere."""
    free, per_node = state.free_on_node.tolist(), int(state.spec.gpus_per_node[A40])
    if max(free[FIRST:]) >= gpus:
        return Locality.NODE, 1
    whole, rest = divmod(gpus, per_node)
    for locality, tier in enumerate(switches(state.spec), 1):
        for nodes in tier:
            empty = sum(free[node] == per_node for node in nodes)
            room = any(rest <= free[node] < per_node for node in nodes)
            if whole and empty >= whole + (rest > 0 and not room):
                return locality, whole + (rest > 0)
    for locality, tier in enumerate(switches(state.spec), 1):
        counts = [
            fewest_nodes([free[node] for node in nodes], gpus)
            for nodes in tier
            if sum(free[node] for node in nodes) >= gpus
        ]
        if counts:
            return locality, min(counts)
    raise AssertionError("the free GPUs do not suffice")


@settings(max_examples=300, deadline=None)
@given(States, st.integers(1, 60))
def test_succeeds_whenever_gpus_suffice_and_is_the_best_possible(
    drawing: tuple[int, int, int, list[int]], gpus: int
) -> None:
    state = state_of(drawing)
    if state.free[A40] < gpus:
        with pytest.raises(AllocationError):
            Buddy().place(state, A40, gpus)
        return
    nodes = Buddy().place(state, A40, gpus)
    expected = best(state, gpus)
    state.allocate(0, nodes)  # refuses what is not free, of another type, or not ascending
    assert sum(count for _, count in nodes) == gpus
    assert (state.spec.locality(nodes), len(nodes)) == expected


@settings(max_examples=150, deadline=None)
@given(States, st.integers(0, 3))
def test_an_aligned_block_is_used_where_the_chosen_leaf_has_one(
    drawing: tuple[int, int, int, list[int]], order: int
) -> None:
    state, size = state_of(drawing), 2**order
    per_node = int(state.spec.gpus_per_node[A40])
    free = state.free_on_node.tolist()
    leaves = [[free[node] == per_node for node in leaf] for leaf in switches(state.spec)[0]]
    enough = [sum(leaf) for leaf in leaves if sum(leaf) >= size]
    if not enough:
        return
    nodes = [node for node, _ in Buddy().place(state, A40, size * per_node)]
    first_leaf = int(state.spec.node_leaf[FIRST])
    leaf = int(state.spec.node_leaf[nodes[0]]) - first_leaf
    assert sum(leaves[leaf]) == min(enough)
    starts = [at for at in range(0, len(leaves[leaf]), size) if all(leaves[leaf][at : at + size])]
    starts = [at for at in starts if at + size <= len(leaves[leaf])]
    if starts:
        local = [node - switches(state.spec)[0][leaf][0] for node in nodes]
        assert local[0] in starts
        assert local == list(range(local[0], local[0] + size))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([2, 4]), st.lists(st.integers(0, 6), max_size=60))
def test_powers_of_two_leave_no_avoidable_fragmentation(
    per_node: int, per_leaf: int, orders: list[int]
) -> None:
    """Arriving one after the other they get what they would get alone, until the GPUs run out."""
    state, placer = Allocations(cluster(8 * per_leaf, per_node, per_leaf, 2)), Buddy()
    for job, order in enumerate(orders):
        gpus = 2**order
        if state.free[A40] < gpus:
            continue
        nodes = placer.place(state, A40, gpus)
        state.allocate(job, nodes)
        assert len(nodes) == max(1, gpus // per_node)
        assert state.spec.locality(nodes) == state.spec.compact_locality(A40, gpus)
    partly = [count for count in state.free_on_node[FIRST:].tolist() if 0 < count < per_node]
    assert len(partly) <= max(0, per_node.bit_length() - 1)


def churn(state: Allocations, placer: Buddy, moves: list[tuple[int, int]]) -> None:
    for job, (gpus, leaving) in enumerate(moves):
        if leaving in state.holders:
            state.release(leaving)
        if state.free[A40] >= gpus:
            state.allocate(job, placer.place(state, A40, gpus))


Moves = st.lists(st.tuples(st.integers(1, 20), st.integers(0, 40)), max_size=40)


@settings(max_examples=100, deadline=None)
@given(Moves, st.integers(1, 5))
def test_any_sequence_keeps_the_books(moves: list[tuple[int, int]], per_leaf: int) -> None:
    state = Allocations(cluster(12, 4, per_leaf))
    churn(state, Buddy(), moves)
    held = sum(count for job in state.holders for _, count in state.holding(job))
    assert held + state.free[A40] == 48
    for job in list(state.holders):
        state.release(job)
    assert state.free.tolist() == [4 * FIRST, 48]


# ------------------------------------------------------------------------------- defragmentation


def with_jobs(spec: ClusterSpec, jobs: dict[int, dict[int, int]]) -> Allocations:
    state = Allocations(spec)
    for job, nodes in jobs.items():
        state.allocate(job, tuple((FIRST + node, count) for node, count in nodes.items()))
    return state


def proposals(state: Allocations) -> dict[int, dict[int, int]]:
    return {job: {node - FIRST: count for node, count in nodes} for job, nodes in Buddy().defragment(state)}


def test_a_scattered_job_is_brought_together() -> None:
    # Job 1 holds 2 + 2 GPUs on two leaves. Without it node 0 is free, and alone so, as job 2 has node 1.
    state = with_jobs(cluster(8, 4), {1: {0: 2, 4: 2}, 2: {1: 4}})
    before = state.free_on_node.tolist()
    assert proposals(state) == {1: {0: 4}}
    assert state.free_on_node.tolist() == before


def test_a_job_may_be_brought_together_on_its_own_nodes() -> None:
    # Nothing is free but what job 1's own node has: 3 + 1 GPUs fit on node 0 with its fourth GPU.
    state = with_jobs(cluster(2, 4), {1: {0: 3, 1: 1}, -1: {1: 3}})
    assert proposals(state) == {1: {0: 4}}


def test_fewer_nodes_count_at_the_same_locality() -> None:
    state = with_jobs(cluster(4, 4), {1: {0: 3, 1: 3, 2: 2}, -1: {1: 1}})
    # In the leaf: nodes 0, 2 and 3 could be whole; eight GPUs on two of them, the pair 2-3.
    assert proposals(state) == {1: {2: 4, 3: 4}}


def test_profiling_holds_stay_and_a_good_placement_too() -> None:
    state = with_jobs(cluster(8, 4), {-1: {0: 2, 4: 2}, 1: {1: 4, 2: 4}, 2: {5: 2}})
    assert proposals(state) == {}


@settings(max_examples=100, deadline=None)
@given(Moves, st.integers(1, 5))
def test_each_proposal_is_possible_alone_and_better(moves: list[tuple[int, int]], per_leaf: int) -> None:
    state, placer = Allocations(cluster(12, 4, per_leaf)), Buddy()
    churn(state, placer, moves)
    spec, found = state.spec, placer.defragment(state)
    assert len({job for job, _ in found}) == len(found)
    assert found == Buddy().defragment(state)
    for job, nodes in found:
        held: Nodes = state.release(job)
        state.allocate(job, nodes)
        assert sum(count for _, count in nodes) == sum(count for _, count in held)
        assert (spec.locality(nodes), len(nodes)) < (spec.locality(held), len(held))
        state.release(job)
        state.allocate(job, held)
