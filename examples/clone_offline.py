"""Behaviour cloning in plain PyTorch on offline data: imitate the recorded actions, masked to the legal ones.

clustergym offline elastic-16 jobs=30 --episodes 60
python examples/clone_offline.py --data outputs/offline --dataset elastic-16/expert-v0

Pomerleau (1988), with a softmax over the legal actions.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gymnasium
import numpy as np
import torch
from torch import nn

import clustergym  # noqa: F401 - registers the environments
from clustergym.common.errors import InputError, exits_on_bad_input
from clustergym.training.split_env import trace_seed

RATE, BATCH, HIDDEN = 1e-3, 256, 256


def steps_of(folder: Path) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, gymnasium.Env]:
    """Return observations, masks and actions of all steps of a data set, and its environment."""
    try:
        import minari
    except ImportError as error:
        raise InputError("is needed", field="minari", remedy="pip install 'clustergym[offline]'") from error
    if not (folder / "data" / "metadata.json").is_file():
        raise InputError("is no data set", file=folder, remedy="write it with `clustergym offline`")
    data = minari.MinariDataset(folder / "data")
    seen, masks, actions, returns = [], [], [], []
    for episode in data.iterate_episodes():
        # There is one observation and one mask more than actions: those of the end.
        seen.append(episode.observations[:-1])
        masks.append(episode.infos["action_mask"][:-1] > 0)
        actions.append(episode.actions)
        returns.append(episode.rewards.sum())
    print(f"{folder}: {len(returns)} episodes, mean return {np.mean(returns):.4f}", flush=True)
    parts = (torch.from_numpy(np.concatenate(part)) for part in (seen, masks, actions))
    return *parts, data.recover_environment()


def clone(seen: torch.Tensor, mask: torch.Tensor, action: torch.Tensor, epochs: int) -> nn.Module:
    """Return a network trained to give the recorded actions the greatest logits among the legal ones."""
    layers = [nn.Linear(seen.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Linear(HIDDEN, mask.shape[1]))
    adam = torch.optim.Adam(network.parameters(), lr=RATE)
    for epoch in range(1, epochs + 1):
        losses, hits = [], 0
        for part in torch.randperm(len(action)).split(BATCH):
            logits = network(seen[part]).masked_fill(~mask[part], -1e9)
            loss = nn.functional.cross_entropy(logits, action[part])
            adam.zero_grad()
            loss.backward()
            adam.step()
            losses.append(loss.item())
            hits += int((logits.argmax(1) == action[part]).sum())
        print(
            f"epoch {epoch}: loss {np.mean(losses):.3f}, {100 * hits / len(action):.0f} % alike", flush=True
        )
    return network


def play(env: gymnasium.Env, network: nn.Module | None, seed: int) -> float:
    """Return the return of an episode by the network's best legal actions, or by random legal ones."""
    seen, info = env.reset(seed=seed)
    rng, total, over = np.random.default_rng(seed), 0.0, False
    while not over:
        mask = info["action_mask"] > 0
        if network is None:
            action = rng.choice(np.flatnonzero(mask))
        else:
            with torch.no_grad():
                logits = network(torch.from_numpy(seen)).numpy()
            action = np.where(mask, logits, -np.inf).argmax()
        seen, reward, terminated, truncated, info = env.step(np.int64(action))
        total, over = total + float(reward), terminated or truncated
    return total


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("outputs/offline"))
    parser.add_argument("--dataset", default="elastic-16/expert-v0")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--episodes", type=int, default=10, help="of the dev split, to compare on")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    for name, least in {"epochs": 1, "episodes": 1, "seed": 0}.items():
        if getattr(given, name) < least:
            raise InputError(str(getattr(given, name)), field=f"--{name}", remedy=f"give at least {least}")
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    *steps, env = steps_of(given.data / given.dataset)
    network = clone(*steps, given.epochs)
    seeds = [trace_seed("dev", index) for index in range(given.episodes)]
    for name, player in (("clone", network), ("random", None)):
        print(f"{name}: mean return {np.mean([play(env, player, seed) for seed in seeds]):.4f}")
    env.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
