"""The parts of a decision besides GPU counts: jobs that get notice, and jobs that get named nodes."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from clustergym.cluster.allocation import Allocations
from clustergym.cluster.spec import ClusterSpec, Nodes
from clustergym.common.arrays import Ints
from clustergym.scenario.policy import Decision
from clustergym.scenario.scenario import Scenario
from clustergym.sim.state import JobStates


class Fault(NamedTuple):
    """What a check found wrong in a policy's decision, for a `DecisionError`: job's row, message, remedy."""

    row: int
    message: str
    remedy: str


def list_domain_nodes(cluster: ClusterSpec, domain: int, gpu_type: int) -> list[int]:
    """Return the nodes of a GPU type in an NVLink domain (nodes whose GPUs NVLink joins)."""
    inside = (cluster.node_domain == domain) & (cluster.node_type == gpu_type)
    found: list[int] = np.flatnonzero(inside).tolist()
    return found


def keeps_segments(cluster: ClusterSpec, nodes: Nodes, segment: int) -> bool:
    """Return whether each block of `segment` GPUs of a job on these nodes is in one NVLink domain."""
    in_node = segment <= cluster.node_gpus[nodes[0][0]]
    inside = Counter[int]()
    for node, count in nodes:
        inside[node if in_node else int(cluster.node_domain[node])] += count
    return all(count % segment == 0 for count in inside.values())


def list_moves(decision: Decision, allocations: Allocations) -> dict[int, Nodes | int]:
    """Return the nodes or NVLink domain a decision moves jobs to, by row, without jobs already there."""
    found: dict[int, Nodes | int] = {}
    for row, target in (decision.move or {}).items():
        held = allocations.holding(row)
        if isinstance(target, int):
            domain = allocations.spec.node_domain
            there = bool(held) and all(domain[node] == target for node, _ in held)
        else:
            there = held == target
        if not there:
            found[row] = target
    return found


def list_launched_jobs(decision: Decision, jobs: JobStates, allocations: Allocations) -> set[int]:
    """Return the rows of jobs that a decision launches, rescales or moves, where jobs share no GPUs."""
    changed = jobs.gpu_type[decision.job] != decision.gpu_type
    changed |= jobs.gpus[decision.job] != decision.gpus
    return set(decision.job[changed].tolist()) | list_moves(decision, allocations).keys()


def list_stops(decision: Decision, rows: Ints, jobs: JobStates) -> tuple[list[int], list[int]]:
    """Return rows of running jobs a decision preempts, not drops: those stopped at once; those that save."""
    leaving = jobs.gpus[rows] > 0
    # A decision names all that is to hold GPUs; a running job that it does not name loses its own.
    leaving[np.searchsorted(rows, decision.job)] = False
    drops, notices = set(decision.drop.tolist()), set(decision.notice.tolist())
    stops = [row for row in rows[leaving].tolist() if row not in drops]
    return [row for row in stops if row not in notices], [row for row in stops if row in notices]


def find_notice_fault(
    decision: Decision, jobs: JobStates, scenario: Scenario, held: Allocations
) -> Fault | None:
    """Return the first error in a decision's list of jobs that save before they stop, or None."""
    rows = decision.notice.tolist()
    if not rows:
        return None
    if not jobs.stops_lose:
        message = "is given notice, where jobs save whenever they are stopped"
        return Fault(rows[0], message, "leave notices out, or give scenario.checkpoints.every_s")
    if scenario.parts is not None or scenario.pairs is not None:
        return Fault(rows[0], "is given notice, where jobs share GPUs", "leave notices out")
    changed, stays = list_launched_jobs(decision, jobs, held), set(decision.job.tolist())
    drops, seen = set(decision.drop.tolist()), set[int]()
    for row in rows:
        if not 0 <= row < len(jobs.gpus) or not jobs.gpus[row] or row in jobs.saving:
            return Fault(row, "is given notice and does not run", "give notice to jobs where view.gpus > 0")
        if row in drops or row in seen:
            return Fault(row, "is given notice and dropped, or twice", "give a job notice once, or drop it")
        if row in stays and row not in changed:
            return Fault(row, "is given notice and keeps its GPUs", "leave the job out of job, or of notice")
        seen.add(row)
    return None


