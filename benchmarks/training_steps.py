"""A decoder, the device's clock and memory, and steps of training: what `measure_training.py` measures."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

Row = dict[str, Any]

PART = 2**26
"""Parameters that the optimizer goes over at a time, or those of one matrix if it has more."""


@dataclass(frozen=True)
class Case:
    """What is measured: a model, its tokens and how it is trained.

    Attributes
    ----------
    recompute, compiled : bool
    gradients_kept : bool
        Whether gradients stay allocated between steps.
    loss : bool
        Whether there is an output layer and a loss; else the last layer's sum is minimized.
    segments : bool
        Whether the allocator has expandable segments.
    repeat : int
    """

    model: str
    sequence_length: int
    micro_batch: int
    recompute: bool
    compiled: bool = False
    gradients_kept: bool = True
    loss: bool = True
    segments: bool = False
    repeat: int = 0


class Block(nn.Module):
    """A layer: attention and a feed-forward network, gated (RMS norm, rotary) or not (layer norm, GELU)."""

    def __init__(self, shape: Row) -> None:
        super().__init__()
        hidden, inner = shape["hidden"], shape["feed_forward"]
        self.heads, self.gated = shape["heads"], shape.get("gated", True)
        self.key_value_heads = shape.get("key_value_heads") or self.heads
        self.width = shape.get("head_dim") or hidden // self.heads
        self.norm_attention, self.norm_network = _norm(shape), _norm(shape)
        self.inputs = nn.Linear(hidden, self.width * (self.heads + 2 * self.key_value_heads), bias=False)
        self.outputs = nn.Linear(self.width * self.heads, hidden, bias=False)
        self.gate = nn.Linear(hidden, inner, bias=False) if self.gated else None
        self.up, self.down = nn.Linear(hidden, inner, bias=False), nn.Linear(inner, hidden, bias=False)

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        """Return what the layer makes of x, shape (batch, length, hidden)."""
        batch, length, _ = x.shape
        both = self.inputs(self.norm_attention(x)).view(batch, length, -1, self.width).transpose(1, 2)
        query, key, value = both.split([self.heads, self.key_value_heads, self.key_value_heads], dim=1)
        if self.gated:
            query, key = _rotate(query, cosine, sine), _rotate(key, cosine, sine)
        grouped = self.key_value_heads != self.heads
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)
        x = x + self.outputs(seen.transpose(1, 2).reshape(batch, length, -1))
        y = self.norm_network(x)
        inner = self.up(y)
        inner = functional.gelu(inner) if self.gate is None else functional.silu(self.gate(y)) * inner
        return x + self.down(inner)


def _norm(shape: Row) -> nn.Module:
    gated, hidden = shape.get("gated", True), shape["hidden"]
    return nn.RMSNorm(hidden) if gated else nn.LayerNorm(hidden, bias=False)


def _rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-right, left), dim=-1) * sine


class Decoder(nn.Module):
    """Embedding, layers, and an output layer whose weights may be the embedding's."""

    def __init__(self, shape: Row, longest: int) -> None:
        super().__init__()
        self.gated = shape.get("gated", True)
        self.embedding = nn.Embedding(shape["vocabulary"], shape["hidden"])
        self.positions = None if self.gated else nn.Embedding(longest, shape["hidden"])
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape["layers"]))
        self.norm = _norm(shape)
        self.output = nn.Linear(shape["hidden"], shape["vocabulary"], bias=False)
        if shape.get("tied", False):
            self.output.weight = self.embedding.weight
        width = shape.get("head_dim") or shape["hidden"] // shape["heads"]
        powers = torch.arange(0, width, 2, dtype=torch.float32) / width
        angles = torch.outer(torch.arange(longest, dtype=torch.float32), 1e4**-powers).repeat(1, 2)
        kind = self.embedding.weight.dtype
        self.register_buffer("cosine", angles.cos().to(kind), persistent=False)
        self.register_buffer("sine", angles.sin().to(kind), persistent=False)

    def layers(self, tokens: torch.Tensor, recompute: bool) -> torch.Tensor:
        """Return what the layers make of tokens, shape (batch, length, hidden)."""
        length = tokens.shape[1]
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[:length]
        turn = (self.cosine[:length], self.sine[:length])
        for block in self.blocks:
            x = checkpoint(block, x, *turn, use_reentrant=False) if recompute else block(x, *turn)
        return x

    def loss(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean cross entropy of fp32 logits."""
        logits = self.output(self.norm(x)).flatten(0, 1)
        return functional.cross_entropy(logits.float(), targets.flatten())


class Gpu:
    """The device's clock and memory; a CPU has none of the latter, so that tests can run everything."""

    def __init__(self, name: str) -> None:
        self.device = torch.device(name)
        self.real = name == "cuda"

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.real:
            torch.cuda.synchronize()

    def now(self) -> float:
        """Return the clock when all work is done."""
        self.synchronize()
        return time.perf_counter()

    def allocated(self) -> int:
        """Return the bytes of tensors."""
        return torch.cuda.memory_allocated() if self.real else 0

    def peaks(self) -> tuple[int, int]:
        """Return the most bytes that were allocated, and reserved from the driver, since `reset`."""
        return (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()) if self.real else (0, 0)

    def reset(self) -> None:
        """Forget the peaks."""
        if self.real:
            torch.cuda.reset_peak_memory_stats()

    def empty(self) -> None:
        """Give memory without tensors back to the driver."""
        if self.real:
            gc.collect()
            torch.cuda.empty_cache()

    def free(self) -> int:
        """Return the bytes that the driver has left."""
        return torch.cuda.mem_get_info()[0] if self.real else 10**9

    def use_segments(self, expandable: bool) -> None:
        """Have the allocator's segments grow, or not."""
        if self.real:
            torch.cuda.memory._set_allocator_settings(f"expandable_segments:{expandable}")

    def attention(self) -> Any:
        """Return a context in which attention runs by its flash kernel or not at all."""
        if not self.real:
            return contextlib.nullcontext()
        return nn.attention.sdpa_kernel(nn.attention.SDPBackend.FLASH_ATTENTION)

    def describe(self) -> Row:
        """Return the card, its driver and limits, the software and the date."""
        row: Row = {"torch": torch.__version__, "date": datetime.now(UTC).isoformat(timespec="seconds")}
        if self.real:
            properties = torch.cuda.get_device_properties(0)
            row |= {
                "gpu": properties.name,
                "total_bytes": properties.total_memory,
                "cuda": torch.version.cuda,
            }
            row["free_bytes"] = self.free()
            query = "--query-gpu=driver_version,power.limit,clocks.max.sm,clocks.max.mem"
            command = ["nvidia-smi", query, "--format=csv,noheader"]
            row["nvidia_smi"] = subprocess.run(command, capture_output=True, text=True).stdout.strip()
        return row


class Training:
    """A model on the device with its optimizer's state, and steps of it."""

    def __init__(self, shape: Row, gpu: Gpu, compiled: bool, longest: int) -> None:
        self.gpu, self.vocabulary = gpu, shape["vocabulary"]
        torch.manual_seed(0)
        with torch.device(gpu.device):
            kept = torch.get_default_dtype()
            torch.set_default_dtype(torch.bfloat16)
            try:
                self.model = Decoder(shape, longest)
            finally:
                torch.set_default_dtype(kept)
        if compiled:
            for block in self.model.blocks:
                block.compile(dynamic=False)
        self.parameters = list(self.model.parameters())
        with torch.no_grad():
            for parameter in self.parameters:
                if parameter.ndim > 1:
                    parameter.normal_(std=0.02)
        self.masters = [parameter.detach().float() for parameter in self.parameters]
        self.parts = list(split_parts([parameter.numel() for parameter in self.parameters]))
        self.optimizers = [
            torch.optim.AdamW([self.masters[at] for at in part], lr=1e-5, fused=True) for part in self.parts
        ]
        self.clear(kept=True)
        self.update()

    def clear(self, kept: bool) -> None:
        """Set the gradients to zero, or drop them."""
        for parameter in self.parameters:
            if not kept:
                parameter.grad = None
            elif parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            else:
                parameter.grad.zero_()

    @torch.no_grad()
    def update(self) -> None:
        """Apply the gradients, part by part, and round the new weights."""
        for part, optimizer in zip(self.parts, self.optimizers, strict=True):
            for at in part:
                gradient = self.parameters[at].grad
                self.masters[at].grad = None if gradient is None else gradient.float()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            torch._foreach_copy_([self.parameters[at] for at in part], [self.masters[at] for at in part])

    def step(self, case: Case, tokens: torch.Tensor, phases: Row | None = None) -> torch.Tensor:
        """Make a step; with `phases`, note each phase's peak of allocated bytes and its seconds there."""

        def note(name: str) -> None:
            if phases is not None:
                now = self.gpu.now()
                phases[name], phases[f"{name}_s"] = self.gpu.peaks()[0], now - ended[-1]
                ended.append(now)
                self.gpu.reset()

        ended = [self.gpu.now()] if phases is not None else []
        with self.gpu.attention():
            x = self.model.layers(tokens[:, :-1], case.recompute)
            note("layers")
            if phases is not None:
                phases["kept"] = self.gpu.allocated()
            loss = self.model.loss(x, tokens[:, 1:]) if case.loss else x.float().square().mean()
            del x
            note("loss")
            loss.backward()
            note("backward")
        self.update()
        self.clear(case.gradients_kept)
        note("optimizer")
        return loss.detach()


def split_parts(sizes: Iterable[int]) -> Iterator[list[int]]:
    """Yield positions of parameters in runs of at most `PART` numbers, or of one parameter."""
    part: list[int] = []
    filled = 0
    for at, size in enumerate(sizes):
        if part and filled + size > PART:
            yield part
            part, filled = [], 0
        part.append(at)
        filled += size
    yield part
