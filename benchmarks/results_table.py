"""The README's table of results: `python benchmarks/results_table.py`, about four CPU-minutes."""

from __future__ import annotations

import sys
from typing import Any

import yaml

import clustergym
from clustergym.inputs.paths import conf_dir
from clustergym.interface.policy import KNOWS, InformationClass
from clustergym.interface.registry import make_policy
from clustergym.terminal.markdown import table
from clustergym.terminal.processes import cores, in_order

SCENARIOS: dict[str, tuple[str, ...]] = {
    "testbed": (),
    "testbed, free": ("costs=profiled-free",),
    "ares": (),
    "ares-light": (),
}
POLICIES = (
    *("random", "tiresias", "gandiva", "las", "fcfs", "pollux", "sia"),
    *(
        "learned",
        "optimus",
        "ares work_conserving=true",
        "ares",
        "allox",
        "lucid",
        "elasticflow-ls",
        "themis",
    ),
    *("gavel", "hesrpt", "arena-tuned", "arena", "crius", "srtf elastic=true", "srtf", "sjf"),
)
HEADERS = (
    *("knows", "policy", "`testbed`: mean JCT", "free", "p99", "unfair", "restarts"),
    *("`ares`: mean JCT", "p99", "unfair", "`ares-light`: mean JCT", "unfair"),
)


def make(label: str) -> Any:
    """Return the policy of a file of conf/policy with parameters, as in `ares work_conserving=true`."""
    name, *changes = label.split()
    given = yaml.safe_load((conf_dir() / "policy" / f"{name}.yaml").read_text(encoding="utf-8"))
    return make_policy(
        given | {key: yaml.safe_load(value) for key, value in (one.split("=") for one in changes)}
    )


def run(cell: tuple[str, str]) -> dict[str, float]:
    """Return the metrics of a policy on a scenario."""
    label, scenario = cell
    overrides = list(SCENARIOS[scenario])
    return dict(
        clustergym.simulate(clustergym.load_scenario(scenario.split(",")[0], overrides), make(label)).metrics
    )


def row(label: str, found: dict[str, dict[str, float]]) -> list[str]:
    """Return the cells of a policy after its class."""

    def hours(scenario: str, metric: str, decimals: int) -> str:
        return f"{found[scenario][metric] / 3600:.{decimals}f} h"

    def unfair(scenario: str) -> str:
        return f"{100 * found[scenario]['unfair_fraction']:.0f} %"

    cells = [label, hours("testbed", "jct_mean", 2), hours("testbed, free", "jct_mean", 2)]
    cells += [hours("testbed", "jct_p99", 1), unfair("testbed"), f"{found['testbed']['restarts_mean']:.2f}"]
    cells += [hours("ares", "jct_mean", 2), hours("ares", "jct_p99", 1), unfair("ares")]
    return [*cells, hours("ares-light", "jct_mean", 2), unfair("ares-light")]


def main() -> None:
    """Run all cells on all cores and print the table, by class and then by mean JCT on `testbed`."""
    cells = [(label, scenario) for label in POLICIES for scenario in SCENARIOS]
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else cores()
    metrics = dict(zip(cells, in_order(run, cells, processes), strict=True))
    rows = []
    for known in reversed(InformationClass):
        mine = [label for label in POLICIES if make(label).information_class == known]
        mine.sort(key=lambda label: metrics[label, "testbed"]["jct_mean"])
        for label in mine:
            found = {scenario: metrics[label, scenario] for scenario in SCENARIOS}
            rows.append([KNOWS[known] if label == mine[0] else "", *row(label, found)])
    print(table(HEADERS, rows, words=range(len(HEADERS))))


if __name__ == "__main__":
    main()