def find_move_fault(
    decision: Decision, jobs: JobStates, scenario: Scenario, held: Allocations
) -> Fault | None:
    """Return the first error in the nodes to which a decision moves jobs, or None."""
    moves = list_moves(decision, held)
    if not moves:
        return None
    first = next(iter(moves))
    if scenario.parts is not None or scenario.pairs is not None:
        return Fault(first, "is given nodes, where jobs share GPUs", "leave moves out")
    wanted = {
        row: (gpu_type, gpus)
        for row, gpu_type, gpus in zip(
            decision.job.tolist(), decision.gpu_type.tolist(), decision.gpus.tolist(), strict=True
        )
    }
    for row, target in moves.items():
        if row not in wanted:
            return Fault(row, "is given nodes, but no GPUs", "name it in job, gpu_type and gpus, too")
        gpu_type, gpus = wanted[row]
        if fault := _find_target_fault(row, target, gpu_type, gpus, scenario.cluster):
            return fault
        segment = scenario.segment(row, gpu_type, gpus)
        if not isinstance(target, int) and not keeps_segments(scenario.cluster, target, segment):
            message = f"moves to nodes on which blocks of its {segment} GPUs are not in one domain each"
            return Fault(row, message, "give whole blocks of its GPUs in each domain")
    free = _count_free(decision, jobs, held)
    # Those with nodes of their own first: a job that is given a domain takes what they leave of it.
    for row, target in sorted(moves.items(), key=lambda move: isinstance(move[1], int)):
        fault = _take(row, target, *wanted[row], free, scenario.cluster)
        if fault:
            return fault
    return None


def _find_target_fault(
    row: int, target: Nodes | int, gpu_type: int, gpus: int, cluster: ClusterSpec
) -> Fault | None:
    """Return what is wrong with the nodes of a move, apart from who holds them."""
    name = cluster.gpu_types[gpu_type]
    if isinstance(target, int):
        size = int(cluster.node_gpus[list_domain_nodes(cluster, target, gpu_type)].sum())
        if size < gpus:
            message = f"moves with {gpus} {name} to domain {target}, which has {size}"
            return Fault(row, message, "choose a larger domain, or nodes of several")
        return None
    nodes, count = [node for node, _ in target], len(cluster.node_type)
    if sorted(set(nodes)) != nodes or any(not 0 <= node < count for node in nodes):
        remedy = f"name each once, ascending, of 0 to {count - 1}"
        return Fault(row, f"moves to nodes {nodes[:8]}", remedy)
    if any(cluster.node_type[node] != gpu_type for node in nodes) or any(on < 1 for _, on in target):
        return Fault(row, f"moves to nodes {nodes[:8]}, not all with {name}", "give GPUs of its type")
    given = sum(on for _, on in target)
    if given != gpus:
        return Fault(row, f"has {gpus} GPUs and moves to {given}", "give as many GPUs on its nodes")
    return None


def _count_free(decision: Decision, jobs: JobStates, held: Allocations) -> Ints:
    """Return each node's free GPUs after all jobs have left that a decision stops or moves."""
    free = held.free_on_node.copy()
    changed, stays = list_launched_jobs(decision, jobs, held), set(decision.job.tolist())
    saves = set(decision.notice.tolist())
    for row in held.holders:
        goes = row in changed or (row not in stays and row not in saves)
        if row >= 0 and goes and row not in jobs.unseen and row not in jobs.saving:
            for node, gpus in held.holding(row):
                free[node] += gpus
    return free


def _take(
    row: int, target: Nodes | int, gpu_type: int, gpus: int, free: Ints, cluster: ClusterSpec
) -> Fault | None:
    """Subtract a job's GPUs from the free ones, or return why that cannot be."""
    if isinstance(target, int):
        inside = list_domain_nodes(cluster, target, gpu_type)
        short = gpus - int(free[inside].sum())
        if short > 0:
            message = f"moves to domain {target}, where {gpus - short} of its {gpus} GPUs are free"
            return Fault(row, message, "stop or move others there, too")
        for node in inside:
            gpus -= (here := min(gpus, int(free[node])))
            free[node] -= here
        return None
    for node, on in target:
        if on > free[node]:
            message = f"moves to {on} GPUs of node {node}, where {int(free[node])} are free"
            return Fault(row, message, "stop or move others there, too")
        free[node] -= on
    return None


def list_nodes_outside(cluster: ClusterSpec, domain: int) -> tuple[int, ...]:
    """Return the indices of all nodes outside an NVLink domain."""
    return tuple(np.flatnonzero(cluster.node_domain != domain).tolist())
