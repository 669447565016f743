"""Grids of transformers' plans, as Arena and Crius see them: Pareto frontiers, proxy plans, and estimates.

A grid is a GPU type, a number of GPUs and of pipeline stages (Arena, EuroSys '26, section 3.2; the cell of
Crius, section 4.2). Its plans differ in computation bias and communication load (section 3.3); the proxy plan
stands for it, and is estimated from operators and collectives that are timed one by one (section 3.4).

Arena's bias is how far the GPUs of each stage are from the share of the load that the stage has. Stages of
these plans have equally many GPUs, and lose computation in other ways, too. So the bias is here how many of
the GPUs are lost to uneven stages, to the bubble, to layers computed again and to small micro-batches, beside
the plan of the allocation that loses least.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from clustergym.oracle.models.shape import TransformerShape
from clustergym.oracle.stacks.search import PlannedStep

BIAS_STEP = 1 / 16
"""Share of the GPUs by which biases may differ and are taken as equal, as of operators (`frontier`)."""
COMMUNICATION = ("tensor_exposed_s", "context_exposed_s", "expert_exchange_s", "data_exposed_s")
"""Parts of a step that are communication."""


class GridPoint(NamedTuple):
    """A plan, how many GPUs' work it loses to the plan that computes fastest, and its communication (s)."""

    step: PlannedStep
    bias: float
    communication_load: float


class StepGrid(NamedTuple):
    """The best plans with a given number of pipeline stages, and the one that stands for all (the proxy).

    Attributes
    ----------
    stages, considered : int
        Pipeline stages; plans.
    points : tuple of GridPoint
        The Pareto frontier, by ascending bias and descending communication load; never empty.
    proxy : GridPoint
    """

    stages: int
    considered: int
    points: tuple[GridPoint, ...]
    proxy: GridPoint


@lru_cache(maxsize=1024)
def uneven_load(shape: TransformerShape, stages: int, virtual_stages: int) -> float:
    """Return slowest over mean load of a pipeline's stages, of `virtual_stages` groups of layers each.

    Stages have equally many GPUs, and whole layers: as many as others, or one more in each of their virtual
    stages; the last has the output layer, too.
    """
    chunks = stages * virtual_stages
    each, more = divmod(shape.all_layers, chunks)
    layers = np.full(chunks, each, dtype=np.float64)
    # The first chunks have what does not divide; the last one is spared, for it has the output layer.
    layers[:more] += 1
    experts = shape.expert_layers * shape.experts_per_token * shape.expert_parameters
    layer = (shape.shared_parameters + experts) / shape.all_layers
    load = layers.reshape(virtual_stages, stages).sum(axis=0)
    load[-1] += shape.output_parameters * (1 + shape.predicted_ahead) / layer
    return float(load.max() / load.mean())


def computation_s(shape: TransformerShape, step: PlannedStep) -> float:
    """Return the seconds of a step without communication, which the slowest stage determines."""
    return (estimate_step(step) - communication_load(step)) * uneven_load(
        shape, step.plan.pipeline, step.plan.virtual_stages
    )


def communication_load(step: PlannedStep) -> float:
    """Return the seconds of communication in an iteration that computation does not hide."""
    return float(sum(getattr(step.parts, name) for name in COMMUNICATION))


def estimate_step(step: PlannedStep) -> float:
    """Return the step time that a profiler of single operators would estimate, in seconds.

    It sees neither stragglers nor the step of the optimizer.
    """
    return step.seconds - step.parts.straggling_s - step.parts.optimizer_s


def list_grids(
    shape: TransformerShape, steps: Sequence[PlannedStep], strategy: str = "frontier"
) -> list[StepGrid]:
    """Group plans by number of stages; return each group's Pareto-optimal plans, and its proxy plan.

    Parameters
    ----------
    strategy : str
        `frontier`: biases that differ by less than `BIAS_STEP` of the GPUs are equal; `least_bias`: they are
        compared exactly; `assembly` (Crius, section 5): the fastest of the plans whose stages are data- or
        tensor-parallel, and not both.
    """
    seconds = [computation_s(shape, step) for step in steps]
    points: dict[int, list[GridPoint]] = {}
    least = min(seconds, default=0.0)
    for step, own_s in zip(steps, seconds, strict=True):
        bias = step.plan.gpus * (1 - least / own_s)
        points.setdefault(step.plan.pipeline, []).append(GridPoint(step, bias, communication_load(step)))
    return [_make_grid(stages, some, strategy) for stages, some in sorted(points.items())]


def _make_grid(stages: int, points: Sequence[GridPoint], strategy: str) -> StepGrid:
    gpus = points[0].step.plan.gpus
    tolerance = 1e-9 if strategy == "least_bias" else BIAS_STEP * gpus
    lowest = min(point.bias for point in points)

    def order(point: GridPoint) -> tuple[float, float, float]:
        # Of equal bias and load the fastest stands for all.
        excess = (point.bias - lowest) // tolerance
        return excess, round(point.communication_load, 12), estimate_step(point.step)

    kept: list[GridPoint] = []
    for point in sorted(points, key=order):
        if not kept or point.communication_load < kept[-1].communication_load * (1 - 1e-9):
            kept.append(point)
    proxy = kept[0]
    if strategy == "assembly":
        pure = [point for point in points if 1 in (point.step.plan.data, point.step.plan.tensor)]
        proxy = min(pure or [proxy], key=lambda point: estimate_step(point.step))
    return StepGrid(stages, len(points), tuple(kept), proxy)
