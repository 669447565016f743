"""A board of one scenario that is small enough to be run in a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def small_board(seeds: Sequence[int]) -> dict[str, Any]:
    """Return a board.yaml: 24 jobs, at a load at which they queue, on 16 GPUs, with each seed."""
    overrides = ["scenario=testbed", "cluster=arena-16", "trace=philly-like", "trace.jobs=24"]
    return {
        "name": "small",
        "version": 1,
        "title": "Small",
        "summary": "Jobs.",
        "metric": "jct_mean",
        "better": "lower",
        "split": "test",
        "seeds": list(seeds),
        "placer": {"name": "buddy"},
        "reference": {"name": "srtf"},
        "scenarios": [
            {"name": "philly", "overrides": [*overrides, "trace.load=6.0", "trace.max_duration_s=3600"]}
        ],
    }
