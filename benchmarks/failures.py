"""Figures of docs/failures.md: one large job under failures, beside formulae and published figures.

`python benchmarks/failures.py` prints the page's tables (`--seeds N`, `--json FILE`), in minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from clustergym.policies.placers.buddy import Buddy

from clustergym.cluster.allocation import Allocations
from clustergym.cluster.spec import Nodes
from clustergym.common.errors import exits_on_bad_input
from clustergym.common.writing import atomic_path
from clustergym.results.measured_run import measure_run
from clustergym.results.metrics.metrics import Measurement
from clustergym.scenario.by_name import compose
from clustergym.scenario.policy import Placer
from clustergym.scenario.scenario_config import build_scenario

DAY_S = 86_400.0
CLUSTER = """\
name: pretraining
nodes:
  - {{gpu_type: H100, count: {nodes}, gpus_per_node: 8}}
fabric: {{nodes_per_leaf: {leaf}, leaves_per_minipod: 10}}
"""
TRACE = """\
job_id,submit_s,model_family,model_size,global_batch,iterations,gpu_type,gpus
llm,0,gpt3,15B,2048,1000000000,H100,{gpus}
"""
SPEED = """\
model_family,params,batch_size,gpu_type,num_nodes,gpus_per_node,iteration_time_s
gpt3,15B,2048,H100,{used},8,5.0
"""
Row = dict[str, float | int | str]


class OneOfEachRack(Buddy):
    """Takes the first free node of each rack."""

    def place(self, allocations: Allocations, gpu_type: int, gpus: int) -> Nodes:
        """Place a job on whole nodes."""
        free = np.flatnonzero(allocations.free_on_node == 8)
        _, first = np.unique(allocations.spec.node_leaf[free], return_index=True)
        return tuple((int(node), 8) for node in free[first][: gpus // 8])


def one_job(
    days: float,
    seed: int,
    *overrides: str,
    nodes: int = 2048,
    used: int = 0,
    leaf: int = 2,
    placer: Placer | None = None,
) -> Measurement:
    """Run one job for some days on `used` of the nodes (all, if 0), in leaves of `leaf` nodes."""
    from clustergym.scenario.registry import make_policy
    from clustergym.sim.drive import simulate

    used = used or nodes
    with tempfile.TemporaryDirectory() as folder:
        texts = {
            "cluster.yaml": CLUSTER.format(nodes=nodes, leaf=leaf),
            "trace.csv": TRACE.format(gpus=8 * used),
            "speed.csv": SPEED.format(used=used),
        }
        for name, text in texts.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        files = [f"cluster.path={folder}/cluster.yaml", f"trace.path={folder}/trace.csv"]
        chosen = ["cluster=file", "trace=file", "oracle=table", *files, f"oracle.path={folder}/speed.csv"]
        chosen.append("scenario.rounds=event")
        config = compose([*chosen, f"horizon_s={days * DAY_S}", f"seed={seed}", *overrides])
        scenario = build_scenario(config)
    run = simulate(scenario, make_policy({"name": "fcfs"}), placer or Buddy(), seed)
    return measure_run(run.simulation)


def interruptions(measured: Measurement) -> int:
    """Return how often jobs were interrupted."""
    return sum(loss.interruptions for loss in measured.losses.values())


def mean(values: Sequence[float]) -> float:
    """Return the mean, to six digits."""
    return float(f"{statistics.fmean(values):.6g}")


def ettr(seeds: range) -> list[Row]:
    """ETTR of one job beside Kokolis et al.'s closed form and the exact one for exponential failures."""
    rows: list[Row] = []
    rate = 2048 * 6.5e-3 / DAY_S
    for u0, every_s, write_s in ((300, 3600, 0), (300, 1800, 20), (60, 300, 5)):
        overrides = (
            f"scenario.failures.mtbf_s={DAY_S / 6.5e-3}",
            "scenario.failures.restart.process_share=1",
            f"scenario.failures.restart.process_s={u0}",
            f"scenario.failures.checkpoint_every_s={every_s}",
            f"scenario.failures.checkpoint_write_s={write_s}",
        )
        found = [one_job(100, seed, *overrides).metrics["ettr_mean"] or 0.0 for seed in seeds]
        row: Row = {"restart s": u0, "interval s": every_s, "write s": write_s}
        row["closed form"] = (1 - rate * (u0 + every_s / 2)) / (1 + write_s / every_s)
        row["exact"] = every_s * rate / (math.exp(rate * u0) * math.expm1(rate * (every_s + write_s)))
        row["simulated"] = mean(found)
        row["standard error"] = statistics.stdev(found) / math.sqrt(len(found))
        rows.append(row)
    return rows


