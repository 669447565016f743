"""What placing, moves, victims and notice give in racks of 72: tables of docs/stopping-and-moving.md.

    python benchmarks/racks.py [--seeds 8] [--policy TEXT …] [--json FILE]

plays each policy on the world llm-2026 with its queues (conf/queues/llm-2026.yaml), with checkpoints each ten
minutes, and without failures, of which no option knows. `lost` are GPU-hours that stops and moves undo, and
standing still after launches. `stranded` are free GPUs that no segment of a waiting job can use; `needed` is
the part of which no moves whatever could use any: by a bound of bin packing, no rack has room for
such a segment even if all others are packed anew. Waits are those of jobs of 64 GPUs and more. Ratios are to
the first variant, of sums over seeds, with 95 % bootstrap intervals.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from stopping import FIRST_SEED, Cells, compare_cells

from clustergym.common.tables import table
from clustergym.results.measured_run import measure_run
from clustergym.results.metrics.stranded import _Holdings, _stranded
from clustergym.scenario.by_name import load_scenario
from clustergym.scenario.registry import make_placer, parse_policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim.drive import simulate
from clustergym.sim.log import Event, EventType

GANG = 64
WORLD = (
    "scenario.queues=llm-2026",
    "scenario.checkpoints.every_s=600",
    "scenario.checkpoints.write_s=5",
    "scenario.failures.mtbf_s=9e11",
)
POLICIES = ("fcfs backfill=aggressive", "kueue reclaim_within_cohort=any", "quotas reclaim=stop")
NO_VICTIMS = ("fcfs",)


class Variant(NamedTuple):
    """What is switched on: options of the policy, the placer, GPUs of a segment at most; 1: no segments."""

    options: str = ""
    placer: str = "buddy"
    segment: int | None = None


VARIANTS = {
    "placed without regard to racks": Variant(placer="minipod"),
    "rack-aware placing": Variant(),
    "moves": Variant("moves_per_hour=8"),
    "cheapest victim": Variant("victims=cheapest"),
    "notice": Variant("notice=cheaper"),
    "all of these": Variant("victims=cheapest notice=cheaper moves_per_hour=8"),
    "segments of 8 GPUs at most": Variant(segment=8),
    "segments of 8, and all": Variant("victims=cheapest notice=cheaper moves_per_hour=8", segment=8),
    "as if racks joined all GPUs": Variant(segment=1),
}


def with_segments(scenario: Scenario, seed: int, most: int) -> Scenario:
    """Return a scenario with the same jobs, whose segments have at most so many GPUs.

    At 1 there are no segments, and a job is as fast wherever it is as where it is fastest.
    """
    if most > 1:
        capped = load_scenario("llm-2026", [*WORLD, f"oracle.segment={most}"], seed)
        return replace(scenario, tables=capped.tables)
    times = scenario.tables.execution
    fastest = np.where(np.isfinite(times), times.min(axis=-1, keepdims=True), np.inf)
    anywhere = np.where(
        np.isfinite(fastest.min(axis=-1, keepdims=True)), fastest.min(-1, keepdims=True), np.inf
    )
    tables = replace(scenario.tables, execution=np.broadcast_to(anywhere, times.shape).copy(), segments=None)
    return replace(scenario, tables=tables)


def play(scenario: Scenario, policy: str, placer: str) -> dict[str, float]:
    """Return the figures of one run."""
    run = simulate(scenario, parse_policy(policy, "policy"), make_placer({"name": placer})).simulation
    metrics, events = measure_run(run).metrics, run.log.events
    undone = sum(event.lost_s * event.gpus for event in events if event.event_type == EventType.UNDO) / 3600
    stands = float(metrics["overhead_gpu_hours"] or 0)
    ends = ("completed", "failed", "killed")
    held = sum(float(metrics[f"gpu_hours_{end}"] or 0) for end in ends)
    starts = {event.job: event.time_s for event in events if event.event_type == EventType.START}
    gangs = np.flatnonzero(scenario.request_gpus >= GANG).tolist()
    stranded, needed = measure_stranded(scenario, events) if scenario.tables.segments is not None else (0, 0)
    moves = sum(event.event_type == EventType.MIGRATE for event in events)
    return {
        "undone": undone,
        "standing": stands,
        "lost": undone + stands,
        "stops": float(sum(event.event_type == EventType.PREEMPT for event in events)),
        "stranded": stranded,
        "needed": needed,
        "moves": float(moves),
        "moves_per_50": 50 * moves / held,
        "wait": float(np.mean([starts[row] - scenario.trace.submit_s[row] for row in gangs])) / 3600,
        "jct": float(metrics["jct_mean"] or np.nan) / 3600,
    }


def measure_stranded(scenario: Scenario, events: Sequence[Event]) -> tuple[float, float]:
    """Return the stranded GPU-hours of a run, and those that no moves could avoid."""
    state, before_s, total, needed = _Holdings(scenario), events[0].time_s, 0.0, 0.0
    for event in events:
        if event.time_s > before_s:
            hours, free = (event.time_s - before_s) / 3600, state._free()
            for row in range(len(scenario.cluster.groups)):
                lost, _ = _stranded(scenario.cluster, row, free, state.waiting[row])
                total += lost * hours
                if lost and must_strand(scenario, state, row):
                    needed += lost * hours
            before_s = event.time_s
        state.advance(event)
    return total, needed


def must_strand(scenario: Scenario, state: _Holdings, row: int) -> bool:
    """Whether no domain of a type has room for any segment that waits, however the jobs there are packed.

    Jobs of less than a node are left out, and segments of one job may be apart: with these it is no easier.
    """
    cluster = scenario.cluster
    per_node, size = int(cluster.gpus_per_node[row]), cluster.groups[row].nodes_per_domain
    least = min(segment for segment, jobs in state.waiting[row].items() if jobs > 0)
    if least <= per_node:
        return False
    blocks = [least // per_node]
    for (job, _), nodes in state.held.items():
        if cluster.node_type[nodes[0][0]] != row or any(gpus < per_node for _, gpus in nodes):
            continue
        each = max(scenario.segment(job, row, per_node * len(nodes)) // per_node, 1)
        blocks += [each] * (len(nodes) // each)
    domains = len(np.unique(cluster.node_domain[cluster.node_type == row]))
    return bound_bins(blocks, size) > domains


def bound_bins(sizes: Sequence[int], room: int) -> int:
    """Return a number of bins without which blocks do not fit (Martello and Toth, 1990, section 8.3, L2)."""
    best = 0
    for least in range(room // 2 + 1):
        alone = [size for size in sizes if size > room - least]
        large = [size for size in sizes if room / 2 < size <= room - least]
        small = sum(size for size in sizes if least <= size <= room / 2)
        beyond = max(0, -(-(small - (len(large) * room - sum(large))) // room))
        best = max(best, len(alone) + len(large) + beyond)
    return best


def main(argv: Sequence[str] | None = None) -> None:
    """Play all and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--policy", nargs="+", default=list(POLICIES))
    parser.add_argument("--variant", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--json", type=Path, help="write all runs to a file")
    parser.add_argument("--read", type=Path, help="print the tables of a file of --json, and play nothing")
    args = parser.parse_args(argv)
    runs: dict[str, dict[str, Cells]] = json.loads(args.read.read_text()) if args.read else {}
    for seed in () if args.read else range(FIRST_SEED, FIRST_SEED + args.seeds):
        whole = load_scenario("llm-2026", WORLD, seed)
        for name in args.variant:
            variant = VARIANTS[name]
            scenario = whole if variant.segment is None else with_segments(whole, seed, variant.segment)
            for policy in args.policy:
                if "victims" in variant.options and policy.startswith(NO_VICTIMS):
                    continue
                found = play(scenario, f"{policy} {variant.options}".strip(), variant.placer)
                runs.setdefault(policy, {}).setdefault(name, []).append(found)
        print(f"seed {seed}", file=sys.stderr, flush=True)
        if args.json:
            args.json.write_text(json.dumps(runs), encoding="utf-8")
    print(format_stops(runs))
    print(format_racks(runs))


def format_stops(runs: dict[str, dict[str, Cells]]) -> str:
    """Return what stops and moves lose."""
    figures = ("stops", "undone", "standing", "lost")
    headers = ("policy", "switched on", *figures, "lost, ratio", "lost a stop, ratio")
    return _format(runs, headers, figures, ("lost", "per stop"), "rack-aware placing")


def format_racks(runs: dict[str, dict[str, Cells]]) -> str:
    """Return stranded GPU-hours, moves and waits of gangs."""
    figures = ("stranded", "needed", "moves", "moves_per_50", "wait", "jct")
    against = ("stranded", "wait", "jct")
    headers = ("policy", "switched on", *figures, *(f"{name}, ratio" for name in against))
    return _format(runs, headers, figures, against, "placed without regard to racks")


def _format(
    runs: dict[str, dict[str, Cells]],
    headers: Sequence[str],
    figures: Sequence[str],
    against: Sequence[str],
    base: str,
) -> str:
    rows = []
    for policy, by_variant in runs.items():
        first = by_variant.get(base) or next(iter(by_variant.values()))
        for name, cells in by_variant.items():
            shown = [f"{np.mean([cell[key] for cell in cells]):.4g}" for key in figures]
            rows.append((policy, name, *shown, *(compare_cells(cells, first, key) for key in against)))
    return table(headers, rows, words=(0, 1))


if __name__ == "__main__":
    main()
