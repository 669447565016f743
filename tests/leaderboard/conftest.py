"""A small board of two cells, with an entry of fcfs on it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from clustergym.leaderboard.add import add, freeze
from clustergym.leaderboard.board import load_board

BOARD = {
    "name": "small",
    "version": 3,
    "title": "A small board",
    "summary": "Eight jobs, two seeds.",
    "metric": "jct_mean",
    "better": "lower",
    "split": "test",
    "seeds": [5, 6],
    "placer": {"name": "buddy"},
    "reference": {"name": "srtf"},
    "scenarios": [
        {
            "name": "philly",
            "overrides": [
                "scenario=testbed",
                "cluster=arena-16",
                "trace=philly-like",
                "trace.jobs=24",
                "trace.load=6.0",
                "trace.max_duration_s=3600",
            ],
        }
    ],
}


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("boards")
    (root / "small").mkdir()
    (root / "small" / "board.yaml").write_text(yaml.safe_dump(BOARD))
    freeze(load_board("small", root))
    board = load_board("small", root)
    add(board, "first", {"name": "fcfs"}, title="First come")
    add(board, "short", {"name": "srtf"})
    return root


@pytest.fixture
def root(made, tmp_path) -> Path:
    """A copy of the board that a test may change."""
    shutil.copytree(made, tmp_path / "boards")
    return tmp_path / "boards"
