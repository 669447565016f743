"""Masked PPO in plain PyTorch, in one file, on a vector environment that steps all episodes at once.

python examples/masked_ppo.py --steps 200000 --envs 32

PPO as of Schulman et al. (2017), masks as of Huang and Ontanon (2022).
"""

from __future__ import annotations

import argparse
import time

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import clustergym  # noqa: F401 - registers the environments
from clustergym.common.errors import InputError, exits_on_bad_input

LENGTH, EPOCHS, MINIBATCHES = 128, 4, 4
RATE, CLIP, GAE, ENTROPY, VALUE, NORM = 1e-3, 0.2, 0.98, 0.003, 0.5, 0.5
TRACES = 64


class Agent(nn.Module):
    """An actor that draws among the legal actions, and a critic."""

    def __init__(self, seen: int, actions: int, hidden: int = 128) -> None:
        super().__init__()

        def network(out: int, gain: float) -> nn.Sequential:
            layers = [nn.Linear(seen, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, out)]
            for layer, scale in zip(layers, (2**0.5, 2**0.5, gain), strict=True):
                nn.init.orthogonal_(layer.weight, scale)
                nn.init.zeros_(layer.bias)
            return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])

        self.actor, self.critic = network(actions, 0.01), network(1, 1.0)

    def policy(self, seen: torch.Tensor, mask: torch.Tensor) -> Categorical:
        """Return the distribution of actions; illegal ones have no probability."""
        return Categorical(logits=self.actor(seen).masked_fill(~mask, -1e9))

    def value(self, seen: torch.Tensor) -> torch.Tensor:
        """Return the expected return."""
        return self.critic(seen).squeeze(-1)


class Rollout:
    """Steps of all environments: arrays of shape (LENGTH, envs, …)."""

    def __init__(self, envs: gymnasium.vector.VectorEnv) -> None:
        number, seen = envs.num_envs, envs.single_observation_space.shape[0]
        self.seen = torch.zeros(LENGTH, number, seen)
        self.mask = torch.zeros(LENGTH, number, int(envs.single_action_space.n), dtype=torch.bool)
        self.action = torch.zeros(LENGTH, number, dtype=torch.int64)
        self.log_probability, self.value, self.reward, self.over = (
            torch.zeros(LENGTH, number) for _ in range(4)
        )

    def advantages(self, last: torch.Tensor) -> torch.Tensor:
        """Return generalised advantages without discount; `last` is the value of the state that follows."""
        found, ahead = torch.zeros_like(self.reward), torch.zeros_like(last)
        for step in reversed(range(LENGTH)):
            goes_on = 1.0 - self.over[step]
            following = last if step == LENGTH - 1 else self.value[step + 1]
            surprise = self.reward[step] + following * goes_on - self.value[step]
            found[step] = ahead = surprise + GAE * goes_on * ahead
        return found


def collect(envs, agent: Agent, rollout: Rollout, seen, mask, total, returns: list[float]):
    """Play LENGTH steps of each environment; return the next observations and masks, and their value."""
    for step in range(LENGTH):
        rollout.seen[step], rollout.mask[step] = torch.from_numpy(seen), torch.from_numpy(mask > 0)
        with torch.no_grad():
            policy = agent.policy(rollout.seen[step], rollout.mask[step])
            rollout.action[step] = action = policy.sample()
            rollout.log_probability[step] = policy.log_prob(action)
            rollout.value[step] = agent.value(rollout.seen[step])
        seen, reward, terminated, truncated, info = envs.step(action.numpy())
        mask, over = info["action_mask"], terminated | truncated
        rollout.reward[step], rollout.over[step] = torch.from_numpy(reward), torch.from_numpy(over)
        total += reward
        returns.extend(total[over].tolist())
        total[over] = 0.0
    with torch.no_grad():
        return seen, mask, agent.value(torch.from_numpy(seen))


def update(agent: Agent, adam: torch.optim.Optimizer, rollout: Rollout, last: torch.Tensor) -> None:
    """Improve the agent by a few passes over a rollout."""
    advantage = rollout.advantages(last)
    target = (advantage + rollout.value).flatten()
    advantage = advantage.flatten()
    seen, mask = rollout.seen.flatten(0, 1), rollout.mask.flatten(0, 1)
    action, before = rollout.action.flatten(), rollout.log_probability.flatten()
    for _ in range(EPOCHS):
        for part in torch.randperm(len(action)).chunk(MINIBATCHES):
            policy = agent.policy(seen[part], mask[part])
            gain = advantage[part]
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            ratio = (policy.log_prob(action[part]) - before[part]).exp()
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            loss = -torch.min(ratio * gain, clipped * gain).mean() - ENTROPY * policy.entropy().mean()
            loss = loss + VALUE * (agent.value(seen[part]) - target[part]).square().mean()
            adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), NORM)
            adam.step()


def train(envs: gymnasium.vector.VectorEnv, agent: Agent, steps: int, seed: int) -> list[float]:
    """Train for so many steps; return the returns of the episodes that ended."""
    adam, rollout = torch.optim.Adam(agent.parameters(), lr=RATE, eps=1e-5), Rollout(envs)
    seen, info = envs.reset(seed=seed)
    mask, total, returns, began = info["action_mask"], np.zeros(envs.num_envs), [], time.perf_counter()
    updates = max(steps // (LENGTH * envs.num_envs), 1)
    for number in range(1, updates + 1):
        seen, mask, last = collect(envs, agent, rollout, seen, mask, total, returns)
        update(agent, adam, rollout, last)
        taken = number * LENGTH * envs.num_envs
        mean = f"{np.mean(returns[-50:]):+.3f} h" if returns else "no episode has ended yet"
        rate = taken / (time.perf_counter() - began)
        print(f"step {taken:,}: return {mean} ({len(returns)} episodes, {rate:,.0f} steps/s)", flush=True)
    return returns


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--envs", type=int, default=32)
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    for name, least in {"steps": 1, "envs": 1, "jobs": 1, "seed": 0}.items():
        if getattr(given, name) < least:
            raise InputError(str(getattr(given, name)), field=f"--{name}", remedy=f"give at least {least}")
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    # SameStep: an episode's end and the next one's beginning are the same step. The return is what is gained
    # on srtf, in hours of mean JCT.
    envs = gymnasium.make_vec(
        "ClusterGym/Elastic-16-v1", given.envs, autoreset_mode="SameStep", summaries=False,
        observation="flat", jobs=given.jobs, rows=16, traces=TRACES, baseline="srtf",
    )  # fmt: skip
    agent = Agent(envs.single_observation_space.shape[0], int(envs.single_action_space.n))
    train(envs, agent, given.steps, given.seed)
    envs.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
