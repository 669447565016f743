"""Evolution of an auction's weights in the environments, to compare `agent=group_pg` with.

python examples/auction_search.py --updates 24 --groups 8 --size 8

CMA-ES (Hansen and Ostermeier, 2001): all candidates of an update play the same traces, and a candidate's
fitness is the mean over traces of its return in standard deviations of the group. Needs
`pip install -e '.[learn]'`.
"""

from __future__ import annotations

import argparse
import time

import gymnasium
import numpy as np

import clustergym  # noqa: F401 - registers the environments
from clustergym.common.errors import InputError, exits_on_bad_input
from clustergym.envs.vector.groups import groups, relative_to_group
from clustergym.training.auction_evolution import start
from clustergym.training.evolution import start_search
from clustergym.training.group_gradient import play
from clustergym.training.split_env import trace_seed

TRACES, VALIDATION, EVERY, SIGMA = 128, 24, 4, 0.2


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=24)
    parser.add_argument("--groups", type=int, default=8, help="traces of an update")
    parser.add_argument("--size", type=int, default=8, help="candidates, which all play each trace")
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    for name, least in {"updates": 1, "groups": 1, "size": 4, "jobs": 2, "seed": 0}.items():
        if getattr(given, name) < least:
            raise InputError(str(getattr(given, name)), field=f"--{name}", remedy=f"give at least {least}")

    def make(number: int) -> gymnasium.vector.VectorEnv:
        return gymnasium.make_vec(
            "ClusterGym/Auction-16-v1", number, summaries=False, observation="flat", actions="weights",
            features="summary", rows=1, jobs=given.jobs, rule="ares", information="data_parallel",
        )  # fmt: skip

    envs, judges, rng = make(given.groups * given.size), make(VALIDATION), np.random.default_rng(given.seed)
    search = start_search(start(), SIGMA, given.size, given.seed, diagonal=False)
    steps, began, best = 0, time.process_time(), np.inf
    for update in range(given.updates + 1):
        if update % EVERY == 0 or update == given.updates:
            took = time.process_time() - began
            seeds = groups([trace_seed("dev", at) for at in range(VALIDATION)], 1)
            returns = play(judges, np.asarray(search.mean), seeds, 0.0, 0, rng)[0]
            jct_h = float(np.exp(np.log(-returns).mean()))
            best = min(best, jct_h)
            print(f"update {update}: {steps} steps, {took:.0f} CPU-s, mean JCT {jct_h:.4f} h", flush=True)
            began = time.process_time() - took
        drawn = rng.choice(TRACES, given.groups, replace=False)
        seeds = groups([trace_seed("train", int(at)) for at in drawn], given.size)
        candidates = search.ask()
        rows = np.tile(np.stack(candidates), (given.groups, 1))
        returns, _, played = play(envs, rows, seeds, 0.0, 0, rng)
        search.tell(candidates, -relative_to_group(returns, given.size).reshape(-1, given.size).mean(axis=0))
        steps += played
    print(f"best mean JCT on {VALIDATION} dev traces: {best:.4f} h")
    envs.close()
    judges.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
