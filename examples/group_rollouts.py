"""Policy gradients without a critic: a rollout is compared with others of the same trace.

python examples/group_rollouts.py --updates 20 --groups 4 --size 8

Advantages as of group-relative policy optimisation (Shao et al., 2024, DeepSeekMath); one update on each
batch, so that nothing has to be clipped.
"""

from __future__ import annotations

import argparse

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import clustergym  # noqa: F401 - registers the environments
from clustergym.common.errors import InputError, exits_on_bad_input

TRACES, RATE, MINIBATCH = 64, 1e-3, 4096


def play(envs: gymnasium.vector.VectorEnv, network: nn.Module, trace_seeds: list[int], size: int):
    """Play a group of episodes on each trace; return what was seen, the masks, actions, rows and returns."""
    seen, info = envs.reset(options={"trace_seed": np.repeat(trace_seeds, size)})
    returns, goes_on, kept = np.zeros(envs.num_envs), np.ones(envs.num_envs, dtype=bool), []
    while goes_on.any():
        rows = np.flatnonzero(goes_on)
        own, mask = torch.from_numpy(seen[rows]), torch.from_numpy(info["action_mask"][rows] > 0)
        with torch.no_grad():
            drawn = Categorical(logits=network(own).masked_fill(~mask, -1e9)).sample()
        # Where an episode is over, in NextStep mode, the action counts for nothing.
        actions = np.zeros(envs.num_envs, dtype=np.int64)
        actions[rows] = drawn.numpy()
        kept.append((own, mask, drawn, torch.from_numpy(rows)))
        seen, rewards, terminated, truncated, info = envs.step(actions)
        returns[rows] += rewards[rows]
        goes_on &= ~(terminated | truncated)
    return *(torch.cat(part) for part in zip(*kept, strict=True)), returns


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--groups", type=int, default=4, help="traces of an update")
    parser.add_argument("--size", type=int, default=8, help="rollouts of each trace")
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    for name, least in {"updates": 1, "groups": 1, "size": 2, "jobs": 1, "seed": 0}.items():
        if getattr(given, name) < least:
            raise InputError(str(getattr(given, name)), field=f"--{name}", remedy=f"give at least {least}")
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    rng = np.random.default_rng(given.seed)
    envs = gymnasium.make_vec(
        "ClusterGym/Elastic-16-v1", given.groups * given.size, summaries=False, observation="flat",
        jobs=given.jobs, rows=10, traces=TRACES,
    )  # fmt: skip
    seen, number = envs.single_observation_space.shape[0], int(envs.single_action_space.n)
    network = nn.Sequential(nn.Linear(seen, 128), nn.Tanh(), nn.Linear(128, number))
    adam = torch.optim.Adam(network.parameters(), lr=RATE)
    for update in range(1, given.updates + 1):
        trace_seeds = rng.choice(TRACES, given.groups, replace=False).tolist()
        own, mask, drawn, rows, returns = play(envs, network, trace_seeds, given.size)
        within = returns.reshape(-1, given.size)
        relative = (within - within.mean(1, keepdims=True)) / np.maximum(within.std(1, keepdims=True), 1e-12)
        advantage = torch.from_numpy(relative.ravel()).float()[rows]
        adam.zero_grad()
        for part in torch.arange(len(drawn)).split(MINIBATCH):
            policy = Categorical(logits=network(own[part]).masked_fill(~mask[part], -1e9))
            (-(advantage[part] * policy.log_prob(drawn[part])).sum() / len(drawn)).backward()
        adam.step()
        spread = f"{within.std(axis=1).mean():.3f} h within groups, {within.mean(axis=1).std():.3f} h between"
        print(f"update {update}: return {returns.mean():+.3f} h; deviation {spread}", flush=True)
    envs.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
