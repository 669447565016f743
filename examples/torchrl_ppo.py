"""Train masked PPO of TorchRL to allot GPUs to jobs, beside fcfs and srtf on the same traces.

python examples/torchrl_ppo.py --steps 20000
"""

from __future__ import annotations

import argparse

import gymnasium
import numpy as np
import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.data import Bounded, Composite
from torchrl.envs import DTypeCastTransform, GymWrapper, TransformedEnv
from torchrl.envs.libs.gym import default_info_dict_reader
from torchrl.modules import MaskedCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import clustergym
from clustergym.common.errors import InputError, exits_on_bad_input

DEV_TRACES = range(1_000_000, 1_000_005)
BATCH, EPOCHS, MINIBATCH = 2000, 6, 256


class RowNetwork(nn.Module):
    """Scores rows of jobs by the same layers, and the whole by the mean of the rows."""

    def __init__(self, env: gymnasium.Env, per_row: int, hidden: int = 64) -> None:
        super().__init__()
        self.features, self.rows = env.features, env.parameters.rows
        size = {name: int(np.prod(shape)) for name, shape in self.features.layout.items()}
        seen = (size["jobs"] + size["options"]) // self.rows + size["cluster"] + size["queue"]
        self.body = nn.Sequential(nn.Linear(seen, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.row = nn.Linear(hidden, per_row) if per_row else None
        self.whole = nn.Linear(hidden, 1)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Return `per_row` numbers of each row and one of the whole, shape (…, rows x per_row + 1)."""
        tables, lead = self.features.unpack(observation), observation.shape[:-1]
        own = [tables[name].reshape(*lead, self.rows, -1) for name in ("jobs", "options")]
        shared = [tables[name].reshape(*lead, 1, -1) for name in ("cluster", "queue")]
        wide = [part.expand(*lead, self.rows, part.shape[-1]) for part in shared]
        hidden = self.body(torch.cat([*own, *wide], -1))
        whole = self.whole(hidden.mean(-2))
        return whole if self.row is None else torch.cat([self.row(hidden).flatten(-2), whole], -1)


def make_env(jobs: int) -> gymnasium.Env:
    """Make the environment: 64 traces to train on, and rewards that are what is gained on srtf."""
    chosen = {"baseline": "srtf", "observation": "flat"}
    return gymnasium.make("ClusterGym/Elastic-16-v1", jobs=jobs, rows=16, traces=64, **chosen)


def in_torchrl(env: gymnasium.Env, seed: int) -> TransformedEnv:
    """Wrap the environment; its action mask becomes an entry beside the observation, as bool."""
    wrapped = GymWrapper(env, categorical_action_encoding=True)
    mask = Composite(action_mask=Bounded(0, 1, (int(env.action_space.n),), dtype=torch.int8))
    wrapped.set_info_dict_reader(default_info_dict_reader(["action_mask"], spec=mask))
    wrapped.set_seed(seed)
    return TransformedEnv(wrapped, DTypeCastTransform(torch.int8, torch.bool, in_keys=["action_mask"]))


def actor_of(network: nn.Module, env: TransformedEnv) -> ProbabilisticActor:
    """Return the policy that draws a legal action by the network's scores."""
    return ProbabilisticActor(
        TensorDictModule(network, in_keys=["observation"], out_keys=["logits"]),
        in_keys={"logits": "logits", "mask": "action_mask"},
        spec=env.action_spec,
        distribution_class=MaskedCategorical,
        return_log_prob=True,
    )


def train(env: TransformedEnv, actor: ProbabilisticActor, critic: ValueOperator, steps: int) -> None:
    """Improve the policy by PPO on batches of episodes, until so many steps were taken."""
    loss_of = ClipPPOLoss(actor, critic, entropy_coeff=0.003, normalize_advantage=True)
    advantages = GAE(gamma=1.0, lmbda=0.98, value_network=critic)
    adam = torch.optim.Adam(loss_of.parameters(), lr=1e-3)
    taken = 0
    while taken < steps:
        episodes = []
        while (left := min(BATCH, steps - taken)) > 0 and sum(map(len, episodes)) < BATCH:
            with torch.no_grad():
                episodes.append(advantages(env.rollout(left, actor)))
            taken += len(episodes[-1])
        batch = torch.cat(episodes)
        for _ in range(EPOCHS):
            for part in batch[torch.randperm(len(batch))].split(MINIBATCH):
                losses = loss_of(part)
                adam.zero_grad()
                sum(value for name, value in losses.items() if name.startswith("loss_")).backward()
                nn.utils.clip_grad_norm_(loss_of.parameters(), 0.5)
                adam.step()


def greedy_jct_h(env: gymnasium.Env, network: nn.Module, seed: int) -> float:
    """Return the mean JCT of the most probable legal actions on a trace, in hours."""
    observation, info = env.reset(options={"trace_seed": seed})
    over = False
    while not over:
        with torch.no_grad():
            scores = network(torch.as_tensor(observation)).numpy()
        action = np.argmax(np.where(info["action_mask"], scores, -np.inf))
        observation, _, terminated, truncated, info = env.step(action)
        over = terminated or truncated
    return info["metrics"]["jct_mean"] / 3600


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    for name, least in {"steps": 1, "jobs": 1, "seed": 0}.items():
        if getattr(given, name) < least:
            raise InputError(str(getattr(given, name)), field=f"--{name}", remedy=f"give at least {least}")
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    env = make_env(given.jobs)
    core = env.unwrapped
    network = RowNetwork(core, core.actions.width)
    wrapped = in_torchrl(env, given.seed)
    train(wrapped, actor_of(network, wrapped), ValueOperator(RowNetwork(core, 0)), given.steps)
    learned = np.mean([greedy_jct_h(env, network, seed) for seed in DEV_TRACES])
    for policy in ("fcfs", "srtf"):
        hours = []
        for seed in DEV_TRACES:
            env.reset(options={"trace_seed": seed})
            hours.append(clustergym.simulate(core.scenario, policy).metrics["jct_mean"] / 3600)
        print(f"{policy}: mean JCT {np.mean(hours):.3f} h")
    print(f"PPO after {given.steps} steps: mean JCT {learned:.3f} h")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
