"""Defragment by decisions: the fewest moves that free the NVLink domains a waiting gang needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from clustergym.cluster.spec import Nodes
from clustergym.common.arrays import Bools, Ints
from clustergym.common.parameter_types import NonNegativeFloat
from clustergym.scenario.policy import Decision, Places, Setting, View

from .notices import NoticePolicy, choose_notices

MOST_CHOICES = 2000
"""Jobs times domains up to which the fewest moves are found by a program."""
NODE_LIMIT = 2000
"""Nodes of the program's search, so that the same input gives the same answer on any machine."""


class Block(NamedTuple):
    """A job that can be moved: its row in the trace, its whole nodes, and the index of its NVLink domain."""

    row: int
    nodes: tuple[int, ...]
    domain: int


class RoomPlan(NamedTuple):
    """A plan that makes room for a job's GPUs in NVLink domains by moving other jobs.

    Attributes
    ----------
    moves : dict of int to int
        Place of the domain to which each job moves, by row.
    segments : tuple of int
        Segments of the gang in each domain.
    bound : int
        Number of moves without which nobody can make the room.
    """

    moves: dict[int, int]
    segments: tuple[int, ...]
    bound: int


def plan_moves(
    empty: Sequence[int], blocks: Sequence[Block], size: int, wanted: int, most: int
) -> RoomPlan | None:
    """Plan the fewest moves of jobs that free `wanted` segments of `size` nodes, `most` per NVLink domain.

    None if that is impossible.

    Moves are made at once, so that jobs may also exchange their places. For small clusters an integer
    program finds them (HiGHS), and its dual bound proves how few there can be; beyond, or where its search
    ends early, jobs leave one domain for the fullest others that have room, the fewest first.

    Parameters
    ----------
    empty : sequence of int, shape (D,)
        Free nodes of each domain.
    blocks : sequence of Block
        Jobs that can move.
    size, wanted : int
        Nodes of each segment of the gang, each in one domain; number of its segments.
    most : int
        Most segments that it may have in a domain.
    """
    if len(blocks) * len(empty) <= MOST_CHOICES and (found := _solve(empty, blocks, size, wanted, most)):
        return found
    return _search(empty, blocks, size, wanted, most)


def _solve(
    empty: Sequence[int], blocks: Sequence[Block], size: int, wanted: int, most: int
) -> RoomPlan | None:
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import lil_matrix

    jobs, domains = len(blocks), len(empty)
    # Columns: whether job j is in domain d, then the gang's segments in each domain.
    columns, here = jobs * domains + domains, np.array([block.domain for block in blocks], dtype=np.int64)
    rows = lil_matrix((jobs + domains + 1, columns))
    cost, capacity = np.zeros(columns), np.array(empty, dtype=np.float64)
    for at, block in enumerate(blocks):
        rows[at, at * domains : (at + 1) * domains] = 1
        for domain in range(domains):
            rows[jobs + domain, at * domains + domain] = len(block.nodes)
        cost[at * domains : (at + 1) * domains] = 1
        # Staying is free and each move costs 1: the objective counts the moves.
        cost[at * domains + here[at]] = 0
        # Its own nodes are room as well: moves are made at once.
        capacity[block.domain] += len(block.nodes)
    for d in range(domains):
        rows[jobs + d, jobs * domains + d] = size
        rows[jobs + domains, jobs * domains + d] = 1
    low = np.concatenate([np.ones(jobs), np.full(domains, -np.inf), [wanted]])
    high = np.concatenate([np.ones(jobs), capacity, [wanted]])
    limits = Bounds(np.zeros(columns), np.concatenate([np.ones(jobs * domains), np.full(domains, most)]))
    answer = milp(
        cost,
        constraints=LinearConstraint(rows.tocsr(), low, high),
        integrality=np.ones(columns),
        bounds=limits,
        options={"node_limit": NODE_LIMIT, "mip_rel_gap": 0.0},
    )
    if answer.x is None:
        return None
    chosen = np.rint(answer.x[: jobs * domains]).reshape(jobs, domains).argmax(axis=1) if jobs else here
    moves = {block.row: int(to) for block, to in zip(blocks, chosen, strict=True) if to != block.domain}
    segments = tuple(np.rint(answer.x[jobs * domains :]).astype(int).tolist())
    return RoomPlan(moves, segments, int(np.ceil(answer.mip_dual_bound - 1e-6)))


