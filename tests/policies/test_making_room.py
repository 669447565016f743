"""The fewest moves that make room for a gang, by hand and against all assignments; and policies that move."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.shared import making_room
from clustergym.policies.shared.fcfs_backfill import FcfsWithOptions
from clustergym.policies.shared.making_room import Block, plan_moves
from hypothesis import given, settings
from hypothesis import strategies as st
from scenarios import Job, small_scenario

from clustergym.cluster.allocation import Allocations
from clustergym.cluster.cluster_files import cluster_from_config
from clustergym.cluster.spec import ClusterSpec
from clustergym.results.measured_run import measure_run
from clustergym.scenario.disturbances.checkpoints import Checkpoints
from clustergym.scenario.policy import Infeasible
from clustergym.sim.drive import simulate
from clustergym.sim.log import EventType


def list_blocks(sizes: list[tuple[int, int]]) -> list[Block]:
    """Return jobs of (domain, nodes); nodes are numbered through."""
    starts = itertools.accumulate([0, *(size for _, size in sizes)])
    return [
        Block(row, tuple(range(start, start + size)), domain)
        for row, ((domain, size), start) in enumerate(zip(sizes, starts, strict=False))
    ]


def test_one_move_joins_two_halves() -> None:
    # Three racks of 4: [a a . .], [b b . .], [c c c .]. A gang of 4 has a rack once a or b joins the other.
    plan = plan_moves([2, 2, 1], list_blocks([(0, 2), (1, 2), (2, 3)]), 4, 1, 1)
    assert plan is not None
    assert plan.bound == len(plan.moves) == 1
    assert plan.moves in ({0: 1}, {1: 0})


def test_jobs_may_move_through_each_other() -> None:
    # Racks [x x .], [y z .], [.] of 3, 3 and 1. A gang of 3 needs a whole rack: two of x, y and z move, as
    # when y goes to the third and x to the place of y and the free one beside.
    plan = plan_moves([1, 1, 1], list_blocks([(0, 2), (1, 1), (1, 1)]), 3, 1, 1)
    assert plan is not None
    assert plan.bound == len(plan.moves) == 2


def test_segments_lie_in_several_racks() -> None:
    # Racks [a . .], [b . .]: two segments of 2 fit as they are; two of 3 do not, whoever moves.
    blocks = list_blocks([(0, 1), (1, 1)])
    plan = plan_moves([2, 2], blocks, 2, 2, 1)
    assert plan == making_room.RoomPlan({}, (1, 1), 0)
    assert plan_moves([2, 2], blocks, 3, 2, 1) is None


def fewest(empty: list[int], blocks: list[Block], size: int, wanted: int, most: int) -> int | None:
    """Return the fewest moves of all assignments of jobs to domains."""
    best = None
    capacity = list(empty)
    for block in blocks:
        capacity[block.domain] += len(block.nodes)
    for places in itertools.product(range(len(empty)), repeat=len(blocks)):
        left = list(capacity)
        for block, to in zip(blocks, places, strict=True):
            left[to] -= len(block.nodes)
        if min(left) >= 0 and sum(min(one // size, most) for one in left) >= wanted:
            moves = sum(block.domain != to for block, to in zip(blocks, places, strict=True))
            best = moves if best is None else min(best, moves)
    return best


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=4),
    st.integers(1, 4),
    st.integers(1, 2),
)
def test_the_program_finds_the_fewest_and_the_heuristic_no_fewer(
    empty: list[int], sizes: list[tuple[int, int]], size: int, wanted: int
) -> None:
    blocks = list_blocks([(domain % len(empty), nodes) for domain, nodes in sizes])
    best = fewest(empty, blocks, size, wanted, 2)
    plan = plan_moves(empty, blocks, size, wanted, 2)
    assert (plan is None) == (best is None)
    if plan is not None:
        assert len(plan.moves) == plan.bound == best
    found = making_room._search(empty, blocks, size, wanted, 2)
    if found is not None:
        assert best is not None
        assert len(found.moves) >= best
        assert found.bound <= best or (wanted > 1 and not best)


# Racks as in `marin` (marin-community, PR 7225 and 8249): of 18 trays of 4 GB200 gangs may count on 16.


def make_racks(count: int) -> ClusterSpec:
    group = {"gpu_type": "GB200", "count": 18 * count, "gpus_per_node": 4, "nodes_per_domain": 18}
    given = {"name": "racks", "nodes": [group | {"gang_nodes": 16}], "fabric": {"nodes_per_leaf": 18}}
    return cluster_from_config(given)


def count_stranded(held: Allocations, gpus: int) -> int:
    """Count the free GPUs that are left if jobs of `gpus` GPUs fill each NVLink domain."""
    return int((np.bincount(held.spec.node_domain, weights=held.free_on_node) % gpus).sum())


def test_two_spare_trays_of_each_of_32_racks_strand_256_gpus_until_gangs_come_in_segments() -> None:
    # 32 gangs of 64 hold 16 trays of a rack each: 2 x 4 GPUs x 32 racks = 256 idle GPUs, and each of 29 gangs
    # of 64 that wait wants 16 trays of one rack. As 8 segments of 8 GPUs (2 trays) four of them start.
    held = Allocations(make_racks(32))
    for rack in range(32):
        held.allocate(rack, tuple((18 * rack + tray, 4) for tray in range(16)))
    assert int(held.free.sum()) == count_stranded(held, 64) == 256
    waiting, started = range(32, 61), 0
    for row in waiting:
        whole = Buddy().place_segments(held, 0, 64, 64)
        assert isinstance(whole, Infeasible)
        nodes = Buddy().place_segments(held, 0, 64, 8)
        if not isinstance(nodes, Infeasible):
            held.allocate(row, nodes)
            started += 1
    assert started == 4
    assert count_stranded(held, 64) == 0


def test_256_gpus_stranded_by_halves_of_racks_are_halved_by_four_moves() -> None:
    # Eight racks, each with two gangs of 20 GPUs (5 trays): 8 trays idle in each, 8 x 32 = 256 GPUs, of which
    # no rack has 64. A rack is emptied by two moves, each to a rack with 8 idle trays, and a gang of 64 has
    # 16 of its trays. Twice: 4 moves, 128 GPUs used, and two racks of 2, four of 3 and two of 8 trays idle.
    empty, blocks = [8] * 8, list_blocks([(rack, 5) for rack in range(8) for _ in range(2)])
    for _ in range(2):
        plan = plan_moves(empty, blocks, 16, 1, 1)
        assert plan is not None
        assert plan.bound == len(plan.moves) == 2
        for row, to in plan.moves.items():
            empty[blocks[row].domain] += 5
            empty[to] -= 5
            blocks[row] = blocks[row]._replace(domain=to)
        empty[plan.segments.index(1)] -= 16
    assert sorted(empty) == [2, 2, 3, 3, 3, 3, 8, 8]


JOBS = [Job("a", 0.0, 500, 8), Job("c", 1.0, 10, 8), Job("b", 2.0, 500, 8), Job("g", 20.0, 100, 16)]


def run_of(every_s: float | None = None, **parameters: object) -> object:
    """Run first come, first served in two racks of four nodes of 4 GPUs; the gang g wants a whole rack."""
    times = {"m": {"X": {4: 1.0, 8: 1.0, 16: 1.0}}}
    scenario = small_scenario(JOBS, {"X": (8, 4)}, times, checkpoint_s={"m": 20.0})
    group = replace(scenario.cluster.groups[0], nodes_per_domain=4)
    segments = np.ones(scenario.tables.execution.shape[:3], dtype=np.int64)
    segments[:, :, scenario.tables.counts.tolist().index(16)] = 16
    cluster, tables = replace(scenario.cluster, groups=(group,)), replace(scenario.tables, segments=segments)
    kept = () if every_s is None else (Checkpoints(every_s),)
    scenario = replace(scenario, cluster=cluster, tables=tables, disturbances=kept)
    policy = FcfsWithOptions(round_s=None, **parameters)
    return simulate(scenario, policy, Buddy(defragment_s=None)).simulation


def starts_of(simulation: object) -> dict[int, float]:
    return {e.job: e.time_s for e in simulation.log.events if e.event_type == EventType.START}


def test_a_gang_waits_for_a_rack_or_one_move_makes_room() -> None:
    # a and c fill a rack, b is in the other; c ends at 11, so that at 20 two nodes are free in each. Without
    # moves g waits until a ends at 500. With one a or b moves to the other, stands still for
    # 20 s, and g starts.
    assert starts_of(run_of())[3] == 500.0
    simulation = run_of(moves_per_hour=1.0)
    assert starts_of(simulation)[3] == 20.0
    assert measure_run(simulation).metrics["migrations"] == 1
    ended = {e.job: e.time_s for e in simulation.log.events if e.event_type == EventType.COMPLETE}
    assert (ended[3], sorted((ended[0], ended[2]))) in ((120.0, [500.0, 522.0]), (120.0, [502.0, 520.0]))


@pytest.mark.parametrize(("notice", "lost_s", "stands_s"), [("never", 8.0, 10.0), ("cheaper", 8.0, 10.0)])
def test_a_move_loses_work_or_saves_by_the_rule(notice: str, lost_s: float, stands_s: float) -> None:
    # Checkpoints each 10 s. At 20 a has worked 20 s since 0, so nothing is undone of it, and b 18 s:
    # 8. Saving takes 10 s, longer than 8: the rule lets nobody save. What moves stands
    # still for 10 s of loading.
    simulation = run_of(10.0, moves_per_hour=1.0, notice=notice)
    move = next(e for e in simulation.log.events if e.event_type == EventType.MIGRATE)
    undone = [e.lost_s for e in simulation.log.events if e.event_type == EventType.UNDO]
    assert move.overhead_s == stands_s
    assert undone == [lost_s if move.job == 2 else 0.0]


def test_the_budget_of_moves_is_an_hours() -> None:
    # Half a move an hour is none at 20 s: half of one is saved up at most.
    assert starts_of(run_of(moves_per_hour=0.5))[3] == 500.0
