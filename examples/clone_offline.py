"""Imitate recorded actions: behaviour cloning, or weighted by advantage, in an environment.

clustergym offline elastic-16 jobs=50 --episodes 60
python examples/clone_offline.py elastic-16 --kinds expert
python examples/clone_offline.py elastic-16 --kinds expert medium random --method awr

Pomerleau (1988), with a softmax over the legal actions, or squares where actions are numbers; Peng et al.,
"Advantage-Weighted Regression" (2019): each step weighted by the exponential of what followed it less what a
critic expected. Mean JCTs are those of greedy play on the 40 test traces, beside random play, heSRPT
and the expert.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from clustergym.agents.auction_checkpoints import load
from clustergym.common.errors import InputError, exits_on_bad_input, require_known
from clustergym.envs.episodes import trace_seed
from clustergym.envs.registration import register_envs
from clustergym.scenario.environments import ENVIRONMENTS
from clustergym.training.offline import choose_action
from clustergym.training.played_traces import play_best_known, play_traces, simulate_policy
from clustergym.training.row_network import RowNetwork

RATE, BATCH, DISCOUNT, TEMPERATURE, LARGEST = 1e-3, 256, 0.99, 0.5, 10.0
TRACES = 40


def load_steps(folders: list[Path]) -> tuple[list[np.ndarray], Any]:
    """Return observations, masks, actions and discounted returns of all steps, and their environment."""
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
            ahead, returns = 0.0, np.zeros(len(episode.rewards), dtype=np.float32)
            for step in reversed(range(len(returns))):
                returns[step] = ahead = episode.rewards[step] + DISCOUNT * ahead
            # There is one observation and one mask more than actions: those of the end.
            found = episode.observations[:-1], episode.infos["action_mask"][:-1], episode.actions, returns
            for part, values in zip(parts, found, strict=True):
                part.append(values)
    return [np.concatenate(part) for part in parts], data.recover_environment()


class EditClone:
    """A network for all rows of jobs chooses one edit of all rows'."""

    def __init__(self, env: Any, seen: np.ndarray) -> None:
        self.network = RowNetwork(env.unwrapped.features, env.action_space, (64, 64))
        self.network.see(self.network.read_rows(seen).inputs)
        self.decide = self.network.decide

    def errors(self, seen: np.ndarray, masks: np.ndarray, actions: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the error of each step's action and the value of its observation, shapes (n,)."""
        rows = self.network.scale(self.network.read_rows(seen))
        chances, values = self.network.log_chances(rows, masks)
        chosen = chances[torch.arange(len(actions)), torch.from_numpy(actions)]
        return -chosen, rows.total(values) / rows.counts().clamp_min(1)


class PriorityClone:
    """A network for all rows of jobs gives each job two priorities, and says whether the second counts.

    A recorded second priority below zero forbids to double. Squares alone would meet it halfway.
    """

    def __init__(self, env: Any, seen: np.ndarray) -> None:
        self.network = RowNetwork(env.unwrapped.features, env.action_space, (64, 64))
        self.network.head = nn.Linear(self.network.head.in_features, 3)
        self.network.see(self.network.read_rows(seen).inputs)

    def errors(self, seen: np.ndarray, masks: np.ndarray, actions: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the error of each step's action and the value of its observation, shapes (n,)."""
        rows = self.network.scale(self.network.read_rows(seen))
        head, values, _ = self.network(rows)
        wanted = torch.from_numpy(actions).reshape(len(actions), rows.rows, 2)[rows.batch, rows.row]
        doubles = (wanted[:, 1] >= 0).float()
        error = (head[:, 0] - wanted[:, 0]).square() + doubles * (head[:, 1] - wanted[:, 1]).square()
        error = error + nn.functional.binary_cross_entropy_with_logits(head[:, 2], doubles, reduction="none")
        counts = rows.counts().clamp_min(1)
        return rows.total(error) / counts, rows.total(values) / counts

    def decide(self, seen: np.ndarray, masks: np.ndarray) -> np.ndarray:
        """Return an action for each observation."""
        with torch.no_grad():
            rows = self.network.scale(self.network.read_rows(seen))
            head = self.network(rows)[0]
            second = torch.where(head[:, 2] > 0, head[:, 1].clamp(min=0.0), -1.0)
            return self.network.fill_priorities(rows, torch.stack([head[:, 0], second], 1))


class VectorClone:
    """Numbers that are no rows of jobs, as the weights of Knobs: a linear layer."""

    def __init__(self, env: Any, seen: np.ndarray) -> None:
        self.network = nn.Linear(seen.shape[1], env.action_space.shape[0] + 1)

    def errors(self, seen: np.ndarray, masks: np.ndarray, actions: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the error of each step's action and the value of its observation, shapes (n,)."""
        found = self.network(torch.from_numpy(seen))
        return (found[:, :-1] - torch.from_numpy(actions)).square().mean(1), found[:, -1]

    def decide(self, seen: np.ndarray, masks: np.ndarray) -> np.ndarray:
        """Return an action for each observation."""
        with torch.no_grad():
            return self.network(torch.from_numpy(seen)).numpy()[:, :-1].clip(-2.0, 2.0)


def learn(clone: Any, steps: list[np.ndarray], updates: int, weighted: bool, seed: int) -> None:
    """Regress the recorded actions; weighted: more what turned out well."""
    rng = np.random.default_rng(seed)
    seen, masks, actions, returns = steps
    scaled = torch.from_numpy((returns - returns.mean()) / (returns.std() + 1e-6))
    adam = torch.optim.Adam(clone.network.parameters(), lr=RATE)
    errors, began_s = [], time.process_time()
    for update in range(1, updates + 1):
        at = rng.integers(len(seen), size=BATCH)
        error, value = clone.errors(seen[at], masks[at], actions[at])
        advantage = scaled[at] - value
        loss = error.mean()
        if weighted:
            weight = (advantage.detach() / TEMPERATURE).exp().clamp(max=LARGEST)
            loss = (weight * error).sum() / weight.sum() + advantage.square().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        errors.append(error.mean().item())
        if update % (updates // 4 or 1) == 0:
            spent_s = time.process_time() - began_s
            print(f"update {update}: error {np.mean(errors[-100:]):.3f}, {spent_s:.0f} CPU-s", flush=True)


def play_recorded(env: Any, seeds: list[int]) -> float:
    """Return the mean JCT of the expert where its weights rank the jobs, in hours.

    The board's best known plays the same weights as an auction, which can do more than ranks can say.
    """
    weights, jct_s = load("elastic").weights, []
    for seed in seeds:
        _, info = env.reset(options={"trace_seed": seed})
        over = False
        while not over:
            _, _, terminated, truncated, info = env.step(choose_action(env.unwrapped.actions, weights))
            over = terminated or truncated
        jct_s.append(info["metrics"]["jct_mean"])
    return float(np.mean(jct_s)) / 3600


def make_envs(name: str, jobs: int | None) -> Any:
    """Make the environment's test episodes on the compiled simulation, with observations as flat arrays."""
    known = {row.short_name: row.id for row in ENVIRONMENTS if row.schedules}
    require_known(name, known, "environment", "env")
    register_envs()
    own = {} if jobs is None else {"jobs": jobs}
    return gymnasium.make_vec(
        known[name], num_envs=TRACES, observation="flat", autoreset_mode="Disabled", **own
    )


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("env", help="as elastic-16")
    parser.add_argument("--jobs", type=int, help="of an episode, where they are not those of the environment")
    parser.add_argument("--data", type=Path, help="folder of data sets (outputs/offline/ENV)")
    parser.add_argument("--kinds", nargs="+", default=["expert"], metavar="KIND")
    parser.add_argument("--method", choices=["clone", "awr"], default="clone")
    parser.add_argument("--updates", type=int, default=3000, help="steps of gradient")
    parser.add_argument("--seeds", type=int, default=1, help="trainings")
    parser.add_argument("--json", type=Path, help="write the figures")
    given = parser.parse_args(argv)
    for name, least in {"updates": 1, "seeds": 1}.items():
        if getattr(given, name) < least:
            raise InputError(str(getattr(given, name)), field=f"--{name}", remedy=f"give at least {least}")
    envs, seeds = make_envs(given.env, given.jobs), [trace_seed("test", at) for at in range(TRACES)]
    torch.set_num_threads(1)
    data = given.data or Path("outputs/offline") / given.env
    steps, env = load_steps([data / f"{kind}-v0" for kind in given.kinds])
    make = VectorClone
    if "jobs" in env.unwrapped.features.layout:
        make = EditClone if isinstance(env.action_space, spaces.Discrete) else PriorityClone
    hours, spent_s = [], []
    for seed in range(given.seeds):
        torch.manual_seed(seed)
        began_s = time.process_time()
        clone = make(env, steps[0])
        learn(clone, steps, given.updates, given.method == "awr", seed)
        spent_s.append(time.process_time() - began_s)
        found = play_traces(envs, seeds, lambda seen, masks, _, by=clone: by.decide(seen, masks))
        hours.append(found.jct_s.mean() / 3600)
    name = f"{given.method} of {' '.join(given.kinds)}"
    beside = {
        "random": play_traces(envs, seeds, lambda *_: envs.sample_actions()).jct_s,
        "hesrpt": simulate_policy(envs, seeds, "hesrpt"),
        "expert": play_best_known(envs.single.parameters, seeds),
    }
    figures = {name: hours, **{key: [np.mean(one) / 3600] for key, one in beside.items()}}
    if make is PriorityClone:
        figures["expert"] = [play_recorded(env, seeds)]
    expert = figures["expert"][0]
    for key, one in figures.items():
        print(f"{key}: {np.mean(one):.3f} h, {np.mean(one) / expert:.3f} of the expert")
    print(f"{len(steps[0]):,} steps; CPU-s a training: {np.mean(spent_s):.0f}")
    if given.json:
        given.json.write_text(json.dumps({"env": given.env, "hours": figures}, indent=1) + "\n")
        print(f"wrote {given.json}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