def _search(
    empty: Sequence[int], blocks: Sequence[Block], size: int, wanted: int, most: int
) -> RoomPlan | None:
    """Let jobs leave one domain after another, where a gang fits in one domain."""
    if wanted > most:
        return None
    best: RoomPlan | None = None
    bounds = {}
    for domain in range(len(empty)):
        # The widest jobs first free most per move: no choice of jobs frees enough with fewer moves.
        sizes = sorted((len(one.nodes) for one in blocks if one.domain == domain), reverse=True)
        freed = np.concatenate([[0], np.cumsum(sizes)]) + empty[domain]
        if freed[-1] >= size * wanted:
            bounds[domain] = int(np.argmax(freed >= size * wanted))
    for domain in sorted(bounds, key=lambda at: (bounds[at], -empty[at], at)):
        moves = _leave(empty, blocks, domain, size * wanted)
        if moves is not None and (best is None or len(moves) < len(best.moves)):
            segments = tuple(wanted * (at == domain) for at in range(len(empty)))
            best = RoomPlan(moves, segments, min(bounds.values()) if wanted == 1 else 1)
    return best


def _leave(empty: Sequence[int], blocks: Sequence[Block], domain: int, need: int) -> dict[int, int] | None:
    """Return the jobs that leave a domain and the domains they go to, so that enough nodes become free."""
    room, free, moves = list(empty), empty[domain], dict[int, int]()
    inside = sorted((one for one in blocks if one.domain == domain), key=lambda one: len(one.nodes))
    while free < need:
        # The smallest job that alone is enough; if none is, the widest, to need few moves.
        enough = [one for one in inside if free + len(one.nodes) >= need]
        for one in [*enough, *reversed([one for one in inside if one not in enough])]:
            fits = [at for at, left in enumerate(room) if at != domain and left >= len(one.nodes)]
            if fits:
                # The fullest domain with room, so that empty domains stay whole.
                moves[one.row] = to = min(fits, key=lambda at: (room[at], at))
                room[to] -= len(one.nodes)
                free += len(one.nodes)
                inside.remove(one)
                break
        else:
            return None
    return moves


