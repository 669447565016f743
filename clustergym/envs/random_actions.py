"""Random legal actions of a single environment: for benchmarks, pictures and examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box


def random_action(env: gymnasium.Env[Any, Any], info: Mapping[str, Any], rng: np.random.Generator) -> Any:
    """Return a legal action of an environment, chosen at random with equal probabilities.

    Where an action is a vector, its numbers are between -1 and 1.

    Parameters
    ----------
    info : mapping
        As `step` and `reset` return it.
    """
    if isinstance(env.action_space, Box):
        return rng.uniform(-1.0, 1.0, env.action_space.shape)
    legal = np.flatnonzero(info["action_mask"])
    return int(legal[int(rng.random() * len(legal))])
