"""Learn to rank jobs on `Priority-16` from recorded play alone: behaviour cloning, or weighted by advantage.

clustergym offline priority-16 --episodes 60
python examples/offline_priority.py --kinds expert
python examples/offline_priority.py --kinds expert medium random
python examples/offline_priority.py --kinds expert medium random --method awr

Pomerleau (1988); Peng et al., "Advantage-Weighted Regression" (2019): the same regression, with each step
weighted by the exponential of what followed it less what a critic expected.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import gymnasium
import numpy as np
import torch
from torch import nn

import clustergym
from clustergym.common.errors import InputError, exits_on_bad_input
from clustergym.envs.episodes import trace_seed

RATE, BATCH, HIDDEN, DISCOUNT, TEMPERATURE, LARGEST = 1e-3, 128, 64, 0.97, 0.5, 10.0


class RowNetwork(nn.Module):
    """The same layers for each row of jobs, beside the mean of all rows; a value of the whole."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__()
        self.features, self.rows = env.unwrapped.features, env.unwrapped.parameters.rows
        parts = {name: int(np.prod(shape)) for name, shape in self.features.layout.items()}
        of_rows = sum(size for name, size in parts.items() if name not in ("cluster", "queue"))
        seen = of_rows // self.rows + parts["cluster"] + parts["queue"]
        self.encode = nn.Sequential(nn.Linear(seen, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU())
        self.rank = nn.Sequential(nn.Linear(2 * HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 3))
        self.value = nn.Linear(HIDDEN, 1)

    def forward(self, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return start and doubling priority and whether to double, (n, R, 3), and the value, (n,)."""
        tables, number = self.features.unpack(seen), len(seen)
        rows = [tables[name].reshape(number, self.rows, -1) for name in ("jobs", "options", "ranked")]
        shared = [tables[name].reshape(number, 1, -1) for name in ("cluster", "queue")]
        hidden = self.encode(torch.cat([*rows, *(one.expand(-1, self.rows, -1) for one in shared)], -1))
        pooled = hidden.mean(1)
        both = torch.cat([hidden, pooled[:, None].expand(-1, self.rows, -1)], -1)
        return self.rank(both), self.value(pooled)[:, 0]


def load_steps(folders: list[Path]) -> tuple[list[torch.Tensor], gymnasium.Env]:
    """Return observations, masks, actions and discounted returns of all steps, and the environment."""
    try:
        import minari
    except ImportError as error:
        raise InputError("is needed", field="minari", remedy="pip install 'clustergym[offline]'") from error
    parts: list[list[np.ndarray]] = [[], [], [], []]
    for folder in folders:
        if not (folder / "data" / "metadata.json").is_file():
            raise InputError("is no data set", file=folder, remedy="write it with `clustergym offline`")
        data = minari.MinariDataset(folder / "data")
        for episode in data.iterate_episodes():
            ahead, returns = 0.0, np.zeros(len(episode.rewards))
            for step in reversed(range(len(returns))):
                returns[step] = ahead = episode.rewards[step] + DISCOUNT * ahead
            masks = episode.infos["action_mask"][:-1] > 0
            found = (episode.observations[:-1], masks, episode.actions, returns.astype(np.float32))
            for part, values in zip(parts, found, strict=True):
                part.append(values)
    return [torch.from_numpy(np.concatenate(part)) for part in parts], data.recover_environment()


def learn(network: RowNetwork, steps: list[torch.Tensor], epochs: int, weighted: bool) -> None:
    """Regress the recorded priorities of rows with a job; weighted: more what turned out well."""
    seen, mask, action, returns = steps
    returns = (returns - returns.mean()) / returns.std()
    adam = torch.optim.Adam(network.parameters(), lr=RATE)
    for epoch in range(1, epochs + 1):
        losses = []
        for part in torch.randperm(len(seen)).split(BATCH):
            ranked, value = network(seen[part])
            wanted = action[part].reshape(len(part), -1, 2)
            there = mask[part].reshape(len(part), -1, 2)[..., 0].float()
            doubles = (wanted[..., 1] >= 0).float()
            loss = (ranked[..., 0] - wanted[..., 0]).square()
            loss = loss + doubles * (ranked[..., 1] - wanted[..., 1]).square()
            loss = loss + nn.functional.binary_cross_entropy_with_logits(
                ranked[..., 2], doubles, reduction="none"
            )
            advantage = (returns[part] - value).detach()
            weight = (advantage / TEMPERATURE).exp().clamp(max=LARGEST) if weighted else torch.ones(len(part))
            loss = (weight[:, None] * there * loss).sum() / (weight[:, None] * there).sum()
            critic = (value - returns[part]).square().mean()
            adam.zero_grad()
            (loss + critic).backward()
            adam.step()
            losses.append([loss.item(), critic.item()])
        error, unexplained = np.mean(losses, axis=0)
        print(f"epoch {epoch}: loss {error:.3f}, unexplained returns {unexplained:.2f}", flush=True)


def play(env: gymnasium.Env, network: RowNetwork, seed: int) -> float:
    """Return the mean JCT on a trace, in hours."""
    seen, info = env.reset(options={"trace_seed": seed})
    over = False
    while not over:
        with torch.no_grad():
            ranked = network(torch.from_numpy(seen)[None])[0][0]
        second = torch.where(ranked[:, 2] > 0, ranked[:, 1].clamp(min=0.0), -1.0)
        action = torch.stack([ranked[:, 0], second], -1).clamp(-1.0, 1.0).flatten().numpy()
        seen, _, terminated, truncated, info = env.step(action)
        over = terminated or truncated
    return info["metrics"]["jct_mean"] / 3600


def play_recorded(env: gymnasium.Env, seed: int, checkpoint: str) -> float:
    """Return the mean JCT of what the data sets were recorded with, by the weights of an auction."""
    from clustergym.agents.auction_checkpoints import load
    from clustergym.training.auction_experts import choose_action

    _, info = env.reset(options={"trace_seed": seed})
    weights, over = load(checkpoint).weights, False
    while not over:
        action = choose_action(env.unwrapped.actions, weights)
        _, _, terminated, truncated, info = env.step(action)
        over = terminated or truncated
    return info["metrics"]["jct_mean"] / 3600


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("outputs/offline/priority-16"))
    parser.add_argument("--kinds", nargs="+", default=["expert"], metavar="KIND")
    parser.add_argument("--method", choices=["clone", "awr"], default="clone")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--traces", type=int, default=20, help="of the split test, to compare on")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    for name, least in {"epochs": 1, "traces": 1, "seed": 0}.items():
        if getattr(given, name) < least:
            raise InputError(str(getattr(given, name)), field=f"--{name}", remedy=f"give at least {least}")
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    began_s = time.process_time()
    steps, env = load_steps([given.data / f"{kind}-v0" for kind in given.kinds])
    network = RowNetwork(env)
    learn(network, steps, given.epochs, given.method == "awr")
    learned_s = time.process_time() - began_s
    rows = []
    for index in range(given.traces):
        seed = trace_seed("test", index)
        mean = [play(env, network, seed), *(play_recorded(env, seed, one) for one in ("elastic", "prior"))]
        scenario = env.unwrapped.scenario
        rows.append([*mean, clustergym.simulate(scenario, "hesrpt").metrics["jct_mean"] / 3600])
    hours = np.array(rows)
    names = [f"{given.method} of {' '.join(given.kinds)}", "expert", "medium", "hesrpt"]
    for name, one in zip(names, hours.T, strict=True):
        logs = np.log(one / hours[:, 1])
        error = logs.std() / max(len(logs) - 1, 1) ** 0.5
        print(f"{name}: {one.mean():.3f} h, {np.exp(logs.mean()):.3f} of the expert (log error {error:.3f})")
    print(f"{len(steps[0])} steps, learned in {learned_s:.0f} CPU-s")
    print(json.dumps({"hours": hours.mean(axis=0).round(4).tolist()}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