class DomainState:
    """The free nodes of a GPU type in each NVLink domain, and the jobs there that can be moved."""

    def __init__(self, view: View, places: Places, gpu_type: int) -> None:
        self.per_node = int(view.setting.gpus_per_node[gpu_type])
        mine = np.flatnonzero(places.node_type == gpu_type)
        self.names, at = np.unique(places.domain[mine], return_inverse=True)
        self._place = dict(zip(mine.tolist(), at.tolist(), strict=True))
        self.most_nodes = int(places.domain_gpus[gpu_type]) // self.per_node
        free = places.free_on_node[mine] == self.per_node
        self.free: list[list[int]] = [mine[free & (at == one)].tolist() for one in range(len(self.names))]
        self.blocks = list(self._find_blocks(view, places, gpu_type))

    def _find_blocks(self, view: View, places: Places, gpu_type: int) -> Iterator[Block]:
        """Yield the jobs on whole nodes of one domain; those that still load their checkpoints stay."""
        for row in view.job[(view.gpu_type == gpu_type) & (view.standstill_s == 0)].tolist():
            nodes = places.nodes.get(row, ())
            inside = {self._place[node] for node, _ in nodes}
            if len(inside) == 1 and all(gpus == self.per_node for _, gpus in nodes):
                yield Block(row, tuple(node for node, _ in nodes), inside.pop())

    def has_room(self, size: int, wanted: int) -> bool:
        """Return whether `wanted` segments of `size` free nodes exist, each within one NVLink domain."""
        return sum(min(len(free), self.most_nodes) // size for free in self.free) >= wanted

    def make_room(self, size: int, wanted: int) -> RoomPlan | None:
        """Plan moves of jobs that make room for `wanted` segments of `size` nodes; None if impossible."""
        empty = [len(free) for free in self.free]
        return plan_moves(empty, self.blocks, size, wanted, self.most_nodes // size)

    def name_nodes(self, plan: RoomPlan, gang: int, size: int) -> dict[int, Nodes]:
        """Return the nodes of each moved job and of the new job `gang`, which has blocks of `size` nodes."""
        pools, given = [list(free) for free in self.free], dict[int, list[int]]()
        blocks = {block.row: block for block in self.blocks}
        for row in plan.moves:
            # All leave before any arrives: jobs may exchange their nodes.
            pools[blocks[row].domain] += blocks[row].nodes
        for pool in pools:
            pool.sort()
        for row, to in plan.moves.items():
            count = len(blocks[row].nodes)
            given[row], pools[to] = pools[to][:count], pools[to][count:]
        given[gang] = []
        for pool, segments in zip(pools, plan.segments, strict=True):
            given[gang] += pool[: segments * size]
        return {row: tuple((node, self.per_node) for node in sorted(nodes)) for row, nodes in given.items()}


@dataclass
class MovingPolicy(NoticePolicy):
    """Base of policies that may move running jobs, to free nodes in an NVLink domain for a job that starts.

    Parameters
    ----------
    moves_per_hour : float
        Running jobs that it may move in an hour, saved up for an hour at most.
    """

    moves_per_hour: NonNegativeFloat = 0.0
    _moves_left: float = field(default=0.0, init=False, repr=False)
    _counted_s: float = field(default=0.0, init=False, repr=False)

    @property
    def needs_places(self) -> bool:
        """Whether the policy needs an engine with job locations, to move jobs or let them save on notice."""
        return self.moves_per_hour > 0 or super().needs_places

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Start a run with a full budget of `moves_per_hour` moves, which refills at that rate."""
        super().reset(setting, rng)
        self._moves_left, self._counted_s = self.moves_per_hour, 0.0

    def schedule(self, view: View) -> Decision:
        """Return the decision of `decide`, with saves before stops and moves that make room for jobs."""
        decision = super().schedule(view)
        if not self.moves_per_hour:
            return decision
        earned = self.moves_per_hour * (view.now_s - self._counted_s) / 3600
        self._moves_left, self._counted_s = min(self._moves_left + earned, self.moves_per_hour), view.now_s
        if (found := make_room(view, decision, int(self._moves_left))) is None:
            return decision
        self._moves_left -= len(found) - 1
        saves = choose_notices(view, self.notice) & np.isin(view.job, list(found))
        return replace(decision, move=found, notice=np.union1d(decision.notice, view.job[saves]))


def make_room(view: View, decision: Decision, most: int) -> dict[int, Nodes] | None:
    """Return by trace row the nodes of a starting job and of at most `most` jobs moved for it, or None.

    It is the largest of those whose segments have no room, where at most so many moves make some. None: there
    is no such gang, or the decision does more than to start jobs.
    """
    places, at = view.places(), np.searchsorted(view.job, decision.job)
    if places is None or not most or not _only_starts(view, decision, at):
        return None
    starts = np.flatnonzero(view.gpus[at] == 0)
    states: dict[int, DomainState] = {}
    for one in sorted(starts.tolist(), key=lambda one: (-int(decision.gpus[one]), one)):
        gpu_type, gpus = int(decision.gpu_type[one]), int(decision.gpus[one])
        per_node, segment = int(view.setting.gpus_per_node[gpu_type]), int(places.segment[at[one], gpu_type])
        if segment <= per_node or gpus != view.requested_gpus[at[one]]:
            continue
        if gpu_type not in states:
            states[gpu_type] = DomainState(view, places, gpu_type)
        state, size, wanted = states[gpu_type], segment // per_node, gpus // segment
        if state.has_room(size, wanted):
            continue
        plan = state.make_room(size, wanted)
        if plan is not None and len(plan.moves) <= most:
            return state.name_nodes(plan, int(decision.job[one]), size)
    return None


def _only_starts(view: View, decision: Decision, at: Ints) -> bool:
    """Return whether every running job keeps its GPUs."""
    runs: Bools = view.gpus[at] > 0
    same = (decision.gpus == view.gpus[at]) & (decision.gpu_type == view.gpu_type[at])
    kept = int((runs & same).sum()) == int((view.gpus > 0).sum())
    return kept and not len(decision.drop) and decision.partner is None
