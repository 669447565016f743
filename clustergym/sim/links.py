"""Network links between switches, whose bandwidth jobs share max-min fairly."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from clustergym.cluster.spec import ClusterSpec, Nodes

Flows = Mapping[int, int]
"""Link index -> number of a job's flows over that link."""


def max_min_rates(flows: Sequence[Flows], demand: Sequence[float], capacity: Sequence[float]) -> list[float]:
    """Return the max-min fair rate of each job's flows, GB/s per flow.

    Progressive filling (Bertsekas and Gallager, Data Networks, section 6.5): the rate of all flows rises
    evenly; a job stops at its demand, or where a link that it crosses is full. All flows of a job
    run at one rate, since a collective is as fast as the slowest of them.

    Parameters
    ----------
    flows : sequence of mapping of int to int
        For each job: link -> number of its flows over that link, at least 1.
    demand : sequence of float
        GB/s of a flow of each job on a free link.
    capacity : sequence of float
        GB/s of each link.
    """
    left = {link: capacity[link] for crossed in flows for link in crossed}
    rising = dict.fromkeys(left, 0)
    for crossed in flows:
        for link, count in crossed.items():
            rising[link] += count
    rates, waiting = [0.0] * len(flows), sorted(range(len(flows)), key=lambda job: (demand[job], job))
    while waiting:
        level = {link: left[link] / count for link, count in rising.items() if count}
        full = min(level.values(), default=math.inf)
        if demand[waiting[0]] <= full:
            stops, rate = [job for job in waiting if demand[job] == demand[waiting[0]]], demand[waiting[0]]
        else:
            # Equal levels differ by rounding; treated as one, they fill in one step.
            tight = {link for link, at in level.items() if at <= full * (1 + 1e-12)}
            stops, rate = [job for job in waiting if not tight.isdisjoint(flows[job])], full
        for job in stops:
            rates[job] = rate
            for link, count in flows[job].items():
                left[link] = max(left[link] - count * rate, 0.0)
                rising[link] -= count
        stopped = set(stops)
        waiting = [job for job in waiting if job not in stopped]
    return rates


