"""Stable-Baselines3 on `Knobs-16`, whose episode is one step: python examples/recipe_sb3.py [CPU seconds]."""

import sys
import time

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

import clustergym  # noqa: F401 - registers the environments


class Curve(BaseCallback):
    """Prints the mean return of a hundred episodes now and then, and ends training in time."""

    def __init__(self, cpu_s):
        super().__init__()
        self.cpu_s, self.next_s, self.returns, self.began_s = cpu_s, 0.0, [], time.process_time()

    def _on_step(self):
        self.returns += self.locals["rewards"].tolist()
        spent_s = time.process_time() - self.began_s
        if spent_s >= self.next_s and len(self.returns) >= 100:
            self.next_s += self.cpu_s / 6
            print(f"{spent_s:.0f} CPU-s: return {np.mean(self.returns[-100:]):+.3f}", flush=True)
        return spent_s < self.cpu_s


def greedy(model, traces=20):
    """Return the mean return of greedy play on traces of the split test."""
    env = gymnasium.make("ClusterGym/Knobs-16-v0", observation="flat", split="test")
    returns = []
    for index in range(traces):
        observation, _ = env.reset(options={"trace_seed": 3 * index + 2})
        returns.append(env.step(model.predict(observation, deterministic=True)[0])[1])
    return np.mean(returns)


cpu_s = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
torch.set_num_threads(1)
# SB3 asks for pictures, which compiled episodes do not draw.
kwargs = {"observation": "flat", "split": "train", "render_mode": None}
envs = make_vec_env("ClusterGym/Knobs-16-v0", 32, seed=0, env_kwargs=kwargs)
model = PPO(
    "MlpPolicy", envs, n_steps=4, batch_size=64, n_epochs=6, learning_rate=2e-2, gamma=1.0, seed=0,
    policy_kwargs={"net_arch": [], "log_std_init": -1.2}, device="cpu",
)  # fmt: skip
print(f"untrained: {greedy(model):+.4f}")
model.learn(10**9, callback=Curve(cpu_s))
print(f"greedy on unseen traces: {greedy(model):+.4f}, the logarithm of mean JCT over the prior's")
