"""The fitted constants of operators' times, which the stack alpa-2022 holds."""

from __future__ import annotations

from dataclasses import dataclass

from clustergym.cluster.spec import GpuType
from clustergym.common.left_out import not_modelled
from clustergym.oracle.models.shape_files import find_accelerator
from clustergym.oracle.roofline.devices import HALF_FP32

COOL_W_PER_TFLOPS = 16.0
"""Watts of a GPU's limit for each fp32 TFLOP/s of its lanes from which matrix products keep the clock: the
A40's (300 W, 18.7 TFLOP/s). V100 and A100 have more, the A10 9.6."""

MOST_NODES = 8
"""Nodes of the largest allocation that was measured; the network's decline goes no further."""


@dataclass(frozen=True)
class Constants:
    """Shares of data-sheet rates that kernels and networks reach: the fitted constants of the grid oracle.

    Attributes
    ----------
    matmul : float
        Share of the fp16 peak that large matrix products reach, where power lets the GPU keep its clock.
    convolution, convolution_intensity : float
        Share of the fp32 peak that the arithmetic of large convolutions reaches, and FLOPs for each byte
        of memory bandwidth: their times add up.
    network, host_network : float
        Shares of a node's line rate that collectives reach on two nodes: of nodes with NVLink, and of those
        whose GPUs and port share PCIe.
    transfer : float
        What transfers between stages reach, as a share of what collectives do.
    node_decline : float
        Collectives across n nodes reach (2 / n) to this power of what they do across two.
    attention, gate : float
        Shares of the fp16 peak that einsums of attention, and of MoE gating, reach.
    half_tokens, half_pixels : float
        Tokens, or output pixels, of a micro-batch at which a kernel reaches half its rate.
    traffic : float
        Factor on the bytes that elementwise operators move.
    block_exchange : float
        Factor on the bytes of inputs and outputs that split convolutions exchange: it stands for halos, batch
        statistics and layout changes, which come on top.
    slow_machine : float
        Factor on the measured times of Arena's artifact on one node of 4 or 8 V100: another
        machine than that of 1, 2 and 16. A property of the data set; the oracle does not use it.
    """

    matmul: float = 0.75
    convolution: float = 0.8
    convolution_intensity: float = 33.0
    network: float = 0.5
    host_network: float = 0.15
    transfer: float = 0.4
    node_decline: float = 0.3
    attention: float = 0.5
    gate: float = 0.3
    half_tokens: float = 200.0
    half_pixels: float = 1000.0
    traffic: float = 0.8
    block_exchange: float = 1.5
    slow_machine: float = 1.3

    def matmul_flops(self, gpu: GpuType) -> float:
        """Return the FLOP/s that large matrix products reach on a GPU."""
        return gpu.fp16_tflops * 1e12 * self.matmul * clock_share(gpu)

    def convolution_flops(self, gpu: GpuType) -> float:
        """Return the FLOP/s that large convolutions reach on a GPU."""
        arithmetic = self.convolution * _fp32_tflops(gpu) * 1e12
        memory = self.convolution_intensity * gpu.memory_gbs * 1e9
        return 1 / (1 / arithmetic + 1 / memory)

    def network_share(self, gpu: GpuType) -> float:
        """Return the share of a node's line rate that collectives across two nodes reach."""
        return self.network if gpu.links_by("nvlink") else self.host_network


def clock_share(gpu: GpuType) -> float:
    """Return the share of its highest clock that a GPU keeps in matrix products under its power limit.

    Power grows with the third power of the clock, as voltage grows with it.
    """
    known = find_accelerator(gpu.name)
    power_w = gpu.power_w or (known.power_w if known else None)
    if power_w is None:
        not_modelled([f"power of GPU type {gpu.name} (no power_w: its clock is taken to have no limit)"])
        return 1.0
    return float(min(1.0, power_w / _fp32_tflops(gpu) / COOL_W_PER_TFLOPS) ** (1 / 3))


def _fp32_tflops(gpu: GpuType) -> float:
    return gpu.fp32_tflops / 2 if gpu.name in HALF_FP32 else gpu.fp32_tflops
