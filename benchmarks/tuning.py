"""The best of 20 random settings of published policies, for the entries `NAME, tuned` of the board testbed.

`python benchmarks/tuning.py --policies arena ares` tries the settings of two policies, keeps all mean JCTs in
docs/tuning.json, and prints what enters the best. `python benchmarks/results_table.py` makes the table of it.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from stability_rules import SETTINGS, TRAIN_SEEDS, ParameterRange, choose_tuned

from clustergym.benchmark.leaderboard.board import load_board
from clustergym.common.errors import exits_on_bad_input
from clustergym.common.paths import conf_dir
from clustergym.common.tables import table
from clustergym.common.writing import write_text

FIGURES = Path(__file__).parent.parent / "docs" / "tuning.json"
BOARD, SCENARIO = "testbed", "philly"
FACTOR = 8.0
"""A range is from the published value divided by this to that value times this, unless RANGES has another."""
INTERVAL = ParameterRange(60.0, 1800.0, logarithmic=True)
"""Seconds between decisions (`round_s`), of every policy."""


def scaled(value: float, whole: bool = False) -> ParameterRange:
    """Return the range around a published value."""
    return ParameterRange(max(1, value / FACTOR) if whole else value / FACTOR, value * FACTOR, True, whole)


def scaled_list(*values: float) -> ParameterRange:
    """Return the range of a list of values that are scaled together."""
    return ParameterRange(1 / FACTOR, FACTOR, logarithmic=True, times=values)


ARENA = {
    "queue_bounds_h": scaled_list(0.25, 1.0, 4.0, 16.0),
    "promote_after_s": scaled(14_400.0),
    "search_depth": ParameterRange(1, 6, whole=True),
    "round_s": INTERVAL,
}
RANGES: dict[str, dict[str, ParameterRange]] = {
    "hesrpt": {"round_s": INTERVAL},
    "arena": ARENA,
    "ares": {"alpha": ParameterRange(0.5, 1.0), "round_s": INTERVAL},
    "optimus": {"round_s": INTERVAL},
    "gandiva": {"slice_s": scaled(3600.0), "round_s": INTERVAL},
    "tiresias": {
        "thresholds_gpu_s": scaled_list(3250.0, 7200.0),
        "promote_knob": ParameterRange(0.0, 16.0),
        "round_s": INTERVAL,
    },
    "gavel": {
        "solve_interval_s": scaled(1920.0),
        "round_s": INTERVAL,
    },
    "sia": {
        "power": ParameterRange(-2.0, -0.1),
        "incentive": ParameterRange(1.0, 8.8, logarithmic=True),
        "round_s": INTERVAL,
    },
    "themis": {
        "fairness": ParameterRange(0.0, 0.95),
        "lease_s": scaled(600.0),
        "round_s": INTERVAL,
    },
    "elasticflow-ls": {"least_slack": scaled(1.0), "round_s": INTERVAL},
    "allox": {"fairness": ParameterRange(0.1, 1.0), "window": scaled(256, whole=True), "round_s": INTERVAL},
    "lucid": {
        "profiler_gpus": ParameterRange(1, 32, logarithmic=True, whole=True),
        "profile_limit_s": scaled(200.0),
        "round_s": INTERVAL,
    },
    "crius": ARENA,
    "pollux": {"power": ParameterRange(-10.0, -0.1), "restart_s": scaled(30.0), "round_s": INTERVAL},
}
"""By policy, in the order in which they are run."""


def read_trials() -> dict[str, dict[str, float]]:
    """Return the mean JCT (s) of each setting that was tried, by policy; the published one is first."""
    found: dict[str, dict[str, float]] = {}
    if FIGURES.is_file():
        found = json.loads(FIGURES.read_text(encoding="utf-8"))
    return found


def find_best(tried: dict[str, float]) -> str:
    """Return the setting with the least mean JCT."""
    return min(tried, key=lambda word: tried[word])


def make_command(policy: str, best: str) -> str:
    """Return the command that enters a policy with a setting."""
    title = load_board(BOARD).folder / policy / "entry.yaml"
    named = str(yaml.safe_load(title.read_text(encoding="utf-8"))["title"]).partition(",")[0]
    words = [f"policy={policy}", *(f"policy.{word}" for word in best.split()[1:])]
    return shlex.join(["add", f"tuned-{policy}", f"{named}, tuned", *words])


def tabulate_tuning() -> str:
    """Return the ranges, the setting that was chosen and what it gains on the train cells, by policy."""
    rows = []
    for policy, tried in read_trials().items():
        published = yaml.safe_load((conf_dir() / "policy" / f"{policy}.yaml").read_text(encoding="utf-8"))
        best = find_best(tried)
        chosen = dict(word.split("=") for word in best.split()[1:])
        usual = tried[policy]
        for name, one in RANGES[policy].items():
            first = name == next(iter(RANGES[policy]))
            hours = [f"{value / 3600:.2f} h" if first else "" for value in (usual, tried[best])]
            value = chosen.get(name, "as published")
            rows.append(
                [policy if first else "", f"`{name}`", tell_value(published[name]), tell(one), value, *hours]
            )
    heads = ["policy", "parameter", "published", "range", "chosen", "mean JCT, published", "tuned"]
    return table(heads, rows, words=range(5))


def tell(one: ParameterRange) -> str:
    """Return a range in words."""
    words = f"{one.low:g} to {one.high:g}"
    words += " times the published values" if one.times else ""
    return words + (", logarithmic" if one.logarithmic else "")


def tell_value(value: Any) -> str:
    """Return a parameter's value in words."""
    return "none" if value is None else str(value).replace(" ", "")


@exits_on_bad_input
def main() -> int:
    """Try the settings of the named policies that docs/tuning.json lacks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", nargs="+", choices=RANGES, default=list(RANGES), metavar="NAME")
    parser.add_argument(
        "--cpu-s", type=float, default=600.0, help="no policy starts after so many CPU-seconds"
    )
    options = parser.parse_args()
    found = read_trials()
    scenario = next(one for one in load_board(BOARD).scenarios if one.name == SCENARIO)
    for policy in options.policies:
        if policy not in found:
            if time.process_time() > options.cpu_s:
                break
            started = time.process_time()
            _, tried = choose_tuned(
                policy,
                RANGES[policy],
                scenario.overrides,
                TRAIN_SEEDS,
                SETTINGS,
                lambda said: print(said, flush=True),
            )
            found[policy] = {word: float(f"{jct_s:.6g}") for word, jct_s in tried}
            write_text(FIGURES, json.dumps(found, indent=1) + "\n")
            print(f"{policy}: {time.process_time() - started:.0f} CPU-seconds", flush=True)
        print(make_command(policy, find_best(found[policy])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
