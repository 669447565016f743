"""Run schedulers on the worlds of docs/worlds.md as they are and under changes, and keep the figures.

`python benchmarks/worlds.py --cpu-s 600` runs what docs/worlds.json lacks until the time is up;
`python benchmarks/results_table.py` makes the tables of it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import product
from pathlib import Path
from typing import NamedTuple

from clustergym.benchmark.study.stability import Change, list_changes, measure_cells
from clustergym.common.errors import exits_on_bad_input
from clustergym.common.tables import table
from clustergym.common.writing import write_text
from clustergym.scenario.policy import KNOWS
from clustergym.scenario.registry import make_policy

FIGURES = Path(__file__).parent.parent / "docs" / "worlds.json"
SEEDS = (1000, 1001)


class World(NamedTuple):
    """A world that schedulers are run on.

    Attributes
    ----------
    title : str
    words : tuple of str
        Words of the configuration.
    free : str
        Costs where nobody pays for a profile.
    capped : tuple of str
        Words that cut durations.
    apart_s : float
        Of the common clock.
    """

    title: str
    words: tuple[str, ...]
    free: str
    capped: tuple[str, ...]
    apart_s: float = 60.0

    def list_conditions(self) -> dict[str, Change | None]:
        """Return the conditions by name: as published, the other two figures of an entry, six changes."""
        changes = {each.name: each for each in list_changes(1.1, 14_400.0, self.apart_s)}
        changes["longest duration"] = Change("longest duration", self.capped)
        return {AS_IT_IS: None, FREE: Change(FREE, (self.free,)), **changes}


AS_IT_IS, FREE, CLOCK = "as it is", "free profiles", "common clock"
FIGURES_OF_AN_ENTRY = (AS_IT_IS, CLOCK, FREE)
FOUR_HOURS = ("trace.max_duration_s=14400", "trace.jobs=6000", "scenario.scored_s=[21600,86400]")
ONE_DAY = ("trace.max_duration_s=86400", "trace.load=0.5")
WORLDS = {
    "llm-2026": World("LLM cluster of 2026", ("scenario=llm-2026",), "costs.profile={}", ONE_DAY, 300.0),
    "testbed": World("Arena's testbed", ("scenario=testbed-v3",), "costs=profiled-free", FOUR_HOURS),
    "ares": World("Ares's cluster", ("scenario=ares-v3",), "costs=ares-profiled-free", FOUR_HOURS),
    "scale": World("Arena's simulation", ("scenario=scale-v3",), "costs=profiled-free", FOUR_HOURS),
}
CHANGES = tuple(name for name in WORLDS["testbed"].list_conditions() if name not in (AS_IT_IS, FREE))
"""The six changes, of which restarts are two."""
NAMED = (
    *("fcfs", "fcfs backfill=easy", "srtf", "las", "tiresias", "random"),
    *("gavel", "ares", "arena", "sia"),
)
"""The ten policies of the study of stability, the cheapest first."""
MORE = ("gandiva", "optimus", "hesrpt", "learned checkpoint=none", "learned", "learned checkpoint=profiled")
"""Policies that are run as they are, on the common clock and with free profiles alone."""

KINDS = {
    "random": "random",
    "learned": "learned",
    **dict.fromkeys(("fcfs", "srtf", "las"), "simple"),
}

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


def tabulate_worlds() -> str:
    """Return the schedulers that were run as they are, by what they are told: one column a world."""
    found = {key: jct_s for key, jct_s in read_figures().items() if key[1] == AS_IT_IS}
    done = {
        (world, policy): [found[world, AS_IT_IS, policy, seed] for seed in SEEDS]
        for world in WORLDS
        for policy in (*NAMED, *MORE)
        if all((world, AS_IT_IS, policy, seed) in found for seed in SEEDS)
    }
    worlds = [world for world in WORLDS if len([1 for at, _ in done if at == world]) > 2]
    rows = []
    for policy in (*NAMED, *MORE):
        figures = [done.get((world, policy)) for world in worlds]
        if not any(figures):
            continue
        ratios = [
            "-" if each is None else show_cells(each, done[world, "fcfs"])
            for world, each in zip(worlds, figures, strict=True)
        ]
        name, *words = policy.split()
        known = make_policy({"name": name} | dict(word.split("=") for word in words)).information_class
        rows.append([policy, KINDS.get(name, "published"), KNOWS[known], *ratios])
    titles = [WORLDS[world].title for world in worlds]
    return table(["scheduler", "kind", "what it is told", *titles], rows, words=(0, 1, 2))


def show_cells(figures: list[float], base: list[float]) -> str:
    """Return the mean of ratios over cells, and the ratio of each cell."""
    ratios = [mine / other for mine, other in zip(figures, base, strict=True)]
    each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    return f"{sum(ratios) / len(ratios):.2f} ({each})"


@exits_on_bad_input
def main() -> int:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS), metavar="NAME")
    parser.add_argument("--policies", nargs="+", default=[*NAMED, *MORE], metavar="NAME")
    parser.add_argument("--conditions", nargs="+", metavar="NAME", help="all where none is given")
    parser.add_argument("--cpu-s", type=float, default=600.0, help="no run starts after so many CPU-seconds")
    options = parser.parse_args()
    found = read_figures()
    conditions = options.conditions or [*FIGURES_OF_AN_ENTRY, *CHANGES]
    for condition, name, policy, seed in product(conditions, options.worlds, options.policies, SEEDS):
        key = (name, condition, policy, seed)
        if key in found or (policy in MORE and condition not in FIGURES_OF_AN_ENTRY):
            continue
        if time.process_time() > options.cpu_s:
            break
        started = time.process_time()
        change = WORLDS[name].list_conditions()[condition]
        ((_, _, jct_s),) = measure_cells(WORLDS[name].words, change, [policy], [seed])
        found[key] = float(f"{jct_s:.6g}")
        write_figures(found)
        print(*key, f"{jct_s:.0f} s, {time.process_time() - started:.1f} CPU-s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
