"""Buddy placement: keep a job's GPUs close together and large free blocks whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from clustergym.cluster.allocation import AllocationError, Allocations
from clustergym.cluster.spec import ClusterSpec, Locality, Nodes
from clustergym.common import random_streams
from clustergym.common.arrays import Bools, Ints
from clustergym.common.parameter_types import Period
from clustergym.scenario.policy import Infeasible, Placer

Share = tuple[int, int]

NONE = np.iinfo(np.int64).max
"""Larger than any count: stands for what does not qualify where the least is searched."""


@dataclass
class Buddy(Placer):
    """A placer that puts each job in the smallest free space that suffices, like a buddy allocator.

    - Up to a node: the partly used node with the fewest free GPUs that suffice (ties: lowest
      index); if there is none, a wholly free node as below.
    - More: wholly free nodes in the lowest tier (a leaf, a minipod, across) that has enough, there
      in the switch with the fewest that suffice; within a leaf the smallest free aligned
      power-of-two block. GPUs beyond full nodes go to a partly used node of the same switch;
      switches where one has room are preferred. Over several switches: the fewest, the last
      one a best fit.
    - With too few wholly free nodes: the free GPUs of the fewest nodes, in the lowest tier
      that has enough.
    - Each `defragment_s` running jobs are moved to closer nodes, whatever the policy, where that saves more
      time than their restart costs. Arena's cluster follows the buddy rule and migrates jobs periodically
      (section 3.5); Crius, Ares and Arnold describe no migration for defragmentation.

    Parameters
    ----------
    defragment_s : float or None
        Seconds between calls of `defragment`; None: never.
    """

    name: ClassVar[str] = "buddy"
    defragment_s: Period | None = 3600.0
    _spec: ClusterSpec | None = field(default=None, init=False, repr=False, compare=False)
    _hierarchies: tuple[_Hierarchy, ...] = field(default=(), init=False, repr=False, compare=False)

    def reset(self, cluster: ClusterSpec, rng: np.random.Generator) -> None:
        """Prepare for a run on a cluster; `rng` is not used."""
        self._spec = cluster
        self._hierarchies = tuple(_Hierarchy.from_spec(cluster, row) for row in range(len(cluster.groups)))

    def place(self, allocations: Allocations, gpu_type: int, gpus: int) -> Nodes:
        """Choose nodes for `gpus` GPUs of a type, without allocating them; return (node, GPUs) pairs.

        Raises
        ------
        AllocationError
            If fewer GPUs are free, or none is asked for.
        """
        gpus, free_gpus = int(gpus), int(allocations.free[gpu_type])
        if not 0 < gpus <= free_gpus:
            name = allocations.spec.gpu_types[gpu_type]
            raise AllocationError(f"cannot place {gpus} GPUs of {name}, {free_gpus} are free")
        hierarchy = self._get_hierarchy(allocations, gpu_type)
        return hierarchy.place(hierarchy.free(allocations), gpus)

    @property
    def places_segments(self) -> bool:
        """True: this placer can keep each segment (equal part) of a job's GPUs in one NVLink domain."""
        return True

    def place_segments(
        self, allocations: Allocations, gpu_type: int, gpus: int, segment: int
    ) -> Nodes | Infeasible:
        """Choose nodes such that every `segment` GPUs are on one node, or on free nodes of one NVLink domain.

        Segments of at most a node are placed as by `place`, on GPUs that are free in multiples of a segment.
        Larger ones go to the lowest tier that has room for all of them, there to the switch with the fewest
        that suffice, and to the fewest domains.
        """
        hierarchy = self._get_hierarchy(allocations, gpu_type)
        return hierarchy.place_segments(hierarchy.free(allocations), int(gpus), int(segment))

    def defragment(self, allocations: Allocations) -> list[tuple[int, Nodes]]:
        """Propose better nodes for running jobs, as (job, nodes); profiling runs are not moved.

        Jobs are taken in ascending order of row. A job is proposed if its locality, or at the same
        locality its number of nodes, would be less if it were placed now with its own GPUs free.
        """
        return list(self._improvements(allocations))

    def _get_hierarchy(self, allocations: Allocations, gpu_type: int) -> _Hierarchy:
        if self._spec is not allocations.spec:
            self.reset(allocations.spec, random_streams.PLACER.generator(0))
        return self._hierarchies[gpu_type]

    def _improvements(self, allocations: Allocations) -> Iterator[tuple[int, Nodes]]:
        spec = allocations.spec
        for holder in sorted(holder for holder in allocations.holders if holder >= 0):
            held = allocations.holding(holder)
            if len(held) == 1:
                continue
            gpu_type, gpus = int(spec.node_type[held[0][0]]), sum(count for _, count in held)
            hierarchy = self._get_hierarchy(allocations, gpu_type)
            now = spec.locality(held), len(held)
            if now == hierarchy.ideal(spec, gpu_type, gpus):
                continue
            free = hierarchy.free(allocations).copy()
            for node, count in held:
                free[node - hierarchy.first] += count
            proposed = hierarchy.place(free, gpus)
            if (spec.locality(proposed), len(proposed)) < now:
                yield holder, proposed


