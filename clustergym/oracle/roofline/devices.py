"""GPU types and their links as arrays, with the rates that computation and collectives reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from clustergym.cluster.spec import ClusterSpec, GpuType, Locality
from clustergym.common.arrays import Bools, Floats


@dataclass(frozen=True)
class Efficiency:
    """Shares of data-sheet rates that a GPU type and its network reach in practice.

    Attributes
    ----------
    matmul, convolution : float
        Of the fp16 and of the fp32 peak, by large kernels.
    network, transfer : float
        Of the line rate of a port that a node's GPUs share: by collectives, and between pipeline stages.
        Where every GPU has a port, `PORT_SHARE` holds for both.
    """

    matmul: float = 0.72
    convolution: float = 0.55
    network: float = 0.3
    transfer: float = 0.1


EFFICIENCY = {
    "A100": Efficiency(matmul=0.80, convolution=0.63, network=0.48, transfer=0.28),
    "A40": Efficiency(matmul=0.79, convolution=0.235, network=0.27, transfer=0.04),
    "A10": Efficiency(matmul=0.64, convolution=0.24, network=0.15, transfer=0.036),
    "V100": Efficiency(matmul=0.78),
    "L20": Efficiency(convolution=0.24),
}
"""Fitted to the measured rows of Arena's artifact (arena_profile.csv, `optimal`): matmul and
convolution on its single nodes; collectives reach 6, 3.4 and 3.7 GB/s a node on A100, A40 and A10, transfers
between stages 3.5, 0.5 and 0.9. The L20 shares the A40's design of fp32 lanes."""

UNIFORM = Efficiency()
"""What an estimate assumes of kernels on every device."""

PORT_SHARE = 0.72
"""Share of the line rate that messages reach where each GPU has a port of its own (`nic_per_gpu`): one
GPU of an H100 DGX node sends 36 GB/s to one of another node, over a port of 400 Gbit/s (Vidur, MLSys '24,
measured send and receive, 4 to 67 MB). Collectives were not measured on such nodes; a ring over all ports
sends on each of them, and is taken to reach as much."""

HALF_FP32 = frozenset({"A40", "A10", "L20"})
"""GPU types whose fp32 peak counts lanes that are shared with integer instructions (NVIDIA's GA102 and AD102
whitepapers): half the peak is a roofline for convolutions."""

LINK_SHARE = {"pcie": 0.43, "nvlink": 0.7}
"""Share of a link's data sheet that large all-reduces reach inside a node (arena_comm.csv: 13 to 14 GB/s on
PCIe 4, 120 of 150 on NVLink 2, 180 to 210 of 300 on NVLink 3 with four GPUs)."""


class Devices(NamedTuple):
    """FLOP/s, memory and bandwidth of GPU types as arrays."""

    peak_flops: Floats
    matmul_flops: Floats
    convolution_flops: Floats
    uniform_convolution_flops: Floats
    memory_bytes: Floats
    memory_bytes_per_s: Floats

    @staticmethod
    def from_types(types: Sequence[GpuType]) -> Devices:
        """Gather the rates of n GPU types into arrays of shape (n,)."""
        return Devices(*np.array([_device(gpu) for gpu in types], dtype=np.float64).reshape(-1, 6).T)

    def reshape(self, *shape: int) -> Devices:
        """Return a copy with all arrays reshaped."""
        return Devices(*(column.reshape(shape) for column in self))


def _device(gpu: GpuType) -> tuple[float, ...]:
    efficiency = EFFICIENCY.get(gpu.name, UNIFORM)
    half, single = gpu.fp16_tflops * 1e12, gpu.fp32_tflops * 1e12
    # Only for the estimate, which does not know the type's own efficiency; the executed rate has it fitted.
    roof = single / 2 if gpu.name in HALF_FP32 else single
    return (
        half,
        half * efficiency.matmul,
        single * efficiency.convolution,
        roof * UNIFORM.convolution,
        gpu.memory_gb * 1e9,
        gpu.memory_gbs * 1e9,
    )


