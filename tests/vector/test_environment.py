"""A vector environment is the same as single environments, stepped one by one on the SimPy engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import clustergym  # noqa: F401  registers the environments
from clustergym.envs.families import DeadlineEnv, ElasticEnv, FairEnv
from clustergym.envs.vector.environment import SchedulingVectorEnv

SMALL: dict[str, Any] = {"cluster": "arena-16", "jobs": 12, "rows": 8}
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "elastic": (ElasticEnv, SMALL),
    "flat": (ElasticEnv, {**SMALL, "observation": "flat", "rows": 3}),
    "summary": (ElasticEnv, {**SMALL, "features": "summary", "information": "none"}),
    "events": (ElasticEnv, {**SMALL, "round_s": None, "horizon_s": 90000.0}),
    "never idle": (ElasticEnv, {**SMALL, "mask_stop_while_idle": True}),
    "baseline": (
        ElasticEnv,
        {**SMALL, "baseline": "srtf", "reward": {"jobs_in_system": 1.0, "slowdown": 0.5}},
    ),
    "baseline at the horizon": (ElasticEnv, {**SMALL, "baseline": "fcfs", "horizon_s": 50000.0}),
    "fair": (FairEnv, {"cluster": "ares-16", "jobs": 6, "rows": 4, "round_s": 900.0}),
    "deadline": (DeadlineEnv, SMALL),
    "deadline, baseline": (DeadlineEnv, {**SMALL, "baseline": "elasticflow", "traces": 4}),
    "drop": (
        DeadlineEnv,
        {**SMALL, "actions": "drop", "reward": {"slowdown": 0.3, "unfairness": 1.0, "deadlines_met": 2.0}},
    ),
}


def assert_same(mine: Any, other: Any, where: str) -> None:
    """Compare what two vector environments return, exactly."""
    if isinstance(other, dict):
        assert set(mine) == set(other), where
        for name in other:
            assert_same(mine[name], other[name], f"{where}.{name}")
    elif isinstance(other, tuple | list):
        assert len(mine) == len(other), where
        for at, value in enumerate(other):
            assert_same(mine[at], value, f"{where}[{at}]")
    elif isinstance(other, np.ndarray) and other.dtype == object:
        for at, value in enumerate(other):
            assert_same(mine[at], value, f"{where}[{at}]")
    elif isinstance(other, np.ndarray):
        assert mine.dtype == other.dtype, where
        np.testing.assert_array_equal(mine, other, err_msg=where)
    else:
        assert mine == other, where


def drawn_actions(masks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw an action for each environment, one in fifty of them legal or not."""
    legal = [int(rng.choice(np.flatnonzero(mask))) for mask in masks]
    any_action = rng.integers(masks.shape[1], size=len(masks))
    return np.where(rng.random(len(masks)) < 0.02, any_action, legal)


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("case", CASES)
def test_it_is_the_same_as_single_environments(case: str, mode: AutoresetMode) -> None:
    single, parameters = CASES[case]
    mine = SchedulingVectorEnv(single, 3, autoreset_mode=mode, threads=1, **parameters)
    other = SyncVectorEnv([lambda: single(engine="simpy", **parameters)] * 3, autoreset_mode=mode)
    assert mine.observation_space == other.observation_space
    assert mine.action_space == other.action_space
    assert_same(mine.reset(seed=5), other.reset(seed=5), "reset")
    rng, ends = np.random.default_rng(0), 0
    for at in range(900):
        actions = drawn_actions(mine.action_masks(), rng)
        got, expected = mine.step(actions), other.step(actions)
        assert_same(got, expected, f"step {at}")
        over = got[2] | got[3]
        ends += int(over.sum())
        if mode is AutoresetMode.DISABLED and over.any():
            options = {"reset_mask": over}
            assert_same(mine.reset(options=dict(options)), other.reset(options=dict(options)), "reset")
    assert ends > 2
