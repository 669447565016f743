"""The figures of docs/job-outcomes.md: how the ranks of policies change when jobs end as in their logs.

    python benchmarks/outcome_ranks.py [--seeds 6]

runs each policy twice on traces like Philly's and Helios's of each seed, once with every job completing and
once with outcomes drawn by the cluster's published shares, keeps the figures in docs/job-outcomes.json, and
writes the tables into the page. Seeds that the file has are not run again; `--seeds 0` writes the page alone.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import clustergym
from clustergym.common.arrays import Floats
from clustergym.common.paths import conf_dir
from clustergym.common.tables import table
from clustergym.common.writing import write_text
from clustergym.results.metrics.statistics import Aggregate, aggregate_paired_ratio
from clustergym.scenario.registry import make_policy

PAGE = Path(__file__).parent.parent / "docs" / "job-outcomes.md"
FIGURES = PAGE.with_suffix(".json")
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
            # Ranks are compared with and without outcomes, so that what profiling costs stays out of them.
            "costs=ares-profiled-free",
        ),
    ),
}
HEADERS = (
    *("policy", "knows", "JCT, all complete", "JCT, jobs end as logged", "ratio", "rank", "rank then"),
    *("JCT of completed jobs", "rank by it"),
)
SWAPS = ("ahead", "then behind", "ratio of JCTs", "ratio then", "clear")
KINDS = ("completed", "failed", "killed")


class Figures:
    """What a workload's runs have reached.

    Attributes
    ----------
    before, after, completed : dict of str to ndarray of float, shape (seeds,)
        By policy: mean JCT in seconds where every job completes, where jobs end as drawn, and that of the
        jobs that complete then.
    """

    def __init__(self, seeds: Mapping[str, Any]) -> None:
        rows = [seeds[seed]["jct_s"] for seed in sorted(seeds, key=int)]
        columns = {name: np.array([row[name] for row in rows]) for name in POLICIES}
        self.before, self.after, self.completed = (
            {name: column[:, at] for name, column in columns.items()} for at in range(3)
        )


def run_seed(workload: str, seed: int) -> dict[str, Any]:
    """Run all policies on a seed's traces; return what the file keeps of it."""
    scenarios = [scenario_of(workload, seed, choice) for choice in ("ignore", workload)]
    facts = scenarios[1].trace.provenance["outcomes"]
    shares = {kind: [facts["shares"][kind][key] for key in ("jobs", "gpu_hours")] for kind in KINDS}
    found = {name: jcts_of(name, scenarios, seed) for name in POLICIES}
    return {"jct_s": found, "shares": shares, "asked_as_ran": facts["asked_as_ran"]}


def scenario_of(workload: str, seed: int, outcomes: str) -> Any:
    """Return the scenario of a workload and a seed."""
    name, overrides = WORKLOADS[workload]
    return clustergym.load_scenario(name, [*overrides, f"trace.outcomes={outcomes}"], seed=seed)


def jcts_of(name: str, scenarios: Sequence[Any], seed: int) -> list[float]:
    """Return a policy's mean JCTs: of all jobs in both scenarios, and of the second's completed ones."""
    before, after = (clustergym.simulate(one, policy_of(name), seed=seed).metrics for one in scenarios)
    values = before["jct_mean"], after["jct_mean"], after["jct_mean_completed"]
    return [round(float(value or np.nan), 3) for value in values]


def policy_of(name: str) -> Any:
    """Return a policy of conf/policy."""
    given = yaml.safe_load((conf_dir() / "policy" / f"{name}.yaml").read_text(encoding="utf-8"))
    return make_policy(given)


def ranks(values: Mapping[str, Floats]) -> dict[str, int]:
    """Return the rank of each policy by its mean over seeds, from 1 for the least."""
    order = sorted(values, key=lambda name: float(values[name].mean()))
    return {name: at for at, name in enumerate(order, start=1)}


