"""`python benchmarks/arnold_speed.py`: how long Arnold's formulations take, building the model included."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clustergym.cluster.cluster_files import load_cluster
from clustergym.common.arrays import Ints
from clustergym.common.tables import table
from clustergym.envs.placement.drawing import SETTINGS, draw_free_nodes, minipod_sizes
from clustergym.scenario.placement_problem import Instance, PretrainingJob, Unit

sys.path.insert(0, str(Path(__file__).parent.parent / "tests/support"))
from arnold_formulations import METHODS, solve


class Case(NamedTuple):
    """A job, the sizes of minipods, shape (M,), and the groups that are placed."""

    name: str
    job: PretrainingJob
    sizes: Ints
    unit: Unit = "pp"


HEADERS = ("case", "job nodes", "method", "median s", "worst s", "proven", "largest gap", "search nodes")

LITERAL_NODES = 1_019
"""Nodes of a cluster up to which the literal programme is timed: on setting (iii) it takes seconds."""

SCIP_STATES = 3
"""States on which a programme of SCIP is timed where it takes seconds."""


def cases() -> list[Case]:
    """Return the settings of the benchmark and large clusters."""
    settings = [Case(f"({s.name})", s.job, minipod_sizes(load_cluster(s.cluster))) for s in SETTINGS]
    return [
        *settings,
        Case("2,000 nodes, 50 minipods", PretrainingJob.from_gpus(9_600, 8, 8), np.full(50, 40)),
        Case("10,000 nodes, 50 minipods", PretrainingJob.from_gpus(40_000, 8, 8), np.full(50, 200)),
        Case("10,000 nodes, 250 minipods", PretrainingJob.from_gpus(40_000, 8, 8), np.full(250, 40)),
        Case("2,000 nodes, DP groups", PretrainingJob.from_gpus(9_600, 8, 8), np.full(50, 40), "dp"),
        Case("10,000 nodes, DP groups", PretrainingJob.from_gpus(40_000, 8, 8), np.full(250, 40), "dp"),
        Case("2,000 nodes, 200 minipods", PretrainingJob.from_gpus(9_600, 8, 16), np.full(200, 10)),
    ]


def instances(case: Case, states: int, seed: int) -> Iterator[Instance]:
    """Yield random states at alpha 0.3, 0.5 and 0.7.

    A job that takes most of a large cluster almost never finds room in a state of uniform draws, so
    that in clusters of more than 11 minipods the free nodes are the larger of two draws.
    """
    for state in range(states):
        rng = np.random.default_rng([seed, case.job.nodes, len(case.sizes), state])
        free = _roomy(case.sizes, rng) if len(case.sizes) > 11 else None
        if free is None or free.sum() < case.job.nodes:
            free = draw_free_nodes(case.sizes, min(case.job.nodes, int(case.sizes.sum())), rng)
        for alpha in (0.3, 0.5, 0.7):
            yield Instance(case.job, free, alpha, case.unit)


def _roomy(sizes: Ints, rng: np.random.Generator) -> Ints:
    drawn: Ints = np.maximum(rng.integers(0, sizes + 1), rng.integers(0, sizes + 1))
    return drawn


def speed_table(states: int, seed: int, quick: bool) -> str:
    """Return a Markdown table of seconds (median, worst), proofs, gaps and nodes of the search."""
    rows = []
    for case in cases()[: 3 if quick else None]:
        for method in METHODS:
            large = case.sizes.sum() > LITERAL_NODES
            if method == "literal" and large:
                continue
            slow = method == "literal" or (method == "patterns" and large)
            timed = min(states, SCIP_STATES) if slow else states
            rows.append(_row(case, method, list(instances(case, timed, seed))))
    return table(HEADERS, rows, words=(0, 2)) + "\n"


def _row(case: Case, method: str, problems: list[Instance]) -> list[str]:
    found = [made.solution for made in (solve(p, method=method) for p in problems) if made.solution]
    seconds = [solution.solve_s for solution in found]
    return [
        case.name,
        f"{case.job.nodes}",
        method,
        f"{np.median(seconds):.4f}",
        f"{max(seconds):.4f}",
        f"{sum(s.proven for s in found)}/{len(found)}",
        f"{max(s.gap for s in found):.3f}",
        f"{sum(s.nodes for s in found)}",
    ]


def main() -> None:
    """Print the table; the figures are never the same twice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the settings of the benchmark alone")
    parser.add_argument("--states", type=int, default=20, help="random states (20)")
    parser.add_argument("--seed", type=int, default=0, help="of the random states (0)")
    options = parser.parse_args()
    print(speed_table(options.states, options.seed, options.quick), end="")


if __name__ == "__main__":
    main()
