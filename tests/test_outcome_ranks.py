"""The tables of docs/job-outcomes.md are what the code gives: the draws, and the rows of quick policies."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
REMEDY = "docs/job-outcomes.md is behind: run `python benchmarks/outcome_ranks.py`"
SEEDS = 3


@pytest.fixture
def outcome_ranks(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("outcome_ranks")


def tables(module):
    """Return the text of each workload's block, and the cells of its rows."""
    text = module.PAGE.read_text(encoding="utf-8")
    found = {name: block[0] for block, name in ((at, at[2]) for at in module.BLOCK.finditer(text))}
    rows = {
        name: re.findall(r"^\| (\S+) \|(.+)\|$", block, re.MULTILINE)[2:] for name, block in found.items()
    }
    cells = {
        name: {first: [c.strip() for c in rest.split("|")] for first, rest in rows[name]} for name in rows
    }
    return found, cells


def test_the_draws_are_current(outcome_ranks):
    blocks, _ = tables(outcome_ranks)
    assert set(blocks) == set(outcome_ranks.WORKLOADS)
    for workload, block in blocks.items():
        assert outcome_ranks.shares_line(workload, SEEDS) in block, REMEDY


@pytest.mark.parametrize("workload", ["philly", "helios"])
def test_ranks_are_those_of_the_times(outcome_ranks, workload):
    cells = tables(outcome_ranks)[1][workload]
    assert list(cells) == sorted(outcome_ranks.POLICIES, key=lambda name: int(cells[name][4]))
    for hours, rank in ((1, 4), (2, 5), (6, 7)):
        by_rank = sorted(cells.values(), key=lambda row: int(row[rank]))
        assert [int(row[rank]) for row in by_rank] == list(range(1, len(cells) + 1))
        times = [float(row[hours].removesuffix(" h")) for row in by_rank]
        assert times == sorted(times)


@pytest.mark.parametrize("name", ["fcfs", "srtf"])
def test_rows_are_current(outcome_ranks, name):
    cells = tables(outcome_ranks)[1]["helios"][name]
    figures = [
        [outcome_ranks.run(("helios", seed, name, kept)) for kept in (False, True)] for seed in range(SEEDS)
    ]
    places = [int(cells[at]) for at in (4, 5, 7)]
    assert list(outcome_ranks.row(name, np.mean(figures, axis=0), places)[1:]) == cells, REMEDY
