"""Tenants that weigh their own jobs selfishly, in one auction (the extra `pettingzoo`).

python examples/selfish_tenants.py --updates 40 --traces 20 --json outputs/selfish.json

Each tenant's weight is a function of what it observes, with parameters of its own that it improves by
evolution strategies on its own return, while all others do the same. Compared on traces that nobody has
learned on.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from clustergym.common.errors import InputError, exits_on_bad_input
from clustergym.common.writing import write_json
from clustergym.envs.tenants_parallel import FEATURES, LARGEST_WEIGHT, TenantsParallelEnv

SPREAD, RATE, PAIRS = 0.5, 0.3, 4


def play(env: TenantsParallelEnv, minds: np.ndarray, trace: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the mean JCT of each tenant's jobs in hours, how many these are, and the mean over all jobs."""
    observations, _ = env.reset(options={"trace_seed": trace})
    returns = np.zeros(len(minds))
    while env.agents:
        facts = np.stack([np.append(observations[agent], 1.0) for agent in env.agents])
        weights = LARGEST_WEIGHT ** np.tanh((minds * facts).sum(axis=1, keepdims=True))
        given = dict(zip(env.agents, weights.astype(np.float32), strict=True))
        observations, rewards, _, _, infos = env.step(given)
        returns -= list(rewards.values())
    jobs = np.bincount(env.scenario.tenants.leaf, minlength=len(minds))
    return returns, jobs, infos[env.possible_agents[0]]["metrics"]["jct_mean"] / 3600


def learn(env: TenantsParallelEnv, updates: int, rng: np.random.Generator) -> np.ndarray:
    """Return the parameters of all tenants after updates of all at once, each by its own return."""
    minds = np.zeros((len(env.possible_agents), len(FEATURES) + 1))
    for update in range(updates):
        steps, means = np.zeros_like(minds), []
        for pair in range(PAIRS):
            noise = rng.standard_normal(minds.shape)
            trace = 3 * (update * PAIRS + pair)  # of the split train
            (up, _, first), (down, _, second) = (
                play(env, minds + sign * SPREAD * noise, trace) for sign in (1, -1)
            )
            gain = (down - up) / np.maximum(down + up, 1e-9)
            steps += gain[:, None] * noise
            means += [first, second]
        scale = np.maximum(np.sqrt((steps**2).mean(axis=1, keepdims=True)), 1e-9)
        minds += RATE * steps / scale
        print(f"update {update + 1}: mean JCT {np.mean(means):.3f} h", flush=True)
    return minds


def compare(env: TenantsParallelEnv, minds: np.ndarray, traces: int) -> dict[str, list[float]]:
    """Return JCTs of who does something, and of the others, as ratios to equal weights on unseen traces."""
    number, still = len(minds), np.zeros_like(minds)
    greedy = still.copy()
    greedy[:, -1] = 10.0
    found: dict[str, list[float]] = {}

    def note(name: str, ratio: float) -> None:
        found.setdefault(name, []).append(float(ratio))

    for index in range(traces):
        trace = 3 * index + 2  # of the split test
        equal, jobs, mean = play(env, still, trace)
        note("all at the largest weight: mean JCT", play(env, greedy, trace)[2] / mean)
        some, ways = jobs > 0, [("at the largest weight", greedy)]
        if minds.any():
            ways.append(("selfish", minds))
            selfish, _, together = play(env, minds, trace)
            note("all selfish: mean JCT", together / mean)
            note("all selfish: worst tenant", (selfish[some] / equal[some]).max())
            note("all selfish: tenants that lose, share", (selfish[some] > equal[some]).mean())
        # The tenant of most jobs, and one that has few.
        for who, at in (("largest", jobs.argmax()), ("smallest", np.where(some, jobs, 10**9).argmin())):
            for what, chosen in ways:
                alone = still.copy()
                alone[at] = chosen[at]
                own = play(env, alone, trace)[0]
                others = some & (np.arange(number) != at)
                total = ((own * jobs)[others]).sum() / ((equal * jobs)[others]).sum()
                note(f"{who} tenant alone {what}: itself", own[at] / equal[at])
                note(f"{who} tenant alone {what}: the others", total)
        print(f"trace {index + 1} of {traces}", flush=True)
    return found


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="ClusterGym/Tenants-16-v1")
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--traces", type=int, default=20, help="to compare on")
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("--round-s", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(argv)
    for name, least in {"updates": 0, "traces": 1, "jobs": 1, "seed": 0}.items():
        if getattr(given, name) < least:
            raise InputError(str(getattr(given, name)), field=f"--{name}", remedy=f"give at least {least}")
    env = TenantsParallelEnv(given.env, jobs=given.jobs, loads=[given.load], round_s=given.round_s)
    began_s = time.process_time()
    found = compare(env, learn(env, given.updates, np.random.default_rng(given.seed)), given.traces)
    for name, ratios in found.items():
        spread = np.std(ratios) / max(len(ratios) - 1, 1) ** 0.5
        print(f"{name}: {np.mean(ratios):.3f} (standard error {spread:.3f})")
    print(f"{time.process_time() - began_s:.0f} CPU-s")
    write_json(given.json, found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
