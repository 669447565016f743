"""The best known schedules of the boards' worlds, searched for in hindsight: what is left over every row.

    python benchmarks/best_known.py testbed ares llm-2026 scale

On each trace CMA-ES looks for the weights of an auction that give that trace the least mean JCT, with the
times that jobs really take, which cost no profiling. The search begins at the best of `BEGINS`. It is played
on the jobs submitted up to some days after those that are scored, and what it finds once on all. It is no
optimum, and no policy: its weights have seen the trace. Each result is kept in benchmarks/best_known.json
(`--json` names another file) and not searched for again; `python benchmarks/results_table.py` writes the
table.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from committed_figures import load_tables

from clustergym.agents.auction_checkpoints import load
from clustergym.benchmark.leaderboard.board import Cell, load_board
from clustergym.benchmark.leaderboard.cells import BOUND, FigureTable, Place, load_table
from clustergym.common.arrays import Floats
from clustergym.common.progress import track_results
from clustergym.common.tables import table
from clustergym.common.writing import atomic_path
from clustergym.results.measured_run import simulate
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.scenario import Scenario
from clustergym.sim.compiled.scenario_arrays import UncoveredError
from clustergym.sim.stalls import StalledError
from clustergym.training.evolution import start_search
from clustergym.training.simulated_episodes import AuctionEpisode, make_auction_policy

FIGURES = Path(__file__).with_suffix(".json")
AGENT = "learned-clusters"
BEGINS = (
    *("profiled-clusters", "profiled-newtrace", "profiled", "bootstrap-newtrace", "bootstrap"),
    *(
        "data-parallel-newtrace",
        "data-parallel",
        "data-parallel-scale",
        "elastic",
        "elastic-sia",
        "generalist",
    ),
)
CANDIDATES, STEP, DAY_S = 16, 0.3, 86400.0
LIMIT_S = 10 * DAY_S
"""After the scored jobs the search ends a run: some weights restart jobs for ever."""
PUBLISHED = ("published", "guarded")
"""Rules of rows that are a paper's."""


class Search(NamedTuple):
    """How long a world is searched: generations, the seeds of each family, and days after the scored ones."""

    generations: int
    seeds: tuple[int, ...]
    after_s: float


SEARCHES = {
    "testbed": Search(100, (2000, 2001), 2 * DAY_S),
    "ares": Search(40, (2000, 2001, 2002), 2 * DAY_S),
    "llm-2026": Search(4, (2000, 2001, 2002), math.inf),
    "scale": Search(4, (2000, 2001, 2002), 2 * DAY_S),
}
"""As many generations as some minutes a trace allow."""


def open_cell(board: str, family: str, seed: int) -> tuple[Scenario, Any]:
    """Return a cell's scenario and its placer."""
    known = load_board(board)
    figures = load_table(known)
    scenario = known.scenario(Cell(family, seed), figures.keys.overrides(family, ""))
    return scenario, figures.contestants(AGENT)[1]


def play(scenario: Scenario, placer: Any, seed: int, weights: Floats) -> float:
    """Return the mean JCT (s) of an auction with these weights and the times that jobs really take."""
    policy = make_auction_policy(weights, InformationClass.CLAIRVOYANT)
    try:
        return float(simulate(scenario, policy, placer, seed).metrics["jct_mean"])
    except StalledError:
        return math.inf


def prepare(scenario: Scenario, placer: Any, seed: int, after_s: float) -> Callable[[Floats], float]:
    """Return a function of weights: mean JCT (s) with the jobs up to a time after those that are scored."""
    assert scenario.scored_s is not None  # All worlds score the jobs of some days.
    end_s = scenario.scored_s[1]
    rows = np.flatnonzero(scenario.trace.submit_s < end_s + after_s)
    scored = scenario.scored[rows]
    try:  # Compiled episodes are ten times faster, but do not cover all scenarios.
        part = replace(scenario, trace=scenario.trace.take(rows), scored_s=None, horizon_s=end_s + LIMIT_S)
        episode = AuctionEpisode.from_scenario(part, InformationClass.CLAIRVOYANT)
    except UncoveredError:
        return lambda weights: play(scenario, placer, seed, weights)
    return lambda weights: float(episode.run(weights)[scored].mean())


