"""Imitate recorded actions in plain PyTorch: behaviour cloning, or weighted by advantage.

clustergym offline elastic-16 jobs=30 --episodes 60
python examples/clone_offline.py --data outputs/offline/elastic-16 --kinds expert
python examples/clone_offline.py --data outputs/offline/elastic-16 --kinds expert medium random --method awr

Pomerleau (1988), with a softmax over the legal actions, or squares where actions are numbers; Peng et al.,
"Advantage-Weighted Regression" (2019): each step weighted by the exponential of what followed it less what a
critic expected.
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

RATE, BATCH, HIDDEN, DISCOUNT, TEMPERATURE, LARGEST = 1e-3, 256, 256, 0.99, 0.5, 10.0


def steps_of(folders: list[Path]) -> tuple[list[torch.Tensor], gymnasium.Env]:
    """Return observations, masks, actions and discounted returns of all steps, and their environment."""
    try:
        import minari
    except ImportError as error:
        raise InputError("is needed", field="minari", remedy="pip install 'clustergym[offline]'") from error
    parts: list[list[np.ndarray]] = [[], [], [], []]
    for folder in folders:
        if not (folder / "data" / "metadata.json").is_file():
            raise InputError("is no data set", file=folder, remedy="write it with `clustergym offline`")
        data, totals = minari.MinariDataset(folder / "data"), []
        for episode in data.iterate_episodes():
            ahead, returns = 0.0, np.zeros(len(episode.rewards), dtype=np.float32)
            for step in reversed(range(len(returns))):
                returns[step] = ahead = episode.rewards[step] + DISCOUNT * ahead
            # There is one observation and one mask more than actions: those of the end.
            found = episode.observations[:-1], episode.infos["action_mask"][:-1] > 0, episode.actions, returns
            for part, values in zip(parts, found, strict=True):
                part.append(values)
            totals.append(episode.rewards.sum())
        print(f"{folder}: {len(totals)} episodes, mean return {np.mean(totals):.4f}", flush=True)
    return [torch.from_numpy(np.concatenate(part)) for part in parts], data.recover_environment()


def learn(steps: list[torch.Tensor], epochs: int, weighted: bool) -> nn.Module:
    """Return a network that gives recorded actions; weighted by advantage, its last output is a value."""
    seen, mask, action, returns = steps
    discrete = action.ndim == 1
    returns = (returns - returns.mean()) / (returns.std() + 1e-8)
    layers = [nn.Linear(seen.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()]
    width = mask.shape[1] if discrete else action.shape[1]
    network = nn.Sequential(*layers, nn.Linear(HIDDEN, width + weighted))
    adam = torch.optim.Adam(network.parameters(), lr=RATE)
    for epoch in range(1, epochs + 1):
        losses = []
        for part in torch.randperm(len(action)).split(BATCH):
            told = network(seen[part])
            given = told[:, :width]
            if discrete:
                logits = given.masked_fill(~mask[part], -1e9)
                error = nn.functional.cross_entropy(logits, action[part], reduction="none")
            else:
                error = (given - action[part]).square().mean(1)
            loss = total = error.mean()
            if weighted:
                advantage = returns[part] - told[:, -1]
                weight = (advantage.detach() / TEMPERATURE).exp().clamp(max=LARGEST)
                loss = (weight * error).sum() / weight.sum()
                total = loss + 0.1 * advantage.square().mean()
            adam.zero_grad()
            total.backward()
            adam.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {np.mean(losses):.3f}", flush=True)
    return network


def play(env: gymnasium.Env, network: nn.Module | None, seed: int) -> float:
    """Return the return of an episode by the network's best legal actions, or by random legal ones."""
    seen, info = env.reset(seed=seed)
    env.action_space.seed(seed)
    discrete = isinstance(env.action_space, gymnasium.spaces.Discrete)
    width = int(env.action_space.n) if discrete else env.action_space.shape[0]
    rng, total, over = np.random.default_rng(seed), 0.0, False
    while not over:
        if network is None:
            legal = np.flatnonzero(info["action_mask"])
            action = np.int64(rng.choice(legal)) if discrete else env.action_space.sample()
        else:
            with torch.no_grad():
                told = network(torch.from_numpy(seen)).numpy()[:width]
            legal = info["action_mask"] > 0
            action = np.int64(np.where(legal, told, -np.inf).argmax()) if discrete else told.clip(-1.0, 1.0)
        seen, reward, terminated, truncated, info = env.step(action)
        total, over = total + float(reward), terminated or truncated
    return total


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("outputs/offline/elastic-16"))
    parser.add_argument("--kinds", nargs="+", default=["expert"], metavar="KIND")
    parser.add_argument("--method", choices=["clone", "awr"], default="clone")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--traces", type=int, default=10, help="of the dev split, to compare on")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    for name, least in {"epochs": 1, "traces": 1, "seed": 0}.items():
        if getattr(given, name) < least:
            raise InputError(str(getattr(given, name)), field=f"--{name}", remedy=f"give at least {least}")
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    steps, env = steps_of([given.data / f"{kind}-v0" for kind in given.kinds])
    network = learn(steps, given.epochs, given.method == "awr")
    seeds = [trace_seed("dev", index) for index in range(given.traces)]
    for name, player in ((given.method, network), ("random", None)):
        print(f"{name}: mean return {np.mean([play(env, player, seed) for seed in seeds]):.4f}")
    env.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
