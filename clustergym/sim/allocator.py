"""Allocate nodes to jobs and profiles: ask the placer, and keep which node each one holds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np

from clustergym.cluster.allocation import Allocations, PartAllocations
from clustergym.cluster.parts import DivisibleCluster
from clustergym.cluster.spec import Nodes
from clustergym.common.arrays import Ints
from clustergym.common.errors import InputError
from clustergym.scenario.disturbance import ActiveDisturbance
from clustergym.scenario.policy import Infeasible, Placer
from clustergym.scenario.scenario import Scenario
from clustergym.sim.moves import keeps_segments
from clustergym.sim.state import JobStates


def make_allocations(scenario: Scenario, placer: Placer) -> Allocations:
    """Return an empty record of what jobs will hold on a cluster: whole GPUs, or parts of nodes.

    Raises
    ------
    InputError
        If the cluster is divisible and the placer cannot place parts, if jobs ask for numbers of nodes and
        cannot have them, or if parts of jobs must lie in one NVLink domain and the placer does not see to it.
    """
    _check_node_requests(scenario, placer)
    _check_segments(scenario, placer)
    if scenario.parts is None or not isinstance(scenario.cluster, DivisibleCluster):
        return Allocations(scenario.cluster)
    if not placer.places_parts:
        message = (
            f"{placer.name} gives whole GPUs, and those of cluster {scenario.cluster.name} can be divided"
        )
        names = "fgd, best-fit, gpu-packing, gpu-clustering, dot-product, random-fit"
        remedy = f"choose placer={names}, or learned with placer.checkpoint=sharing"
        raise InputError(message, field="placer", remedy=remedy)
    return PartAllocations(scenario.cluster, scenario.parts)


def _check_segments(scenario: Scenario, placer: Placer) -> None:
    if scenario.tables.segments is None or placer.places_segments:
        return
    message = f"{placer.name} does not keep the parts of a job together that must lie in one NVLink domain"
    raise InputError(message, field="placer", remedy="choose placer=buddy, best-fit or topology-aware")


def _check_node_requests(scenario: Scenario, placer: Placer) -> None:
    nodes, per_node = scenario.trace.nodes, int(scenario.cluster.gpus_per_node.max())
    if nodes is None or not nodes.any():
        return
    if scenario.parts is not None or not placer.places_evenly:
        message = f"{placer.name} does not place jobs on as many nodes as they ask for, as the trace's do"
        remedy = "choose placer=slurm and a cluster of whole GPUs, or leave the trace's column nodes out"
        raise InputError(message, field="placer", remedy=remedy)
    gpus = scenario.request_gpus
    wrong = np.flatnonzero((gpus % np.maximum(nodes, 1) > 0) | (nodes * per_node < gpus) & (nodes > 0))
    if len(wrong):
        row = int(wrong[0])
        message = f"job {scenario.trace.job_id[row]} asks for {gpus[row]} GPUs on {nodes[row]} nodes"
        remedy = f"nodes have {per_node} GPUs at most, and a job has equally many on each"
        raise InputError(message, field="trace.nodes", remedy=remedy)


@dataclass(eq=False)
class Allocator:
    """Allocates nodes to jobs and profiling runs, and releases them.

    Attributes
    ----------
    suspect : dict of int to str
        Nodes on which nothing is launched, and what each is kept for.
    """

    scenario: Scenario
    placer: Placer
    jobs: JobStates
    allocations: Allocations
    courses: Sequence[ActiveDisturbance]
    suspect: dict[int, str] = field(default_factory=dict)

    def asked_nodes(self, row: int, gpus: int) -> int:
        """Return over how many nodes a job wants `gpus` GPUs spread; 0: any, or `gpus` is not its request."""
        nodes = self.scenario.trace.nodes
        return int(nodes[row]) if nodes is not None and gpus == self.scenario.request_gpus[row] else 0

    def keeps_segments(self, row: int, nodes: Nodes) -> bool:
        """Return whether `nodes` keep each segment (GPUs a job wants together) in one NVLink domain."""
        cluster, gpus = self.scenario.cluster, sum(count for _, count in nodes)
        segment = self.scenario.segment(row, int(cluster.node_type[nodes[0][0]]), gpus)
        return keeps_segments(cluster, nodes, segment)

    def place(
        self, gpu_type: int, gpus: int, until: float, on: int = 0, avoid: tuple[int, ...] = (), row: int = -1
    ) -> Nodes | Infeasible:
        """Ask the placer where a job or profiling run gets GPUs until tick `until`, on `on` nodes (0: any).

        It asks for `on` nodes, 0 for any, and for none of `avoid`, as the job of a row needs its GPUs in
        NVLink domains; -1: of no job. An answer that names a failed node counts as `Infeasible`.
        """
        segment = 1 if row < 0 else self.scenario.segment(row, gpu_type, gpus)
        allocations, withheld = self.allocations, self.withheld(until)
        if avoid:
            # The reasons of disturbances come last and win: they are the ones that a log should name.
            withheld = dict.fromkeys(avoid, "jobs that wait") | withheld
        # Hidden nodes look full to the placer, so that no placer needs to know about reservations.
        with allocations.hidden(withheld) if withheld else nullcontext():
            if withheld and (short := gpus - int(allocations.free[gpu_type])) > 0:
                kept_for = next(iter(withheld.values()))
                return Infeasible(f"nodes are kept for {kept_for}", gpus_short=short)
            if segment > 1:
                nodes = self.placer.place_segments(allocations, gpu_type, gpus, segment)
            elif on:
                nodes = self.placer.place_evenly(allocations, gpu_type, gpus, on)
            else:
                nodes = self.placer.place(allocations, gpu_type, gpus)
        if isinstance(nodes, Infeasible):
            return nodes
        # Failed nodes are full too, but a placer from outside may name one all the same.
        failed = [node for node, _ in nodes if node in allocations.down] if allocations.down else []
        if failed:
            return Infeasible(f"node {failed[0]} has failed", nodes_short=len(failed))
        return tuple((int(node), int(count)) for node, count in nodes)

    def place_part(self, parts: PartAllocations, row: int) -> Nodes | Infeasible:
        """Ask the placer for a node, and its GPU if a job needs only part of one; or return why none fits."""
        place = self.placer.place_part(parts, row)
        if isinstance(place, Infeasible):
            return place
        if int(place.node) in parts.down:
            return Infeasible(f"node {place.node} has failed", nodes_short=1)
        return parts.intend(row, place)

    def claim(self, nodes: Nodes, until: float) -> Nodes | Infeasible:
        """Return the nodes if none is kept from jobs ending at tick `until`, or why not; allocate nothing."""
        withheld = self.withheld(until)
        kept_for = next((withheld[node] for node, _ in nodes if node in withheld), None)
        return nodes if kept_for is None else Infeasible(f"nodes are kept for {kept_for}")

    def withheld(self, until: float) -> dict[int, str]:
        """Return the nodes on which no job may be launched that ends at tick `until`, with reasons."""
        if not self.courses and not self.suspect:
            return {}
        kept = {
            node: kept_for for course in self.courses for node, kept_for in course.withheld(until).items()
        }
        return {**kept, **self.suspect}

    def allocate(self, holder: int, nodes: Nodes) -> Nodes | Infeasible:
        """Allocate nodes to a job or profiling run; return them, or why a live scheduler refuses."""
        self.allocations.allocate(holder, nodes)
        return nodes

    def release(self, holder: int) -> Nodes:
        """Take back the nodes of a job or profiling run, and return them."""
        return self.allocations.release(holder)

    def stop_released(self) -> None:
        """Stop what still runs on released nodes; a simulation has nothing to do, a real scheduler has."""

    def list_holders(self, nodes: Collection[int]) -> list[int]:
        """Return the jobs (>= 0) and profiling runs (< 0) that hold GPUs of some nodes, oldest first."""
        held = self.allocations
        return [holder for holder in held.holders if any(on in nodes for on, _ in held.holding(holder))]

    def available(self, profiled: Ints) -> Ints:
        """Return each type's GPUs that a decision may give: not `profiled`, failed or of unseen jobs."""
        cluster = self.scenario.cluster
        available: Ints = cluster.capacity - profiled
        for node in self.allocations.down:
            available[cluster.node_type[node]] -= cluster.node_gpus[node]
        # A policy cannot take GPUs from a job that it does not see.
        for row in (self.jobs.unseen | self.jobs.saving.keys()) & self.allocations.holders:
            available[self.jobs.gpu_type[row]] -= self.jobs.gpus[row]
        return available
