"""The tables of docs/packing.md: what the gaps to Gavel's published curve of packing come from.

    nice python benchmarks/packing_gaps.py DATA WORK [--seeds 3] [--tables draws long switches] [--write]

runs max-min fairness with jobs packed two to a GPU and not, on streams as those of `reproduce gavel`. It
prints how long the jobs that count in those are, by seed (`draws`), a stream up to the job at which the
published figures end (`long`), and shorter ones with one thing at a time switched (`switches`). `--write`
puts them into the page. DATA is the folder of the published data, WORK keeps finished runs.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import scipy.optimize
from clustergym.papers.gavel_packing import (
    ALL,
    LOADS,
    MEASURED,
    RATES,
    Load,
    draw_trace,
    packing_scenario,
    read_rates,
)
from clustergym.policies.shared import packed_programs

from clustergym.common.arrays import Floats
from clustergym.common.tables import table
from clustergym.policies import gavel
from clustergym.results.measured_run import simulate
from clustergym.results.metrics.statistics import estimate
from clustergym.scenario.registry import make_policy

PAGE = Path(__file__).parent.parent / "docs" / "packing.md"
HOUR_S = 3600.0
TABLES = ("draws", "long", "switches")
TIE = 1e-5
"""What a place of a pair costs, where the least or the greatest number of pairs is chosen among optima."""
Patch = Callable[[], Any]


class Switch(NamedTuple):
    """One thing that is switched: parameters of the policy, or code that is patched."""

    parameters: Mapping[str, Any] = MappingProxyType({})
    patches: tuple[Patch, ...] = ()
    packed_only: bool = False


def _forgets(solve: str, mechanism: str) -> Any:
    solved = getattr(gavel.Gavel, solve)

    def forgetting(self: Any, *given: Any) -> Any:
        found = solved(self, *given)
        for name in ("owed_s", "received_s", "_owed_s", "_received_s"):
            if hasattr(getattr(self, mechanism), name):
                getattr(getattr(self, mechanism), name)[...] = 0.0
        return found

    return patch.object(gavel.Gavel, solve, forgetting)


def _pairs_cost(cost: float) -> Any:
    solved, linprog = packed_programs._solve, scipy.optimize.linprog

    def solve(problem: Any, *given: Any) -> Any:
        pairs = np.append(cost * (problem.second != packed_programs.ALONE), 0.0)
        with patch.object(scipy.optimize, "linprog", lambda aim, **more: linprog(aim + pairs, **more)):
            return solved(problem, *given)

    return patch.object(packed_programs, "_solve", solve)


SWITCHES = {
    "as published": Switch(),
    "what a job is owed begins anew with each solution": Switch(
        patches=(partial(_forgets, "_solve", "_rounds"), partial(_forgets, "_solve_packed", "_packed_rounds"))
    ),
    "of optima that with the most pairs": Switch(patches=(partial(_pairs_cost, -TIE),), packed_only=True),
}
AS_PUBLISHED = "as published"
HEADERS = ("alone, h", "packed, h", "change")
LONG = (Load(5.6, 4000, 5000, 600, (28.96, 19.64)),)
WINDOWS = ((500, 1000), (1000, 1500), (2000, 2500), (4000, 5000))
SHORT = (Load(1.2, 150, 350, 80, (17.67, 19.69)), Load(5.6, 500, 900, 200, (28.96, 19.64)))


@contextmanager
def _switched(switch: Switch) -> Iterator[None]:
    with ExitStack() as stack:
        for enter in switch.patches:
            stack.enter_context(enter())
        yield


def jct_h(work: Path, data: Path, load: Load, seed: int, packed: bool, name: str) -> Floats:
    """Return the JCT of each job of a stream, hours; one that has not ended counts up to the end of the run.

    A finished run is kept in `work`.
    """
    words = f"{load.name} {load.last + load.after} {seed} {packed} {name}"
    path = work / f"{re.sub('[^a-z0-9.]+', '-', words.lower())}.npy"
    if path.exists():
        kept: Floats = np.load(path)
        return kept
    ALL[load.name], switch, started = load, SWITCHES[name], time.process_time()
    scenario = packing_scenario(data, replace(load.spec(()), seed=seed))
    policy = make_policy({"name": "gavel", "packed": packed, **switch.parameters})
    with _switched(switch):
        result = simulate(scenario, policy)
    so_far_s = result.run.simulation.end_s - result.jobs.submit_s
    found: Floats = np.where(np.isfinite(result.jobs.jct_s), result.jobs.jct_s, so_far_s) / HOUR_S
    np.save(path, found)
    print(f"{words}: {time.process_time() - started:.0f} s", file=sys.stderr, flush=True)
    return found


def _cells(pairs: Sequence[tuple[Floats, Floats]], window: slice) -> list[str]:
    """Return the mean JCT alone and packed, and the change with its interval over seeds."""
    alone, packed = (np.array([jct[window].mean() for jct in which]) for which in zip(*pairs, strict=True))
    change = estimate((100 * (packed / alone - 1)).tolist())
    text = f"{change.mean:+.0f} %"
    if change.seeds > 2:
        text += f" [{change.low:+.0f}, {change.high:+.0f}]"
    return [f"{alone.mean():.2f}", f"{packed.mean():.2f}", text]


Pair = Callable[[Load, int, str], tuple[Floats, Floats]]


def draws_table(data: Path, seeds: int) -> str:
    """Return the mean hours on V100 of the jobs that count in the streams of the curve, by seed."""
    rates, lines = read_rates(data / RATES), []
    for load in LOADS:
        cells = []
        for seed in range(seeds):
            trace = draw_trace(load, rates, seed)
            names = (family.rpartition(" x ")[0] for family in trace.model_family)
            hours = trace.iterations / np.array([rates["V100"][name, 1] for name in names]) / HOUR_S
            cells.append(f"{hours[trace.priority == MEASURED].mean():.1f}")
        lines.append([load.name, *cells])
    return table(["stream", *(f"seed {seed}" for seed in range(seeds))], lines, words=(0,))


def long_table(pair: Pair, seeds: int) -> str:
    """Return the table of long streams, by the jobs that count."""
    lines = []
    for load in LONG:
        pairs = [pair(load, seed, AS_PUBLISHED) for seed in range(seeds)]
        for first, last in WINDOWS:
            lines.append([load.name, f"{first:,} to {last:,}", *_cells(pairs, slice(first, last))])
        alone, packed = load.published
        told = [f"{alone:.2f}", f"{packed:.2f}", f"{100 * (packed / alone - 1):+.0f} %"]
        lines.append([load.name, "published", *told])
    return table(["stream", "jobs counted", *HEADERS], lines, words=(0, 1))


def switch_table(pair: Pair, seeds: int, names: Sequence[str]) -> str:
    """Return the table of what each switch changes, at a low and at a high load."""
    lines = []
    for name in names:
        line = [name]
        for load in SHORT:
            base = [pair(load, seed, AS_PUBLISHED) for seed in range(seeds)]
            found = [pair(load, seed, name) for seed in range(seeds)]
            if SWITCHES[name].packed_only:
                found = [(alone, packed) for (alone, _), (_, packed) in zip(base, found, strict=True)]
            line += _cells(found, slice(load.first, load.last))
        lines.append(line)
    headers = [f"{header} at {load.jobs_per_h:g} jobs/h" for load in SHORT for header in HEADERS]
    return table(["switched", *headers], lines, words=(0,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path, help="folder of finished runs")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--switches", nargs="+", choices=SWITCHES, default=list(SWITCHES))
    parser.add_argument("--write", action="store_true", help="put the tables into docs/packing.md")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)

    def pair(load: Load, seed: int, name: str) -> tuple[Floats, Floats]:
        alone = AS_PUBLISHED if SWITCHES[name].packed_only else name
        run = partial(jct_h, options.work, options.data, load, seed)
        return run(False, alone), run(True, name)

    made = {}
    if "draws" in options.tables:
        made["draws"] = draws_table(options.data, options.seeds)
    if "long" in options.tables:
        made["long"] = long_table(pair, options.seeds)
    if "switches" in options.tables:
        made["switches"] = switch_table(pair, options.seeds, options.switches)
    for name, text in made.items():
        print(f"{name}\n\n{text}\n")
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        for name, text in made.items():
            block = re.compile(rf"(<!-- gaps: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
            page = block.sub(lambda match, text=text: f"{match[1]}\n{text}\n\n{match[2]}", page)
        PAGE.write_text(page, encoding="utf-8")
        print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
