"""The tables of docs/job-outcomes.md: how the ranks of policies change when jobs end as in their logs.

    python benchmarks/outcome_ranks.py [--seeds 3] [--processes 1]

runs each policy twice on traces like Philly's and Helios's of each seed, once with every job completing and
once with outcomes drawn by the cluster's published shares, and writes the tables into the page.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import clustergym
from clustergym.arrays import Floats
from clustergym.inputs.paths import conf_dir
from clustergym.interface.registry import make_policy
from clustergym.terminal.markdown import table
from clustergym.terminal.processes import in_order

PAGE = Path(__file__).parent.parent / "docs" / "job-outcomes.md"
BLOCK = re.compile(r"(<!-- ranks: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
POLICIES = (
    *("fcfs", "las", "tiresias", "gandiva", "ares", "allox", "elasticflow-ls", "themis", "gavel"),
    *("hesrpt", "optimus", "arena-tuned", "srtf", "sjf"),
)
WORKLOADS: dict[str, tuple[str, tuple[str, ...]]] = {
    "philly": (
        "testbed",
        (
            *("trace=philly-like", "trace.jobs=244", "trace.span_s=21600", "trace.load=1.2"),
            *("trace.requests=arena", "trace.max_gpus=16"),
            *("trace.min_duration_s=60", "trace.max_duration_s=7200"),
        ),
    ),
    "helios": (
        "ares-light",
        (
            *(
                "trace=helios-like",
                "trace.jobs=160",
                "trace.span_s=28800",
                "trace.load=1.0",
                "trace.rule=ares",
            ),
            *("trace.any_type=true", "trace.max_gpus=16"),
            *("trace.min_duration_s=60", "trace.max_duration_s=172800"),
        ),
    ),
}
HEADERS = (
    *("policy", "knows", "JCT, all complete", "JCT, jobs end as logged", "ratio", "rank", "rank then"),
    *("JCT of completed jobs", "rank by it"),
)


def run(cell: tuple[str, int, str, bool]) -> tuple[float, float]:
    """Return the mean JCT of all jobs, and of the completed ones (NaN where outcomes are ignored)."""
    workload, seed, name, kept = cell
    scenario_name, overrides = WORKLOADS[workload]
    chosen = f"trace.outcomes={workload if kept else 'ignore'}"
    scenario = clustergym.load_scenario(scenario_name, [*overrides, chosen], seed=seed)
    found = clustergym.simulate(scenario, policy_of(name), seed=seed).metrics
    return float(found["jct_mean"] or np.nan), float(found.get("jct_mean_completed") or np.nan)


def policy_of(name: str) -> Any:
    """Return a policy of conf/policy."""
    given = yaml.safe_load((conf_dir() / "policy" / f"{name}.yaml").read_text(encoding="utf-8"))
    return make_policy(given)


def ranks(values: Floats) -> list[int]:
    """Return the rank of each value, from 1 for the least."""
    return (np.argsort(np.argsort(values)) + 1).tolist()


def shares_line(workload: str, seeds: int) -> str:
    """Return a sentence with the outcomes that were drawn, over all seeds."""
    jobs, hours, asked = dict.fromkeys(("completed", "failed", "killed"), 0.0), {}, 0
    for seed in range(seeds):
        name, overrides = WORKLOADS[workload]
        scenario = clustergym.load_scenario(name, [*overrides, f"trace.outcomes={workload}"], seed=seed)
        facts = scenario.trace.provenance["outcomes"]
        asked += facts["asked_as_ran"]
        for kind in jobs:
            jobs[kind] += facts["shares"][kind]["jobs"]
            hours[kind] = hours.get(kind, 0.0) + facts["shares"][kind]["gpu_hours"]
    total, time = sum(jobs.values()), sum(hours.values())
    parts = ", ".join(f"{kind} {jobs[kind] / total:.1%} ({hours[kind] / time:.1%})" for kind in jobs)
    return f"Drawn, by jobs (by GPU time): {parts}; {asked} of {total:.0f} jobs ask for what they ran."


def row(name: str, means: Floats, places: Sequence[int]) -> tuple[str, ...]:
    """Return the row of a policy from its means over seeds, shape (kept, 2), and its three ranks."""
    (old, _), (new, done) = means
    first, then, by_done = map(str, places)
    return (
        *(name, policy_of(name).information_class.value, f"{old / 3600:.2f} h", f"{new / 3600:.2f} h"),
        *(f"{new / old:.2f}", first, then, f"{done / 3600:.2f} h", by_done),
    )


def block(workload: str, figures: Floats, seeds: int) -> str:
    """Return the table of a workload from figures of shape (policies, seeds, kept, 2)."""
    means = figures.mean(axis=1)
    places = zip(ranks(means[:, 0, 0]), ranks(means[:, 1, 0]), ranks(means[:, 1, 1]), strict=True)
    columns = sorted(zip(POLICIES, means, places, strict=True), key=lambda column: column[2][0])
    rows = [row(*column) for column in columns]
    return f"{shares_line(workload, seeds)}\n\n{table(HEADERS, rows, words=(0, 1))}\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Run everything and write the page's tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args(argv)
    cells = [
        (workload, seed, name, kept)
        for workload in WORKLOADS
        for name in POLICIES
        for seed in range(args.seeds)
        for kept in (False, True)
    ]
    found = np.array(list(in_order(run, cells, args.processes, "runs")))
    figures = found.reshape(len(WORKLOADS), len(POLICIES), args.seeds, 2, 2)
    blocks = {name: block(name, figures[at], args.seeds) for at, name in enumerate(WORKLOADS)}
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(BLOCK.sub(lambda at: at[1] + "\n" + blocks[at[2]] + "\n" + at[3], text), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
