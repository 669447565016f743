"""Account for which job holds which GPU, or which parts of GPUs, CPU and memory; none can be given twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView, Set
from contextlib import contextmanager
from operator import index

import numpy as np

from clustergym.cluster.parts import WHOLE, DivisibleCluster, Parts, Place, book
from clustergym.cluster.spec import ClusterSpec, Nodes
from clustergym.common.arrays import Ints


class AllocationError(RuntimeError):
    """An impossible allocation or release, caused by a bug in a placer or in the engine."""


class Allocations:
    """Which job or profiling run (that measures speed) holds which GPUs of a cluster, and which are free.

    A method that raises leaves the state as it was.

    Parameters
    ----------
    spec : ClusterSpec

    Attributes
    ----------
    free_on_node : ndarray of int, shape (N,)
        Free GPUs of each node; read-only, follows the state.
    free : ndarray of int, shape (T,)
        Free GPUs of each type; read-only, follows the state.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self._free_on_node, self._free = spec.node_gpus.copy(), spec.capacity.copy()
        self.free_on_node: Ints = _read_only(self._free_on_node)
        self.free: Ints = _read_only(self._free)
        self._type_of_node: list[int] = spec.node_type.tolist()
        self.nodes_of: dict[int, Nodes] = {}
        self._beside: dict[int, int] = {}
        self._down: set[int] = set()

    @property
    def holders(self) -> KeysView[int]:
        """What holds GPUs, in order of allocation: jobs (their rows, >= 0) and profiling runs (< 0)."""
        return self.nodes_of.keys()

    def holding(self, holder: int) -> Nodes:
        """Return the (node, GPUs) pairs that a job or profiling run holds; empty if none."""
        return self.nodes_of.get(holder, ())

    def allocate(self, holder: int, nodes: Nodes) -> None:
        """Give GPUs, as (node, GPUs) pairs, to a job or profiling run that holds none.

        Parameters
        ----------
        holder : int
        nodes : Nodes
            (node, GPUs) pairs of one GPU type, nodes ascending.

        Raises
        ------
        AllocationError
            If the holder holds GPUs already, if there are no nodes, a node is unknown, listed
            twice or out of order, of another type than the first, or has not that many GPUs free.
        """
        holder = index(holder)
        if holder in self.nodes_of:
            raise AllocationError(f"holder {holder} already holds {_format_nodes(self.nodes_of[holder])}")
        pairs = tuple((index(node), index(gpus)) for node, gpus in nodes)
        gpu_type = self._check(holder, pairs)
        free_on_node, total = self._free_on_node, 0
        for node, gpus in pairs:
            free_on_node[node] -= gpus
            total += gpus
        self._free[gpu_type] -= total
        self.nodes_of[holder] = pairs

    def share(self, holder: int, other: int) -> Nodes:
        """Let a job use the same GPUs that another holds, and return them as (node, GPUs) pairs.

        Raises
        ------
        AllocationError
            If the holder holds GPUs already, or the other holds none or shares its GPUs already.
        """
        if holder in self.nodes_of:
            raise AllocationError(f"holder {holder} already holds {_format_nodes(self.nodes_of[holder])}")
        if other not in self.nodes_of or other in self._beside:
            what = "shares its GPUs already" if other in self._beside else "holds no GPUs to share"
            raise AllocationError(f"holder {other} {what}")
        self.nodes_of[holder] = self.nodes_of[other]
        self._beside[holder], self._beside[other] = other, holder
        return self.nodes_of[holder]

    def release(self, holder: int) -> Nodes:
        """Take back all GPUs of a job or profiling run, and return them as (node, GPUs) pairs.

        Raises
        ------
        AllocationError
            If it holds nothing.
        """
        nodes = self.nodes_of.pop(holder, None)
        if nodes is None:
            raise AllocationError(f"holder {holder} holds no GPUs to release")
        if self._beside:
            other = self._beside.pop(holder, None)
            if other is not None:
                del self._beside[other]
                return nodes
        free_on_node, total = self._free_on_node, 0
        for node, gpus in nodes:
            free_on_node[node] += gpus
            total += gpus
        self._free[self._type_of_node[nodes[0][0]]] += total
        return nodes

    @property
    def down(self) -> Set[int]:
        """Nodes that have failed and are not yet repaired; their GPUs are not free."""
        return self._down

    def fail(self, node: int) -> None:
        """Take a failed node, on which no GPU is held, out of use.

        Raises
        ------
        AllocationError
            If GPUs on it are held, or it is out of use already.
        """
        if node in self._down or self._free_on_node[node] != self.spec.node_gpus[node]:
            raise AllocationError(f"node {node} cannot be taken out of use: it is not wholly free")
        self._down.add(node)
        self.set_free(node, 0)

    def repair(self, node: int) -> None:
        """Put a repaired node back into use.

        Raises
        ------
        AllocationError
            If it is in use.
        """
        if node not in self._down:
            raise AllocationError(f"node {node} is not out of use")
        self._down.remove(node)
        self.set_free(node, int(self.spec.node_gpus[node]))

    @contextmanager
    def hidden(self, nodes: Iterable[int]) -> Iterator[None]:
        """Give a context in which the free GPUs of some nodes count as taken.

        Nothing may be allocated or released inside the block.
        """
        were = {node: int(self._free_on_node[node]) for node in nodes}
        for node in were:
            self.set_free(node, 0)
        try:
            yield
        finally:
            for node, gpus in were.items():
                self.set_free(node, gpus)

    def set_free(self, node: int, gpus: int) -> None:
        """Set how many GPUs of a node are free, and update the free GPUs of its type."""
        self._free[self._type_of_node[node]] += gpus - self._free_on_node[node]
        self._free_on_node[node] = gpus

    def _check(self, holder: int, nodes: Nodes) -> int:
        if not nodes:
            raise AllocationError(f"holder {holder} is given no nodes")
        types, free_on_node, previous = self._type_of_node, self._free_on_node, -1
        for node, gpus in nodes:
            if not 0 <= node < len(types):
                raise AllocationError(f"holder {holder}: unknown node {node} of {len(types)}")
            if node <= previous:
                raise AllocationError(f"holder {holder}: node {node} is listed twice or out of order")
            if types[node] != types[nodes[0][0]]:
                raise AllocationError(self._explain_mixed(holder, nodes[0][0], node))
            if gpus <= 0:
                raise AllocationError(f"holder {holder}: {gpus} GPUs on node {node}, must be at least 1")
            if gpus > free_on_node[node]:
                raise AllocationError(self._explain_taken(holder, node, gpus))
            previous = node
        return types[nodes[0][0]]

    def _explain_mixed(self, holder: int, first: int, node: int) -> str:
        names, types = self.spec.gpu_types, self._type_of_node
        return (
            f"holder {holder}: node {node} has {names[types[node]]}, node {first} {names[types[first]]};"
            " one GPU type per holder"
        )

    def _explain_taken(self, holder: int, node: int, gpus: int) -> str:
        others = [other for other, nodes in self.nodes_of.items() if any(node == at for at, _ in nodes)]
        by = (
            f", held by {', '.join(map(str, others[:4]))}{', …' if len(others) > 4 else ''}" if others else ""
        )
        free, size = self._free_on_node[node], self.spec.node_gpus[node]
        return f"holder {holder}: {gpus} GPUs on node {node}, of which {free} of {size} are free{by}"


