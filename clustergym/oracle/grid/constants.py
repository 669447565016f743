"""The fitted constants of operators' times, which the stack alpa-2022 holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.oracle.roofline.devices import HALF_FP32

UNFITTED = {"matmul": 0.72, "convolution": 0.55, "network": 0.3, "transfer": 0.1}
"""Shares for GPU types that were not measured. The shares of the network are of a port that a node's GPUs
share; `devices.PORT_SHARE` holds where every GPU has one."""

UNFITTED_HALF_FP32 = 0.24
"""Share of the fp32 peak for convolutions on unmeasured types of `devices.HALF_FP32`."""


@dataclass(frozen=True)
class Constants:
    """Shares of data-sheet rates that kernels and networks reach; defaults are the centres of the priors.

    Attributes
    ----------
    matmul, convolution : dict of str to float
        Shares of the fp16 and of the fp32 peak that large kernels reach, by GPU type.
    network, transfer : dict of str to float
        Shares of a node's line rate that collectives, and that transfers between stages, reach.
    attention, gate : float
        Shares of the fp16 peak that einsums of attention, and of MoE gating, reach.
    half_tokens, half_pixels : float
        Tokens, or output pixels, of a micro-batch at which a kernel reaches half its rate.
    layer_traffic, block_traffic, gate_traffic : float
        Factors on the bytes that elementwise operators of language models, of wide ResNets, and
        of gating masks move.
    block_exchange : float
        Factor on the bytes of inputs and outputs that split convolutions exchange: it stands for halos, batch
        statistics and layout changes, which come on top.
    split_saturation : float
        What an unsaturated convolution loses is divided by the GPUs it is split over, to this power.
    slow_machine : float
        Factor on the measured times of Arena's artifact on one node of 4 or 8 V100: another
        machine than that of 1, 2 and 16. A property of the data set; the oracle does not use it.
    """

    matmul: Mapping[str, float] = field(
        default_factory=lambda: {"A100": 0.75, "A40": 0.75, "A10": 0.65, "V100": 0.75}
    )
    convolution: Mapping[str, float] = field(
        default_factory=lambda: {"A100": 0.6, "A40": 0.24, "A10": 0.24, "V100": 0.6}
    )
    network: Mapping[str, float] = field(default_factory=lambda: {"A100": 0.5, "A40": 0.25, "A10": 0.15})
    transfer: Mapping[str, float] = field(default_factory=lambda: {"A100": 0.25, "A40": 0.04, "A10": 0.04})
    attention: float = 0.5
    gate: float = 0.3
    half_tokens: float = 200.0
    half_pixels: float = 1000.0
    layer_traffic: float = 0.8
    block_traffic: float = 0.65
    gate_traffic: float = 0.85
    block_exchange: float = 1.5
    split_saturation: float = 0.5
    slow_machine: float = 1.3

    def shares(self, name: str, gpu_types: Sequence[str]) -> Floats:
        """Return the fitted share of each GPU type, shape (n,), or a fixed value for types without a fit."""
        known: Mapping[str, float] = getattr(self, name)
        other = dict.fromkeys(HALF_FP32, UNFITTED_HALF_FP32) if name == "convolution" else {}
        shares = [known.get(gpu, other.get(gpu, UNFITTED[name])) for gpu in gpu_types]
        return np.array(shares, dtype=np.float64)
