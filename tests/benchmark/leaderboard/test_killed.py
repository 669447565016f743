"""An entry whose making is killed: incomplete and refused, until the same command has gone on with it."""

import os
import signal
import subprocess
import sys
import time

import pytest
from boards import frozen, small_board
from error_lines import error_line

from clustergym.benchmark.leaderboard.entry import read_results
from clustergym.commands.leaderboard import main

BOARD = small_board((5, 6, 9))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A board of three cells with one whole entry."""
    folder = tmp_path_factory.mktemp("boards")
    frozen(folder, BOARD)
    assert main(["--root", str(folder), "add", "small", "whole", "policy=las"]) == 0
    return folder


@pytest.mark.parametrize("cells", [0, 1])
def test_a_killed_add_is_refused_and_then_goes_on(cells, root, capsys):
    folder = root / "small" / f"killed-{cells}"
    command = [sys.executable, "-m", "clustergym.leaderboard", "--root", str(root)]
    process = subprocess.Popen(
        [*command, "add", "small", folder.name, "policy=las", "--workers", "1"], stderr=subprocess.DEVNULL
    )
    # entry.yaml is the last of the files it begins with.
    rows, last = folder / "results.csv", folder / "entry.yaml"
    while not last.is_file() or len(rows.read_text().splitlines()) <= cells:
        assert process.poll() is None
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    # The next row may have been written in between.
    there = len(read_results(folder))
    assert cells <= there
    if there < 3:
        assert main(["--root", str(root), "check", "small", folder.name]) == 2
        assert "missing cell: philly-9: has no row in results.csv" in capsys.readouterr().out
        assert main(["--root", str(root), "render", "small"]) == 2
        error_line(capsys)
    assert main(["--root", str(root), "add", "small", folder.name, "policy=las"]) == 0
    if there < 3:
        assert f"{3 - there} of {3 - there} cells" in capsys.readouterr().err
    assert main(["--root", str(root), "check", "small", folder.name]) == 0
    for name in ("decisions.jsonl.gz", "curves.json"):
        assert (folder / name).read_bytes() == (root / "small" / "whole" / name).read_bytes()