def search(board: str, family: str, seed: int) -> dict[str, Any]:
    """Return the weights that CMA-ES finds for a trace, and their mean JCT on the whole of it."""
    began, own = time.process_time(), SEARCHES[board]
    scenario, placer = open_cell(board, family, seed)
    compute_jct_s = prepare(scenario, placer, seed, own.after_s)
    begins = [load(name).weights for name in BEGINS]
    found = [compute_jct_s(weights) for weights in begins]
    best_s, best = min(found), begins[int(np.argmin(found))]
    cma = start_search(best, STEP, CANDIDATES, seed, diagonal=True)
    for _ in range(own.generations):
        candidates = cma.ask()
        found = [compute_jct_s(weights) for weights in candidates]
        cma.tell(candidates, found)
        if min(found) < best_s:
            best_s, best = min(found), candidates[int(np.argmin(found))]
    best = np.round(best, 6)
    jct_s = play(scenario, placer, seed, best)
    spent_s = round(time.process_time() - began, 1)
    return {"jct_s": jct_s, "cpu_s": spent_s, "weights": best.tolist()}


def read(path: Path = FIGURES) -> dict[str, Any]:
    """Return what was found so far, by board, family and seed."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def find_jcts(one: FigureTable, key: str, jct_s: float) -> dict[str, float]:
    """Return the mean JCTs (s) on a trace: of the rows of a board, and of what was found."""
    _, family, seed = key.split(" | ")
    rows = {
        name: float(row.metrics["jct_mean"])
        for name in one.keys.policies
        if (row := one.rows.get(Place(name, family, int(seed), ""))) is not None and name != BOUND
    }
    published = [rows[name] for name in rows if one.policies[name].rules in PUBLISHED]
    return {
        "reference": rows[one.keys.reference],
        "best published row": min(published),
        "the agent": rows[AGENT],
        "best row": min(rows.values()),
        "best known": min(jct_s, *rows.values()),
        "lower bound": float(one.rows[Place(BOUND, family, int(seed), "")].metrics["jct_mean"]),
    }


def show() -> str:
    """Return the ratios to the reference of each trace's best rows and of what was found, by world."""
    kept, rows, heads = read(), [], ()
    for board in SEARCHES:
        one = load_tables()[board]
        cells = [find_jcts(one, key, of["jct_s"]) for key, of in kept.items() if key.startswith(f"{board} |")]
        if not cells:
            continue
        *heads, over = (*list(cells[0])[1:], "the agent over best known")
        ratios = [[*(cell[name] / cell["reference"] for name in heads)] for cell in cells]
        beside = [cell["the agent"] / cell["best known"] for cell in cells]
        means = np.exp([*np.mean(np.log(ratios), axis=0), np.mean(np.log(beside))])
        rows.append([f"`{board}`", str(len(cells)), *(f"{mean:.2f}" for mean in means)])
        heads = (*heads, over)
    return table(("board", "traces", *heads), rows, words=(0,))


def main(argv: list[str] | None = None) -> int:
    """Search what is missing, and keep it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("board", nargs="+", choices=SEARCHES)
    parser.add_argument("--json", type=Path, default=FIGURES)
    given = parser.parse_args(argv)
    figures = read(given.json)
    cells = [
        (board, family, seed)
        for board in given.board
        for seed in SEARCHES[board].seeds
        for family in load_table(load_board(board)).keys.scenarios
    ]
    for cell in track_results("search", cells, len(cells), wanted=True):
        key = " | ".join(map(str, cell))
        if key not in figures:
            figures[key] = search(*cell)
            lines = ",\n".join(f"{json.dumps(at)}: {json.dumps(of)}" for at, of in sorted(figures.items()))
            with atomic_path(given.json) as temporary:
                temporary.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    print(show())
    print(f"wrote {given.json}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
