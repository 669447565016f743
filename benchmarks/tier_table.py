"""What random play, heuristics and the best known weights come to in the tiers, and how long episodes are.

    python benchmarks/tier_table.py burst-16 priority-16 knobs-16 elastic-16 --json tiers.json
    python benchmarks/tier_table.py burst-16 priority-16 elastic-16 --left

On the test traces (or the first `--traces` of them) of each environment. Random play steps the environment:
steps and decision points of an episode, and the share of steps at which the clock moves. Heuristics decide
when its agent does. The best known are the weights of the checkpoint `elastic`, which an evolution strategy
found on other traces, with the environment's information. The score of an agent whose mean JCT is x is
(random - x) / (random - best known).

With `--left` what is left over the best known: mean JCT over that of the best known on the same traces, with
95 % bootstrap intervals over traces, by look-ahead (`clustergym.agents.lookahead`: `DRAWS` draws of arrivals
from those seen) and by the weights that CMA-ES finds on each trace itself, in hindsight.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import clustergym.policies.learned as learned
import numpy as np
from tiers import TRACES, Judge, find_tier

import clustergym
from clustergym.common import random_streams
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError, exits_on_bad_input
from clustergym.common.tables import table
from clustergym.common.writing import atomic_path
from clustergym.results.metrics.statistics import aggregate_paired_ratio
from clustergym.scenario.policy import InformationClass
from clustergym.training.evolution import start_search
from clustergym.training.played_traces import HEURISTICS, best_known_weights, play_best_known, play_weights

DRAWS = 8
CANDIDATES, GENERATIONS, STEP = 16, 15, 0.5
"""Of the search for each trace's weights, which begins at the best known."""


class Ahead(learned.Learned):
    """The best known weights with look-ahead and the information of the environments."""

    @property
    def information_class(self) -> InformationClass:
        """Profiled times, as of the environments."""
        return InformationClass.PROFILED


def measure(name: str, traces: int) -> dict[str, Any]:
    """Return the row of an environment."""
    judge = Judge(name, "test", traces)
    random, parameters = judge.play(judge.draw), judge.envs.single.parameters
    heuristics = {policy: float(judge.simulate(policy).mean()) for policy in HEURISTICS}
    best = min(heuristics, key=lambda policy: heuristics[policy])
    judge.envs.close()
    return {
        "id": name,
        "jobs": parameters.jobs,
        "traces": traces,
        "steps": float(random.steps.mean()),
        "moves_share": float(random.moves.sum() / random.steps.sum()),
        "decisions": float(random.moves.mean()),
        "random_s": float(random.jct_s.mean()),
        "heuristics_s": heuristics,
        "best_heuristic": best,
        "best_known_s": float(play_best_known(parameters, judge.seeds).mean()),
    }


def look_ahead(judge: Judge) -> Floats:
    """Return the mean JCT of each trace by look-ahead, deciding when the environment's agent does."""
    episodes, rng = judge.envs.single.episodes, random_streams.FIRST_EPISODE.generator(0)
    policy = Ahead(rollout=DRAWS, round_s=judge.envs.single.parameters.round_s)
    scenarios = (episodes.choose({"trace_seed": seed}, rng) for seed in judge.seeds)
    return np.array([clustergym.simulate(one, policy).metrics["jct_mean"] for one in scenarios])


def search_in_hindsight(parameters: Any, seeds: list[int]) -> Floats:
    """Return the mean JCT of each trace by the best weights that CMA-ES finds on it."""
    known, best = best_known_weights(), play_best_known(parameters, seeds)
    searches = [start_search(known, STEP, CANDIDATES, at, diagonal=True) for at in range(len(seeds))]
    repeated = [seed for seed in seeds for _ in range(CANDIDATES)]
    for _ in range(GENERATIONS):
        asked = [search.ask() for search in searches]
        found = play_weights(parameters, repeated, np.concatenate(asked)).reshape(len(seeds), CANDIDATES)
        for search, candidates, jct_s in zip(searches, asked, found, strict=True):
            search.tell(candidates, jct_s.tolist())
        best = np.minimum(best, found.min(axis=1))
    return best


def measure_left(name: str, traces: int) -> dict[str, Any]:
    """Return what look-ahead and hindsight come to over the best known, and the CPU-seconds a trace."""
    judge, row = Judge(name, "test", traces), {"id": name, "traces": traces}
    parameters, began = judge.envs.single.parameters, time.process_time()
    known = play_best_known(parameters, judge.seeds)
    for part in ("look_ahead", "hindsight"):
        jct_s = look_ahead(judge) if part == "look_ahead" else search_in_hindsight(parameters, judge.seeds)
        row[part] = aggregate_paired_ratio(jct_s, known)
    judge.envs.close()
    return row | {"cpu_s": (time.process_time() - began) / traces}


def show_left(rows: list[dict[str, Any]]) -> str:
    """Return the table of what is left, in Markdown."""
    shown = [
        (
            f"`{row['id'].removeprefix('ClusterGym/')}`",
            *("{:.3f} [{:.3f}, {:.3f}]".format(*row[part]) for part in ("look_ahead", "hindsight")),
            f"{row['traces']}",
            f"{row['cpu_s']:.1f}",
        )
        for row in rows
    ]
    headers = ("id", "look-ahead over best known", "hindsight over best known", "traces", "CPU-s a trace")
    return table(headers, shown, words=(0,))


def show(rows: list[dict[str, Any]]) -> str:
    """Return the table in Markdown."""
    lines = [
        "| id | jobs | steps | decision points | steps that move the clock | random play, h "
        "| best heuristic, h | best known, h |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        best = row["heuristics_s"][row["best_heuristic"]] / 3600.0
        lines.append(
            f"| `{row['id'].removeprefix('ClusterGym/')}` | {row['jobs']} | {row['steps']:,.0f} "
            f"| {row['decisions']:,.0f} | {row['moves_share']:.0%} | {row['random_s'] / 3600.0:.3f} "
            f"| {best:.3f} (`{row['best_heuristic']}`) | {row['best_known_s'] / 3600.0:.3f} |"
        )
    return "\n".join(lines)


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tier", nargs="+", help="as burst-16")
    parser.add_argument("--traces", type=int, default=TRACES)
    parser.add_argument("--left", action="store_true", help="measure look-ahead and hindsight instead")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(argv)
    if not 1 <= given.traces <= TRACES:
        raise InputError(str(given.traces), field="--traces", remedy=f"give 1 to {TRACES}")
    names = [find_tier(tier) for tier in given.tier]
    rows = [(measure_left if given.left else measure)(name, given.traces) for name in names]
    print((show_left if given.left else show)(rows))
    if given.json is not None:
        with atomic_path(given.json) as temporary:
            temporary.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        print(f"wrote {given.json}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
