"""Write the tables and the picture of docs/live.md from the folders of live runs.

python benchmarks/live_page.py LOCKSTEP SCALED    # each has a folder for each policy
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from clustergym.common.figures import draw_figure
from clustergym.common.tables import percent
from clustergym.common.tables import table as markdown_table

PAGE = Path(__file__).parent.parent / "docs" / "live.md"
POLICIES = ("fcfs", "srtf", "arena", "ares", "sia")
SHOWN = "ares"
"""The policy whose scaled run is drawn."""


def result(folder: Path) -> dict[str, Any]:
    """Return the content of a result.json."""
    content: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return content


def lock_step_table(folder: Path) -> str:
    rows = []
    for policy in POLICIES:
        live, simulated = result(folder / policy), result(folder / policy / "simulated")
        done, calls = live["live"]["completions"], live["live"]["calls"]
        rows.append(
            [
                policy,
                str(live["decisions"]["count"]),
                f"{done['started']}",
                f"{done['same_nodes']}",
                f"{calls['start']['median_ms']:.0f}",
                f"{calls['stop']['median_ms']:.0f}",
                f"`{live['digest'][:12]}`",
                "equal" if live["digest"] == simulated["digest"] else "**differs**",
            ]
        )
    head = ["policy", "decisions", "allocations", "of them in Slurm's log, on the same nodes"]
    return markdown_table([*head, "start, ms", "stop, ms", "digest", "simulator's"], rows)


def scaled_table(folder: Path) -> str:
    rows = []
    for policy in POLICIES:
        live, simulated = result(folder / policy), result(folder / policy / "simulated")
        ours, theirs = live["metrics"]["jct_mean"], simulated["metrics"]["jct_mean"]
        told = live["live"]
        done = told["completions"]
        rows.append(
            [
                policy,
                f"{theirs:,.0f}",
                f"{ours:,.0f}",
                percent(ours / theirs - 1),
                f"{done['same_nodes']} of {done['started']}",
                f"{told['held_gpu_hours']:.2f}",
                f"{done['held_gpu_s'] / 3600:.2f}",
                f"{told['calls']['start']['median_ms']:.0f}",
                f"{told['calls']['stop']['median_ms']:.0f}",
            ]
        )
    head = ["policy", "mean JCT simulated, s", "live, s", "", "allocations in Slurm's log, on the same nodes"]
    head += ["GPU h held by our log", "by Slurm's", "start, ms", "stop, ms"]
    return markdown_table(head, rows)


def events(folder: Path) -> list[dict[str, Any]]:
    """Return the events of a run."""
    with gzip.open(folder / "events.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def held_over_time(folder: Path) -> list[tuple[float, int]]:
    """Return (hour, GPUs held from then on) by a run's event log."""
    held: dict[str, int] = {}
    course = []
    for event in events(folder):
        job = event.get("job_id", "")
        if event["kind"].startswith("profile"):
            key = f"{job} {event['gpu_type']} profile"
            held[key] = event["gpus"] if event["kind"] == "profile_start" else 0
        elif event["kind"] in ("start", "resume", "rescale", "migrate"):
            held[job] = event["gpus"]
        elif event["kind"] in ("preempt", "fail", "complete", "drop"):
            held[job] = 0
        course.append((event["time_s"] / 3600, sum(held.values())))
    return course


def logged_over_time(folder: Path) -> list[tuple[float, int]]:
    """Return (hour, GPUs held from then on) by Slurm's log of ended allocations."""
    changes: dict[float, int] = defaultdict(int)
    with (folder / "completions.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            gpus = len(row["nodes"].split()) * int(row["gpus_per_node"])
            changes[float(row["start_s"])] += gpus
            changes[float(row["end_s"])] -= gpus
    total, course = 0, []
    for time_s, gpus in sorted(changes.items()):
        total += gpus
        course.append((time_s / 3600, total))
    return course


def draw(folder: Path) -> None:
    run = folder / SHOWN

    def fill(figure: Any) -> None:
        axes = figure.subplots()
        curves = (
            ("simulator", held_over_time(run / "simulated"), "#888888", 2.5),
            ("live run", held_over_time(run), "#0060c0", 1.2),
            ("Slurm's own log", logged_over_time(run), "#d04000", 0.8),
        )
        for label, course, colour, width in curves:
            hours, gpus = zip(*course, strict=True)
            axes.step(hours, gpus, where="post", label=label, color=colour, linewidth=width)
        axes.set_xlabel("hours of the run")
        axes.set_ylabel("GPUs held")
        axes.legend(frameon=False)

    draw_figure(PAGE.with_name("live.svg"), (9.0, 3.2), fill)


def main(lock_step: str, scaled: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, table in (
        ("lock-step", lock_step_table(Path(lock_step))),
        ("scaled", scaled_table(Path(scaled))),
    ):
        mark = f"<!-- {name} -->\n"
        found = re.search(re.escape(mark) + r".*?" + re.escape(mark), text, re.DOTALL)
        assert found is not None, name
        text = text.replace(found[0], f"{mark}{table.rstrip()}\n{mark}")
    PAGE.write_text(text, encoding="utf-8")
    draw(Path(scaled))
    print(f"wrote {PAGE} and live.svg")


if __name__ == "__main__":
    main(*sys.argv[1:])
