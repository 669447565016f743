"""Bandwidths of one GPU type in a cluster, and how long collectives take over them by alpha-beta."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from clustergym.cluster.spec import GpuType, Locality
from clustergym.oracle.communication.constants import Medium
from clustergym.oracle.communication.primitives import Primitive, factors, steps

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Bandwidth:
    """Data-sheet bandwidths, GB/s in one direction.

    Attributes
    ----------
    link_gbs : float
        Per GPU inside a node.
    network_gbs : tuple of float
        Per node, by locality; inside a node it does not count.
    port_per_gpu : bool
        Whether every GPU has a network port, so that a group has only those of its ranks.
    gpus_per_node : int
        How many such ports a node has.
    """

    link_gbs: float
    network_gbs: tuple[float, ...]
    port_per_gpu: bool = False
    gpus_per_node: int = 1

    @staticmethod
    def of_type(gpu: GpuType, gpus_per_node: int = 1) -> Bandwidth:
        """Return the bandwidths of a GPU type in a network that is not oversubscribed."""
        ports = gpus_per_node if gpu.nic_per_gpu else 1
        rate = gpu.nic_gbps / 8 * ports
        return Bandwidth(gpu.link_gbs, (rate,) * len(Locality), gpu.nic_per_gpu, gpus_per_node)

    def network_of_group(self, inside: Floats, sharing: Floats, locality: Floats) -> Floats:
        """Return GB/s of a node's network for one of the `sharing` groups with `inside` ranks on it."""
        node = np.asarray(self.network_gbs)[np.maximum(locality, Locality.LEAF).astype(np.int64)]
        fair = node / sharing
        return np.minimum(fair, node * inside / self.gpus_per_node) if self.port_per_gpu else fair


@dataclass(frozen=True)
class Hardware:
    """A GPU type of a cluster.

    Attributes
    ----------
    actual, reference : Bandwidth
        Of the cluster, and of the nodes that measured tables of this type were taken on.
    link, network : Medium
        Alpha-beta constants.
    """

    actual: Bandwidth
    reference: Bandwidth
    link: Medium
    network: Medium

    def alpha_beta_s(
        self,
        primitive: Primitive,
        volume_bytes: Floats,
        ranks: Floats,
        nodes: Floats,
        sharing: Floats,
        locality: Floats,
    ) -> Floats:
        """Return latency plus volume over bandwidth, seconds; all arguments broadcast.

        Across nodes the slower of link and network sets the pace of a ring. Groups that run at
        once on the same nodes share the network; links inside a node are each GPU's own.
        """
        moved = factors(primitive, ranks, nodes)
        inside = ranks / nodes
        pair = np.minimum(1.0, self.link.pair_share.get(primitive, 1.0) * np.maximum(ranks - 1, 1))
        link = self.actual.link_gbs * 1e9 * self.link.share[primitive] * np.where(nodes > 1, 1.0, pair)
        network = self.actual.network_of_group(inside, sharing, locality)
        network = network * 1e9 * self.network.share[primitive]
        if primitive != Primitive.SEND:
            network = network * np.where(inside * sharing <= 1, self.network.alone_speedup, 1.0)
        seconds = volume_bytes * np.maximum(moved.link / link, moved.network / network)
        return np.asarray(seconds + self._latency(primitive, ranks, nodes))

    def _latency(self, primitive: Primitive, ranks: Floats, nodes: Floats) -> Floats:
        inside, across = steps(primitive, ranks, nodes)
        first = np.where(nodes > 1, self.network.latency_s[primitive], self.link.latency_s[primitive])
        hops = inside * (self.link.step_s or 0.0) + across * (self.network.step_s or 0.0)
        return np.asarray(first + hops)

    def scale_to_reference(self, ranks: int, nodes: int, sharing: int, locality: Floats) -> Floats:
        """Return reference bandwidth over that of the cluster, for one group.

        A medium half as fast needs as long for a volume as the measured one for twice the volume.
        """
        if nodes == 1:
            return np.asarray(self.reference.link_gbs / self.actual.link_gbs)
        inside, share = np.asarray(ranks / nodes), np.asarray(float(sharing))
        best = self.reference.network_of_group(inside, share, np.asarray(float(Locality.LEAF)))
        return np.asarray(best / self.actual.network_of_group(inside, share, locality))
