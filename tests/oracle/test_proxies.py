"""Grids of transformers' plans: bias, communication load, frontiers and proxy plans, worked out by hand."""

import pytest

from clustergym.oracle.models.shape import ParallelPlan, TransformerShape
from clustergym.oracle.stacks.proxies import estimate_step, list_grids, uneven_load
from clustergym.oracle.stacks.search import PlannedStep
from clustergym.oracle.stacks.step_time import StepParts

# A layer has 4 h^2 parameters of attention and 2 x 4 h^2 of the feed-forward network, 12 x 64^2 = 49,152; the
# output layer has two layers' worth, 98,304 = 64 x 1,536.
SHAPE = TransformerShape("small", 64, 6, 4, 1536, 256, gated=False, tied=True)


def test_stages_are_uneven_where_layers_do_not_divide() -> None:
    assert uneven_load(SHAPE, 1, 1) == 1
    # 3 and 3 + 2 layers: 5 over a mean of 4.
    assert uneven_load(SHAPE, 2, 1) == pytest.approx(5 / 4)
    # 2, 2, 1 and 1 + 2: 3 over 2.
    assert uneven_load(SHAPE, 4, 1) == pytest.approx(3 / 2)
    # Four chunks on two stages, 2 + 1 and 2 + 1 + 2.
    assert uneven_load(SHAPE, 2, 2) == pytest.approx(5 / 4)


def step(plan: ParallelPlan, *, linear: float, tensor: float = 0.0, data: float = 0.0) -> PlannedStep:
    parts = StepParts(linear, 0, 0, 0, 0, tensor, 0, 0, data, 0, optimizer_s=1.0, straggling_s=2.0)
    return PlannedStep(plan, 0.0, 1.0, 1.0, parts)


def test_frontier_and_proxy_plan() -> None:
    # 16 GPUs: biases below one GPU are equal. Without pipelines the least computation is 16 s.
    data = step(ParallelPlan(16), linear=20, data=1)
    near = step(ParallelPlan(4, 4), linear=16.5, tensor=3)
    least = step(ParallelPlan(2, 8), linear=16, tensor=4)
    worse = step(ParallelPlan(8, 2), linear=20, tensor=2)
    (grid,) = list_grids(SHAPE, [data, near, least, worse])
    assert (grid.stages, grid.considered) == (1, 4)
    # (1 - 16 / 16.5) x 16 = 0.485 GPUs: taken as equal to 0, and of less load. `worse` has the bias of `data`
    # and more load.
    assert [point.step for point in grid.points] == [near, data]
    assert grid.proxy.step is near
    assert grid.proxy.bias == pytest.approx(16 * (1 - 16 / 16.5))
    assert grid.proxy.communication_load == 3
    # Neither stragglers nor the optimizer are seen.
    assert estimate_step(near) == near.seconds - 3 == 19.5
    (exact,) = list_grids(SHAPE, [data, near, least, worse], "least_bias")
    assert [point.step for point in exact.points] == [least, near, data]
    assert exact.proxy.step is least
    # Crius: stages are data- or tensor-parallel.
    (pure,) = list_grids(SHAPE, [data, near, least, worse], "assembly")
    assert pure.proxy.step is data


def test_grids_are_by_stages_and_bias_is_of_the_allocation() -> None:
    one, two = step(ParallelPlan(16), linear=16), step(ParallelPlan(8, pipeline=2), linear=16)
    first, second = list_grids(SHAPE, [two, one])
    assert (first.stages, second.stages) == (1, 2)
    # The slower of two stages has 5/4 of the mean: 16 s of computation take 20.
    assert second.proxy.bias == pytest.approx(16 * (1 - 16 / 20))
    assert list_grids(SHAPE, []) == []
