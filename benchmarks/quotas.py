"""What quotas cost, and what reclaim by shrinking and by stopping undoes: the figures of docs/tenants.md.

python benchmarks/quotas.py cost [--gpus 1280] [--tenants 50] [--repeat 3] [--within fcfs ares]
python benchmarks/quotas.py reclaim [--seeds 10] [--within arena] [--board 500 501 502 503]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from clustergym.bench.engine import Stopwatch, benchmark_scenario
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.quotas import Quotas
from clustergym.policies.shared.queue_shares import Reclaim

from clustergym.common.arrays import Ints
from clustergym.common.errors import exits_on_bad_input
from clustergym.common.writing import atomic_path
from clustergym.common.yaml_file import read_mapping
from clustergym.results.measured_run import measure_run
from clustergym.results.metrics.statistics import estimate
from clustergym.scenario.by_name import compose
from clustergym.scenario.policy import Decision, Policy, Setting, View
from clustergym.scenario.registry import parse_policy
from clustergym.scenario.scenario import Scenario
from clustergym.scenario.scenario_config import build_scenario
from clustergym.scenario.tenants.queue_tree import Queue, QueueTree, Settings, Tenants
from clustergym.sim.drive import replay, simulate
from clustergym.sim.engine import Simulation
from clustergym.sim.log import LAUNCHES
from clustergym.trace.trace import Trace

WITHIN = ("fcfs", "las", "srtf", "ares", "ares work_conserving=true", "arena", "sia")
RECLAIMED = ("arena", "ares", "ares work_conserving=true", "srtf elastic=true")
SECONDS = {
    "run_s": "without quotas",
    "engine_s": "its events alone",
    "queues_s": "with queues, without quotas",
    "quotas_s": "under quotas",
    "quotas_engine_s": "its events alone",
    "inner_s": "the policies within",
    "asked_s": "asked always",
}
"""Processor seconds of runs, by what they are of."""
PERIOD_S, BURST = 12 * 3600.0, 1 / 6


@dataclass
class Timed(Quotas):
    """Quotas that time the policies within; `always` asks each of them at every decision point."""

    always: bool = False

    def check(self, trace: Trace, setting: Setting) -> None:
        """Make the policies, timed."""
        super().check(trace, setting)
        self.inner = Stopwatch()
        self._steady = self._steady and not self.always
        for policy in self._policies:
            policy.schedule = self.inner.timed(policy.schedule)  # type: ignore[method-assign]


def cpu_s(scenario: Scenario, policy: Policy) -> tuple[float, Simulation]:
    started = time.process_time()
    simulation = simulate(scenario, policy, Buddy()).simulation
    return time.process_time() - started, simulation


def engine_s(policy: Policy, done: Simulation) -> float:
    """Return the processor seconds of a run's events alone, its decisions read from its log."""
    started = time.process_time()
    replay(done.scenario, Buddy(), policy.information_class, policy.round_s, 0, done.changes)
    return time.process_time() - started


def cost_rows(gpus: int, tenants: int, repeat: int, within: Sequence[str]) -> list[dict[str, Any]]:
    """Return the processor seconds of runs with and without quotas, the least of several."""
    scenario = benchmark_scenario(gpus)
    drawn = np.random.default_rng(0).integers(0, tenants, len(scenario.trace))
    trace = replace(scenario.trace, virtual_cluster=tuple(f"t{one:03d}" for one in drawn.tolist()))
    divided = Tenants.from_queues("virtual_cluster", trace, scenario.cluster.gpu_types)
    queued = replace(scenario, trace=trace, tenants=divided)
    rows = []
    for text in within:
        simulate(scenario, parse_policy(text, "within"), Buddy())  # what is computed once is there
        row = {"within": text, **dict.fromkeys(SECONDS, np.inf)}
        for _ in range(repeat):
            alone, policy, always = (
                parse_policy(text, "within"),
                Timed(within=text),
                Timed(within=text, always=True),
            )
            spent_s, plain = cpu_s(scenario, alone)
            row["run_s"] = min(row["run_s"], spent_s)
            row["engine_s"] = min(row["engine_s"], engine_s(alone, plain))
            row["queues_s"] = min(row["queues_s"], cpu_s(queued, parse_policy(text, "within"))[0])
            spent_s, done = cpu_s(queued, policy)
            if spent_s < row["quotas_s"]:
                row |= {"quotas_s": spent_s, "inner_s": policy.inner.spent_s}
            row["quotas_engine_s"] = min(row["quotas_engine_s"], engine_s(policy, done))
            cpu_s(queued, always)
            row["asked_s"] = min(row["asked_s"], always.inner.spent_s)
        rows.append(row)
        told = " | ".join(f"{row[name]:.2f}" for name in SECONDS)
        print(f"| {text} | {told} | {row['quotas_s'] / row['run_s'] - 1:+.0%} |", flush=True)
    return rows


