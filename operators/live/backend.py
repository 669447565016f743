"""What a live run asks of a scheduler, and a back end in memory that answers.

The back end in memory is for tests and for a look at what a live run does.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from clustergym.cluster.spec import Nodes
from clustergym.common.arrays import Ints
from clustergym.common.errors import InputError


class NoAnswerError(InputError):
    """The scheduler gave no readable answer to a call; it may answer if it is asked again."""


@dataclass(frozen=True)
class Part:
    """A part of an allocation: nodes, and the number of GPUs that it has on each of them.

    Attributes
    ----------
    nodes : tuple of int
        Nodes of the scenario's cluster, ascending.
    gpus : int
        GPUs on each.
    """

    nodes: tuple[int, ...]
    gpus: int


def list_parts(name: str, nodes: Nodes) -> dict[str, Part]:
    """Split (node, GPUs) pairs of launch `name` into parts `name.0`, `name.1` … of equal GPUs per node."""
    counts = sorted({gpus for _, gpus in nodes}, reverse=True)
    return {
        f"{name}.{number}": Part(tuple(node for node, on_node in nodes if on_node == gpus), gpus)
        for number, gpus in enumerate(counts)
    }


@dataclass(frozen=True)
class BackendStatus:
    """The state of a real scheduler: this run's allocations, and the nodes that are out of use.

    Attributes
    ----------
    parts : mapping of str to Part
        Allocations of this run that hold nodes, by name.
    down : frozenset of int
        Nodes that are out of use.
    unsure : frozenset of int
        Nodes of which the scheduler does not know now whether they can be used: it was just started, or they
        do not answer it.
    """

    parts: Mapping[str, Part]
    down: frozenset[int]
    unsure: frozenset[int] = frozenset()


@dataclass(frozen=True)
class FinishedAllocation:
    """An allocation that ended, from the scheduler's own log; times are seconds since 1970."""

    name: str
    state: str
    nodes: tuple[int, ...]
    start_s: float
    end_s: float


class FakeBackend:
    """A back end that allocates the GPUs of nodes in memory, without a real scheduler.

    What a live run asks of a back end is what this one has. A call whose effect `poll` does not confirm is
    made again.

    Parameters
    ----------
    node_gpus : ndarray of int, shape (N,)

    Attributes
    ----------
    told : str
        What it is, for the result.
    """

    told = "in memory"

    def __init__(self, node_gpus: Ints) -> None:
        self.node_gpus: list[int] = node_gpus.tolist()
        self.parts: dict[str, Part] = {}
        self._began: dict[str, float] = {}
        self.down: set[int] = set()
        self.ended: list[FinishedAllocation] = []

    def submit(self, name: str, part: Part) -> str:
        """Allocate a part (GPUs on each of some nodes) under a name; return why it fails, or empty text."""
        if name in self.parts:
            return ""
        for node in part.nodes:
            held = sum(other.gpus for other in self.parts.values() if node in other.nodes)
            if node in self.down or held + part.gpus > self.node_gpus[node]:
                return f"node {node} has not {part.gpus} GPUs free"
        self.parts[name], self._began[name] = part, time.time()
        return ""

    def cancel(self, names: Collection[str]) -> None:
        """End allocations of this run; names without an allocation are ignored."""
        for name in names:
            self._end(name, "CANCELLED")

    def _end(self, name: str, state: str) -> None:
        part = self.parts.pop(name, None)
        if part is not None:
            self.ended.append(FinishedAllocation(name, state, part.nodes, self._began.pop(name), time.time()))

    def poll(self) -> BackendStatus:
        """Return this run's allocations with their nodes, and the nodes that are out of use.

        A real scheduler that does not know that now raises a `NoAnswerError`.
        """
        return BackendStatus(dict(self.parts), frozenset(self.down))

    def node_down(self, node: int) -> None:
        """Take a node out of use, and end everything that runs there."""
        self.down.add(node)
        for name in [name for name, part in self.parts.items() if node in part.nodes]:
            self._end(name, "NODE_FAIL")

    def node_up(self, node: int) -> None:
        """Put a node back into use."""
        self.down.discard(node)

    def log(self) -> Sequence[FinishedAllocation] | None:
        """Return the scheduler's own log of this run's ended allocations; None if it keeps no log."""
        return self.ended
