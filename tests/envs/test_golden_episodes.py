"""Digests of whole placement episodes: the same on any machine, in any process.

A change of a digest needs a new version of the environment's id. `python tests/envs/test_golden_episodes.py`
prints the present ones.
"""

import hashlib
import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from clustergym.envs.registration import register_envs
from clustergym.scenario.environments import ENVIRONMENTS

GOLDEN = Path(__file__).parent / "golden.json"
VARIANTS = {"": {}, " dp": {"unit": "dp", "alpha": None}}
CASES = [(row.id, variant) for row in ENVIRONMENTS if "/Placement" in row.id for variant in VARIANTS]


def digest(name: str, variant: str) -> str:
    """Hash what three episodes of random actions, now and then illegal ones, show."""
    register_envs()
    env = gymnasium.make(name, **VARIANTS[variant])
    found, rng = hashlib.sha256(), np.random.default_rng(17)
    _, info = env.reset(seed=17)
    for _ in range(3):
        observation, info = env.reset()
        over = False
        while not over:
            legal = np.flatnonzero(info["action_mask"])
            action = int(rng.integers(env.action_space.n) if rng.random() < 0.1 else rng.choice(legal))
            for part in observation.values():
                found.update(part.tobytes())
            observation, reward, terminated, truncated, info = env.step(action)
            over = terminated or truncated
            shown = [action, f"{reward:.9f}", terminated, truncated, info["illegal"], info["shortfall_nodes"]]
            legal = info["action_mask"].astype(bool).tolist()
            found.update(json.dumps([*shown, f"{info['score']:.9f}", legal]).encode())
    return found.hexdigest()


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_digest(name, variant):
    assert digest(name, variant) == json.loads(GOLDEN.read_text(encoding="utf-8"))[name + variant]


if __name__ == "__main__":
    print(json.dumps({name + variant: digest(name, variant) for name, variant in CASES}, indent=2))
