"""The script by which a workflow checks the entries of a pull request, run on a repository made here."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from boards import claims
from entry_logs import Lines, change_headers, change_log, packed_logs

PROJECT = Path(__file__).parents[3]
SCRIPT = PROJECT / ".github" / "comment_on_entries.py"
pytestmark = [pytest.mark.processes, pytest.mark.boards]


def git(folder: Path, *words: str) -> None:
    names = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(made, tmp_path) -> Path:
    """A repository with a small board, to which the entry `mine` is proposed."""
    folder = tmp_path / "repository"
    shutil.copytree(made, folder / "leaderboards")
    shutil.rmtree(folder / "leaderboards/small/placed")
    # The script runs in a process of its own, where no policy of this project counts as that of others.
    claims(folder / "leaderboards/small/mine", policy={"name": "own", "parameters": {}})
    change_headers(folder / "leaderboards/small/mine", policy="own")
    (board,) = (folder / "leaderboards").glob("*/board.yaml")
    shutil.move(board.parent / "mine", tmp_path / "mine")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "the board")
    shutil.move(tmp_path / "mine", board.parent / "mine")
    git(folder, "add", "-A")
    return folder


def comment(folder: Path) -> tuple[int, str]:
    command = [sys.executable, str(SCRIPT), "HEAD", str(folder / "comment.md")]
    done = subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": str(PROJECT)}, check=False)
    return done.returncode, (folder / "comment.md").read_text()


def test_a_good_entry_replays(repository):
    # The table of the board is empty, so that there is nothing to compare it with.
    beside = "replays; the board has no figures of its reference beside it yet."
    assert comment(repository) == (0, f"## Entries\n\n### small/mine\n\n{beside}\n")


def test_an_entry_that_does_not_replay_and_other_changed_files_are_named(repository):
    (entry,) = repository.glob("leaderboards/*/mine")

    def later(lines: Lines) -> Lines:
        return [line | {"time_s": line["time_s"] + 60.0} if "launch" in line else line for line in lines]

    (cell, _), *_ = packed_logs(entry)
    change_log(entry, cell, later)
    (repository / "leaderboards" / "own.py").write_text("print()\n")
    git(repository, "add", "-A")
    status, text = comment(repository)
    assert status == 2
    assert "does not pass `clustergym leaderboard check" in text
    assert "- `leaderboards/own.py`" in text


def test_without_an_entry_nothing_passes(repository):
    git(repository, "commit", "-qm", "the entry")
    assert comment(repository) == (2, "## Entries\n\nNo entry of a board has changed.\n")