def _read_only(array: Ints) -> Ints:
    view = array.view()
    view.flags.writeable = False
    return view


def _format_nodes(nodes: Nodes) -> str:
    parts = [f"{gpus} on node {node}" for node, gpus in nodes[:4]]
    return ", ".join(parts) + (", …" if len(nodes) > 4 else "")


class PartAllocations(Allocations):
    """Which job holds which parts of the nodes of a cluster whose GPUs can be divided.

    `free_on_node` and `free` count untouched GPUs. A job without GPUs holds one node like all others, and the
    pair (node, 1). A method that raises leaves the state as it was.

    Attributes
    ----------
    parts : Parts
        What each job asks for; holders are rows of it.
    nodes : clustergym.cluster.parts.Nodes
        What is free; to be read only.
    node_of, devices_of : ndarray of int, shape (n,)
        Each job's node, -1: none, and its devices there as bits; to be read only.
    """

    def __init__(self, spec: DivisibleCluster, parts: Parts) -> None:
        super().__init__(spec)
        self.parts, self.nodes = parts, spec.empty_nodes()
        self._whole = spec.empty_nodes()
        self._requests = [parts.requests.unpack_row(request) for request in range(len(parts.requests.gpus))]
        self._request_of: list[int] = parts.request.tolist()
        self._intended: tuple[int, Place] | None = None
        self.node_of, self.devices_of = (
            np.full(len(parts.request), -1),
            np.zeros(len(parts.request), dtype=np.int64),
        )

    def count_gpus(self, row: int) -> int:
        """Return a job's GPUs as a whole number: at least 1, even for a fraction of a GPU."""
        return max(self._requests[self._request_of[row]][2], 1)

    def intend(self, row: int, place: Place) -> Nodes:
        """Set the node and device that the next `allocate` gives a job; return the node to pass to it.

        Raises
        ------
        AllocationError
            If the place does not exist or has not what the job asks for.
        """
        place = Place(index(place.node), index(place.device))
        self._choose_devices(row, place)
        self._intended = row, place
        return ((place.node, self.count_gpus(row)),)

    def allocate(self, holder: int, nodes: Nodes) -> None:
        """Give a job the node and device that `intend` set for it.

        Raises
        ------
        AllocationError
            If it holds something already, or no place was noted, or that one is taken.
        """
        holder = index(holder)
        if holder in self.nodes_of:
            raise AllocationError(
                f"holder {holder} already holds a part of node {self.nodes_of[holder][0][0]}"
            )
        if self._intended is None or self._intended[0] != holder or nodes[0][0] != self._intended[1].node:
            raise AllocationError(f"holder {holder} is given {nodes}, which no placer chose for it")
        devices = self._choose_devices(*self._intended)
        self._book(holder, nodes[0][0], devices, -1)
        self.nodes_of[holder], self._intended = nodes, None
        self.node_of[holder], self.devices_of[holder] = nodes[0][0], devices

    def release(self, holder: int) -> Nodes:
        """Take back all that a job holds, and return its node.

        Raises the errors of `Allocations.release`.
        """
        if holder not in self.nodes_of:
            raise AllocationError(f"holder {holder} holds nothing to release")
        nodes = self.nodes_of.pop(holder)
        self._book(holder, nodes[0][0], int(self.devices_of[holder]), 1)
        self.node_of[holder], self.devices_of[holder] = -1, 0
        return nodes

    def fail(self, node: int) -> None:
        """Take a failed node, on which no job holds anything, out of use.

        Raises the errors of `Allocations.fail`.
        """
        if any(at == node for nodes in self.nodes_of.values() for at, _ in nodes):
            raise AllocationError(f"node {node} cannot be taken out of use: a job holds a part of it")
        super().fail(node)
        for column in (self.nodes.cpu_milli, self.nodes.memory_mib, self.nodes.gpu_milli):
            column[node] = 0
        self.nodes.version[node] += 1

    def repair(self, node: int) -> None:
        """Put a repaired node back into use.

        Raises the errors of `Allocations.repair`.
        """
        super().repair(node)
        for name in ("cpu_milli", "memory_mib", "gpu_milli"):
            getattr(self.nodes, name)[node] = getattr(self._whole, name)[node]
        self.nodes.version[node] += 1

    @contextmanager
    def hidden(self, nodes: Iterable[int]) -> Iterator[None]:
        """Give a context that hides no nodes; raise an AllocationError if `nodes` names any to hide."""
        if list(nodes):
            raise AllocationError("divisible nodes cannot be kept for planned jobs")
        yield

    def _choose_devices(self, row: int, place: Place) -> int:
        """Return the devices, as bits, that a job takes at a place; raise an AllocationError if it cannot."""
        cpu, memory, gpus, milli, models = self._requests[self._request_of[row]]
        nodes, (node, device) = self.nodes, place
        if not 0 <= node < len(nodes.devices) or node in self.down:
            raise AllocationError(f"holder {row}: no node {node} is in use")
        if cpu > nodes.cpu_milli[node] or memory > nodes.memory_mib[node]:
            raise AllocationError(f"holder {row}: node {node} has too little CPU or memory")
        if not gpus:
            return 0
        if not (models >> int(nodes.model[node])) & 1:
            raise AllocationError(f"holder {row}: node {node} has GPUs of a model that it does not accept")
        free: list[int] = nodes.gpu_milli[node].tolist()
        if milli < WHOLE:
            if not 0 <= device < int(nodes.devices[node]) or free[device] < milli:
                raise AllocationError(f"holder {row}: GPU {device} of node {node} has not {milli} free")
            return 1 << device
        untouched = [at for at, left in enumerate(free) if left == WHOLE][:gpus]
        if len(untouched) < gpus:
            raise AllocationError(f"holder {row}: {gpus} GPUs on node {node}, {len(untouched)} are free")
        return sum(1 << at for at in untouched)

    def _book(self, row: int, node: int, devices: int, sign: int) -> None:
        """Subtract (-1) or add (1) a job's request from its node's free resources."""
        book(self.nodes, self._requests[self._request_of[row]], node, devices, sign)
        self.set_free(node, int(np.count_nonzero(self.nodes.gpu_milli[node] == WHOLE)))
