"""The table of docs/failures.md: whether training with failures and killed jobs helps where there are any.

    python benchmarks/failure_training.py [--seeds 24] CHECKPOINT …

plays each learned auction on the scenarios of the board `faults` at seeds that none of its splits has, and
prints its mean JCT and that over the last one's: geometric mean of seeds, with the 95 % bootstrap interval.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from clustergym.benchmark.leaderboard.board import Board, Cell, load_board
from clustergym.common.arrays import Floats
from clustergym.common.tables import table
from clustergym.results.measured_run import simulate
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.training.comparison import ratio

FIRST_SEED = 20_000
OUTCOMES = "trace.outcomes=ignore"
UNFAILING = "scenario.failures.rate_scale=1e-9"
WORLDS: dict[str, tuple[str, ...]] = {
    "nodes fail, jobs are killed": (),
    "nodes fail": (OUTCOMES,),
    "neither": (OUTCOMES, UNFAILING),
}


def mean_jcts(
    board: Board, name: str, checkpoints: Sequence[str], changes: Sequence[str], seeds: Sequence[int]
) -> Floats:
    """Return the mean JCT of each checkpoint at each seed, shape (seeds, checkpoints)."""
    cells = [Cell(name, seed) for seed in seeds]
    scenarios = (board.scenario(cell, changes) for cell in cells)
    return np.array([[jct_mean(scenario, one) for one in checkpoints] for scenario in scenarios])


def jct_mean(scenario: object, checkpoint: str) -> float:
    """Return the mean JCT of a learned auction in seconds."""
    policy = make_policy({"name": "learned", "checkpoint": checkpoint})
    return float(simulate(scenario, policy, make_placer({"name": "buddy"})).metrics["jct_mean"] or np.nan)  # type: ignore[arg-type]


def main(argv: Sequence[str] | None = None) -> None:
    """Play all and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("checkpoint", nargs="+")
    args = parser.parse_args(argv)
    seeds = list(range(FIRST_SEED, FIRST_SEED + args.seeds))
    board, rows = load_board("faults"), []
    for scenario in board.scenarios:
        for world, changes in WORLDS.items():
            found = mean_jcts(board, scenario.name, args.checkpoint, changes, seeds)
            for at, checkpoint in enumerate(args.checkpoint):
                last, mean = at + 1 == len(args.checkpoint), f"{found[:, at].mean():,.0f} s"
                against = "" if last else "{:.3f} [{:.3f}, {:.3f}]".format(*ratio(found[:, -1], found[:, at]))
                rows.append((scenario.name, world, checkpoint, mean, against))
            print(f"{scenario.name}, {world}", file=sys.stderr)
    headers = ("jobs and cluster", "where", "trained", "mean JCT", "the last / this")
    print(table(headers, rows, words=(0, 1, 2)))


if __name__ == "__main__":
    main()
