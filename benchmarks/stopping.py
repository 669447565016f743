"""What stops lose, by who is stopped and with or without notice: the table of docs/stopping-and-moving.md.

    python benchmarks/stopping.py [--board tenants] [--every-s 1800] [--seeds 4] [--policy TEXT …]

plays each policy on the scenarios of a board, at seeds that none of its splits has, with checkpoints every so
many seconds of work: what a stop without notice loses is the work since the last one. GPU-hours lost are work
that is undone, saving, and standing still after launches; each is over that of the same policy that stops the
most recent job without notice: the ratio of the sums over cells, with its 95 % bootstrap interval.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from clustergym.benchmark.leaderboard.board import Cell, load_board
from clustergym.common import random_streams
from clustergym.common.arrays import Floats, Ints
from clustergym.common.tables import table
from clustergym.results.measured_run import simulate
from clustergym.scenario.registry import make_placer, parse_policy
from clustergym.scenario.scenario import Scenario

Cells = list[dict[str, float]]

FIRST_SEED = 30_000
POLICIES = (
    "quotas reclaim=stop",
    "kueue reclaim_within_cohort=any",
    "quotas within ares work_conserving=true",
)
VARIANTS = {
    "most recent, no notice": "",
    "cheapest victim": "victims=cheapest",
    "notice": "notice=cheaper",
    "both": "victims=cheapest notice=cheaper",
}


def play(scenario: Scenario, policy: str) -> dict[str, float]:
    """Return what one run lost, in GPU-hours, and how often it stopped jobs."""
    text, _, within = policy.partition(" within ")
    played = parse_policy(text, "policy")
    if within:
        played = replace(played, within=within)  # type: ignore[type-var]
    return measure_loss(simulate(scenario, played, make_placer({"name": "buddy"})).metrics)


def measure_loss(metrics: Mapping[str, float | None]) -> dict[str, float]:
    """Return what a run with these metrics lost, in GPU-hours, the jobs that it stopped, and its mean JCT."""
    undone, stands = float(metrics["lost_gpu_hours"] or 0), float(metrics["overhead_gpu_hours"] or 0)
    stops = float(metrics["preemptions_mean"] or 0) * float(metrics["jobs_total"] or 0)
    lost = {"undone": undone, "standing": stands, "lost": undone + stands, "stops": stops}
    return lost | {"jct": float(metrics["jct_mean"] or np.nan)}


def main(argv: Sequence[str] | None = None) -> None:
    """Play all and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--board", default="tenants")
    parser.add_argument("--every-s", type=float, default=1800.0)
    parser.add_argument("--write-s", type=float, default=0.0)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--policy", nargs="+", default=list(POLICIES))
    parser.add_argument("--variant", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--json", type=Path, help="write all runs to a file")
    parser.add_argument("--read", type=Path, help="print the table of a file of --json, and play nothing")
    args = parser.parse_args(argv)
    if args.read:
        print(format_table(json.loads(args.read.read_text(encoding="utf-8"))))
        return
    seeds = list(range(FIRST_SEED, FIRST_SEED + args.seeds))
    board = load_board(args.board)
    changes = [f"scenario.checkpoints.every_s={args.every_s}", f"scenario.checkpoints.write_s={args.write_s}"]
    runs: dict[str, dict[str, Cells]] = {}
    for one in board.scenarios:
        for seed in seeds:
            scenario = board.scenario(Cell(one.name, seed), changes)
            for policy in args.policy:
                for name in args.variant:
                    text, *within = policy.split(" within ")
                    found = play(scenario, " within ".join([f"{text} {VARIANTS[name]}".strip(), *within]))
                    runs.setdefault(policy, {}).setdefault(name, []).append(found)
                    if args.json:
                        args.json.write_text(json.dumps(runs), encoding="utf-8")
            print(f"{one.name}, seed {seed}", file=sys.stderr, flush=True)
    print(format_table(runs))
    if args.json:
        print(f"wrote {args.json}")


def format_table(runs: dict[str, dict[str, Cells]]) -> str:
    """Return the table of runs, by policy and variant."""
    rows = []
    for policy, by_variant in runs.items():
        first = next(iter(by_variant.values()))
        for name, cells in by_variant.items():
            mean = {key: float(np.mean([cell[key] for cell in cells])) for key in cells[0]}
            against = [compare_cells(cells, first, key) for key in ("lost", "per stop", "jct")]
            figures = (f"{mean['stops']:.1f}", f"{mean['undone']:.2f}", f"{mean['standing']:.2f}")
            rows.append((policy, name, *figures, f"{mean['lost']:.2f}", *against))
    headers = ("policy", "stops", "jobs stopped", "undone", "standing still", "lost, GPU-hours")
    return table((*headers, "lost, ratio", "lost a stop, ratio", "mean JCT, ratio"), rows, words=(0, 1))


def compare_cells(cells: Cells, first: Cells, key: str, draws: int = 5000) -> str:
    """Return the ratio of the sums of a figure over cells to the first variant's, with its interval."""
    if cells is first:
        return ""
    rows = draw_cells(len(cells), draws)
    whole = np.arange(len(cells))[None, :]

    def sums(side: Cells, rows: Ints) -> Floats:
        figure = np.array([cell["lost" if key == "per stop" else key] for cell in side])[rows].sum(axis=1)
        stops = np.array([cell["stops"] for cell in side])[rows].sum(axis=1)
        found: Floats = figure / stops if key == "per stop" else figure
        return found

    if key == "per stop" and min(sum(cell["stops"] for cell in side) for side in (cells, first)) < len(cells):
        return ""
    if not sums(first, whole)[0]:
        return ""
    ratios = sums(cells, rows) / sums(first, rows)
    low, high = np.percentile(ratios[np.isfinite(ratios)], [2.5, 97.5])
    return f"{float(sums(cells, whole)[0] / sums(first, whole)[0]):.2f} [{low:.2f}, {high:.2f}]"


def draw_cells(cells: int, draws: int) -> Ints:
    """Return draws of cells with replacement, shape (draws, cells)."""
    return random_streams.COMPARISON.generator(0).integers(0, cells, (draws, cells))


if __name__ == "__main__":
    main()
