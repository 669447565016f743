"""Searches the fastest plan of a transformer on a number of GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from clustergym.oracle.models.shape import Machine, ParallelPlan, Precision, TransformerShape
from clustergym.oracle.stacks.memory import choose_recompute, compute_needed_bytes, loss_bytes, usable_bytes
from clustergym.oracle.stacks.step_time import StackConstants, StepParts, step_parts

LARGEST_TENSOR = 16
"""Beyond this, matrices of a rank are too narrow, and no published plan goes there."""
LARGEST_MICRO_BATCH_TOKENS = 2**17
CONTEXT_FROM_TOKENS = 16384
"""Sequence length from which context parallelism is tried even where each GPU could have a sequence of its
own."""


@dataclass(frozen=True)
class PlannedStep:
    """A plan with its step time by part, and the memory that each GPU needs and has for tensors.

    Attributes
    ----------
    recompute : float
        Share of layers computed again: the plan's own, or the least that fits.
    """

    plan: ParallelPlan
    recompute: float
    needed_bytes: float
    usable_bytes: float
    parts: StepParts

    @property
    def fits(self) -> bool:
        """Whether the plan fits in memory."""
        return self.needed_bytes <= self.usable_bytes

    @property
    def seconds(self) -> float:
        """Seconds of a training step under this plan."""
        return self.parts.total_s


def assess_plan(
    shape: TransformerShape,
    machine: Machine,
    plan: ParallelPlan,
    constants: StackConstants,
    *,
    global_batch: int,
    sequence_length: int,
) -> PlannedStep:
    """Compute a plan's step time, and whether the plan fits in memory."""
    recompute = plan.recompute
    if recompute is None:
        recompute = choose_recompute(shape, machine, plan, constants, global_batch, sequence_length)
    needed = compute_needed_bytes(
        shape, plan, loss_bytes(plan, constants), recompute, global_batch, sequence_length
    )
    parts = step_parts(
        shape,
        machine,
        replace(plan, recompute=recompute),
        constants,
        global_batch=global_batch,
        sequence_length=sequence_length,
    )
    return PlannedStep(plan, recompute, needed, usable_bytes(machine, constants), parts)


def search_plans(
    shape: TransformerShape,
    machine: Machine,
    constants: StackConstants,
    *,
    gpus: int,
    global_batch: int,
    sequence_length: int,
    precision: Precision = "bf16",
    also: Iterable[ParallelPlan] = (),
) -> list[PlannedStep]:
    """Return the plans for a number of GPUs, and `also`: first those that fit in memory, fastest first.

    Parameters
    ----------
    also : iterable of ParallelPlan
        Plans to assess besides those that are enumerated: no plan named here is faster than the search's own.

    Notes
    -----
    Degrees are powers of two and what is left of the number of GPUs. Per division among tensor, pipeline,
    context and expert ranks, micro-batches grow from 1 until one does not fit even if every layer is computed
    again: a larger one needs more memory still.
    """
    found = [
        assess_plan(
            shape, machine, plan, constants, global_batch=global_batch, sequence_length=sequence_length
        )
        for plan in also
    ]
    for plan in _divisions(shape, machine, gpus, global_batch, sequence_length, precision):
        micro = 1
        while True:
            tried = replace(plan, micro_batch=micro)
            step = assess_plan(
                shape, machine, tried, constants, global_batch=global_batch, sequence_length=sequence_length
            )
            found.append(step)
            micro *= 2
            # The first micro-batch that does not fit is kept, too: it says by how much the division is too
            # large.
            enough = micro * plan.data > global_batch or micro * sequence_length > LARGEST_MICRO_BATCH_TOKENS
            if enough or not step.fits:
                break
    return sorted(found, key=lambda step: (not step.fits, step.seconds))


def _powers(most: int) -> Iterator[int]:
    power = 1
    while power <= most:
        yield power
        power *= 2


def _divisions(
    shape: TransformerShape,
    machine: Machine,
    gpus: int,
    global_batch: int,
    sequence_length: int,
    precision: Precision,
) -> Iterator[ParallelPlan]:
    """Yield plans with a micro-batch of 1 on all GPUs, or on as many GPUs as the batch has sequences for."""
    heads = shape.key_value_heads or shape.heads
    # What does not fill the machines' domain, or divide the heads, is not tried.
    for tensor in _powers(min(LARGEST_TENSOR, machine.domain, shape.heads, gpus)):
        if gpus % tensor or (tensor > heads and tensor % heads):
            continue
        for pipeline in _powers(min(shape.layers, gpus // tensor, global_batch)):
            rest, remainder = divmod(gpus, tensor * pipeline)
            if remainder:
                continue
            for context in _powers(rest):
                data, remainder = divmod(rest, context)
                if remainder or data > global_batch:
                    continue
                yield from _variants(shape, precision, data, tensor, pipeline, context)
                # A longer ring than the batch forces only pays for long sequences.
                if sequence_length < CONTEXT_FROM_TOKENS:
                    break


def _variants(
    shape: TransformerShape, precision: Precision, data: int, tensor: int, pipeline: int, context: int
) -> Iterator[ParallelPlan]:
    plan = ParallelPlan(data, tensor, pipeline, context, precision=precision)
    ranks = data * tensor * context
    experts = [
        degree
        for degree in _powers(min(shape.experts, ranks))
        if not (shape.experts % degree or ranks % degree)
    ]
    # Few virtual stages need less memory, many have the least bubble: what lies between is never better in
    # both.
    most = max(1, shape.layers // pipeline)
    stages = sorted({1, min(most, 2), min(most, 8)}) if pipeline > 1 else [1]
    for expert in experts[-4:] or [1]:
        for virtual in stages:
            yield replace(plan, expert=expert, virtual_stages=virtual)
        if pipeline == 1 and data * context > 1:
            yield replace(plan, expert=expert, sharding="full")
