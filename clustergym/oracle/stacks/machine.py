"""A machine that trains: the GPU, its links, and how many GPUs they join."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """A GPU with the links of the machine that it is built into. Rates are dense and of data sheets.

    Attributes
    ----------
    name : str
    bf16_tflops, fp8_tflops, fp4_tflops : float or None
        TFLOP/s; None: no such arithmetic.
    memory_gb, memory_gbs : float
        GB and GB/s.
    link_gbs : float
        GB/s of a GPU in one direction to the others of its NVLink domain.
    domain : int
        GPUs of an NVLink domain.
    nic_gbps : float
        Gbit/s of network for each GPU.
    power_w : float
        Limit of a GPU's power.
    source : str
    uncertain : tuple of str
        Fields in which sources disagree, or of which only a secondary one is known.
    """

    name: str
    bf16_tflops: float
    memory_gb: float
    memory_gbs: float
    link_gbs: float
    nic_gbps: float
    power_w: float
    fp8_tflops: float | None = None
    fp4_tflops: float | None = None
    domain: int = 8
    source: str = ""
    uncertain: tuple[str, ...] = ()

    def peak_tflops(self, precision: str) -> float | None:
        """Return the dense rate of a precision: `bf16`, `fp8`, `mxfp8` (as fp8) or `fp4`."""
        fp8 = self.fp8_tflops
        rates = {"bf16": self.bf16_tflops, "fp8": fp8, "mxfp8": fp8, "fp4": self.fp4_tflops}
        return rates[precision]
