"""How much of a policy gradient is common to all traces: of a network, by baseline, and of an auction.

python examples/gradient_noise.py outputs/imitator/imitator.safetensors --traces 48 --size 8

Each trace gives a gradient, from `--size` rollouts of it. Printed is the mean product of the gradients of two
traces over the mean square of one: 1 if all traces agree, 0 if gradients are noise. Half of the square of a
mean of n gradients is signal where n = 1 / share - 1. Errors are by jackknife over traces.
The length is the root mean square of a trace's gradient, in hours for a network.
"""

from __future__ import annotations

import argparse

import gymnasium
import numpy as np
import torch

import clustergym  # noqa: F401 - registers the environments
from clustergym.common.errors import InputError, exits_on_bad_input
from clustergym.envs.vector.groups import groups, relative_to_group
from clustergym.training import group_gradient
from clustergym.training.auction_evolution import start
from clustergym.training.group_rollouts import Rollouts, compute_credits, play
from clustergym.training.network_checkpoints import load
from clustergym.training.split_env import make_compiled_envs, trace_seed

BASELINES, BATCH = ("group", "group_by_time", "none"), 4096


def common_share(gradients: np.ndarray) -> float:
    """Return the mean product of two rows over the mean square of a row."""
    number, total, squares = len(gradients), gradients.sum(axis=0), (gradients**2).sum()
    return float((total @ total - squares) / (number - 1) / squares)


def report(name: str, gradients: np.ndarray) -> None:
    """Print the share with its standard error."""
    share, number = common_share(gradients), len(gradients)
    without = [common_share(np.delete(gradients, at, axis=0)) for at in range(number)]
    error = np.sqrt((number - 1) * np.var(without))
    size = np.sqrt((gradients**2).sum(axis=1).mean())
    print(f"{name}: {share:.4f} (standard error {error:.4f}), length {size:.3g}", flush=True)


def network_gradient(policy, rollouts: Rollouts, credits: np.ndarray) -> np.ndarray:
    """Return the likelihood-ratio gradient of some rollouts by the actor's parameters."""
    policy.zero_grad()
    for at in torch.arange(len(credits)).split(BATCH):
        logs = torch.log_softmax(policy.logits(rollouts.observations[at].float(), rollouts.masks[at]), dim=1)
        taken = logs.gather(1, rollouts.actions[at, None])[:, 0]
        (taken * torch.from_numpy(credits).float()[at]).sum().div(len(credits)).backward()
    return np.concatenate([value.grad.numpy().ravel() for value in policy.actor_parameters()])


def of_network(name: str, traces: int, size: int) -> None:
    """Report a network's gradients with each baseline, all from the same rollouts."""
    checkpoint, generator = load(name), torch.Generator().manual_seed(0)
    envs = make_compiled_envs(checkpoint.about["traces"]["env"], size)
    found: dict[str, list[np.ndarray]] = {baseline: [] for baseline in BASELINES}
    spread, means = [], []
    for at in range(traces):
        rollouts = play(envs, checkpoint.policy, [trace_seed("train", at)], size, generator)
        spread.append(rollouts.returns.std())
        means.append(rollouts.returns.mean())
        for baseline in BASELINES:
            credits = compute_credits(rollouts, size, baseline)
            found[baseline].append(network_gradient(checkpoint.policy, rollouts, credits))
    envs.close()
    print(f"deviation of returns: {np.mean(spread):.3f} h within traces, {np.std(means):.3f} h between them")
    for baseline, gradients in found.items():
        report(f"network, baseline {baseline}, {size} rollouts", np.stack(gradients))


def of_auction(traces: int, size: int) -> None:
    """Report an auction's gradients by its weights, held for an episode or drawn at each decision."""
    envs = gymnasium.make_vec(
        "ClusterGym/Auction-16-v1", traces * size, summaries=False, observation="flat", actions="weights",
        features="summary", rows=1, jobs=50, rule="ares", information="data_parallel",
    )  # fmt: skip
    options = groups([trace_seed("train", at) for at in range(traces)], size)
    for hold, name in ((0, "an episode"), (1, "a decision")):
        rng = np.random.default_rng(0)
        returns, noise, _ = group_gradient.play(envs, start(), options, 0.2, hold, rng)
        gradients = relative_to_group(returns, size)[:, None] * noise
        report(
            f"auction, weights of {name}, {size} rollouts", gradients.reshape(traces, size, -1).mean(axis=1)
        )
    envs.close()


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", nargs="?", help="a network; left out: the auction")
    parser.add_argument("--traces", type=int, default=48)
    parser.add_argument("--size", type=int, default=8, help="rollouts of each trace")
    given = parser.parse_args(argv)
    for name, least in {"traces": 3, "size": 2}.items():
        if getattr(given, name) < least:
            raise InputError(str(getattr(given, name)), field=f"--{name}", remedy=f"give at least {least}")
    torch.set_num_threads(1)
    if given.checkpoint is None:
        of_auction(given.traces, given.size)
    else:
        of_network(given.checkpoint, given.traces, given.size)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
