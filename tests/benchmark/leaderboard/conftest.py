"""Small boards with entries on them: one of policies, one of placers."""

import shutil
from pathlib import Path

import pytest
from boards import frozen, small_board

from clustergym.benchmark.leaderboard.add import add

BOARD = small_board((5, 6)) | {
    "version": 3,
    "title": "A small board",
    "summary": "Eight jobs, two seeds.",
}


PLACERS = {
    "name": "placers",
    "version": 1,
    "title": "A small board of placers",
    "summary": "Eighty jobs, one seed, shared links, nodes that fail.",
    "metric": "jct_mean",
    "better": "lower",
    "split": "test",
    "seeds": [6],
    "tuning_seeds": {"train": [0, 1], "dev": [2]},
    "chooses": "placer",
    "policy": {"name": "sjf"},
    "baseline": {"name": "minipod", "algorithm": "random_fit"},
    "reference": {"name": "buddy"},
    "reference_overrides": ["cluster.fabric.core_oversubscription=1.0"],
    "scenarios": [
        {
            "name": "ii",
            "overrides": [
                "scenario=pretraining",
                "cluster.fabric.core_oversubscription=8.0",
                "scenario.contention=true",
                "scenario.failures.mtbf_s=2000000",
                "trace.jobs=80",
                "trace.load=1.5",
                "trace.min_duration_s=600",
                "trace.max_duration_s=14400",
            ],
        }
    ],
}


@pytest.fixture(scope="session")
def placers_made(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("placers")
    board = frozen(root, PLACERS)
    add(board, "random-fit", {"name": "minipod", "algorithm": "random_fit"}, title="random fit")
    add(board, "moving", {"name": "buddy", "defragment_s": 600.0})
    return root


@pytest.fixture
def placers(placers_made, tmp_path) -> Path:
    """A copy of the board of placers that a test may change."""
    shutil.copytree(placers_made, tmp_path / "placers")
    return tmp_path / "placers"


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("boards")
    board = frozen(root, BOARD)
    add(board, "first", {"name": "fcfs"}, title="First come")
    add(board, "short", {"name": "srtf"})
    return root


@pytest.fixture
def root(made, tmp_path) -> Path:
    """A copy of the board that a test may change."""
    shutil.copytree(made, tmp_path / "boards")
    return tmp_path / "boards"


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have commands without `--workers` work in this process: to start others takes longer than the cells."""
    monkeypatch.setattr("clustergym.common.processes.cores", lambda: 1)
