"""Events and decisions a second from 64 to 10,240 GPUs, beside the bare SimPy event rate.

    python benchmarks/engine.py [--gpus 64 1280 10240] [--policies fcfs srtf] [--contention] [--json FILE]

The cluster is Arena's simulated one (four GPU types) scaled in nodes; the trace is Philly-like at
an offered load of 1.2 with one job per two GPUs; the clock stops after 48 hours. With `--contention`
jobs, as large as Arena's, share the links of a fabric of 4 nodes a leaf and 8 leaves a minipod,
oversubscribed 2:1 and 4:1; each policy runs without and with sharing. `--scattered` places jobs at
random minipods.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import simpy

from clustergym.cluster.cluster_files import load_cluster
from clustergym.cluster.spec import ClusterSpec, Fabric
from clustergym.interface.registry import make_placer, make_policy
from clustergym.results.measured_run import measurement_of
from clustergym.scenarios.scenario import Scenario
from clustergym.scenarios.scenario_config import build_scenario
from clustergym.sim.drive import simulate
from clustergym.sim.log import EventKind

HORIZON_S = 48 * 3600.0

CROWDED = Fabric(
    nodes_per_leaf=4, leaves_per_minipod=8, spine_oversubscription=2.0, core_oversubscription=4.0
)


def bare_simpy_events_per_s(events: int = 300_000) -> float:
    """Return the rate at which SimPy alone fires timeouts, each in a process of its own life."""

    def ticker(env: simpy.Environment) -> Generator[simpy.Event, Any, None]:
        for _ in range(events // 100):
            yield env.timeout(1)

    env = simpy.Environment()
    for _ in range(100):
        env.process(ticker(env))
    started = time.perf_counter()
    env.run()
    return events / (time.perf_counter() - started)


def scaled_cluster(gpus: int) -> ClusterSpec:
    """Return Arena's simulated cluster with its node counts scaled to about `gpus` GPUs."""
    whole = load_cluster("arena-sim")
    factor = gpus / int(whole.capacity.sum())
    groups = tuple(
        dataclasses.replace(group, nodes=max(1, round(group.nodes * factor))) for group in whole.groups
    )
    return dataclasses.replace(whole, name=f"{gpus} GPUs", groups=groups)


def benchmark_scenario(gpus: int, fabric: Fabric | None = None, contention: bool = False) -> Scenario:
    """Return the scenario of one row of the table; by default on the fabric of Arena's cluster."""
    cluster = scaled_cluster(gpus)
    jobs = {"jobs": max(gpus // 2, 100)} if fabric is None else {"jobs": 2 * gpus, "requests": "arena"}
    config = {
        "scenario": {"name": f"benchmark-{gpus}", "oversize": "drop", "contention": contention},
        "costs": {},
        "cluster": {
            "name": cluster.name,
            "nodes": [
                {"gpu_type": g.gpu_type.name, "count": g.nodes, "gpus_per_node": g.gpus_per_node}
                for g in cluster.groups
            ],
            "fabric": dataclasses.asdict(fabric or cluster.fabric),
        },
        "trace": {"source": "philly", "load": 1.2, **jobs},
        "oracle": {"name": "roofline"},
        "seed": 0,
        "horizon_s": HORIZON_S,
    }
    return build_scenario(config)


def measure(scenario: Scenario, policy_name: str, placer: dict[str, str], repeat: int) -> dict[str, float]:
    """Run one policy so many times and return the rates of the run that took the least CPU time."""
    cpu_s, run = math.inf, None
    for _ in range(repeat):
        policy, found = make_policy({"name": policy_name}), make_placer(placer)
        started = time.process_time()
        again = simulate(scenario, policy, found)
        if (took := time.process_time() - started) < cpu_s:
            cpu_s, run = took, again
    assert run is not None
    times = run.decision_times
    return {
        "wall_s": run.wall_s,
        "cpu_s": cpu_s,
        "rate_changes": sum(event.kind == EventKind.RATE for event in run.simulation.log.events),
        "jct_mean_censored_s": measurement_of(run.simulation).metrics["jct_mean_censored"] or 0.0,
        "events": len(run.simulation.log.events),
        "decisions": times.count,
        "events_per_s": len(run.simulation.log.events) / run.wall_s,
        "decisions_per_s": times.count / run.wall_s,
        "decision_s_p50": times.percentile(0.5) or 0.0,
        "decision_s_p99": times.percentile(0.99) or 0.0,
    }


def main(argv: list[str] | None = None) -> int:
    """Print one row per cluster size and policy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, nargs="+", default=[64, 256, 1280, 5120, 10240])
    parser.add_argument("--policies", nargs="+", default=["fcfs", "srtf", "arena"])
    parser.add_argument("--contention", action="store_true", help="a row without and a row with contention")
    parser.add_argument("--scattered", action="store_true", help="place jobs at random minipods")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each, of which the quickest counts")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    bare = bare_simpy_events_per_s()
    print(f"bare SimPy: {bare:,.0f} events/s")
    names = ("GPUs", "jobs", "policy", "wall s", "CPU s", "events/s", "decisions/s", "p50 ms", "p99 ms")
    print("".join(f"{name:>12}" for name in (*names, "rates")))
    placer = {"name": "minipod", "algorithm": "random_fit"} if options.scattered else {"name": "buddy"}
    rows = []
    for gpus in options.gpus:
        fabric = CROWDED if options.contention else None
        for contention, name in itertools.product((False, True)[: 1 + options.contention], options.policies):
            scenario = benchmark_scenario(gpus, fabric, contention)
            row = measure(scenario, name, placer, options.repeat)
            rows.append(
                {"gpus": gpus, "jobs": len(scenario.trace), "policy": name, "contention": contention, **row}
            )
            rates = f"{row['wall_s']:>12.2f}{row['cpu_s']:>12.2f}"
            rates += f"{row['events_per_s']:>12,.0f}{row['decisions_per_s']:>12,.0f}"
            deciding = f"{row['decision_s_p50'] * 1e3:>12.2f}{row['decision_s_p99'] * 1e3:>12.2f}"
            print(
                f"{gpus:>12,}{len(scenario.trace):>12,}{name:>12}{rates}{deciding}{row['rate_changes']:>12,}",
                flush=True,
            )
    if options.json is not None:
        options.json.write_text(json.dumps({"bare_simpy_events_per_s": bare, "rows": rows}, indent=2) + "\n")
        print(f"wrote {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
