"""Train PPO of Stable-Baselines3 to choose among scheduling policies; any Gymnasium agent is used like this.

python examples/meta_ppo.py --steps 20000
"""

from __future__ import annotations

import argparse

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO

import clustergym  # noqa: F401 - registers the environments
from clustergym.common.errors import InputError, exits_on_bad_input

POLICIES = ("fcfs", "srtf elastic=true", "hesrpt")
DEV_TRACES = range(1_000_000, 1_000_005)


def make_env(jobs: int) -> gymnasium.Env:
    """Make the environment; training draws among 64 traces, `trace_seed` 0 to 63."""
    return gymnasium.make(
        "ClusterGym/Meta-16-v1", jobs=jobs, traces=64, policies=POLICIES, observation="flat"
    )


def mean_jct_h(env: gymnasium.Env, choose) -> float:
    """Return the mean JCT over the dev traces of a function from observations to actions, in hours."""
    hours = []
    for seed in DEV_TRACES:
        observation, _ = env.reset(options={"trace_seed": seed})
        over = False
        while not over:
            observation, _, terminated, truncated, info = env.step(choose(observation))
            over = terminated or truncated
        hours.append(info["metrics"]["jct_mean"] / 3600)
    return float(np.mean(hours))


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    if given.steps < 1:
        raise InputError(f"{given.steps} steps", field="--steps", remedy="give at least 1")
    torch.set_num_threads(1)
    env = make_env(given.jobs)
    steps = min(1024, given.steps)
    agent = PPO("MlpPolicy", env, n_steps=max(steps, 2), batch_size=max(steps, 2), gamma=1.0, seed=given.seed)
    agent.learn(given.steps)
    for place, policy in enumerate(POLICIES):
        print(f"always {policy}: mean JCT {mean_jct_h(env, lambda _, at=place: np.int64(at)):.3f} h")
    learned = mean_jct_h(env, lambda seen: np.int64(agent.predict(seen, deterministic=True)[0]))
    print(f"PPO after {given.steps} steps: mean JCT {learned:.3f} h")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