def shares_line(seeds: Mapping[str, Any]) -> str:
    """Return a sentence with the outcomes that were drawn, over all seeds."""
    sums = {kind: np.sum([one["shares"][kind] for one in seeds.values()], axis=0) for kind in KINDS}
    total = np.sum(list(sums.values()), axis=0)
    parts = ", ".join(f"{kind} {(of / total)[0]:.1%} ({(of / total)[1]:.1%})" for kind, of in sums.items())
    asked = sum(one["asked_as_ran"] for one in seeds.values())
    drawn = f"Drawn on {len(seeds)} seeds, by jobs (by GPU time): {parts}"
    return f"{drawn}; {asked} of {total[0]:,.0f} jobs ask for what they ran."


def block(seeds: Mapping[str, Any]) -> str:
    """Return what the page has of a workload."""
    figures = Figures(seeds)
    first, then, by_done = ranks(figures.before), ranks(figures.after), ranks(figures.completed)
    rows = [
        (
            *(name, policy_of(name).information_class.value),
            *(f"{of[name].mean() / 3600:.2f} h" for of in (figures.before, figures.after)),
            *(shown(ratio(figures.after[name], figures.before[name])), str(first[name]), str(then[name])),
            *(f"{figures.completed[name].mean() / 3600:.2f} h", str(by_done[name])),
        )
        for name in first
    ]
    parts = [shares_line(seeds), table(HEADERS, rows, words=(0, 1))]
    for title, later in (
        ("Pairs whose order changes", figures.after),
        ("Pairs whose order by the JCT of completed jobs is another", figures.completed),
    ):
        swaps = swapped(figures.before, later)
        parts.append(f"{title}: {'' if swaps else 'none.'}".rstrip())
        parts += [table(SWAPS, swaps, words=(0, 1, 4))] if swaps else []
    return "\n\n".join(parts) + "\n"


def swapped(before: Mapping[str, Floats], after: Mapping[str, Floats]) -> list[tuple[str, ...]]:
    """Return a row for each pair of policies whose order by mean JCT is another afterwards.

    It is clear if neither interval of the ratio of their means, over the same resampled seeds, has 1 in it.
    """
    rows = []
    for ahead, behind in combinations(ranks(before), 2):
        first, then = (ratio(of[ahead], of[behind]) for of in (before, after))
        if then.value > 1.0:
            clear = "yes" if first.high < 1.0 < then.low else "no"
            rows.append((ahead, behind, shown(first), shown(then), clear))
    return rows


def ratio(mine: Floats, other: Floats) -> Aggregate:
    """Return the ratio of two means over seeds, with its interval."""
    found = aggregate_paired_ratio(mine, other)
    assert found is not None
    return found


def shown(found: Aggregate) -> str:
    """Return a ratio with its interval; the value alone where all seeds have the same."""
    if found.low == found.high:
        return f"{found.value:.2f}"
    return f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"


def page_of(text: str, kept: Mapping[str, Any]) -> str:
    """Return the page with the tables that the kept figures make."""
    return BLOCK.sub(lambda at: at[1] + "\n" + block(kept[at[2]]) + "\n" + at[3], text)


def figures_text(kept: Mapping[str, Any]) -> str:
    """Return the figures as JSON, a line for each seed."""
    parts = []
    for workload, seeds in kept.items():
        lines = ",\n".join(f"{json.dumps(seed)}: {json.dumps(one)}" for seed, one in seeds.items())
        parts.append(f"{json.dumps(workload)}: {{\n{lines}\n}}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the seeds that are missing, and write the page's tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=6)
    args = parser.parse_args(argv)
    kept: dict[str, Any] = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.is_file() else {}
    for seed in range(args.seeds):
        for workload in WORKLOADS:
            done = kept.setdefault(workload, {})
            if str(seed) not in done:
                done[str(seed)] = run_seed(workload, seed)
                write_text(FIGURES, figures_text(kept))
                print(f"{workload}, seed {seed}", file=sys.stderr)
    PAGE.write_text(page_of(PAGE.read_text(encoding="utf-8"), kept), encoding="utf-8")
    print(f"wrote {FIGURES} and {PAGE}")


if __name__ == "__main__":
    main()
