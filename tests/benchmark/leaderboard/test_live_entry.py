"""A live run in lock-step is read, replayed, entered and checked as any other run."""

import json
import shutil

import pytest
from checked_entries import check
from clustergym.operators.commands import live
from error_lines import error_line

from clustergym.benchmark.leaderboard.add import read_runs, write_runs
from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.cell_replay import FlagReason
from clustergym.commands import collect, replay, report
from clustergym.commands.leaderboard import main


def run_live(board, cell, folder):
    (scenario,) = board.scenarios
    quiet = ["report=false", "table=false", "progress=false", f"hydra.run.dir={folder}"]
    given = [*scenario.overrides, f"seed={cell.seed}", "policy=fcfs", "live.engine=fake", *quiet]
    assert live.main(given) == 0


def added(root, *folders, words=("policy=fcfs",)):
    """Return the status of adding an entry of the runs in folders."""
    runs = [word for folder in folders for word in ("--run", str(folder))]
    return main(["--root", str(root), "add", "small", "live", *words, *runs])


def test_an_entry_of_live_runs_passes_the_check(root, tmp_path, capsys):
    board = load_board("small", root)
    folders = [tmp_path / str(cell) for cell in board.cells]
    for cell, folder in zip(board.cells, folders, strict=True):
        run_live(board, cell, folder)
    assert replay.main([str(folder) for folder in folders]) == 0
    assert collect.main([str(folder)]) == 0
    assert report.main([str(folder)]) == 0
    assert capsys.readouterr().out.count(": equal: ") == len(folders)
    assert added(root, *folders) == 0
    # No cell was run again.
    assert "of 2 cells" not in capsys.readouterr().err
    entry = board.folder / "live"
    assert "--run=" in (entry / "entry.yaml").read_text()
    result, runs = json.loads((folder / "result.json").read_text()), read_runs(entry)
    assert runs[cell].row.digest == result["digest"]
    assert runs[cell].row.metrics["jct_mean"] == pytest.approx(result["metrics"]["jct_mean"])
    assert check(board, "live") == []
    runs[cell].row.metrics["jct_mean"] *= 0.9
    write_runs(entry, board, runs)
    assert [flag.reason for flag in check(board, "live")] == [FlagReason.METRIC]


def test_other_runs_are_refused_and_nothing_is_written(root, tmp_path, capsys):
    board = load_board("small", root)
    here, other, changed = (tmp_path / name for name in ("here", "other", "changed"))
    run_live(board, board.cells[0], here)
    result = json.loads((here / "result.json").read_text())
    for folder, key, within in (
        (other, "scenario", {"sha256": "0"}),
        (changed, "metrics", {"jct_mean": 1.0}),
    ):
        shutil.copytree(here, folder)
        (folder / "result.json").write_text(json.dumps(result | {key: result[key] | within}))
    for folders, words, told in (
        ([other], ["policy=fcfs"], "scenario: is no cell of small"),
        ([here], ["policy=srtf"], 'policy: is ["fcfs"'),
        ([here, here], ["policy=fcfs"], "is a run of philly-5"),
        ([changed], ["policy=fcfs"], "does not replay it"),
        ([tmp_path / "none"], ["policy=fcfs"], "result.json"),
    ):
        capsys.readouterr()
        assert added(root, *folders, words=words) == 2
        assert told in error_line(capsys)
        assert not (board.folder / "live").exists()
