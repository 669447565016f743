"""A live run in lock-step is read, replayed and checked as any other run."""

from __future__ import annotations

import gzip
import json

from checked_entries import check

from clustergym import collect, replay
from clustergym.leaderboard.add import write_runs
from clustergym.leaderboard.board import load_board
from clustergym.leaderboard.cell_logs import pack
from clustergym.leaderboard.cell_replay import FlagKind
from clustergym.leaderboard.entry import ResultRow
from clustergym.leaderboard.run_cells import CellRun
from clustergym.live import __main__ as live
from clustergym.report import __main__ as report

TIMES = {"decision_s_p50": 0.001, "decision_s_p99": 0.001, "wall_s": 1.0}


def run_of(folder, cell, **metrics):
    """Return what an entry has of the run in a folder, with changed metrics."""
    result = json.loads((folder / "result.json").read_text())
    with gzip.open(folder / "decisions.jsonl.gz", "rt") as lines:
        log = pack([json.loads(line) for line in lines])
    count = result["decisions"]["count"]
    return CellRun(ResultRow(cell, result["digest"], count, TIMES, result["metrics"] | metrics), log)


def test_an_entry_of_live_runs_passes_the_check(root, tmp_path, capsys):
    board, runs = load_board("small", root), {}
    (scenario,) = board.scenarios
    quiet = ["report=false", "table=false", "progress=false"]
    for cell in board.cells:
        folder = tmp_path / str(cell)
        words = ["policy=fcfs", "live.engine=fake", f"hydra.run.dir={folder}", *quiet]
        assert live.main([*scenario.overrides, f"seed={cell.seed}", *words]) == 0
        assert replay.main([str(folder)]) == 0
        runs[cell] = run_of(folder, cell)
    assert collect.main([str(folder)]) == 0
    assert report.main([str(folder)]) == 0
    assert capsys.readouterr().out.count(": equal: ") == len(runs)
    write_runs(board.folder / "first", board, runs)
    assert check(board, "first") == []
    runs[cell] = run_of(folder, cell, jct_mean=runs[cell].row.metrics["jct_mean"] * 0.9)
    write_runs(board.folder / "first", board, runs)
    assert [flag.kind for flag in check(board, "first")] == [FlagKind.METRIC]
