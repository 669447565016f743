"""A back end in memory, for tests and for a look at what a live run does."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from clustergym.common.arrays import Ints
from clustergym.live.backend import Backend, BackendStatus, Claim, FinishedAllocation, Part


class FakeBackend(Backend):
    """A back end that allocates the GPUs of nodes in memory, without a real scheduler.

    Parameters
    ----------
    node_gpus : ndarray of int, shape (N,)
    """

    told = "in memory"

    def __init__(self, node_gpus: Ints) -> None:
        self.node_gpus: list[int] = node_gpus.tolist()
        self.parts: dict[str, Part] = {}
        self._began: dict[str, float] = {}
        self.down: set[int] = set()
        self.ended: list[FinishedAllocation] = []

    def first_claim(self) -> Claim | None:
        """Return None, since no other run can claim a cluster in memory."""
        return None

    def others(self) -> list[str]:
        """Return no jobs, since no other user has any in memory."""
        return []

    def claim(self, where: str) -> None:
        """Do nothing, since nobody else uses a cluster in memory."""

    def submit(self, name: str, part: Part) -> str:
        """Start an allocation if its GPUs are free; return why it cannot start, or an empty text."""
        if name in self.parts:
            return ""
        for node in part.nodes:
            held = sum(other.gpus for other in self.parts.values() if node in other.nodes)
            if node in self.down or held + part.gpus > self.node_gpus[node]:
                return f"node {node} has not {part.gpus} GPUs free"
        self.parts[name], self._began[name] = part, time.time()
        return ""

    def cancel(self, names: Collection[str]) -> None:
        """End allocations, given their names."""
        for name in names:
            self._end(name, "CANCELLED")

    def _end(self, name: str, state: str) -> None:
        part = self.parts.pop(name, None)
        if part is not None:
            self.ended.append(FinishedAllocation(name, state, part.nodes, self._began.pop(name), time.time()))

    def poll(self) -> BackendStatus:
        """Return the allocations that are held, and the nodes that are out of use."""
        return BackendStatus(dict(self.parts), frozenset(self.down))

    def node_down(self, node: int) -> None:
        """Take a node out of use, and end the allocations on it."""
        self.down.add(node)
        for name in [name for name, part in self.parts.items() if node in part.nodes]:
            self._end(name, "NODE_FAIL")

    def node_up(self, node: int) -> None:
        """Put a node back into use."""
        self.down.discard(node)

    def log(self) -> Sequence[FinishedAllocation] | None:
        """Return the allocations that have ended."""
        return self.ended

    def close(self) -> str:
        """End all allocations that are held; return an empty text, as nothing can be left."""
        self.cancel(list(self.parts))
        return ""


class PrintingBackend(FakeBackend):
    """A back end in memory that also prints the calls which a real back end would make.

    Parameters
    ----------
    node_gpus : ndarray of int, shape (N,)
    words : callable
        Returns the words of a call: of a submission by name and part, of the others by their name and what
        they name.
    """

    def __init__(self, node_gpus: Ints, words: Callable[..., str]) -> None:
        super().__init__(node_gpus)
        self._words = words

    def submit(self, name: str, part: Part) -> str:
        """Print the call that would allocate GPUs, and allocate them in memory."""
        print(self._words("submit", name, part))
        return super().submit(name, part)

    def cancel(self, names: Collection[str]) -> None:
        """Print the call that would end allocations, and end them in memory."""
        held = sorted(set(names) & self.parts.keys())
        if held:
            print(self._words("cancel", held))
        super().cancel(names)

    def node_down(self, node: int) -> None:
        """Print the call that would take a node out of use, and do so in memory."""
        print(self._words("down", node))
        super().node_down(node)

    def node_up(self, node: int) -> None:
        """Print the call that would put a node back into use, and do so in memory."""
        print(self._words("up", node))
        super().node_up(node)
