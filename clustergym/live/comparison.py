"""Compare a live run with the simulation of the same run."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any


def first_difference(live: Path, simulated: Path) -> str:
    """Describe the first event in which the event logs of two folders differ; empty if they are equal."""
    pairs = zip_longest(_events(live), _events(simulated), fillvalue="nothing")
    for number, (ours, theirs) in enumerate(pairs, start=1):
        if ours != theirs:
            return f"event {number}: live {ours}, simulated {theirs}"
    return ""


def _events(folder: Path) -> Iterator[str]:
    with gzip.open(folder / "events.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield line.strip()


def call_lines(live: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines of text on a live run's calls and the scheduler's log, from `live` in its result.json."""
    calls = ", ".join(
        f"{told['count']} {call} ({told['median_ms']:.0f} ms, at most {told['max_ms']:.0f})"
        for call, told in live["calls"].items()
    )
    yield f"run {live['run']} on {live['scheduler']}: {calls or 'no calls'}; ms: median until confirmed"
    done = live["completions"]
    if done is None:
        yield "the scheduler keeps no log of ended jobs that can be read"
        return
    states = ", ".join(f"{count} {state}" for state, count in done["states"].items())
    yield (
        f"the scheduler's log has {done['recorded']} of {done['started']} allocations, "
        f"{done['same_nodes']} on the same nodes ({states})"
    )
    if live["seconds_per_hour"]:
        hours = done["held_gpu_s"] / 3600
        ours = live["held_gpu_hours"]
        yield f"by its whole seconds they held {hours:.2f} GPU h, by this run's log {ours:.2f}"
