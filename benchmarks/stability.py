"""How stable a ranking of policies is under six changes: `python benchmarks/stability.py --world testbed`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from clustergym.benchmark.study.stability import list_changes, measure_stability
from clustergym.common.errors import exits_on_bad_input
from clustergym.common.writing import write_json

POLICIES = (
    "fcfs",
    "fcfs backfill=easy",
    "srtf",
    "las",
    "tiresias",
    "gavel",
    "sia",
    "arena",
    "ares",
    "random",
)
WORLDS = {
    "testbed": ("scenario=testbed", "trace=philly-like", "trace.jobs=100", "trace.load=1.2"),
    "llm-2026": ("scenario=llm-2026",),
}
CAP_S = {"testbed": 14_400.0, "llm-2026": 604_800.0}


@exits_on_bad_input
def main() -> int:
    """Measure, print a table, and write a JSON file if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", choices=WORLDS, default="testbed")
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1000, 1001])
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="KEY=VALUE", help="words of the configuration"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    options = parser.parse_args()
    words = [*WORLDS[options.world], *options.set]
    cap_s = CAP_S[options.world]
    if options.world == "testbed":
        words.append(f"trace.max_duration_s={cap_s:g}")
        cap_s = 604_800.0
    started = time.process_time()
    changes = list_changes(0.8, cap_s)
    found = measure_stability(
        words, options.policies, options.seeds, changes, lambda text: print(text, file=sys.stderr)
    )
    found["cpu_s"] = time.process_time() - started
    order = sorted(found["base"]["relative"], key=lambda name: found["base"]["relative"][name])
    print(f"{'':24}" + "".join(f"{name:>20}" for name in order))
    for name, one in [("as it is", found["base"]), *found["changes"].items()]:
        tau = f"{one['tau']:.2f}" if "tau" in one else ""
        print(
            f"{name:24}" + "".join(f"{one['relative'][policy]:>20.3f}" for policy in order) + f"  tau {tau}"
        )
    if "scores" in found["base"]:
        print(f"{'score':24}" + "".join(f"{found['base']['scores'][policy]:>20.3f}" for policy in order))
    write_json(options.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
