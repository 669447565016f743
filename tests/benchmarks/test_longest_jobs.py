"""Kept figures of longest jobs are what runs come to, with all jobs those of the board's table."""

import importlib
import json
from pathlib import Path

import pytest

from clustergym.benchmark.leaderboard.board import Cell, load_board
from clustergym.benchmark.leaderboard.cells import Place, load_table


def test_a_kept_trace(monkeypatch):
    pytest.importorskip("numba", reason="pip install 'clustergym[learn]'")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    maker, one = importlib.import_module("longest_jobs"), load_table(load_board("ares"))
    kept = json.loads(maker.FIGURES.read_text(encoding="utf-8"))["ares"]["helios 2003"]
    assert maker.measure(one, Cell("helios", 2003)) == kept
    rows = (one.rows[Place(name, "helios", 2003, "")] for name in ("arena", "hesrpt-guarded"))
    arena_s, reference_s = (row.metrics["jct_mean"] for row in rows)
    assert kept["arena"][0] == pytest.approx(arena_s / reference_s, abs=1e-4)
    assert 0 < kept["share"][0] < 1
