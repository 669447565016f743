"""What random play, heuristics and the best known weights come to in the tiers, and how long episodes are.

    python benchmarks/tier_table.py burst-16 priority-16 knobs-16 elastic-16 --json tiers.json

On the test traces (or the first `--traces` of them) of each environment. Random play steps the environment:
steps and decision points of an episode, and the share of steps at which the clock moves. Heuristics decide
when its agent does. The best known are the weights of the checkpoint `elastic`, which an evolution strategy
found on other traces, with the environment's information. The score of an agent whose mean JCT is x is
(random - x) / (random - best known).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tiers import TRACES, Judge, find_tier

from clustergym.common.errors import InputError, exits_on_bad_input
from clustergym.common.writing import atomic_path
from clustergym.training.played_traces import HEURISTICS, play_best_known


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
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(argv)
    if not 1 <= given.traces <= TRACES:
        raise InputError(str(given.traces), field="--traces", remedy=f"give 1 to {TRACES}")
    names = [find_tier(tier) for tier in given.tier]
    rows = [measure(name, given.traces) for name in names]
    print(show(rows))
    if given.json is not None:
        with atomic_path(given.json) as temporary:
            temporary.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        print(f"wrote {given.json}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
