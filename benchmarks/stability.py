"""How stable the order of schedulers is on the worlds of docs/worlds.md under seven changes.

`python benchmarks/stability.py --cpu-s 600` runs what docs/stability.json lacks until the time is up;
`python benchmarks/results_table.py` makes the table of it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from stability_rules import Change, compute_tau, list_changes, measure_cells

from clustergym.common.errors import exits_on_bad_input
from clustergym.common.tables import table
from clustergym.common.writing import write_text

FIGURES = Path(__file__).parent.parent / "docs" / "stability.json"
SEEDS = (1000, 1001)


class World(NamedTuple):
    """A world that schedulers are run on.

    Attributes
    ----------
    title : str
    words : tuple of str
        Words of the configuration.
    capped : tuple of str
        Words that cut durations.
    apart_s : float
        Of the common clock.
    """

    title: str
    words: tuple[str, ...]
    capped: tuple[str, ...]
    apart_s: float = 60.0

    def list_conditions(self) -> dict[str, Change | None]:
        """Return the conditions by name: as it is, and seven changes, of which two are of restarts."""
        changes = {each.name: each for each in list_changes(1.1, 14_400.0, self.apart_s)}
        changes["longest duration"] = Change("longest duration", self.capped)
        return {AS_IT_IS: None, **changes}


AS_IT_IS = "as it is"
FOUR_HOURS = ("trace.max_duration_s=14400", "trace.jobs=6000", "scenario.scored_s=[21600,86400]")
ONE_DAY = ("trace.max_duration_s=86400", "trace.load=0.5")
WORLDS = {
    "llm-2026": World("LLM cluster of 2026", ("scenario=llm-2026",), ONE_DAY, 300.0),
    "testbed": World("Arena's testbed", ("scenario=testbed-v3",), FOUR_HOURS),
    "ares": World("Ares's cluster", ("scenario=ares-v3", "costs.profile_reuse=model"), FOUR_HOURS),
    "scale": World("Arena's simulation", ("scenario=scale-v3",), FOUR_HOURS),
}
CONDITIONS = tuple(WORLDS["testbed"].list_conditions())
NAMED = (
    *("fcfs", "random", "arena", "las", "tiresias"),
    *("fcfs backfill=easy", "srtf", "gavel", "ares", "hesrpt", "sia"),
    *(f"learned checkpoint={known}-newtrace" for known in ("none", "bootstrap", "profiled", "data-parallel")),
)
"""The policies: published and simple ones, the cheapest first, and learned ones."""

Key = tuple[str, str, str, int]
"""World, condition, policy, seed."""


def read_figures(path: Path = FIGURES) -> dict[Key, float]:
    """Return the mean JCT of the scored jobs (s) of each run."""
    if not path.is_file():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {(world, condition, policy, seed): jct_s for world, condition, policy, seed, jct_s in rows}


def write_figures(found: dict[Key, float], path: Path = FIGURES) -> None:
    """Write the figures, a run a line."""
    lines = [json.dumps([*key, jct_s]) for key, jct_s in sorted(found.items())]
    write_text(path, "[\n" + ",\n".join(lines) + "\n]\n")


def compute_relative(found: dict[Key, float], world: str, condition: str) -> dict[str, float]:
    """Return each policy's mean JCT over that of FCFS, mean over the cells that all of them were run in."""
    run = {policy: {seed for seed in SEEDS if (world, condition, policy, seed) in found} for policy in NAMED}
    policies = [policy for policy in NAMED if run[policy]]
    seeds = sorted(set(SEEDS).intersection(*(run[policy] for policy in policies)))
    if not seeds:
        return {}

    def mean_ratio(policy: str) -> float:
        ratios = [
            found[world, condition, policy, seed] / found[world, condition, "fcfs", seed] for seed in seeds
        ]
        return float(np.mean(ratios))

    return {policy: mean_ratio(policy) for policy in policies}


def tabulate_stability() -> str:
    """Return the order of the policies on each world, and Kendall's tau with it under each change."""
    found, rows = read_figures(), []
    for world, condition in product(WORLDS, CONDITIONS):
        usual, changed = (compute_relative(found, world, each) for each in (AS_IT_IS, condition))
        both = [policy for policy in usual if policy in changed]
        if len(both) < 3:
            continue
        tau = compute_tau({one: usual[one] for one in both}, {one: changed[one] for one in both})
        order = sorted(both, key=lambda policy: changed[policy])
        shown = ", ".join(f"{policy} {changed[policy]:.2f}" for policy in order)
        rows.append([WORLDS[world].title, condition, f"{tau:.2f}", shown])
    return table(["world", "what is changed", "tau", "mean JCT, FCFS = 1"], rows, words=(0, 1, 3))


@exits_on_bad_input
def main() -> int:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS), metavar="NAME")
    parser.add_argument("--policies", nargs="+", default=list(NAMED), metavar="NAME")
    parser.add_argument("--conditions", nargs="+", default=list(CONDITIONS), metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, choices=SEEDS, default=list(SEEDS))
    parser.add_argument("--cpu-s", type=float, default=600.0, help="no run starts after so many CPU-seconds")
    options = parser.parse_args()
    found = read_figures()
    for name, seed, condition, policy in product(
        options.worlds, options.seeds, options.conditions, options.policies
    ):
        key = (name, condition, policy, seed)
        if key in found:
            continue
        if time.process_time() > options.cpu_s:
            break
        started = time.process_time()
        change = WORLDS[name].list_conditions()[condition]
        ((_, _, jct_s),) = measure_cells(WORLDS[name].words, change, [policy], [seed])
        found[key] = float(f"{jct_s:.6g}")
        write_figures(found)
        print(*key, f"{jct_s:.0f} s, {time.process_time() - started:.1f} CPU-s", flush=True)
    print(f"wrote {FIGURES}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
