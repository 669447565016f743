"""Steps a vector environment beside single environments, and compares all that both return."""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from same_values import assert_same


def assert_same_steps(
    mine: Any,
    other: SyncVectorEnv,
    mode: AutoresetMode,
    draw: Callable[[Any, np.random.Generator], np.ndarray],
    ends: int,
    most: int = 900,
) -> None:
    """Step both with the actions that `draw` gives, until `ends` episodes are over, before `most` steps."""
    assert mine.observation_space == other.observation_space
    assert mine.action_space == other.action_space
    assert_same(mine.reset(seed=5), other.reset(seed=5), "reset")
    rng, at = np.random.default_rng(0), 0
    while ends > 0:
        at += 1
        assert at < most
        actions = draw(mine, rng)
        got, expected = mine.step(actions), other.step(actions)
        assert_same(got, expected, f"step {at}")
        over = got[2] | got[3]
        ends -= int(over.sum())
        if mode is AutoresetMode.DISABLED and over.any():
            options = {"reset_mask": over}
            assert_same(mine.reset(options=dict(options)), other.reset(options=dict(options)), "reset")
