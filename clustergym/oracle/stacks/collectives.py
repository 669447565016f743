"""Seconds of collectives on a machine, held to Vidur's measurements (MLSys '24) of DGX A100 and DGX H100.

A message takes the faster of two protocols, each a latency and a bandwidth: one for small messages, which
starts soon, and one for large ones, which fills the link (NCCL's LL and Simple).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.oracle.models.shape import Machine


class Protocol(NamedTuple):
    """A message's latency in seconds, and the share of the link's line rate at which it is sent."""

    latency_s: float
    share: float


ALL_REDUCE: Mapping[bool, tuple[Protocol, Protocol]] = {
    True: (Protocol(27e-6, 0.65), Protocol(40e-6, 0.83)),
    False: (Protocol(35e-6, 0.46), Protocol(78e-6, 0.64)),
}
"""Protocols of an all-reduce of 2 to 8 GPUs of a node, with and without switches that add up (NVLink 4 and
later): H100, where the second is that of 8 GPUs, and A100."""
NETWORK = Protocol(19e-6, 0.72)
"""Of one GPU to one of another node, over a port of its own: H100."""


def all_reduce_s(machine: Machine, size_bytes: float | Floats, ranks: int | Ints) -> Any:
    """Return the seconds of an all-reduce of a buffer among GPUs in one NVLink domain."""
    # A ring sends each of the `ranks` parts of the buffer on ranks - 1 times to add them up, and as often to
    # hand the sums out.
    moved = 2 * (ranks - 1) / ranks * size_bytes / (machine.link_gbs * 1e9)
    small, large = ALL_REDUCE[machine.adds_in_switch]
    return np.minimum(small.latency_s + moved / small.share, large.latency_s + moved / large.share)


def link_bytes_per_s(machine: Machine) -> float:
    """Return the bytes/s that large collectives reach on a GPU's NVLink."""
    return float(machine.link_gbs * 1e9 * ALL_REDUCE[machine.adds_in_switch][1].share)


def network_bytes_per_s(machine: Machine) -> float:
    """Return the bytes/s that large messages reach on a GPU's network port."""
    return machine.nic_gbps / 8 * 1e9 * NETWORK.share


def gather_s(machine: Machine, size_bytes: float, ranks: int) -> float:
    """Return the seconds of an all-gather or a reduce-scatter of a buffer in one NVLink domain."""
    if ranks == 1:
        return 0.0
    return float(all_reduce_s(machine, size_bytes, ranks)) / 2


def ring_s(machine: Machine, size_bytes: float, ranks: int, members: int, collectives: float) -> float:
    """Return the seconds of ring all-gathers or reduce-scatters of `ranks` GPUs, `members` per NVLink domain.

    A ring over nodes uses the ports of all of its members in a node, and is no faster than NVLink. Latency of
    more than two nodes was not measured: that of a hop counts once.

    Parameters
    ----------
    members : int
        Ranks in each domain.
    collectives : float
        In how many the bytes go, one after another.
    """
    if ranks == 1:
        return 0.0
    speed, latency_s = link_bytes_per_s(machine), ALL_REDUCE[machine.adds_in_switch][1].latency_s / 2
    if ranks > members:
        # The ring leaves a domain through one port for each member that it has there.
        speed, latency_s = min(speed, members * network_bytes_per_s(machine)), latency_s + NETWORK.latency_s
    return size_bytes * (ranks - 1) / ranks / speed + collectives * latency_s
