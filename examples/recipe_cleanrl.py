"""Masked PPO in one file, as CleanRL has it, on `Burst-16`: examples/recipe_cleanrl.py [CPU seconds]."""

import sys
import time

import gymnasium
import torch
from torch import nn
from torch.distributions import Categorical

import clustergym  # noqa: F401 - registers the environments

cpu_s = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
torch.set_num_threads(1)
torch.manual_seed(0)
kwargs = {"observation": "flat", "rows": 12, "baseline": "srtf", "split": "train", "traces": 64}
env = gymnasium.make_vec("ClusterGym/Burst-16-v0", 32, autoreset_mode="SameStep", summaries=False, **kwargs)
seen_size, actions = env.single_observation_space.shape[0], int(env.single_action_space.n)
body = nn.Sequential(nn.Linear(seen_size, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh())
actor, critic = nn.Linear(128, actions), nn.Linear(128, 1)
adam = torch.optim.Adam(nn.ModuleList([body, actor, critic]).parameters(), lr=7e-4, eps=1e-5)


def decide(seen, legal):
    """Return the chances of legal actions, and the value."""
    hidden = body(seen)
    return Categorical(logits=actor(hidden).masked_fill(~legal, -1e9)), critic(hidden)[:, 0]


began_s, next_s, total, returns = time.process_time(), 0.0, 0.0, []
now, info = env.reset(seed=0)
while (spent_s := time.process_time() - began_s) < cpu_s:
    steps, advantages = [], []
    for _ in range(128):
        seen, legal = torch.as_tensor(now), torch.as_tensor(info["action_mask"]) > 0
        chances, value = decide(seen, legal)
        action = chances.sample()
        now, reward, terminated, truncated, info = env.step(action.numpy())
        over, total = terminated | truncated, total + reward
        came = (torch.as_tensor(one, dtype=torch.float32) for one in (reward, over))
        steps.append((seen, legal, action, chances.log_prob(action).detach(), value.detach(), *came))
        returns += total[over].tolist()
        total[over] = 0.0
    if spent_s >= next_s and returns:
        next_s += cpu_s / 6
        print(f"{spent_s:.0f} CPU-s: return {sum(returns[-200:]) / len(returns[-200:]):+.3f} h", flush=True)
    ahead, following = 0.0, critic(body(torch.as_tensor(now)))[:, 0].detach()
    for *_, value, reward, over in reversed(steps):
        ahead, following = reward + (1 - over) * (following + 0.98 * ahead) - value, value
        advantages.insert(0, ahead)
    batch = [torch.cat(part) for part in (*list(zip(*steps, strict=True))[:5], advantages)]
    for part in [part for _ in range(4) for part in torch.randperm(len(batch[0])).chunk(8)]:
        seen, legal, action, before, value, gain = (one[part] for one in batch)
        chances, worth = decide(seen, legal)
        ratio, better = (chances.log_prob(action) - before).exp(), (gain - gain.mean()) / (gain.std() + 1e-8)
        loss = -torch.min(ratio * better, ratio.clamp(0.8, 1.2) * better) - 0.003 * chances.entropy()
        adam.zero_grad()
        (loss + 0.5 * (worth - gain - value).square()).mean().backward()
        nn.utils.clip_grad_norm_(adam.param_groups[0]["params"], 0.5)
        adam.step()
