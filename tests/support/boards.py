"""A board of one scenario that is small enough to be run in a test, and entries on it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from clustergym.benchmark.leaderboard import entries
from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.cells import FigureTable, load_table

POLICIES = {
    "drawn": {"title": "drawn", "rules": "learned", "policy": {"name": "random"}},
    "srtf": {"title": "SRTF", "rules": "simple", "policy": {"name": "srtf"}},
    "fcfs": {"title": "FCFS", "rules": "simple", "policy": {"name": "fcfs"}},
}
KEYS = {
    "reference": "srtf",
    "first_seed": 1,
    "least": 8,
    "most": 10,
    "width": 0.01,
    "scenarios": {"philly": []},
    "policies": ["srtf", "fcfs", "lower-bound"],
    "conditions": {"late": {"overrides": ["trace.load=3.0"], "seeds": 2, "policies": ["srtf", "fcfs"]}},
    "logged": ["srtf"],
}


def small_board(jobs: int = 24) -> dict[str, Any]:
    """Return a board.yaml: some jobs, at a load at which they queue, on 16 GPUs."""
    overrides = ["scenario=testbed", "cluster=arena-16", "trace=philly-like", f"trace.jobs={jobs}"]
    return {
        "name": "small",
        "version": 1,
        "title": "Small",
        "summary": "Jobs.",
        "metric": "jct_mean",
        "better": "lower",
        "placer": {"name": "buddy"},
        "scenarios": [
            {"name": "philly", "overrides": [*overrides, "trace.load=6.0", "trace.max_duration_s=3600"]}
        ],
    }


def write_board(root: Path, board: Mapping[str, Any] | None = None, **changes: object) -> FigureTable:
    """Write a board, what is run on it, and the policies below a folder, and return its table."""
    content = dict(board or small_board())
    folder = root / content["name"]
    folder.mkdir(parents=True, exist_ok=True)
    (root / "policies.yaml").write_text(yaml.safe_dump({"policies": POLICIES}))
    (folder / "board.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    (folder / "cells.yaml").write_text(yaml.safe_dump(KEYS | changes))
    return load_table(load_board(folder.name, root))


def enter(root: Path, name: str, **chosen: Mapping[str, Any]) -> Path:
    """Enter a policy of this project as if it were that of others."""
    table = load_table(load_board("small", root))
    with mock.patch.object(entries, "is_published", return_value=False):
        return entries.add_entry(table, name, chosen, name, ["A. Author"], "leaderboard add")


def claims(folder: Path, **changes: Any) -> None:
    """Change keys of entry.yaml; None takes one out."""
    path = folder / "entry.yaml"
    content = yaml.safe_load(path.read_text()) | changes
    kept = {key: value for key, value in content.items() if value is not None}
    path.write_text(yaml.safe_dump(kept, allow_unicode=True))
