"""Account for which job holds which part of which GPU, CPU and memory, and refuse to give one twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import index

import numpy as np

from clustergym.cluster.allocation import AllocationError, Allocations
from clustergym.cluster.divisible import DivisibleCluster
from clustergym.cluster.parts import WHOLE, Parts, Place, book
from clustergym.cluster.spec import Nodes


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