@dataclass(frozen=True, eq=False)
class _Hierarchy:
    """The nodes of one GPU type, counted from `first`, and the switches above them.

    Attributes
    ----------
    first, per_node : int
        First node in the cluster's counting; GPUs on each.
    starts : tuple of ndarray of int
        First node of each NVLink domain of several nodes, of each leaf, of each minipod, and (0,): the lower
        ends of switches by tier.
    ends : tuple of ndarray of int
        Their upper ends, exclusive.
    gang_nodes : int
        Nodes of a domain that a gang may count on.
    """

    first: int
    per_node: int
    starts: tuple[Ints, ...]
    ends: tuple[Ints, ...]
    gang_nodes: int

    @staticmethod
    def from_spec(spec: ClusterSpec, gpu_type: int) -> _Hierarchy:
        mine, group = np.flatnonzero(spec.node_type == gpu_type), spec.groups[gpu_type]
        switches = [spec.node_leaf[mine], spec.node_minipod[mine], np.zeros_like(mine)]
        if group.nodes_per_domain > 1:
            switches.insert(0, spec.node_domain[mine])
        starts = tuple(np.flatnonzero(np.diff(switch, prepend=-1)) for switch in switches)
        ends = tuple(np.append(start[1:], len(mine)) for start in starts)
        gang_nodes = group.domain_gpus // group.gpus_per_node
        return _Hierarchy(int(mine[0]), group.gpus_per_node, starts, ends, gang_nodes)

    @cached_property
    def nodes(self) -> int:
        return int(self.ends[-1][-1])

    @cached_property
    def ideals(self) -> dict[int, tuple[Locality, int]]:
        return {}

    def ideal(self, spec: ClusterSpec, gpu_type: int, gpus: int) -> tuple[Locality, int]:
        """Return the network tier and the number of nodes of the best placement on an empty cluster."""
        if gpus not in self.ideals:
            self.ideals[gpus] = spec.compact_locality(gpu_type, gpus), -(-gpus // self.per_node)
        return self.ideals[gpus]

    def free(self, allocations: Allocations) -> Ints:
        return allocations.free_on_node[self.first : self.first + self.nodes]

    def place(self, free: Ints, gpus: int) -> Nodes:
        if gpus < self.per_node:
            node = _best_fit(free, gpus, self.per_node)
            if node is not None:
                return ((self.first + node, gpus),)
        shares = self._in_blocks(free, *divmod(gpus, self.per_node)) or self._gather(free, gpus)
        return tuple((self.first + node, count) for node, count in sorted(shares))

    def place_segments(self, free: Ints, gpus: int, segment: int) -> Nodes | Infeasible:
        if segment <= self.per_node:
            usable = free - free % segment
            if (short := gpus - int(usable.sum())) > 0:
                return Infeasible(f"segments of {segment} GPUs do not fit on nodes", gpus_short=short)
            return self.place(usable, gpus)
        each, wanted = segment // self.per_node, gpus // segment
        empty = free == self.per_node
        empty_in_domain = np.add.reduceat(empty, self.starts[0], dtype=np.int64)
        room = np.minimum(empty_in_domain, self.gang_nodes) // each
        if (short := wanted - int(room.sum())) > 0:
            reason = f"segments of {segment} GPUs do not fit in NVLink domains"
            return Infeasible(reason, nodes_short=short * each)
        nodes: list[int] = []
        for domain, take in self._choose_domains(room, empty_in_domain, wanted):
            low, high = int(self.starts[0][domain]), int(self.ends[0][domain])
            nodes += _block(empty[low:high], take * each, low)
        return tuple((self.first + node, self.per_node) for node in sorted(nodes))

    def _choose_domains(self, room: Ints, empty: Ints, wanted: int) -> list[Share]:
        """Return NVLink domains for the segments, under one switch of the lowest tier with room for all.

        Of switches, or domains, with room for equally many segments the one with the fewest free nodes.
        """
        for starts, ends in zip(self.starts, self.ends, strict=True):
            first = np.searchsorted(self.starts[0], starts)
            # Free nodes break ties: there are never more than all nodes.
            rank = np.add.reduceat(room * (self.nodes + 1) + empty, first)
            switch = _best_fit(rank, wanted * (self.nodes + 1), NONE)
            if switch is not None:
                low, high = np.searchsorted(self.starts[0], [starts[switch], ends[switch]]).tolist()
                order = low + np.lexsort((empty[low:high],))
                return [(int(order[at]), take) for at, take in _split(room[order].tolist(), wanted)]
        raise AssertionError("the tier of all domains has room")

    def _in_blocks(self, free: Ints, whole: int, rest: int) -> list[Share]:
        """Return `whole` wholly free nodes and `rest` GPUs on one more node; empty if too few are free."""
        empty = free == self.per_node
        spare = (free >= rest) & ~empty if whole and rest else np.zeros_like(empty)
        for tier, starts in enumerate(self.starts):
            counts = np.add.reduceat(empty, starts, dtype=np.int64)
            needed = whole + (rest > 0) - np.logical_or.reduceat(spare, starts)
            # Switches that spare a whole node, as a partly used one holds the rest, come first; among these
            # the one with the fewest empty nodes, so that large free blocks stay whole.
            rank = counts + (needed - needed.min()) * self.nodes
            switch = int(np.where(counts >= needed, rank, NONE).argmin())
            if counts[switch] >= needed[switch]:
                return self._fill(free, empty, tier, switch, whole, rest)
        return []

    def _fill(self, free: Ints, empty: Bools, tier: int, switch: int, whole: int, rest: int) -> list[Share]:
        low, high = int(self.starts[tier][switch]), int(self.ends[tier][switch])
        last = _best_fit(free[low:high], rest, self.per_node) if whole and rest else None
        shares: list[Share] = [] if last is None else [(low + last, rest)]
        nodes = self._pick(empty, tier, low, high, whole + (rest > 0 and last is None))
        if rest and last is None:
            shares.append((nodes.pop(), rest))
        return shares + [(node, self.per_node) for node in nodes]

    def _pick(self, empty: Bools, tier: int, low: int, high: int, wanted: int) -> list[int]:
        """Return `wanted` of the wholly free nodes low..high, the nodes under one switch of a tier."""
        if not wanted:
            return []
        if tier == 0:
            return _block(empty[low:high], wanted, low)
        starts, ends = self.starts[tier - 1], self.ends[tier - 1]
        inside = slice(int(np.searchsorted(starts, low)), int(np.searchsorted(starts, high)))
        starts, ends = starts[inside], ends[inside]
        counts = np.add.reduceat(empty[:high], starts, dtype=np.int64)
        picked: list[int] = []
        for child, take in _split(counts.tolist(), wanted):
            below, above = int(starts[child]), int(ends[child])
            if take == counts[child]:
                picked += (below + np.flatnonzero(empty[below:above])).tolist()
            else:
                picked += self._pick(empty, tier - 1, below, above, take)
        return picked

    def _gather(self, free: Ints, gpus: int) -> list[Share]:
        """Return free GPUs on the fewest nodes, under one switch of the lowest tier that has enough."""
        tier, totals = next(
            (tier, totals)
            for tier, starts in enumerate(self.starts)
            if (totals := np.add.reduceat(free, starts)).max() >= gpus
        )
        starts, ends = self.starts[tier], self.ends[tier]
        order = self._fullest_first(free, np.repeat(np.arange(len(starts)), ends - starts))
        sizes = free[order]
        running = np.cumsum(sizes)
        before = np.repeat(running[starts] - sizes[starts], ends - starts)
        short = np.add.reduceat(running - before < gpus, starts, dtype=np.int64)
        rank = np.where(totals >= gpus, short * (int(totals.max()) + 1) + totals, NONE)
        switch = int(rank.argmin())
        low, high = int(starts[switch]), int(ends[switch])
        cut = low + int(short[switch])
        shares = list(zip(order[low:cut].tolist(), sizes[low:cut].tolist(), strict=True))
        rest = gpus - int(sizes[low:cut].sum())
        # The fullest nodes are taken whole; the remainder goes to the node that it fills best, not to the
        # next.
        last = _best_fit(sizes[cut:high], rest, self.per_node + 1)
        assert last is not None
        return [*shares, (int(order[cut + last]), rest)]

    def _fullest_first(self, free: Ints, switch: Ints) -> Ints:
        """Return the nodes sorted by switch, then by free GPUs, most first, then by index."""
        nodes = np.arange(self.nodes)
        # One integer holds switch, free GPUs (most first) and node, so a single sort orders by all three.
        key = (switch * (self.per_node + 1) + self.per_node - free) * self.nodes + nodes
        key.sort()
        return key % self.nodes


def _best_fit(free: Ints, gpus: int, limit: int) -> int | None:
    """Return the first node with the fewest free GPUs that suffice and are below `limit`."""
    if not len(free):
        return None
    # Read as unsigned, what is short of `gpus` is larger than any count: the least is a best fit.
    node = int((free - gpus).view(np.uint64).argmin())
    return node if gpus <= free[node] < limit else None


def _split(counts: Iterable[int], wanted: int) -> list[Share]:
    """Split `wanted` over the fewest children: the largest counts first, a best fit for the rest."""
    left = sorted(enumerate(counts), key=lambda child: (-child[1], child[0]))
    shares: list[Share] = []
    for position, (child, count) in enumerate(left):
        if count >= wanted:
            best = min(left[position:], key=lambda other: (other[1] < wanted, other[1], other[0]))
            return [*shares, (best[0], wanted)]
        shares.append((child, count))
        wanted -= count
    return shares


def _block(empty: Bools, wanted: int, low: int) -> list[int]:
    """Return `wanted` free nodes of the leaf that starts at `low`, in an aligned block if there is one.

    The smallest free block that is large enough, or else the smallest blocks first, so that
    large blocks stay whole.
    """
    size = _block_sizes(empty)
    # The buddy rule: blocks have a power of two of nodes, and lie at multiples of their size.
    whole_block = 1 << (wanted - 1).bit_length()
    roomy = np.where(size >= whole_block, size, NONE)
    start = int(roomy.argmin())
    if roomy[start] != NONE:
        return list(range(low + start, low + start + wanted))
    free = np.flatnonzero(empty)
    picked: list[int] = free[np.argsort(size[free], kind="stable")[:wanted]].tolist()
    return [low + node for node in sorted(picked)]


def _block_sizes(empty: Bools) -> Ints:
    """Return the size of the largest aligned free block around each node; 0: the node is not free."""
    width = 1 << (len(empty) - 1).bit_length()
    blocks: Bools = np.zeros(width, dtype=np.bool_)
    blocks[: len(empty)] = empty
    size, step = blocks.astype(np.int64), 1
    while step < width and blocks.any():
        blocks, step = np.logical_and.reduce(blocks.reshape(-1, 2), axis=1), 2 * step
        size[np.repeat(blocks, step)] = step
    return size[: len(empty)]
