"""`clustergym bound [KEY=VALUE …]`: prove what no schedule of a scenario can beat."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from clustergym.common.errors import Parser, exits_on_bad_input


def _parser() -> argparse.ArgumentParser:
    summary = "Prove a bound that no schedule of a scenario can beat, whatever the policy knows."
    parser = Parser(prog="clustergym bound", description=summary, allow_abbrev=False)
    words = "of the scenario, as `clustergym run` takes them: scenario=testbed trace.jobs=100 seed=3"
    parser.add_argument("override", nargs="*", metavar="KEY=VALUE", help=words)
    metric = (
        "jct_mean (default), ftf_mean or tenant_ftf_mean, bounded below; deadline_satisfaction, bounded above"
    )
    parser.add_argument("--metric", default="jct_mean", metavar="NAME", help=metric)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the bound and its certificate")
    return parser


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run `clustergym bound`: prove a bound on a metric that no schedule can beat; return the exit status."""
    options = _parser().parse_args(argv)
    from clustergym.common.writing import write_json
    from clustergym.results.bounds.bounds import build_programme
    from clustergym.results.bounds.price_search import search
    from clustergym.results.bounds.priced_jobs import least_costs
    from clustergym.scenario.by_name import compose
    from clustergym.scenario.scenario_config import build_scenario
    from clustergym.sim.compiled.numba_cache import announce_compilation

    scenario = build_scenario(compose(options.override))
    programme = build_programme(scenario, options.metric)
    announce_compilation(least_costs)

    def report(intervals: int, value: float) -> None:
        print(f"{intervals} intervals: {options.metric} {value:.6g}", file=sys.stderr, flush=True)

    bound = search(programme, report)
    most = options.metric == "deadline_satisfaction"
    side, given = ("at most", "") if most else ("at least", ", where every job that fits somewhere completes")
    print(f"{scenario.name}, {len(scenario.trace)} jobs: {options.metric} is {side} {bound.value:.6g}{given}")
    content = {
        "metric": options.metric,
        "bound": bound.value,
        "scenario": scenario.sha256,
        "refinements": bound.refinements,
        **bound.certificate._asdict(),
    }
    write_json(options.json, content)
    if options.json is not None:
        print(f"wrote {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
