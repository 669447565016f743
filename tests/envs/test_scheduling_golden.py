"""Digests of whole scheduling episodes: the same on any machine, in any process.

A change of a digest needs a new version of the environment's id, and a line in the changelog.
`python tests/envs/test_scheduling_golden.py` prints the present ones.
"""

import hashlib
import json
import re
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from clustergym.envs.registration import register_envs
from clustergym.scenario.environments import ENVIRONMENTS

GOLDEN = Path(__file__).parent / "golden_scheduling.json"
IDS = [row.id for row in ENVIRONMENTS if not re.search("/(Placement|Sharing|Rack|Capacity)", row.id)]
STEPS = 120


def digest(name: str) -> str:
    """Hash what random actions show, now and then illegal ones; observations to four digits."""
    register_envs()
    env = gymnasium.make(name, jobs=12, observation="flat", rows=8)
    found, rng = hashlib.sha256(), np.random.default_rng(17)
    observation, info = env.reset(seed=17)
    for _ in range(STEPS):
        legal = np.flatnonzero(info["action_mask"])
        if isinstance(env.action_space, gymnasium.spaces.Box):
            action = rng.uniform(-1.0, 1.0, env.action_space.shape).astype(np.float32)
        else:
            action = int(rng.integers(env.action_space.n) if rng.random() < 0.1 else rng.choice(legal))
        found.update(np.rint(observation.astype(np.float64) * 1e4).astype("<i4").tobytes())
        observation, reward, terminated, truncated, info = env.step(action)
        taken = action if isinstance(action, int) else action.tolist()
        shown = [taken, f"{reward:.9f}", terminated, truncated, info["illegal"], info["now_s"]]
        found.update(json.dumps([*shown, info["action_mask"].astype(bool).tolist()]).encode())
        if terminated or truncated:
            found.update(info["digest"].encode())
            observation, info = env.reset()
    found.update(env.unwrapped.log.digest.encode())
    return found.hexdigest()


@pytest.mark.parametrize("name", IDS)
def test_digest(name):
    assert digest(name) == json.loads(GOLDEN.read_text(encoding="utf-8"))[name]


def test_another_process_sees_the_same():
    from python_process import printed_by

    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert json.loads(printed_by(__file__, "16-v", PYTHONHASHSEED="123")) == {
        name: golden[name] for name in IDS if "16-v" in name
    }


if __name__ == "__main__":
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    print(json.dumps({name: digest(name) for name in IDS if wanted in name}, indent=2))
