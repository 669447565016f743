"""What policies lose when only some jobs of the queue have a row at a decision point.

    python benchmarks/row_window.py [--rows 48] [--traces 3] [--loads 1.0 1.5]

Each policy drives ClusterGym/Elastic-64-v1 with a row for every job, and with fewer.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from clustergym.envs.driver import Drive, drive, driving_parameters
from clustergym.envs.families import ElasticEnv

POLICIES = ("fcfs", "srtf", "las", "gandiva", "hesrpt", "ares")


def driven(policy: str, rows: int, load: float, seed: int, jobs: int) -> Drive:
    env = ElasticEnv(jobs=jobs, rows=rows, loads=[load], **driving_parameters(policy))
    return drive(env, policy, seed=seed)


def main(argv: list[str] | None = None) -> int:
    """Print one row per policy and load."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=48)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--traces", type=int, default=3)
    parser.add_argument("--loads", type=float, nargs="+", default=[1.0, 1.5])
    options = parser.parse_args(argv)
    print("| policy | load | mean JCT, fewer rows by all rows | changes left out | decision points |")
    print("| --- | --- | --- | --- | --- |")
    for load in options.loads:
        for policy in POLICIES:
            ratios, lost, points = [], 0, 0
            for seed in range(options.traces):
                every = driven(policy, options.jobs, load, seed, options.jobs)
                fewer = driven(policy, options.rows, load, seed, options.jobs)
                ratios.append(np.log(fewer.metrics["jct_mean"] / every.metrics["jct_mean"]))
                lost, points = lost + fewer.lost, points + fewer.decisions
            ratio = float(np.exp(np.mean(ratios)))
            print(f"| {policy} | {load} | {ratio:.3f} | {lost} | {points} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
