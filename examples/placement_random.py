"""Play `ClusterGym/Placement-v0` with random legal actions, beside a placement algorithm on the same states.

python examples/placement_random.py [--env ID] [--episodes N] [--seed N] [--beside NAME] [--render]
"""

from __future__ import annotations

import argparse
import sys

import gymnasium
import numpy as np

import clustergym  # noqa: F401  registers the environments
from clustergym.common.errors import InputError, exits_on_bad_input
from clustergym.envs.registration import make_env
from clustergym.scenario.placement_problem import algorithm


def play_at_random(env: gymnasium.Env, rng: np.random.Generator, options: dict) -> float:
    """Return the score of legal actions drawn at random."""
    _, info = env.reset(options=options)
    terminated = truncated = False
    while not (terminated or truncated):
        action = rng.choice(np.flatnonzero(info["action_mask"]))
        _, _, terminated, truncated, info = env.step(action)
    return info["score"]


def play_algorithm(env: gymnasium.Env, name: str, rng: np.random.Generator, options: dict) -> float:
    """Return the score of a placement algorithm, driven through the environment's actions."""
    _, info = env.reset(options=options)
    answer = algorithm(name)(env.unwrapped.instance, rng)
    for action in env.unwrapped.list_actions(answer):
        _, _, _, _, info = env.step(action)
    return info["score"]


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Print both scores of each episode, and their means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="ClusterGym/Placement-v0")
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beside", default="arnold", help="placement algorithm")
    parser.add_argument("--render", action="store_true", help="print the last placement of each episode")
    given = parser.parse_args(argv)
    if given.episodes < 1 or given.seed < 0:
        raise InputError("--episodes is at least 1, --seed at least 0", remedy="change them")
    env = make_env({"id": given.env}, render_mode="ansi")
    rng = np.random.default_rng(given.seed)
    env.reset(seed=given.seed)
    scores = []
    for episode in range(given.episodes):
        env.reset()
        options = {"instance": env.unwrapped.instance}
        scores.append((play_at_random(env, rng, options), play_algorithm(env, given.beside, rng, options)))
        print(f"episode {episode}: random {scores[-1][0]:.2f}, {given.beside} {scores[-1][1]:.2f}")
        if given.render:
            print(env.render())
    random_mean, other_mean = np.mean(scores, axis=0)
    print(f"mean weighted spread: random {random_mean:.2f}, {given.beside} {other_mean:.2f} (less is better)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
