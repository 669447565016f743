"""Every figure of the README, of the docs' home page and of docs/results.md, written where it stands.

The tables of docs/metrics.md that follow from the code, too.

`python benchmarks/results_table.py` takes seconds, as boards and claims are committed. With `--runs` it also
runs what is not, about a minute of CPU. tests/test_results_table.py fails where a page is behind.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from typing import Any

import best_known
import longest_jobs
import metric_tables
import why_the_agent_wins
import yaml
from committed_figures import ROOT, count_contents, list_claims, other_boards, state_trust, validated
from figure_changes import describe_changes
from figure_tables import COMPARED, all_tables, compared_table, state_main_findings, world_tables

import clustergym
from clustergym.common.paths import conf_dir
from clustergym.common.processes import cores, in_order
from clustergym.common.tables import table
from clustergym.scenario.registry import make_policy

PAGES = (
    *("README.md", "docs/index.md", "docs/results.md", "docs/concepts.md", "docs/metrics.md"),
    *("docs/artifact-appendix.md", "docs/why-the-learned-agent-wins.md"),
    "docs/learned-agents/checkpoints.md",
)
BLOCK = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

WAITS = {
    "as published": "arena",
    "profiles are free": "arena, free",
    "decides every 60 s, not 300 s": "arena round_s=60",
    "the shortest of the queue first, by estimated run time": "arena queues=run_time",
    "every job may pass a blocked one": "arena overtaking=any",
    "running jobs are halved up to five times to make room, not three": "arena search_depth=5",
}


def make(label: str) -> Any:
    """Return the policy of a file of conf/policy with parameters, as in `ares work_conserving=true`."""
    name, *changes = label.split()
    given = yaml.safe_load((conf_dir() / "policy" / f"{name}.yaml").read_text(encoding="utf-8"))
    return make_policy(
        given | {key: yaml.safe_load(value) for key, value in (one.split("=") for one in changes)}
    )


def run(cell: tuple[str, str]) -> dict[str, float]:
    """Return the metrics of a policy on a scenario, whose name may end in ", free": profiles cost nothing."""
    label, scenario = cell
    name, _, free = scenario.partition(", ")
    loaded = clustergym.load_scenario(name, ["costs=profiled-free"] if free else [])
    return dict(clustergym.simulate(loaded, make(label)).metrics)


def waits(processes: int) -> str:
    """Return how long jobs wait under Arena on `testbed`, with one thing changed at a time."""
    cells = [
        (label.removesuffix(", free"), "testbed, free" if "free" in label else "testbed")
        for label in WAITS.values()
    ]
    metrics = in_order(run, cells, processes)
    rows = [
        [change, *(f"{found[key] / 3600:.2f} h" for key in ("queue_mean", "profile_mean", "jct_mean"))]
        for change, found in zip(WAITS, metrics, strict=True)
    ]
    return table(["Arena on `testbed`", "waits in the queue", "is profiled", "mean JCT"], rows)


BLOCKS = {
    "contents": count_contents,
    "findings": state_main_findings,
    "trust": state_trust,
    "best": compared_table,
    "worlds": all_tables,
    "changes": lambda: describe_changes(world_tables(), COMPARED),
    "boards": other_boards,
    "appendix": list_claims,
    "validated": validated,
    "metrics": metric_tables.metrics,
    "job_columns": metric_tables.job_columns,
    "timeline_columns": metric_tables.timeline_columns,
    "event_kinds": metric_tables.event_kinds,
    **why_the_agent_wins.BLOCKS,
    "best_known": best_known.show,
    "longest_jobs": longest_jobs.show,
}
"""What is made of committed files; the block `waits` is of runs."""


def written(page: str, made: Mapping[str, str]) -> str:
    """Return a page with the blocks that were made in place of those it has."""

    def block(found: re.Match[str]) -> str:
        text = made.get(found[2])
        if text is None:
            return found[0]
        shown = with_docs_links(text) if page.startswith("docs/") else text
        return f"{found[1]}\n{shown}\n\n{found[3]}"

    return BLOCK.sub(block, (ROOT / page).read_text(encoding="utf-8"))


def with_docs_links(text: str) -> str:
    """Return a text whose links lead from docs/ where they led from the repository's root."""
    return re.sub(r"\]\((docs/)?", lambda found: "](" if found[1] else "](../", text)


def main(argv: list[str] | None = None) -> None:
    """Write the pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", action="store_true", help="run the table of docs/concepts.md anew too")
    parser.add_argument("--processes", type=int, default=cores())
    options = parser.parse_args(argv)
    made = {name: make_block() for name, make_block in BLOCKS.items()}
    if options.runs:
        made["waits"] = waits(options.processes)
    for page in PAGES:
        (ROOT / page).write_text(written(page, made), encoding="utf-8")
        print(f"wrote {page}")


if __name__ == "__main__":
    sys.exit(main())
