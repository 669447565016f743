"""Best known schedules are what an auction with the kept weights comes to (table: test_results_table.py)."""

import importlib
import math
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent.parent
CELL = ("testbed", "helios", 2000)


@pytest.fixture
def maker(monkeypatch):
    pytest.importorskip("numba", reason="pip install 'clustergym[learn]'")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("best_known")


def test_kept_weights_have_their_figure_and_compiled_episodes_agree(maker):
    kept = maker.read()[" | ".join(map(str, CELL))]
    scenario, placer = maker.open_cell(*CELL)
    weights = np.array(kept["weights"])
    assert maker.play(scenario, placer, CELL[2], weights) == pytest.approx(kept["jct_s"], rel=1e-9)
    compute_jct_s = maker.prepare(scenario, placer, CELL[2], math.inf)
    assert compute_jct_s(weights) == pytest.approx(kept["jct_s"], rel=1e-9)


def test_what_is_found_is_no_worse_than_any_row(maker):
    # A row with a lower mean JCT than the search's result is the best known itself.
    one = maker.load_tables()["testbed"]
    low, high = (maker.find_jcts(one, " | ".join(map(str, CELL)), jct_s) for jct_s in (1.0, 1e9))
    assert low["best known"] == 1.0
    assert high["best known"] == high["best row"] <= min(high["the agent"], high["best published row"])
    assert high["lower bound"] < high["best known"]