@dataclass
class Noted(Quotas):
    """Quotas that note which running jobs change as their queue gives GPUs back, and when.

    They are those that GPUs are taken of, and those that the queue's policy changes in their place.
    """

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Begin a run: nothing was taken."""
        super().reset(setting, rng)
        self.changed: list[tuple[float, int]] = []

    def _note(self, view: View, left: Ints, decision: Decision) -> bool:
        gives = np.isin(view.queue, view.queue[left < view.gpus])
        after, kind = np.zeros_like(view.gpus), view.gpu_type.copy()
        at = np.searchsorted(view.job, decision.job)
        after[at], kind[at] = decision.gpus, decision.gpu_type
        changes = (view.gpus > 0) & ((after != view.gpus) | (kind != view.gpu_type))
        self.changed += [(view.now_s, job) for job in view.job[gives & changes].tolist()]
        return super()._note(view, left, decision)


def board_scenarios(seeds: Sequence[int]) -> list[tuple[Scenario, dict[str, Any]]]:
    """Return the scenarios of the board `tenants` at some seeds; jobs save whenever they are stopped."""
    board = Path(__file__).parents[1] / "leaderboards" / "tenants" / "board.yaml"
    cells: Any = read_mapping(board).content["scenarios"]
    return [
        (
            build_scenario(
                compose([*cell["overrides"], "scenario.checkpoints.every_s=null", f"seed={seed}"])
            ),
            {"cell": cell["name"], "seed": seed},
        )
        for cell in cells
        for seed in seeds
    ]


def bursty_scenario(seed: int) -> tuple[Scenario, dict[str, Any]]:
    """Return 64 GPUs of two types, a load of 1.1 to 1.4, and 4 to 8 tenants, of which half are bursty.

    Jobs of a bursty tenant come in the first two hours of each twelve. Tenants have equal quotas.
    """
    rng = np.random.default_rng(seed)
    load, count = float(rng.choice([1.1, 1.2, 1.3, 1.4])), int(rng.integers(4, 9))
    words = ["cluster=arena-a", "trace=philly-like", f"trace.load={load}", "trace.jobs=244", f"seed={seed}"]
    scenario = build_scenario(compose(words))
    trace = scenario.trace
    owner = rng.integers(0, count, len(trace))
    begins = trace.submit_s // PERIOD_S * PERIOD_S
    early = begins + (trace.submit_s - begins) * BURST
    submit_s = np.where(owner < count // 2, early, trace.submit_s)
    order = np.argsort(submit_s, kind="stable")
    names = tuple(f"t{one}" for one in owner[order].tolist())
    moved = replace(trace.take(order), submit_s=submit_s[order], virtual_cluster=names)
    kinds = zip(scenario.cluster.gpu_types, scenario.cluster.capacity.tolist(), strict=True)
    queue = Queue(quota={kind: float(gpus // count) for kind, gpus in kinds})
    tree = QueueTree({f"t{at}": queue for at in range(count)}, Settings())
    return replace(scenario, trace=moved, tenants=Tenants(tree, owner[order])), {
        "load": load,
        "tenants": count,
        "seed": seed,
    }


def lost_gpu_hours(scenario: Scenario, within: str, reclaim: Reclaim) -> dict[str, float]:
    """Return the GPU-hours that jobs stand still for GPUs that their queue gives back, and in all."""
    policy = Noted(within=within, reclaim=reclaim)
    simulation = simulate(scenario, policy, Buddy()).simulation
    launches: dict[int, list[tuple[float, float]]] = {}
    for event in simulation.log.events:
        if event.event_type in LAUNCHES:
            gpu_hours = event.gpus * event.overhead_s / 3600.0
            launches.setdefault(event.job, []).append((event.time_s, gpu_hours))
    # Jobs save before they stop: the launch that follows is all that is lost. It counts once.
    found = {
        (job, next((at for at, (time_s, _) in enumerate(launches[job]) if time_s >= changed_s), -1))
        for changed_s, job in policy.changed
    }
    metrics = measure_run(simulation).metrics
    return {
        "changed": len(policy.changed),
        "lost_gpu_hours": sum(launches[job][at][1] for job, at in found if at >= 0),
        "overhead_gpu_hours": metrics["overhead_gpu_hours"],
        "jct_mean_s": metrics["jct_mean_censored"],
    }


def reclaim_rows(
    scenarios: Sequence[tuple[Scenario, dict[str, Any]]], within: Sequence[str]
) -> list[dict[str, Any]]:
    """Return what reclaim by shrinking and by stopping loses, over several scenarios."""
    rows = []
    for text in within:
        ways: dict[Reclaim, list[dict[str, float]]] = {"shrink": [], "stop": [], "never": []}
        for scenario, drawn in scenarios:
            for reclaim, found in ways.items():
                found.append(lost_gpu_hours(scenario, text, reclaim))
            rows.append({"within": text, **drawn, **{way: found[-1] for way, found in ways.items()}})
        figures = [
            _mean(ways[way], key) for key in ("changed", "lost_gpu_hours") for way in ("shrink", "stop")
        ]
        figures += [_mean(found, "overhead_gpu_hours") for found in ways.values()]
        lost, jct = (
            [sum(one[key] for one in ways[way]) for way in ("shrink", "stop")]
            for key in ("lost_gpu_hours", "jct_mean_s")
        )
        share = f"{lost[0] / lost[1]:.2f}" if lost[1] else "-"
        print(f"| {text} | {' | '.join(figures)} | {share} | {jct[0] / jct[1]:.3f} |", flush=True)
    return rows


def _mean(found: Sequence[dict[str, float]], key: str) -> str:
    told = estimate([one[key] for one in found])
    return f"{told.mean:.2f} [{told.low:.2f}, {told.high:.2f}]"


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Print a table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("cost", "reclaim"))
    parser.add_argument("--gpus", type=int, default=1280, help="of the cluster whose cost is measured")
    parser.add_argument("--tenants", type=int, default=50)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument(
        "--board", nargs="+", type=int, help="seeds of the board's scenarios, instead of bursty ones"
    )
    parser.add_argument("--within", nargs="+", help="policies in the queues")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(argv)
    if given.what == "cost":
        print(f"| within | {' | '.join(SECONDS.values())} | more |")
        print("| --- " * (len(SECONDS) + 2) + "|")
        rows = cost_rows(given.gpus, given.tenants, given.repeat, given.within or WITHIN)
    else:
        heads = ("jobs changed", "GPU-hours lost", "all overhead, GPU-hours")
        both = " | ".join(f"{head}: {how}" for head in heads for how in ("shrink", "stop"))
        print(f"| within | {both} | never | lost, shrink by stop | mean JCT, shrink by stop |")
        print("| --- " * 10 + "|")
        drawn = [bursty_scenario(seed) for seed in range(given.seeds)]
        scenarios = drawn if given.board is None else board_scenarios(given.board)
        rows = reclaim_rows(scenarios, given.within or RECLAIMED)
    if given.json is not None:
        with atomic_path(given.json) as path:
            path.write_text(json.dumps(rows, indent=1) + "\n")
        print(f"wrote {given.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
