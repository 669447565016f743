"""An episode of the Sharing environment, and what a reward can weigh of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from clustergym.cluster.parts import WHOLE
from clustergym.envs.sharing.desk import AT, REJECTED, USED, begun, put
from clustergym.envs.sharing.streams import Stream


class SharingState:
    """A stream of requests, placed up to the one in hand.

    Parameters
    ----------
    stream : Stream

    Attributes
    ----------
    desk : clustergym.envs.sharing.desk.Desk
    number : int
        Requests of the stream.
    requests : ndarray of float32, shape (K, 4)
        CPU, memory, devices and part of each of a kind of request, from 0 to 1.
    """

    def __init__(self, stream: Stream) -> None:
        self.number, self._installed = len(stream.arrivals), stream.nodes.installed_milli
        self.requests = _scaled(stream)
        usual = stream.usual
        asked = float((usual.share * usual.gpus * usual.gpu_milli).sum())
        self._filling = max(self._installed / asked, 1.0) if asked > 0.0 else 1.0
        self.desk = begun(stream)
        self._first_fragments = self.fragments

    def put(self, node: int, device: int) -> None:
        """Place the request in hand where it fits, and go on to the next that fits somewhere."""
        put(self.desk, node, device)

    @property
    def arrival(self) -> int:
        """The request in hand: how many came before it."""
        return int(self.desk.counts[AT])

    @property
    def come(self) -> float:
        """Requests that have come, x, as x / (x + the usual requests that ask for all GPUs)."""
        return self.arrival / (self.arrival + self._filling)

    @property
    def over(self) -> bool:
        """Whether no request is left that fits anywhere."""
        return self.arrival == self.number

    @property
    def kind(self) -> int:
        """The kind of the request in hand."""
        return int(self.desk.arrivals[self.arrival])

    @property
    def part(self) -> bool:
        """Whether the request in hand asks for a part of a GPU."""
        return 0 < int(self.desk.kinds.gpu_milli[self.kind]) < WHOLE

    @property
    def rejected(self) -> int:
        """Requests so far that fitted nowhere."""
        return int(self.desk.counts[REJECTED])

    @property
    def allocated(self) -> float:
        """Share of the installed GPUs that is allocated."""
        return int(self.desk.counts[USED]) / self._installed

    @property
    def fragments(self) -> float:
        """Share of the installed GPUs that is idle and that a usual request cannot use (FGD's definition)."""
        return float(self.desk.fragments.sum()) / self._installed

    @property
    def allocated_cost(self) -> float:
        """Minus the share that is allocated."""
        return -self.allocated

    @property
    def mean_allocated(self) -> float:
        """Mean, over the arrivals so far, of the share that was allocated after each."""
        return int(self.desk.used_sum[0]) / (self._installed * max(self.arrival, 1))

    @property
    def mean_allocated_cost(self) -> float:
        """Minus the sum, over the arrivals so far, of the share allocated, over all arrivals."""
        return -int(self.desk.used_sum[0]) / (self._installed * self.number)

    @property
    def fragments_cost(self) -> float:
        """The fragments, less those of the start."""
        return self.fragments - self._first_fragments

    @property
    def rejected_cost(self) -> float:
        """Requests rejected, over all."""
        return self.rejected / self.number


def _scaled(stream: Stream) -> npt.NDArray[np.float32]:
    kinds, nodes = stream.kinds, stream.nodes
    columns = (kinds.cpu_milli, kinds.memory_mib, kinds.gpus, kinds.gpu_milli)
    most = (nodes.cpu_milli, nodes.memory_mib, nodes.devices)
    largest = [max(int(column.max()), 1) for column in most] + [WHOLE]
    return np.minimum(np.stack(columns, axis=1) / largest, 1.0).astype(np.float32)


COSTS: Mapping[str, Callable[[SharingState], float]] = {
    name: attrgetter(f"{name}_cost") for name in ("allocated", "mean_allocated", "fragments", "rejected")
}
"""The costs that a reward can weigh; each is 0 before the first request."""
