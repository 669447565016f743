"""The view of jobs that ask for parts of GPUs, and of the nodes that can be divided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from clustergym.cluster.parts import Nodes, Requests
from clustergym.common.arrays import Ints


@dataclass(frozen=True)
class PartView:
    """What the n jobs of a View request and hold on nodes whose GPUs are divisible.

    Attributes
    ----------
    requests : Requests
        The distinct requests of the whole trace; a policy reads its rows of the View alone.
    request : ndarray of int, shape (n,)
        Each job's request, a row of `requests`.
    node, devices : ndarray of int, shape (n,)
        Of running jobs: the node, and the devices as bits (0: none); node -1: the job waits.
    """

    requests: Requests
    request: Ints
    node: Ints
    devices: Ints
    copied: Callable[[], Nodes] = field(repr=False)

    def nodes(self) -> Nodes:
        """Return a copy of the nodes' present state, on which a policy can try placements."""
        return self.copied()
