"""A small board with a table, and an entry on it."""

import shutil
from pathlib import Path

import pytest
from boards import enter, write_board


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of boards with an entry of policies, and one of a policy with a placer."""
    root = tmp_path_factory.mktemp("boards")
    write_board(root)
    enter(root, "mine", policy={"name": "srtf"})
    enter(root, "placed", policy={"name": "fcfs"}, placer={"name": "minipod", "algorithm": "best_fit"})
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the boards that a test may change; policies there count as those of others."""
    shutil.copytree(made, tmp_path / "boards")
    monkeypatch.setattr("clustergym.benchmark.leaderboard.entries.is_published", lambda *names: False)
    return tmp_path / "boards"


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have commands without `--workers` work in this process: to start others takes longer than the cells."""
    monkeypatch.setattr("clustergym.common.processes.cores", lambda: 1)
