"""A plan of parallelism: how a model, its tokens and its state are divided among GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Precision = Literal["bf16", "fp8", "mxfp8", "fp4"]
"""fp8 is scaled by tensor, mxfp8 and fp4 by blocks of numbers."""
Sharding = Literal["optimizer", "gradients", "full"]
"""What each GPU of a data-parallel group holds a part of: ZeRO-1, SHARD_GRAD_OP, fully sharded."""


@dataclass(frozen=True)
class ParallelPlan:
    """Degrees of parallelism and what goes with them.

    Attributes
    ----------
    data, tensor, pipeline, context, expert : int
        Degrees; data x tensor x pipeline x context GPUs. Experts are divided among ranks of the data,
        context and tensor groups.
    virtual_stages : int
        Parts of the model that each pipeline rank holds (interleaved 1F1B; Narayanan et al., SC '21).
    micro_batch : int
        Sequences of a micro-batch.
    sharding : str
    recompute : float or None
        Share of layers whose activations are computed again in the backward pass; None: the least that fits.
    precision : str
        Of the linear layers; attention and output layer compute in bf16.
    asynchronous_tensor : bool
        Whether tensor-parallel communication is pipelined with the matrix products.
    compiled : bool
        Whether a compiler fuses elementwise operators.
    adapters : bool
        Whether only adapters are trained (LoRA): the model's weights have no gradients and no optimizer.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    virtual_stages: int = 1
    micro_batch: int = 1
    sharding: Sharding = "optimizer"
    recompute: float | None = None
    precision: Precision = "bf16"
    asynchronous_tensor: bool = False
    compiled: bool = True
    adapters: bool = False

    @property
    def gpus(self) -> int:
        """GPUs of the plan."""
        return self.data * self.tensor * self.pipeline * self.context

    def micro_batches(self, global_batch: int) -> int:
        """Return the micro-batches of a pipeline in a step, the last one full or not."""
        return max(1, -(-global_batch // (self.data * self.micro_batch)))

    def __str__(self) -> str:
        """Return the degrees above 1, as in `DP 8, TP 4`."""
        degrees = {
            "DP": self.data, "TP": self.tensor, "PP": self.pipeline, "CP": self.context,
            "EP": self.expert, "VP": self.virtual_stages,
        }  # fmt: skip
        shown = ", ".join(f"{name} {degree}" for name, degree in degrees.items() if degree > 1)
        shown = shown or "one GPU"
        return f"{shown}, micro-batch {self.micro_batch}, {self.precision}, sharded: {self.sharding}"