class Uplinks:
    """The links upwards from leaf switches and minipods (nodes below a spine switch), and jobs' flows there.

    All uplinks of a switch count as one link in each direction: the bandwidth of the ports below it
    over `Fabric.spine_oversubscription`, for a minipod over `Fabric.core_oversubscription`. A job
    has one flow per node, or per GPU where each has a port, at the port's rate (over
    `Fabric.leaf_oversubscription`). Over an uplink go as many flows as it has on the side of the cut
    with fewer of them.

    Attributes
    ----------
    capacity : list of float
        GB/s of each link in one direction: first the leaves', then the minipods'.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        fabric = spec.fabric
        ports = [group.gpus_per_node if group.gpu_type.nic_per_gpu else 1 for group in spec.groups]
        line_gbs = [group.gpu_type.nic_gbps / 8 for group in spec.groups]
        node_gbs = np.array([rate * n for rate, n in zip(line_gbs, ports, strict=True)])[spec.node_type]
        leaves = np.bincount(spec.node_leaf, node_gbs) / fabric.spine_oversubscription
        minipods = np.bincount(spec.node_minipod, node_gbs) / fabric.core_oversubscription
        self.capacity: list[float] = [*leaves.tolist(), *minipods.tolist()]
        self._flow_gbs = [rate / fabric.leaf_oversubscription for rate in line_gbs]
        self._per_gpu = [group.gpu_type.nic_per_gpu for group in spec.groups]
        self._type: list[int] = spec.node_type.tolist()
        self._leaf: list[int] = spec.node_leaf.tolist()
        self._minipod: list[int] = (spec.node_minipod + len(leaves)).tolist()

    def demand_gbs(self, nodes: Nodes) -> float:
        """Return the rate, in GB/s, that one flow of an allocation has if no other job shares its links."""
        return self._flow_gbs[self._type[nodes[0][0]]]

    def flows(self, nodes: Nodes) -> dict[int, int]:
        """Return how many flows an allocation has over each link that it crosses; none in one leaf switch."""
        per_gpu = self._per_gpu[self._type[nodes[0][0]]]
        below: dict[int, int] = {}
        total = 0
        for node, gpus in nodes:
            count = gpus if per_gpu else 1
            total += count
            for link in (self._leaf[node], self._minipod[node]):
                below[link] = below.get(link, 0) + count
        # A collective crosses a cut with as many flows as its smaller side has; what lies wholly below a
        # switch does not use its uplink.
        return {link: min(count, total - count) for link, count in below.items() if count < total}


class SharedLinks:
    """Keeps account of which jobs share network links, and how much slower each job's traffic is by it.

    Only a link that its jobs could fill (a crowded link) slows jobs down, so a change is worked out
    only for the jobs that crowded links connect to it.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        self._uplinks = Uplinks(spec)
        self._flows: dict[int, dict[int, int]] = {}
        self._demand: dict[int, float] = {}
        self._on: dict[int, set[int]] = {}
        self._slowdown: dict[int, float] = {}
        self._crowded: set[int] = set()
        self._changed_links: set[int] = set()
        self._came: set[int] = set()

    def enter(self, job: int, nodes: Nodes) -> None:
        """Add a job's traffic to the links that it crosses."""
        flows = self._uplinks.flows(nodes)
        if not flows:
            return
        self._flows[job], self._demand[job] = flows, self._uplinks.demand_gbs(nodes)
        self._slowdown[job] = 1.0
        self._came.add(job)
        self._changed_links.update(flows)
        for link in flows:
            self._on.setdefault(link, set()).add(job)

    def leave(self, job: int) -> None:
        """Remove a job's traffic; a job that crosses no link is ignored."""
        flows = self._flows.pop(job, {})
        self._slowdown.pop(job, None)
        self._came.discard(job)
        self._changed_links.update(flows)
        for link in flows:
            self._on[link].remove(job)

    def slowdown(self, job: int) -> float:
        """Return the factor by which shared links slow the job's traffic, as of the last `update`."""
        return self._slowdown.get(job, 1.0)

    def update(self) -> dict[int, float]:
        """Recompute and return the slowdown of each job for which it may have changed since the last call."""
        if not self._changed_links:
            return {}
        # Once before and once after the links are weighed: a link that stops being crowded frees its jobs,
        # too.
        touched = self._changed_links & self._crowded
        for link in self._changed_links:
            self._weigh(link)
        touched |= self._changed_links & self._crowded
        jobs = self._find_connected(touched)
        crowded = [
            {link: count for link, count in self._flows[job].items() if link in self._crowded} for job in jobs
        ]
        demand = [self._demand[job] for job in jobs]
        rates = max_min_rates(crowded, demand, self._uplinks.capacity)
        for job, rate in zip(jobs, rates, strict=True):
            self._slowdown[job] = max(self._demand[job] / rate, 1.0)
        # Jobs that came are named even where nothing is crowded: their speed was set without a slowdown.
        news = {job: self._slowdown[job] for job in sorted({*jobs, *self._came})}
        self._changed_links, self._came = set(), set()
        return news

    def _weigh(self, link: int) -> None:
        """Update whether a link is crowded: whether its jobs could fill it."""
        # fsum, because a set's order is no order: the result must not depend on it.
        load = math.fsum(self._flows[job][link] * self._demand[job] for job in self._on.get(link, ()))
        if load > self._uplinks.capacity[link]:
            self._crowded.add(link)
        else:
            self._crowded.discard(link)

    def _find_connected(self, links: set[int]) -> list[int]:
        """Return the jobs on these links and all jobs that crowded links connect to them, ascending."""
        seen, frontier, jobs = set(links), list(links), set[int]()
        while frontier:
            for job in self._on.get(frontier.pop(), set()) - jobs:
                jobs.add(job)
                more = [link for link in self._flows[job] if link in self._crowded and link not in seen]
                seen.update(more)
                frontier += more
        return sorted(jobs)
