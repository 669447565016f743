"""A scheduler's own log of ended allocations beside what a live run says it held."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clustergym.common.writing import atomic_path
from clustergym.live.backend import FinishedAllocation, Part

FILE_NAME = "completions.csv"
COLUMNS = ("allocation", "state", "nodes", "gpus_per_node", "start_s", "end_s")
"""Seconds of the run (in lock-step wall seconds since it began); nodes: numbers with blanks between."""


def compare(
    started: Mapping[str, Part], log: Sequence[FinishedAllocation] | None, run_s: Callable[[float], float]
) -> dict[str, Any] | None:
    """Count which of a run's allocations the scheduler's log has, on which nodes, and how they ended.

    `run_s` returns the second of the run at a time, seconds since 1970.

    Returns
    -------
    dict or None
        `started`: allocations given; `recorded`: of these, how many the log has; `same_nodes`: of these,
        how many on the same nodes; `states`: how often each ended how; `held_gpu_s`: GPU-seconds by the log's
        whole seconds. None: the scheduler keeps no log.
    """
    if log is None:
        return None
    held = {entry.name: entry for entry in log if entry.name in started and entry.nodes}
    states = sorted(entry.state for entry in held.values())
    return {
        "started": len(started),
        "recorded": len(held),
        "same_nodes": sum(entry.nodes == started[name].nodes for name, entry in held.items()),
        "states": {state: states.count(state) for state in dict.fromkeys(states)},
        "held_gpu_s": sum(
            (run_s(entry.end_s) - run_s(entry.start_s)) * len(entry.nodes) * started[name].gpus
            for name, entry in held.items()
        ),
    }


def write_completions(
    folder: Path,
    started: Mapping[str, Part],
    log: Sequence[FinishedAllocation] | None,
    run_s: Callable[[float], float],
) -> None:
    """Write a run's ended allocations to a CSV file; `run_s` converts times of the log to the run's."""
    with atomic_path(folder / FILE_NAME) as path, path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for entry in log or ():
            if entry.name in started and entry.nodes:
                nodes, gpus = " ".join(map(str, entry.nodes)), started[entry.name].gpus
                times = (round(run_s(entry.start_s), 3), round(run_s(entry.end_s), 3))
                writer.writerow((entry.name, entry.state, nodes, gpus, *times))