def link_gbs(gpu: GpuType) -> float:
    """Return the GB/s that collectives reach on a GPU's link inside a node."""
    share = next((s for link, s in LINK_SHARE.items() if gpu.links_by(link)), min(LINK_SHARE.values()))
    return gpu.link_gbs * share


def network_shares(gpu: GpuType) -> tuple[float, float]:
    """Return the shares of the network's line rate that collectives reach, and transfers between stages."""
    if gpu.nic_per_gpu:
        return PORT_SHARE, PORT_SHARE
    efficiency = EFFICIENCY.get(gpu.name, UNIFORM)
    return efficiency.network, efficiency.transfer


class Layout(NamedTuple):
    """How jobs' GPUs lie on nodes, and the bandwidths between them, as arrays.

    Attributes
    ----------
    gpus, nodes, per_node : ndarray of float
        GPUs in all, the nodes they are on, and GPUs on a node.
    link_gbs, network_gbs, transfer_gbs : ndarray of float
        GB/s reached: inside a node per GPU, and across nodes per node by collectives and by
        transfers between pipeline stages.
    possible : ndarray of bool
    """

    gpus: Floats
    nodes: Floats
    per_node: Floats
    link_gbs: Floats
    network_gbs: Floats
    transfer_gbs: Floats
    possible: Bools

    @staticmethod
    def of_cluster(cluster: ClusterSpec, counts: Sequence[int]) -> Layout:
        """Return layouts by GPU type, GPU count and network tier (`Locality`), as arrays of shape (T, K, 4).

        `NODE` puts all GPUs on one node, on which they must fit. The other localities spread them evenly over
        as few nodes as they can, but at least two. An NVLink domain counts as a node with all of its ports.
        """
        gpus = np.array(counts, dtype=np.float64)[None, :, None]
        room = cluster.domain_gpus.astype(np.float64)[:, None, None]
        inside = np.array([tier == Locality.NODE for tier in Locality])
        nodes = np.where(inside, 1.0, np.maximum(2.0, np.ceil(gpus / room)))
        links = np.array([link_gbs(group.gpu_type) for group in cluster.groups])[:, None, None]
        rates = [[cluster.bandwidth_gbs(t, tier) for tier in Locality] for t in range(len(cluster.groups))]
        # `bandwidth_gbs` is a node's; a domain has the ports of all its nodes.
        network = np.array(rates)[:, None, :] * (room / cluster.gpus_per_node[:, None, None])
        share = np.array([network_shares(group.gpu_type) for group in cluster.groups])[:, :, None, None]
        possible = np.where(inside, gpus <= room, gpus >= 2)
        return _cap_rates(gpus, nodes, links, network * share[:, 0], network * share[:, 1], possible)

    @staticmethod
    def of_nodes(types: Sequence[GpuType], nodes: Sequence[int], per_node: Sequence[int]) -> Layout:
        """Return the layouts of n jobs on whole nodes without oversubscription, shape (n,)."""
        shares = np.array([network_shares(gpu) for gpu in types]).reshape(-1, 2)
        ports = [per if gpu.nic_per_gpu else 1 for gpu, per in zip(types, per_node, strict=True)]
        network = np.array([gpu.nic_gbps / 8 * n for gpu, n in zip(types, ports, strict=True)])
        gpus = np.array(nodes, dtype=np.float64) * np.array(per_node, dtype=np.float64)
        return _cap_rates(
            gpus,
            np.array(nodes, dtype=np.float64),
            np.array([link_gbs(gpu) for gpu in types]),
            network * shares[:, 0],
            network * shares[:, 1],
            np.ones(len(types), dtype=bool),
        )


def _cap_rates(
    gpus: Floats,
    nodes: Floats,
    links: Floats,
    network: Floats,
    transfer: Floats,
    possible: Bools,
) -> Layout:
    per_node = np.ceil(gpus / nodes)
    most = per_node * links
    return Layout(
        gpus, nodes, per_node, links, np.minimum(network, most), np.minimum(transfer, most), possible
    )