def llama3(seeds: range) -> list[Row]:
    """Llama 3's 54 days on 2,048 nodes."""
    runs = [one_job(54, seed, "failures=llama3") for seed in seeds]
    counts = [interruptions(run) for run in runs]
    gpu = [run.losses["GPU"].interruptions for run in runs]
    rows: list[Row] = [
        {"figure": "unplanned interruptions in 54 days", "published": "419", "simulated": mean(counts)},
        {
            "figure": "hours between them",
            "published": "3.1",
            "simulated": mean([1296 / one for one in counts]),
        },
        {"figure": "of these by faulty GPUs", "published": "148", "simulated": mean(gpu)},
    ]
    for minutes in (15, 5, 1):
        if minutes != 15:
            words = "failures=llama3", f"scenario.failures.spares.swap_s={60 * minutes}"
            runs = [one_job(54, seed, *words) for seed in seeds]
        effective = mean([run.metrics["ettr_mean"] or 0.0 for run in runs])
        figure = f"ETTR, a spare in place after {minutes} min"
        rows.append({"figure": figure, "published": "over 0.90", "simulated": effective})
    return rows


def racks(seeds: range) -> list[Row]:
    """Place a job of 16 nodes on 512 in racks of 4, for 1,000 days; a rack fails as often as a node."""
    leaf = ("scenario.failures.leaf_mtbf_s=8640000", "scenario.failures.switch_mttr_s=60")
    rates = ("scenario.failures.mtbf_s=8640000", "scenario.failures.mttr_s=60", *leaf)
    rows: list[Row] = []
    for racks, placer in ((4, Buddy()), (16, OneOfEachRack())):
        runs = [one_job(1000, seed, *rates, nodes=512, used=16, leaf=4, placer=placer) for seed in seeds]
        counts = [interruptions(run) for run in runs]
        expected = 1000 / 100 * (16 + racks)
        rows.append({"racks": racks, "expected": expected, "interruptions in 1,000 days": mean(counts)})
    return rows


def checkpoints(seeds: range) -> list[Row]:
    """Rules for the interval of checkpoints that block for 20 s, at RSC-1's rate on 2,048 nodes."""
    rows: list[Row] = []
    for rule, every_s in (("fixed", 3600), ("fixed", 600), ("fixed", 120), ("young", 3600), ("daly", 3600)):
        overrides = (
            f"scenario.failures.mtbf_s={DAY_S / 6.5e-3}",
            "scenario.failures.restart.process_share=1",
            "scenario.failures.restart.process_s=300",
            f"scenario.failures.checkpoint_every_s={every_s}",
            "scenario.failures.checkpoint_write_s=20",
            f"scenario.failures.checkpoint_rule={rule}",
        )
        found = [one_job(100, seed, *overrides).metrics["ettr_mean"] or 0.0 for seed in seeds]
        named = f"every {every_s} s" if rule == "fixed" else rule.capitalize()
        rows.append({"rule": named, "ETTR": mean(found)})
    return rows


def spares(seeds: range) -> list[Row]:
    """RSC-1's failures on a job of 2,048 nodes, with spares and with exclusion of repeat offenders."""
    rows: list[Row] = []
    for count, after in ((0, 2), (8, 2), (16, 2), (32, 2), (32, None)):
        overrides = (
            "failures=rsc-1",
            f"scenario.failures.spares.nodes={count}",
            f"scenario.failures.exclusion.after={'null' if after is None else after}",
        )
        runs = [one_job(100, seed, *overrides) for seed in seeds]
        rows.append(
            {
                "spares": count,
                "excluded after": "never" if after is None else after,
                "interruptions": mean([interruptions(run) for run in runs]),
                "ETTR": mean([run.metrics["ettr_mean"] or 0.0 for run in runs]),
            }
        )
    return rows


PARTS: dict[str, Callable[[range], list[Row]]] = {
    part.__name__: part for part in (ettr, llama3, racks, checkpoints, spares)
}


def table(rows: list[Row]) -> str:
    """Return rows as a Markdown table."""
    shown = [
        [f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows
    ]
    lines = [list(rows[0]), ["---"] * len(rows[0]), *shown]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@exits_on_bad_input
def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args(argv)
    found = {}
    for name in options.parts:
        print(f"{name} …", file=sys.stderr)
        found[name] = PARTS[name](range(options.seeds))
        print(f"\n{PARTS[name].__doc__}\n\n{table(found[name])}")
    if options.json is not None:
        with atomic_path(options.json) as temporary:
            temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"wrote {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
