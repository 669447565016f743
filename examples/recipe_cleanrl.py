"""Masked PPO in one file, as CleanRL has it, on `Burst-16`: python examples/recipe_cleanrl.py --cpu-s 60."""

import argparse
import time

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import clustergym  # noqa: F401 - registers the environments

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--cpu-s", type=float, default=60.0)
given = parser.parse_args()
began_s, ENVS, STEPS = time.process_time(), 32, 128
torch.set_num_threads(1)
torch.manual_seed(0)
envs = gymnasium.make_vec(
    "ClusterGym/Burst-16-v0", ENVS, autoreset_mode="SameStep", summaries=False, observation="flat",
    rows=12, baseline="srtf", split="train", traces=64,
)  # fmt: skip
SEEN, ACTIONS = envs.single_observation_space.shape[0], int(envs.single_action_space.n)
body = nn.Sequential(nn.Linear(SEEN, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh())
actor, critic = nn.Linear(128, ACTIONS), nn.Linear(128, 1)
nn.init.orthogonal_(actor.weight, 0.01)
weights = [*body.parameters(), *actor.parameters(), *critic.parameters()]
adam = torch.optim.Adam(weights, lr=7e-4, eps=1e-5)
seen = torch.zeros(STEPS, ENVS, SEEN)
mask = torch.zeros(STEPS, ENVS, ACTIONS, dtype=torch.bool)
action, log_p, value, reward, over = (torch.zeros(STEPS, ENVS) for _ in range(5))
now, info = envs.reset(seed=0)
total, returns, next_s = np.zeros(ENVS), [], 0.0
while (spent_s := time.process_time() - began_s) < given.cpu_s:
    for t in range(STEPS):
        seen[t], mask[t] = torch.as_tensor(now), torch.as_tensor(info["action_mask"]) > 0
        with torch.no_grad():
            hidden = body(seen[t])
            chances = Categorical(logits=actor(hidden).masked_fill(~mask[t], -1e9))
            action[t], value[t] = chances.sample(), critic(hidden)[:, 0]
            log_p[t] = chances.log_prob(action[t])
        now, gain, terminated, truncated, info = envs.step(action[t].long().numpy())
        ends, total = terminated | truncated, total + gain
        reward[t], over[t] = torch.as_tensor(gain), torch.as_tensor(ends)
        returns += total[ends].tolist()
        total[ends] = 0.0
    if spent_s >= next_s:
        next_s += given.cpu_s / 6
        print(f"{spent_s:.0f} CPU-s: return {np.mean(returns[-200:]):+.3f} h", flush=True)
    with torch.no_grad():
        ahead, following, advantage = 0.0, critic(body(torch.as_tensor(now)))[:, 0], torch.zeros_like(value)
    for t in reversed(range(STEPS)):
        ahead = reward[t] + (1 - over[t]) * (following + 0.98 * ahead) - value[t]
        advantage[t], following = ahead, value[t]
    flat = [part.flatten(0, 1) for part in (seen, mask, action, log_p, advantage, advantage + value)]
    for _ in range(4):
        for part in torch.randperm(STEPS * ENVS).chunk(8):
            x, legal, a, before, gain, target = (one[part] for one in flat)
            hidden = body(x)
            chances = Categorical(logits=actor(hidden).masked_fill(~legal, -1e9))
            ratio, gain = (chances.log_prob(a) - before).exp(), (gain - gain.mean()) / (gain.std() + 1e-8)
            loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
            loss = (
                loss
                + 0.5 * (critic(hidden)[:, 0] - target).square().mean()
                - 0.003 * chances.entropy().mean()
            )
            adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(weights, 0.5)
            adam.step()
