"""RLlib's PPO with masks, new API stack, on `Burst-16`: examples/recipe_rllib.py [CPU seconds]."""

import sys
import time

import gymnasium
import numpy as np
import ray
import torch
from gymnasium import spaces
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule
from ray.tune.registry import register_env

import clustergym  # noqa: F401 - registers the environments


class MaskInObservation(gymnasium.Wrapper):
    """Puts the mask beside the observation, where RLlib's module looks for it."""

    def __init__(self, env):
        super().__init__(env)
        legal = spaces.Box(0.0, 1.0, (int(env.action_space.n),), np.float32)
        self.observation_space = spaces.Dict({"action_mask": legal, "observations": env.observation_space})

    def _both(self, observation, info):
        return {"action_mask": info["action_mask"].astype(np.float32), "observations": observation}

    def reset(self, **kwargs):
        """Begin an episode."""
        observation, info = self.env.reset(**kwargs)
        return self._both(observation, info), {}

    def step(self, action):
        """Take an action."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._both(observation, info), reward, terminated, truncated, {}


cpu_s = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
torch.set_num_threads(1)
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
kwargs = {"observation": "flat", "rows": 12, "baseline": "srtf", "split": "train", "traces": 64}
register_env("burst", lambda _: MaskInObservation(gymnasium.make("ClusterGym/Burst-16-v0", **kwargs)))
module = RLModuleSpec(
    module_class=ActionMaskingTorchRLModule, model_config={"head_fcnet_hiddens": [128, 128]}
)
config = PPOConfig().environment("burst").env_runners(num_env_runners=0, num_envs_per_env_runner=8)
config = config.training(gamma=1.0, lambda_=0.98, lr=7e-4, train_batch_size_per_learner=4000, num_epochs=4)
config = config.training(minibatch_size=512, entropy_coeff=0.003).rl_module(rl_module_spec=module)
algorithm = config.debugging(seed=0).build_algo()
began_s, next_s, spent_s = time.process_time(), 0.0, 0.0
while spent_s < cpu_s:
    found = algorithm.train()["env_runners"].get("episode_return_mean", np.nan)
    spent_s = time.process_time() - began_s
    if spent_s >= next_s:
        next_s += cpu_s / 6
        print(f"{spent_s:.0f} CPU-s: return {found:+.3f} h", flush=True)
algorithm.stop()
